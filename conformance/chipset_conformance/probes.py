"""What the cases on memory and streams work with: buffers, work in a chosen stream, delays.

Buffers come straight from the plugin's ``mem_alloc``, so that no cache hides or adds an order.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chipset._interface import CopyKind, Dtype, MemoryKind, PointwiseOp, Status
from chipset.driver import NUMPY_DTYPES, DeviceArray, Driver
from chipset_conformance.case import CaseFailure
from chipset_conformance.context import Context

DELAY_S = 0.02  # what a delay aims at; an inline device has none
_LARGEST_DELAY = 2048  # rows of its matrix product
_MOST_REPEATS = 64
_delays: dict[int, tuple[int, int]] = {}  # device number: rows, repeats
_CALIBRATION = threading.Lock()


class _RawMemory:
    """Memory of ``mem_alloc`` in the form that DeviceArray wants; the context frees it."""

    def __init__(self, driver: Driver, address: int, size: int) -> None:
        self.driver = driver
        self.address = address
        self.bytes = size


class Buffer:
    """Device memory as an array of one dtype, and work on it in a stream of choice."""

    def __init__(
        self, ctx: Context, count: int, dtype: Dtype = Dtype.I32, address: int | None = None
    ) -> None:
        self.ctx = ctx
        self.bytes = count * np.dtype(NUMPY_DTYPES[dtype]).itemsize
        self.address = ctx.memory(self.bytes) if address is None else address
        memory: Any = _RawMemory(ctx.chip, self.address, self.bytes)
        self.array = DeviceArray(memory, dtype, (count,))

    @classmethod
    def at(cls, ctx: Context, address: int, count: int) -> Buffer:
        """Memory that somebody else made and frees, as I32."""
        return cls(ctx, count, address=address)

    def fill(self, stream: int, value: float) -> None:
        """Sets every element."""
        enqueue(
            self.ctx,
            stream,
            "pointwise",
            op=PointwiseOp.FILL,
            compute_dtype=self.array.dtype,
            num_inputs=0,
            output=self.array,
            param=[value],
        )

    def combine(self, stream: int, op: PointwiseOp, left: Buffer, right: Buffer | float) -> None:
        """self = left op right, elementwise."""
        operand = right.array if isinstance(right, Buffer) else None
        enqueue(
            self.ctx,
            stream,
            "pointwise",
            op=op,
            compute_dtype=self.array.dtype,
            num_inputs=2,
            output=self.array,
            input=[left.array, operand],
            immediate=[0, 0 if isinstance(right, Buffer) else right],
            param=[1],
        )

    def add(self, stream: int, left: Buffer, right: Buffer | float) -> None:
        """self = left + right."""
        self.combine(stream, PointwiseOp.ADD, left, right)

    def copy_from(self, stream: int, source: Buffer) -> None:
        """A device-to-device ``mem_copy``."""
        copy(self.ctx, stream, self.address, source.address, self.bytes, CopyKind.DEVICE_TO_DEVICE)

    def read(self, stream: int) -> NDArray[Any]:
        """The elements as the stream sees them at this point; waits for it."""
        out = np.empty(self.bytes, np.uint8)
        read_bytes(self.ctx, stream, out, self.address)
        return out.view(NUMPY_DTYPES[self.array.dtype])

    def expect(self, stream: int, value: float, when: str) -> None:
        """Fails unless every element has the value, seen from the stream."""
        got = self.read(stream)
        wrong = np.flatnonzero(got != value)
        if wrong.size:
            raise CaseFailure(
                f"{when}: {wrong.size} of {got.size} elements are not {value}; element "
                f"{wrong[0]} is {got[wrong[0]]}"
            )


def enqueue(ctx: Context, stream: int, function: str, **fields: Any) -> None:
    """Calls a compute function in a stream other than the default one."""
    arguments = ctx.chip.arguments(function, **fields)
    ctx.chip.invoke(function, stream, ctypes.addressof(arguments))


def copy(
    ctx: Context, stream: int, destination: int, source: int, size: int, kind: CopyKind
) -> None:
    """``mem_copy`` of bytes between addresses."""
    ctx.chip.invoke("mem_copy", stream, destination, source, size, int(kind))


def read_bytes(ctx: Context, stream: int, destination: NDArray[np.uint8], address: int) -> None:
    """Copies to pageable host memory in the stream and waits for it."""
    if destination.nbytes == 0:
        return
    target = destination.ctypes.data
    copy(ctx, stream, target, address, destination.nbytes, CopyKind.DEVICE_TO_HOST)
    ctx.chip.invoke("stream_sync", stream)


def write_bytes(ctx: Context, stream: int, address: int, source: NDArray[np.uint8]) -> None:
    """Copies from pageable host memory in the stream and waits for it."""
    if source.nbytes == 0:
        return
    copy(ctx, stream, address, source.ctypes.data, source.nbytes, CopyKind.HOST_TO_DEVICE)
    ctx.chip.invoke("stream_sync", stream)


def pattern(ctx: Context, size: int) -> NDArray[np.uint8]:
    """Random bytes, none of them zero or 0xFF, so that fills and poison stand out."""
    return ctx.rng.integers(1, 255, size, dtype=np.uint8)


class PinnedBuffer:
    """Page-locked host memory of the plugin, as a NumPy array."""

    def __init__(self, ctx: Context, size: int) -> None:
        self.address = ctx.memory(size, MemoryKind.HOST)
        self.array: NDArray[np.uint8] = np.ctypeslib.as_array(
            (ctypes.c_uint8 * size).from_address(self.address)
        )


class Delay:
    """Keeps a stream busy with matrix products for about 20 ms.

    What follows in the stream runs late, and work elsewhere that does not wait for it comes too
    early. Each stream has its own result, so that delays of several streams do not collide.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        with _CALIBRATION:
            number = ctx.device.number
            if number not in _delays:
                _delays[number] = _calibrate(ctx)
            self.rows, self.repeats = _delays[number]
        self._operand = Buffer(ctx, self.rows * self.rows, Dtype.F32)
        self._operand.fill(ctx.chip.stream, 1.0)
        ctx.chip.synchronize()
        self._results: dict[int, Buffer] = {}

    def put(self, stream: int) -> None:
        """Enqueues the delay."""
        if stream not in self._results:
            self._results[stream] = Buffer(self.ctx, self.rows * self.rows, Dtype.F32)
        for _ in range(self.repeats):
            _product(self.ctx, stream, self._operand, self._results[stream], self.rows)


def _product(ctx: Context, stream: int, operand: Buffer, result: Buffer, rows: int) -> None:
    square = (rows, rows)
    a = operand.array.view(square)
    enqueue(ctx, stream, "gemm", a=a, b=a, d=result.array.view(square), alpha=1.0)


def _calibrate(ctx: Context) -> tuple[int, int]:
    """Rows and repeats of a product that take a delay's time."""
    from chipset._interface import Capability

    rows = 64
    if ctx.can(Capability.INLINE):
        return rows, 1
    while True:
        operand = Buffer(ctx, rows * rows, Dtype.F32)
        result = Buffer(ctx, rows * rows, Dtype.F32)
        operand.fill(ctx.chip.stream, 1.0)
        _product(ctx, ctx.chip.stream, operand, result, rows)
        ctx.chip.synchronize()
        start = time.perf_counter()
        _product(ctx, ctx.chip.stream, operand, result, rows)
        ctx.chip.synchronize()
        seconds = time.perf_counter() - start
        if seconds >= DELAY_S / 8 or rows >= _LARGEST_DELAY:
            return rows, min(_MOST_REPEATS, max(1, math.ceil(DELAY_S / seconds)))
        rows *= 2


def in_threads(works: Sequence[Callable[[], None]]) -> None:
    """Runs each in a thread of its own, starting together; raises the first fault."""
    barrier = threading.Barrier(len(works))
    faults: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            barrier.wait()
            work()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def status_of(ctx: Context, function: str, *arguments: Any) -> Status:
    """The status that a call answers."""
    return Status(ctx.chip.status(function, *arguments))
