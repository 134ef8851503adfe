"""hello_chip: a model of a small accelerator card, as a worked example of a plugin."""

from __future__ import annotations

import sys
from pathlib import Path

import chipset


@chipset.hookimpl
def chipset_plugin() -> chipset.PluginDescription:
    """Describes the plugin; opens nothing."""
    return chipset.PluginDescription(
        name="hello",
        library=Path(__file__).with_name("libchipset_hello.so"),
        emulated=True,
    )


plugin = sys.modules[__name__]
