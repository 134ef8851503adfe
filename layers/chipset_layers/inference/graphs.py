"""Does this device offer captured graphs? One probe, so that nothing else asks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from chipset_layers.errors import LayerError


def graphs_offered(device: torch.device) -> bool:
    """Whether the device's module can capture device calls and replay them without Python."""
    supported = getattr(_device_module(device), "graphs_supported", None)
    return bool(supported is not None and supported(device))


def capture(device: torch.device, work: Callable[[], None]) -> Callable[[], None]:
    """Run ``work`` once outside, once under capture; return the function that replays it.

    ``work`` reads and writes tensors that stay where they are and never waits for the device.
    """
    module = _device_module(device)
    if module is None:
        raise LayerError(f"device '{device}' has no graphs")
    work()  # allocates what is allocated once
    graph = module.Graph()
    # Recorded is what the current device does.
    with torch.accelerator.device_index(device.index), module.graph(graph):
        work()
    replay: Callable[[], None] = graph.replay
    return replay


def _device_module(device: torch.device) -> Any:
    with contextlib.suppress(RuntimeError):
        return torch.get_device_module(device)
    return None
