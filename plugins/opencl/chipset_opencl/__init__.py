"""OpenCL devices: any with shared virtual memory, of every installed driver."""

from __future__ import annotations

import sys
from pathlib import Path

import chipset

LIBRARY = Path(__file__).with_name("libchipset_opencl.so")


@chipset.hookimpl
def chipset_plugin() -> chipset.PluginDescription:
    """Describes the plugin; opens nothing."""
    return chipset.PluginDescription(
        name="opencl",
        library=LIBRARY,
        version="0.1.0",
        install_hint="install an OpenCL driver, such as Debian's pocl-opencl-icd",
    )


plugin = sys.modules[__name__]
