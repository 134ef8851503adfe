"""What a plugin's Python package tells the core: one hook, one description.

A package declares an entry point in the group ``chipset.plugins`` whose object has a hook
implementation (a module will do)::

    import chipset

    @chipset.hookimpl
    def chipset_plugin() -> chipset.PluginDescription:
        return chipset.PluginDescription(name="mychip", library=".../libchipset_mychip.so")
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pluggy

PROJECT = "chipset"
ENTRY_POINT_GROUP = "chipset.plugins"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class PluginDescription:
    """What the core must know to find, show and launch a plugin. Making one must cost nothing:
    no driver is loaded, no library opened.

    Attributes:
        name: as in ``--device NAME``; lower-case letters, digits and ``_``, a letter first.
        library: path of the shared library that exports ``chipset_plugin``; or None for an
            adopted device.
        torch_device: the type of an existing torch device that is adopted instead (``"cuda"``).
        torch_module: a module to import so that torch knows that device (``"torch_npu"``).
        version: the plugin's own version; empty: the library tells.
        emulated: True if no device of this plugin is a real chip.
        options: launch options that the library reads through ``host->option``; an environment
            variable ``CHIPSET_<NAME>_<OPTION>`` replaces or adds one.
        install_hint: what to install when its driver is missing, as a command or a sentence.
    """

    name: str
    library: str | Path | None = None
    torch_device: str | None = None
    torch_module: str | None = None
    version: str = ""
    emulated: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    install_hint: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"plugin name {self.name!r} is not lower-case letters, digits and '_' "
                "beginning with a letter"
            )
        if self.name in ("torch", "chip"):
            raise ValueError(f"plugin name {self.name!r} is taken by Chipset itself")
        if (self.library is None) == (self.torch_device is None):
            raise ValueError(
                f"plugin '{self.name}' must give either library or torch_device, and not both"
            )


@hookspec
def chipset_plugin() -> PluginDescription | Sequence[PluginDescription]:  # type: ignore[empty-body]
    """Describe the plugin, or several if the package brings more than one."""
