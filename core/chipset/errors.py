"""Errors of the core. The text names the fault, the value and the way out."""

from __future__ import annotations


class ChipsetError(RuntimeError):
    """A device or plugin cannot be used as asked."""


class UnknownDeviceError(ChipsetError):
    """No plugin has the name, or the index is out of range."""


class PluginError(ChipsetError):
    """A plugin is there but cannot be loaded."""
