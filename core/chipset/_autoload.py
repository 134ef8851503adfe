"""What ``import torch`` calls through the entry-point group ``torch.backends``.

An exception here, or in importing this module, would break ``import torch`` itself, for every
program in the environment. So this module imports nothing that could fail, does nothing unless
a device is named, and turns every fault into a warning.
"""

from __future__ import annotations

import os
import warnings


def autoload() -> None:
    """Registers the device named by CHIPSET_DEVICE with torch. Never raises."""
    name = os.environ.get("CHIPSET_DEVICE")
    if not name or name.startswith("torch:"):  # torch knows its own devices
        return
    try:
        import chipset

        _ = chipset.select(name).torch
    except Exception as error:
        text = " ".join(str(error).split())
        warnings.warn(
            f"CHIPSET_DEVICE={name}: torch goes on without it: {type(error).__name__}: {text}",
            RuntimeWarning,
            stacklevel=2,
        )
