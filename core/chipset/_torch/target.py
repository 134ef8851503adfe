"""What names a device in ``torch.chip``: an index, ``"chip:1"``, a torch.device, or None."""

from __future__ import annotations

from typing import TypeAlias

import torch

from chipset import _bridge

Target: TypeAlias = "torch.device | str | int | None"


def index_of(device: Target) -> int:
    """The index; the current device's where none is given.

    Raises:
        ValueError: a device of another type.
    """
    if isinstance(device, int):
        return device
    if device is None:
        current: int = _bridge.current_device()
        return current
    parsed = torch.device(device)
    if parsed.type != "chip":
        raise ValueError(f"expected a chip such as 'chip:0', but got '{parsed}'")
    index: int = _bridge.current_device() if parsed.index is None else parsed.index
    return index
