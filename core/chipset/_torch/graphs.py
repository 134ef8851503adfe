"""Graphs: device calls recorded once and replayed without Python."""

from __future__ import annotations

from types import TracebackType

import torch

from chipset import _runtime
from chipset._interface import Capability
from chipset._torch.target import Target, index_of


def graphs_supported(device: Target = None) -> bool:
    """Whether the device can record calls (capability CAPTURE)."""
    return bool(_runtime.device(index_of(device))["capabilities"] & Capability.CAPTURE)


class Graph(torch.accelerator.Graph):
    """A recorded sequence of device calls; see torch.accelerator.Graph."""


class graph:
    """Records the work of a ``with`` block into a graph.

    The block runs on a stream of its own and is not executed; ``graph.replay()`` does that, as
    often as wanted, on the same memory. Anything that needs the host inside the block (a fallback,
    ``.item()``, a copy to or from host memory) raises RuntimeError and ends the recording.

    Args:
        graph: the graph to fill.
        pool: share the memory of another graph: ``other.pool()``.
        stream: the stream to record on; default: one from the pool.
    """

    def __init__(
        self,
        graph: Graph,
        pool: tuple[int, int] | None = None,
        stream: torch.Stream | None = None,
    ) -> None:
        self.graph = graph
        if pool is not None:
            graph.graph_pool = pool
        self._stream = stream

    def __enter__(self) -> None:
        torch.accelerator.synchronize()
        if self._stream is None:
            self._stream = torch.Stream(device="chip")
        self._stream.__enter__()
        try:
            self.graph.capture_begin()
        except BaseException:
            self._stream.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._stream is not None
        try:
            self.graph.capture_end()
        except RuntimeError:
            # The block's own error says more than the capture's that it spoilt.
            if kind is None:
                raise
        finally:
            self._stream.__exit__(kind, value, traceback)
