"""From a name to a device: ``cpu``, ``cpu:1``, ``opencl,cpu``, ``torch:cuda:0``."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from chipset.device import Device, DeviceInfo
from chipset.errors import PluginError, UnknownDeviceError
from chipset.hookspec import PluginDescription
from chipset.registry import Found, find_plugins, launch_options, library_path

DEFAULT = "cpu"
EMULATED = 2  # chipset_capability bit
ADOPTED_TIMEOUT_S = 120


@dataclass
class PluginStatus:
    """A plugin as ``chipset.devices()`` shows it.

    Attributes:
        name: as in ``--device NAME``.
        available: whether it can be used now.
        reason: why not, and what to do; empty if available.
        count: devices present.
        torch_device: the torch device type that layers see, ``"chip"`` or an adopted one.
        emulated: True if its devices are software stand-ins for a chip.
        version: of the plugin.
        devices: one description per device.
    """

    name: str
    available: bool = False
    reason: str = ""
    count: int = 0
    torch_device: str = "chip"
    emulated: bool = False
    version: str = ""
    devices: list[DeviceInfo] = field(default_factory=list)


def devices() -> list[PluginStatus]:
    """Every plugin that is installed, and whether it can be used. Loads none in this process."""
    return [_status(found) for found in find_plugins().values()]


def select(name: str | None = None) -> Device:
    """Launches the plugin or plugins named and returns the device.

    Args:
        name: ``NAME[:INDEX]``, several separated by commas (the first is returned), or
            ``torch:TYPE[:INDEX]`` for any device that torch knows by itself. Default: the
            environment variable CHIPSET_DEVICE, else ``cpu``.

    Raises:
        UnknownDeviceError: no such plugin or index.
        PluginError: the plugin cannot be loaded; the text says why and what to do.
    """
    text = name or os.environ.get("CHIPSET_DEVICE") or DEFAULT
    if text.startswith("torch:"):
        return _adopted(text.removeprefix("torch:"), "torch")
    wanted = [_parse(part) for part in text.split(",")]
    chosen = [(_description(plugin), index) for plugin, index in wanted]
    _launch([description for description, _ in chosen if description.library is not None])
    found = [_device(description, index) for description, index in chosen]
    return found[0]


def _parse(part: str) -> tuple[str, int]:
    match = re.fullmatch(r"\s*([A-Za-z][\w]*)(?::(\d+))?\s*", part)
    if match is None:
        raise UnknownDeviceError(
            f"device '{part}' is not NAME or NAME:INDEX, such as 'cpu' or 'cpu:0'"
        )
    return match[1], int(match[2] or 0)


def _description(name: str) -> PluginDescription:
    plugins = find_plugins()
    found = plugins.get(name)
    if found is None:
        raise UnknownDeviceError(_unknown(name, list(plugins)))
    if found.description is None:
        raise PluginError(f"device '{name}' cannot be used: {found.reason}")
    return found.description


def _unknown(name: str, known: list[str]) -> str:
    text = f"there is no device '{name}'; "
    text += f"installed: {', '.join(sorted(known))}" if known else "no plugin is installed"
    if name == "chip":
        return text + ". 'chip' is what torch calls every chip: name the plugin"
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        text += f". Did you mean '{close[0]}'?"
    return text + " ('chipset devices' shows them all)"


def _launch(descriptions: list[PluginDescription]) -> None:
    from chipset import _runtime

    specs = [(d.name, library_path(d), launch_options(d)) for d in descriptions]
    try:
        _runtime.launch(specs)
    except _runtime.Error as error:
        hint = "; ".join(d.install_hint for d in descriptions if d.install_hint)
        text = str(error).rstrip(".")
        raise PluginError(f"{text}; {hint}" if hint else text) from None


def _device(description: PluginDescription, index: int) -> Device:
    if description.torch_device is not None:
        kind = description.torch_device
        return _adopted(f"{kind}:{index}", description.name, description.torch_module)
    from chipset import _runtime

    try:
        number = _runtime.find_device(description.name, index)
    except _runtime.Error as error:
        raise UnknownDeviceError(str(error)) from None
    return Device(description.name, index, number, DeviceInfo.of(_runtime.device(number)))


def _adopted(text: str, name: str, module: str | None = None) -> Device:
    """A device that torch drives by itself."""
    kind, _, index = text.partition(":")
    if not kind.isidentifier() or (index and not index.isdigit()):
        raise UnknownDeviceError(f"'torch:{text}' is not torch:TYPE or torch:TYPE:INDEX")
    number = int(index or 0)
    info = DeviceInfo(name=f"torch {kind}", vendor="adopted from torch")
    return Device(name, number, number, info, adopted=kind, module=module)


def _status(found: Found) -> PluginStatus:
    status = PluginStatus(found.name, reason=found.reason)
    description = found.description
    if description is None:
        return status
    status.version = description.version
    status.emulated = description.emulated
    if description.torch_device is not None:
        status.torch_device = description.torch_device
        return _adopted_status(status, description)
    from chipset import _runtime

    answer = _launched(description.name) or _runtime.probe(
        (description.name, library_path(description), launch_options(description))
    )
    status.version = description.version or answer["version"]
    status.devices = [DeviceInfo.of(entry) for entry in answer["devices"]]
    status.count = len(status.devices)
    status.available = answer["available"] and status.count > 0
    status.reason = answer["reason"]
    if answer["available"] and status.count == 0:
        status.reason = "its driver works, but no device is present"
    if not status.available and description.install_hint:
        status.reason += f"; {description.install_hint}"
    if status.count:
        all_emulated = all(d.capabilities & EMULATED for d in status.devices)
        status.emulated = status.emulated or all_emulated
    return status


def _launched(name: str) -> dict[str, Any] | None:
    """What this process knows already; a driver in use need not be tried again."""
    from chipset import _runtime

    all_devices = [_runtime.device(i) for i in range(_runtime.device_count())]
    own = [entry for entry in all_devices if entry["plugin"] == name]
    if not own:
        return None
    return {"available": True, "reason": "", "version": own[0]["version"], "devices": own}


def _adopted_status(status: PluginStatus, description: PluginDescription) -> PluginStatus:
    """Asks torch in another process, since this one may not want torch."""
    kind, module = description.torch_device, description.torch_module
    program = f"import torch\n{f'import {module}' if module else ''}\n"
    program += f"print(torch.{kind}.device_count() if torch.{kind}.is_available() else 0)"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=ADOPTED_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        status.reason = f"torch did not answer within {ADOPTED_TIMEOUT_S} s"
        return status
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        status.reason = lines[-1] if lines else f"torch ended with status {done.returncode}"
    else:
        status.count = int(done.stdout.split()[-1])
        status.available = status.count > 0
        if not status.available:
            status.reason = f"torch finds no '{kind}' device"
    if not status.available and description.install_hint:
        status.reason += f"; {description.install_hint}"
    return status
