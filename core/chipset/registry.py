"""Finds plugins by entry point, each in isolation: a bad package is a row with a reason."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pluggy

import chipset.hookspec
from chipset.hookspec import ENTRY_POINT_GROUP, PROJECT, PluginDescription

# Plugins of this repository, found without installed metadata when their folder is on the path
# (a source checkout).
SOURCE_PLUGINS = ("cpu", "sim", "opencl")
# Modules with a plugin that is not installed, separated by commas: a vendor's work in progress.
ENVIRONMENT = "CHIPSET_PLUGINS"


@dataclass(frozen=True)
class Found:
    """A plugin as it was found.

    Attributes:
        name: of the plugin, or of the entry point if no description could be had.
        description: None if the package failed.
        reason: why it cannot be used; empty if nothing speaks against it yet.
        origin: distribution and entry point, for messages.
    """

    name: str
    description: PluginDescription | None
    reason: str
    origin: str


def find_plugins() -> dict[str, Found]:
    """Every plugin by name, in the order of discovery. Never raises for a bad plugin."""
    found: dict[str, Found] = {}
    for item in [*_from_environment(), *_from_entry_points(), *_from_source()]:
        known = found.get(item.name)
        if known is None:
            found[item.name] = item
        elif item.origin.startswith("source checkout"):
            continue
        elif known.description != item.description or item.description is None:
            found[item.name] = Found(item.name, None, _twice(known, item), known.origin)
    return found


def _twice(first: Found, second: Found) -> str:
    return (
        f"two plugins are named '{first.name}': {first.origin} and {second.origin}; "
        "uninstall one of them"
    )


@functools.cache
def _entry_points() -> tuple[tuple[metadata.EntryPoint, str], ...]:
    """Entry points with the name of their distribution, each distribution once."""
    seen: set[tuple[str, str, str]] = set()
    result = []
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        owner = point.dist.name if point.dist is not None else "an unnamed distribution"
        key = (owner, point.name, point.value)
        if key not in seen:
            seen.add(key)
            result.append((point, owner))
    return tuple(result)


def _from_entry_points() -> Iterator[Found]:
    for point, owner in _entry_points():
        origin = f"{owner} ({point.value})"
        try:
            descriptions = _describe(point.load(), point.value)
        except Exception as error:
            yield Found(point.name, None, f"{origin} failed: {_one_line(error)}", origin)
            continue
        for description in descriptions:
            yield Found(description.name, description, "", origin)


def _from_environment() -> Iterator[Found]:
    modules = [name.strip() for name in os.environ.get(ENVIRONMENT, "").split(",")]
    for module in filter(None, modules):
        name = module.rpartition(".")[2].removeprefix("chipset_")
        yield from _from_module(name, module, f"{ENVIRONMENT} ({module})")


def _from_source() -> Iterator[Found]:
    for name in SOURCE_PLUGINS:
        module = f"chipset_{name}"
        if importlib.util.find_spec(module) is not None:
            yield from _from_module(name, module, f"source checkout ({module})")


def _from_module(name: str, module: str, origin: str) -> Iterator[Found]:
    try:
        descriptions = _describe(importlib.import_module(module).plugin, module)
    except Exception as error:
        yield Found(name, None, f"{origin} failed: {_one_line(error)}", origin)
        return
    for description in descriptions:
        yield Found(description.name, description, "", origin)


def _describe(plugin: Any, where: str) -> list[PluginDescription]:
    """Calls the hook of one plugin, through a manager of its own."""
    if isinstance(plugin, PluginDescription):
        return [plugin]
    if callable(plugin) and not hasattr(plugin, "chipset_plugin"):
        plugin = SimpleNamespace(chipset_plugin=chipset.hookspec.hookimpl(plugin))
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(chipset.hookspec)
    manager.register(plugin, where)
    manager.check_pending()
    results = manager.hook.chipset_plugin()
    if not results:
        raise TypeError(f"{where} has no hook implementation named chipset_plugin")
    answer = results[0]
    descriptions = [answer] if isinstance(answer, PluginDescription) else list(answer)
    for description in descriptions:
        if not isinstance(description, PluginDescription):
            raise TypeError(
                f"{where}: chipset_plugin returned {description!r}, not a PluginDescription"
            )
    return descriptions


def launch_options(description: PluginDescription) -> dict[str, str]:
    """The description's options, overridden by ``CHIPSET_<NAME>_<OPTION>`` of the environment."""
    options = {key: str(value) for key, value in description.options.items()}
    prefix = f"CHIPSET_{description.name.upper()}_"
    for key, value in os.environ.items():
        if key.startswith(prefix):
            options[key.removeprefix(prefix).lower()] = value
    return options


def library_path(description: PluginDescription) -> str:
    """Absolute path of the plugin's library."""
    return str(Path(str(description.library)).absolute())


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
