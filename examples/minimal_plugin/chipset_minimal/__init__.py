"""A make-believe chip: the smallest Chipset plugin."""

from __future__ import annotations

import sys
from pathlib import Path

import chipset


@chipset.hookimpl
def chipset_plugin() -> chipset.PluginDescription:
    """Describes the plugin; opens nothing."""
    return chipset.PluginDescription(
        name="minimal",
        library=Path(__file__).with_name("libchipset_minimal.so"),
        emulated=True,
    )


plugin = sys.modules[__name__]
