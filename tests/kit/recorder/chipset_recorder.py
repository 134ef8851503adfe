"""The plugin that writes down what the kit would compile, and the run that makes it do so.

``RECORDER_LANGUAGE=cuda RECORDER_FOLDER=out CHIPSET_PLUGINS=chipset_recorder
python -m chipset_recorder`` calls every function of the kit as the cases of conformance level 2
do. The recorder computes nothing, so that the cases fail; they are here for their calls.
"""

from __future__ import annotations

import os
import sys

import chipset


@chipset.hookimpl
def chipset_plugin() -> chipset.PluginDescription:
    """Describes the recorder, whose library ``RECORDER_LIBRARY`` names."""
    return chipset.PluginDescription(
        name="recorder", library=os.environ["RECORDER_LIBRARY"], version="0", emulated=True
    )


plugin = sys.modules[__name__]


def main() -> None:
    """Runs the cases."""
    from chipset_conformance.case import load
    from chipset_conformance.execution import execute

    device = chipset.select("recorder:0")
    for case in load([2]):
        execute(device, case, seed=0)


if __name__ == "__main__":
    main()
