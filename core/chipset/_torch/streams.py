"""Streams and events of ``torch.chip``: torch's generic ones, with the chip as default."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from chipset._torch.target import Target, index_of


class Stream(torch.Stream):
    """A queue of work on one chip, from a pool as CUDA's streams are.

    Args:
        device: of the stream; default: the current device.
        priority: 0 is normal, negative is more urgent.
    """

    def __new__(cls, device: Target = None, priority: int = 0, **kwargs: Any) -> Stream:
        if "stream_id" in kwargs:
            stream: Stream = super().__new__(cls, priority=priority, **kwargs)
            return stream
        made: Stream = super().__new__(
            cls, device=torch.device("chip", index_of(device)), priority=priority
        )
        return made


class Event(torch.Event):
    """A point in a stream. Calling it gives a torch.Event of the chip.

    Torch compares the exact type of an event, so that an instance of a subclass cannot be used
    with its own functions.

    Args:
        enable_timing: whether ``elapsed_time`` may be asked.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        return torch.Event(
            device="chip",
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )


def current_stream(device: Target = None) -> torch.Stream:
    return torch.accelerator.current_stream(index_of(device))


def default_stream(device: Target = None) -> torch.Stream:
    return torch.Stream(stream_id=0, device_index=index_of(device), device_type=_device_type())


def _device_type() -> int:
    # torch's number for its out-of-tree device.
    return int(torch._C._autograd.DeviceType.PrivateUse1.value)


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


class StreamContext:
    """Makes a stream (and its device) current within a ``with`` block; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            self.stream.__exit__(kind, value, traceback)


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)


def synchronize(device: Target = None) -> None:
    """Waits until all streams of the device have run; faults of enqueued work are raised here."""
    torch.accelerator.synchronize(index_of(device))
