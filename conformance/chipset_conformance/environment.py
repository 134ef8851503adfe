"""What stands in a certificate about the device, the software and the machine."""

from __future__ import annotations

import dataclasses
import platform
from importlib import metadata
from typing import Any

from chipset import _interface, _runtime
from chipset._interface import Capability
from chipset.device import Device
from chipset.registry import find_plugins

_DISTRIBUTIONS = ("chipset", "chipset-conformance", "numpy", "ml_dtypes", "torch", "transformers")


def about(device: Device) -> dict[str, Any]:
    """The device's description, the plugin's and the suite's versions, the machine."""
    info = dataclasses.asdict(device.info)
    capabilities = [c.name for c in Capability if device.info.capabilities & c]
    description = find_plugins()[device.name].description
    declared = description is not None and description.emulated
    return {
        "emulated": declared or "EMULATED" in capabilities,
        "environment": {
            "device": {**info, "capabilities": capabilities},
            "plugin": {"name": device.name, "version": _runtime.device(device.number)["version"]},
            "interface": f"{_interface.MAJOR}.{_interface.MINOR}",
            "python": platform.python_version(),
            "system": platform.platform(),
            "packages": {name: v for name in _DISTRIBUTIONS if (v := _version(name))},
        },
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
