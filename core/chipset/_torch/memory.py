"""Memory of a chip: what the caching allocator holds and gives."""

from __future__ import annotations

from typing import Any

import torch

from chipset import _runtime
from chipset._torch.target import Target, index_of


def empty_cache() -> None:
    """Gives cached memory that no tensor uses back to the devices."""
    torch.accelerator.memory.empty_cache()


def memory_stats(device: Target = None) -> dict[str, Any]:
    """As torch.accelerator.memory.memory_stats: ``allocated_bytes.all.peak`` and so on."""
    return dict(torch.accelerator.memory.memory_stats(index_of(device)))


def memory_allocated(device: Target = None) -> int:
    """Bytes that tensors hold now."""
    return torch.accelerator.memory.memory_allocated(index_of(device))


def max_memory_allocated(device: Target = None) -> int:
    return torch.accelerator.memory.max_memory_allocated(index_of(device))


def memory_reserved(device: Target = None) -> int:
    """Bytes taken from the device: those of tensors and those cached."""
    return torch.accelerator.memory.memory_reserved(index_of(device))


def max_memory_reserved(device: Target = None) -> int:
    return torch.accelerator.memory.max_memory_reserved(index_of(device))


def reset_peak_memory_stats(device: Target = None) -> None:
    torch.accelerator.memory.reset_peak_memory_stats(index_of(device))


def reset_accumulated_memory_stats(device: Target = None) -> None:
    torch.accelerator.memory.reset_accumulated_memory_stats(index_of(device))


def mem_get_info(device: Target = None) -> tuple[int, int]:
    """Free and total bytes of the device itself."""
    return torch.accelerator.memory.get_memory_info(index_of(device))


def memory_map(device: Target = None) -> str:
    """The text that an out-of-memory error carries: totals, segments, largest free piece."""
    text: str = _runtime.memory_map(index_of(device))
    return text
