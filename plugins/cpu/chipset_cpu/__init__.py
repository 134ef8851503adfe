"""The CPU chip: the reference implementation of every function of the interface."""

from __future__ import annotations

import sys
from pathlib import Path

import chipset

LIBRARY = Path(__file__).with_name("libchipset_cpu.so")


@chipset.hookimpl
def chipset_plugin() -> chipset.PluginDescription:
    """Describes the plugin; opens nothing."""
    return chipset.PluginDescription(
        name="cpu",
        library=LIBRARY,
        version="0.1.0",
        install_hint="build it with 'pip install -e .' in the source tree",
    )


plugin = sys.modules[__name__]
