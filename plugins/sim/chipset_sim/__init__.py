"""The strict simulated chip: forgives nothing, and says what was done wrong.

``CHIPSET_SIM`` sets its options: ``"devices=4,memory=2GiB,mode=random,seed=7"``, or the path of a
TOML file with the same keys, or both (``"my.toml,seed=7"``). See ``docs/sim.md``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import chipset
from chipset_sim.control import (
    calls,
    clear_findings,
    clear_injections,
    findings,
    inject,
    injections,
    live,
    predict,
    predicted_time,
    replay,
    reset_predicted_time,
    tag,
)
from chipset_sim.options import launch_options

__all__ = [
    "calls",
    "chipset_plugin",
    "clear_findings",
    "clear_injections",
    "findings",
    "inject",
    "injections",
    "live",
    "predict",
    "predicted_time",
    "replay",
    "reset_predicted_time",
    "tag",
]

LIBRARY = Path(__file__).with_name("libchipset_sim.so")


@chipset.hookimpl
def chipset_plugin() -> chipset.PluginDescription:
    """Describes the plugin; opens nothing.

    Raises:
        ValueError: ``CHIPSET_SIM`` cannot be read.
    """
    source = os.environ.get("CHIPSET_SIM", "")
    options = launch_options(source)
    return chipset.PluginDescription(
        name="sim",
        library=LIBRARY,
        version="0.1.0",
        emulated=True,
        # The library, which has the list of options, refuses what is not in it.
        # The source is what reports say a run is repeated with.
        options={
            "check": "1",
            **options,
            "given": ";".join(sorted(options.keys() - {"check"})),
            "source": source,
        },
    )


plugin = sys.modules[__name__]
