"""How a tensor lies in memory: layouts, and operands whose surroundings are watched.

An :class:`Operand` is one tensor of a call: a view in the middle of a buffer of its own. What lies
around and between its elements is a pattern; after the call the pattern must still be there, and
an input's elements too. A layout maps a shape to strides and an offset; ``expanded`` repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from chipset._interface import CopyKind, Dtype
from chipset.driver import DeviceArray, Driver
from chipset_conformance.numerics import HOST, Array

Shape = tuple[int, ...]
# Gaps of inputs are all ones: NaN in every float format, -1 in every signed one; whoever computes
# with them shows it. Outputs begin as a pattern that no case expects.
INPUT_GAP = 0xFF
OUTPUT_PATTERN = 0xA5
GUARD_ELEMENTS = 24
IGNORED_STRIDE = 1 << 40  # of dimensions of size 1, which nobody may use


@dataclass(frozen=True)
class Placement:
    """Strides and offset of a view, in elements."""

    strides: Shape
    offset: int


def _span(strides: Shape, shape: Shape) -> int:
    """Elements from the first to one past the last that a view touches."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def packed(shape: Sequence[int], order: Sequence[int] | None = None, step: int = 1) -> Shape:
    """Strides of a dense array whose axes lie in the given order, outermost first."""
    strides = [0] * len(shape)
    stride = step
    for axis in reversed(order if order is not None else range(len(shape))):
        strides[axis] = stride
        stride *= max(1, shape[axis])
    return tuple(strides)


def _contiguous(shape: Shape) -> Placement:
    return Placement(packed(shape), GUARD_ELEMENTS)


def _offset(shape: Shape) -> Placement:
    return Placement(packed(shape), GUARD_ELEMENTS + 1)


def _transposed(shape: Shape) -> Placement:
    return Placement(packed(shape, range(len(shape))[::-1]), GUARD_ELEMENTS)


def _permuted(shape: Shape) -> Placement:
    """The first axis last: neither the outer nor the inner order of a transpose."""
    return Placement(packed(shape, [*range(1, len(shape)), 0][: len(shape)]), GUARD_ELEMENTS + 3)


def _sliced(shape: Shape) -> Placement:
    """x[1:, 1:, 1::2], every second element of rows that lie apart."""
    whole = [*(n + 1 for n in shape[:-1]), 2 * shape[-1] + 1] if shape else []
    strides = packed(whole)
    return Placement((*strides[:-1], 2)[: len(shape)], GUARD_ELEMENTS + sum(strides))


def _rows(shape: Shape) -> Placement:
    """Rows that are dense, but lie apart: x[..., :n] of a wider array."""
    whole = [*shape[:-1], shape[-1] + 5] if shape else []
    return Placement(packed(whole), GUARD_ELEMENTS + 2)


def _far(shape: Shape) -> Placement:
    """Strides that have nothing to do with the shape, the smallest outside."""
    strides, stride = [], 1
    for n in shape:
        strides.append(stride)
        stride = stride * max(1, n) + 61
    return Placement(tuple(strides), GUARD_ELEMENTS + 7)


def _expanded(shape: Shape) -> Placement:
    """One row, repeated: the outer half of the axes has stride 0."""
    cut = (len(shape) + 1) // 2
    inner = packed(shape[cut:])
    return Placement((0,) * cut + inner, GUARD_ELEMENTS)


def _column(shape: Shape) -> Placement:
    """One column, repeated: the innermost axis has stride 0."""
    outer = packed(shape[:-1]) if shape else ()
    return Placement((*outer, 0)[: len(shape)], GUARD_ELEMENTS + 1)


# For outputs and inputs.
LAYOUTS: dict[str, Callable[[Shape], Placement]] = {
    "contiguous": _contiguous,
    "offset": _offset,
    "transposed": _transposed,
    "permuted": _permuted,
    "sliced": _sliced,
    "rows": _rows,
    "far": _far,
}
# For inputs only (SHP-002).
REPEATING: dict[str, Callable[[Shape], Placement]] = {"expanded": _expanded, "column": _column}
INPUT_LAYOUTS = {**LAYOUTS, **REPEATING}


@cache
def place(layout: str, shape: Shape) -> Placement:
    """Where a layout puts a tensor; dimensions of size 1 get a stride that must be ignored."""
    placement = INPUT_LAYOUTS[layout](shape)
    if layout == "contiguous":
        return placement
    strides = tuple(IGNORED_STRIDE if n == 1 else s for n, s in zip(shape, placement.strides))
    return Placement(strides, placement.offset)


def usable_strides(shape: Shape, strides: Sequence[int]) -> Shape:
    """The strides, with those that mean nothing set to 0."""
    return tuple(0 if n == 1 else s for n, s in zip(shape, strides))


class Operand:
    """One tensor of a call in a buffer of its own.

    Attributes:
        name: for messages.
        dtype, shape: of the view.
        before: the buffer's bytes before the call (host).
        device: the view in device memory, as the driver takes it.
        written: whether the call may write it.
    """

    def __init__(
        self,
        chip: Driver,
        name: str,
        values: Array | None,
        shape: Shape,
        dtype: Dtype,
        layout: str = "contiguous",
        written: bool = False,
    ) -> None:
        self.chip = chip
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.layout = layout
        self.written = written
        self.size = HOST[dtype].itemsize
        self.placement = place(layout, shape)
        self.strides = usable_strides(shape, self.placement.strides)
        span = _span(self.strides, shape)
        total = (self.placement.offset + span + GUARD_ELEMENTS) * self.size
        pattern = INPUT_GAP if values is not None else OUTPUT_PATTERN
        self.before = np.full(total, pattern, np.uint8)
        if values is not None:
            given = np.asarray(values).astype(HOST[dtype], copy=False)
            self.view_of(self.before)[...] = given
        memory = chip.empty((total,), Dtype.U8).memory
        self._copy(memory.address, self.before.ctypes.data, CopyKind.HOST_TO_DEVICE)
        self.memory = memory
        self.device = DeviceArray(
            memory, dtype, shape, self.placement.strides, self.placement.offset
        )

    def _copy(self, destination: int, source: int, kind: CopyKind) -> None:
        size = len(self.before)
        self.chip.invoke("mem_copy", self.chip.stream, destination, source, size, int(kind))

    def view_of(self, buffer: Array) -> Array:
        """The view's elements in a host copy of the buffer; writable, shares the memory."""
        if 0 in self.shape:
            return np.empty(self.shape, HOST[self.dtype])
        start = self.placement.offset * self.size
        strides = tuple(s * self.size for s in self.strides)
        return np.ndarray(self.shape, HOST[self.dtype], buffer.data, start, strides)

    @property
    def values(self) -> Array:
        """The elements before the call; what an oracle computes from."""
        return self.view_of(self.before)

    def fetch(self) -> Array:
        """The buffer's bytes now; waits for the stream."""
        now = np.empty_like(self.before)
        self._copy(now.ctypes.data, self.memory.address, CopyKind.DEVICE_TO_HOST)
        self.chip.synchronize()
        return now

    def strayed(self, now: Array) -> int | None:
        """Offset in bytes of the first byte that was written though it is not the view's."""
        if np.array_equal(now, self.before):
            return None
        differ = now != self.before
        if self.written and 0 not in self.shape:
            inside = np.zeros(len(self.before), bool)
            start = self.placement.offset * self.size
            strides = (*(s * self.size for s in self.strides), 1)
            np.ndarray((*self.shape, self.size), bool, inside.data, start, strides)[...] = True
            differ &= ~inside
        where = np.flatnonzero(differ)
        return int(where[0]) if len(where) else None


def describe(operand: Operand) -> dict[str, Any]:
    """What a message says of an operand."""
    return {
        "dtype": operand.dtype.name,
        "shape": list(operand.shape),
        "strides": list(operand.placement.strides),
        "offset": operand.placement.offset,
        "layout": operand.layout,
    }
