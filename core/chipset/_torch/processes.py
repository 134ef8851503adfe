"""Tensors of a chip stay in their process."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions


def register() -> None:
    """Sending one to another process is refused with the way out; torch names a function only."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type == "chip":
        raise RuntimeError(
            f"a tensor on '{storage.device}' cannot be sent to another process: a chip's memory "
            "belongs to one process; send tensor.cpu() and move it to a device there"
        )
    return reductions.reduce_storage(storage)
