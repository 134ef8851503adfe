"""``torch.chip``: devices, streams, memory and random numbers of the chips.

Follows ``torch.cuda`` where both have a function; most of it is ``torch.accelerator``.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from chipset import _bridge, _runtime
from chipset._torch import amp as amp
from chipset._torch.graphs import Graph as Graph
from chipset._torch.graphs import graph as graph
from chipset._torch.graphs import graphs_supported as graphs_supported
from chipset._torch.memory import empty_cache as empty_cache
from chipset._torch.memory import max_memory_allocated as max_memory_allocated
from chipset._torch.memory import max_memory_reserved as max_memory_reserved
from chipset._torch.memory import mem_get_info as mem_get_info
from chipset._torch.memory import memory_allocated as memory_allocated
from chipset._torch.memory import memory_map as memory_map
from chipset._torch.memory import memory_reserved as memory_reserved
from chipset._torch.memory import memory_stats as memory_stats
from chipset._torch.memory import reset_accumulated_memory_stats as reset_accumulated_memory_stats
from chipset._torch.memory import reset_peak_memory_stats as reset_peak_memory_stats
from chipset._torch.properties import DeviceProperties as DeviceProperties
from chipset._torch.properties import get_device_capability as get_device_capability
from chipset._torch.properties import get_device_name as get_device_name
from chipset._torch.properties import get_device_properties as get_device_properties
from chipset._torch.properties import is_bf16_supported as is_bf16_supported
from chipset._torch.random import default_generators as default_generators
from chipset._torch.random import get_rng_state as get_rng_state
from chipset._torch.random import get_rng_state_all as get_rng_state_all
from chipset._torch.random import initial_seed as initial_seed
from chipset._torch.random import manual_seed as manual_seed
from chipset._torch.random import manual_seed_all as manual_seed_all
from chipset._torch.random import seed as seed
from chipset._torch.random import seed_all as seed_all
from chipset._torch.random import set_rng_state as set_rng_state
from chipset._torch.random import set_rng_state_all as set_rng_state_all
from chipset._torch.streams import Event as Event
from chipset._torch.streams import Stream as Stream
from chipset._torch.streams import StreamContext as StreamContext
from chipset._torch.streams import current_stream as current_stream
from chipset._torch.streams import default_stream as default_stream
from chipset._torch.streams import set_stream as set_stream
from chipset._torch.streams import stream as stream
from chipset._torch.streams import synchronize as synchronize
from chipset._torch.target import Target, index_of


def is_available() -> bool:
    """True when at least one device was launched (and this is no forked child)."""
    return device_count() > 0


def is_initialized() -> bool:
    return is_available()


def init() -> None:
    """For symmetry with torch.cuda: activation has done it."""


_lazy_init = init
# Activation checkpointing asks it before it saves the generators' states.
_initialized = True


def device_count() -> int:
    count: int = _bridge.device_count()
    return count


def current_device() -> int:
    index: int = _bridge.current_device()
    return index


def set_device(device: Target) -> None:
    """Makes the device this thread's current one.

    Raises:
        RuntimeError: no device has this index.
    """
    _bridge.set_device(index_of(device))


def exchange_device(device: int) -> int:
    previous = current_device()
    if device >= 0:
        _bridge.set_device(device)
    return previous


maybe_exchange_device = exchange_device
_exchange_device = exchange_device
_maybe_exchange_device = exchange_device


class device:
    """Makes a device the current one within a ``with`` block; ``None`` or -1 changes nothing."""

    def __init__(self, device: Target) -> None:
        self.idx = -1 if device is None else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = exchange_device(self.idx)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        exchange_device(self.prev_idx)


class device_of(device):
    """The same with the device of a tensor; a tensor elsewhere changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.device.type == "chip" else None)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16, torch.float32]


def _is_in_bad_fork() -> bool:
    forked: bool = _bridge.in_bad_fork()
    return forked


def can_device_access_peer(device: Target, peer: Target) -> bool:
    """Whether both devices belong to one plugin that copies between them directly."""
    ours, theirs = _runtime.device(index_of(device)), _runtime.device(index_of(peer))
    peer_bit = 16  # chipset_capability PEER
    return bool(ours["plugin"] == theirs["plugin"] and ours["capabilities"] & peer_bit)


def ipc_collect() -> None:
    """For symmetry with torch.cuda: tensors of a chip are not shared between processes."""
