"""The CPU chip: the reference implementation of every function of the interface."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import chipset

LIBRARY = Path(__file__).with_name("libchipset_cpu.so")


def onnxruntime_folder() -> Path | None:
    """Where the wheel of onnxruntime keeps its library; looks, and imports nothing."""
    try:
        spec = importlib.util.find_spec("onnxruntime")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "capi"


@chipset.hookimpl
def chipset_plugin() -> chipset.PluginDescription:
    """Describes the plugin; opens nothing."""
    folder = onnxruntime_folder()
    return chipset.PluginDescription(
        name="cpu",
        library=LIBRARY,
        version="0.1.0",
        options={} if folder is None else {"onnxruntime": str(folder)},
    )


plugin = sys.modules[__name__]
