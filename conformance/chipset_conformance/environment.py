"""What stands in a certificate about the device, the software and the machine."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from chipset import _interface, _runtime
from chipset._interface import Capability
from chipset.device import Device
from chipset.registry import find_plugins, library_path

_DISTRIBUTIONS = ("chipset", "chipset-conformance", "numpy", "ml_dtypes", "torch", "transformers")


def about(device: Device) -> dict[str, Any]:
    """The device's description, the plugin's and the suite's versions, the machine."""
    info = dataclasses.asdict(device.info)
    capabilities = [c.name for c in Capability if device.info.capabilities & c]
    description = find_plugins()[device.name].description
    declared = description is not None and description.emulated
    return {
        "emulated": declared or "EMULATED" in capabilities,
        "libraries": libraries(device.name),
        "environment": {
            "device": {**info, "capabilities": capabilities},
            "plugin": {"name": device.name, "version": _runtime.device(device.number)["version"]},
            "interface": f"{_interface.MAJOR}.{_interface.MINOR}",
            "python": platform.python_version(),
            "system": platform.platform(),
            "packages": {name: v for name in _DISTRIBUTIONS if (v := _version(name))},
        },
    }


def libraries(plugin: str) -> dict[str, str]:
    """SHA-256 of the native code that answers: the plugin's library and the runtime's."""
    files = {"runtime": Path(_runtime.__file__).parent / "lib" / "libchipset_runtime.so"}
    description = find_plugins()[plugin].description
    if description is not None:
        files["plugin"] = Path(library_path(description))
    return {
        name: "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in sorted(files.items())
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
