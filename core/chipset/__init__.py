"""Chipset: one interface between AI frameworks and AI chips.

``import chipset`` imports no torch; ``chipset.select("cpu").torch`` does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chipset.errors import ChipsetError, PluginError, UnknownDeviceError
from chipset.hookspec import PluginDescription, hookimpl

if TYPE_CHECKING:
    from chipset.device import Device
    from chipset.launch import PluginStatus

__version__ = "0.1.0"
__all__ = [
    "ChipsetError",
    "PluginDescription",
    "PluginError",
    "UnknownDeviceError",
    "cmake_dir",
    "composed",
    "devices",
    "fallbacks",
    "hookimpl",
    "include_dir",
    "reset_fallbacks",
    "select",
]

_HERE = Path(__file__).parent


def devices() -> list[PluginStatus]:
    """Every installed plugin: name, available, reason, count, torch_device, emulated, version."""
    from chipset import launch

    return launch.devices()


def select(name: str | None = None) -> Device:
    """The device called ``NAME[:INDEX]``; see :func:`chipset.launch.select`."""
    from chipset import launch

    return launch.select(name)


def fallbacks() -> dict[str, dict[str, int]]:
    """Operators that the host ran for a chip: ``{op: {"count", "bytes"}}``."""
    bridge: Any = sys.modules.get("chipset._torch")
    found: dict[str, dict[str, int]] = bridge.fallbacks() if bridge is not None else {}
    return found


def reset_fallbacks() -> None:
    """Sets the counters of :func:`fallbacks` to zero."""
    bridge: Any = sys.modules.get("chipset._torch")
    if bridge is not None:
        bridge.reset_fallbacks()


def composed() -> dict[str, int]:
    """Optional functions that the core composed from others: ``{"plugin.function": calls}``."""
    from chipset import _runtime

    return dict(_runtime.composed_counts())


def include_dir() -> str:
    """The folder that holds ``chipset/chipset.h``."""
    installed = _HERE / "include"
    return str(installed if installed.is_dir() else _HERE.parents[1] / "csrc" / "include")


def cmake_dir() -> str:
    """The folder for CMake's ``chipset_DIR``."""
    installed = _HERE / "cmake"
    return str(installed if installed.is_dir() else _HERE.parents[1] / "cmake")
