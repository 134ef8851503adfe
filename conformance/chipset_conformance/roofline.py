"""A chip's own roofline, measured through the interface: bandwidth by working set, peak by dtype.

S. Williams, A. Waterman, D. Patterson, Roofline: An Insightful Visual Performance Model, CACM 2009;
the bandwidth depends on the working set as in A. Ilic, F. Pratas, L. Sousa, Cache-aware Roofline
Model, IEEE CAL 2014. Nothing here comes from a data sheet: the limits are the best that the chip
itself showed in this run, so that a fraction says how well one call uses what others reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from chipset import _runtime
from chipset._interface import CopyKind, Dtype, PointwiseOp, Status
from chipset_conformance.case import CaseFailure, Unsupported
from chipset_conformance.context import Context
from chipset_conformance.numerics import HOST, Array, Bounded
from chipset_conformance.oracles.gemm import product
from chipset_conformance.speed import (
    Numbers,
    Prepared,
    download,
    expect_near,
    poison,
    seconds_per_call,
    upload,
)

GEMM_SIZES = (32, 64, 128, 256, 512, 1024, 2048)
COPY_BYTES = tuple(1 << power for power in range(14, 28, 2))  # of the source: 16 KiB to 64 MiB
SLOWEST_CALL_S = 0.4  # a sweep ends at a call that takes longer
SAMPLED_ROWS = 4
SAMPLED_PIECES = 12
PIECE_BYTES = 1 << 14
SCALE = 2.0  # of the triad: a power of two, so that it rounds once with and without FMA


@dataclass
class Roofline:
    """What the chip showed so far.

    Attributes:
        bandwidth: (bytes of the working set, bytes/s), of copies and triads.
        peak: operations/s of the best matrix product, by dtype.
    """

    bandwidth: list[tuple[float, float]] = field(default_factory=list)
    peak: dict[Dtype, float] = field(default_factory=dict)

    def bytes_per_second(self, working_set: float) -> float:
        """The best at this working set or a larger one; beyond the largest, that one's."""
        largest = max(size for size, _ in self.bandwidth)
        at = min(working_set, largest)
        return max(rate for size, rate in self.bandwidth if size >= at)

    def limit(self, dtype: Dtype, operations: float, moved: float) -> float:
        """Operations/s that a call may reach which moves so many bytes."""
        return min(self.peak[dtype], operations / moved * self.bytes_per_second(moved))


_measured: dict[int, Roofline] = {}


def of(context: Context, dtype: Dtype | None = None) -> Roofline:
    """The device's roofline; what is not known yet is measured now.

    Raises:
        Unsupported: the chip does not multiply matrices of the dtype.
    """
    line = _measured.setdefault(context.device.number, Roofline())
    if not line.bandwidth:
        for make, moves in ((Copy, 2), (Triad, 3)):
            line.bandwidth += [(moves * n, moves * n / s) for n, s in sweep_memory(context, make)]
    if dtype is not None and dtype not in line.peak:
        line.peak[dtype] = max(2.0 * n**3 / s for n, s in sweep_gemm(context, dtype))
    return line


# ---- memory --------------------------------------------------------------------------------------


class _Moved:
    """A result that must equal F32 values which the host knows, bit by bit."""

    def __init__(self, context: Context, numbers: Numbers, size: int) -> None:
        self.context, self.chip, self.numbers = context, context.chip, numbers
        self.count = size // 4
        self.output = self.chip.empty((self.count,), Dtype.F32)
        self.expected: Array = np.empty(0, np.float32)

    def check(self) -> None:
        piece = min(self.count, PIECE_BYTES // 4)
        starts = np.random.default_rng().integers(0, self.count - piece + 1, SAMPLED_PIECES)
        for start in {0, self.count - piece, *map(int, starts)}:
            got = download(self.chip, self.output, start, piece)
            wrong = np.flatnonzero(got != self.expected[start : start + piece])
            if wrong.size:
                at = int(wrong[0])
                raise CaseFailure(
                    f"{type(self).__name__.lower()} of {self.count * 4} bytes, sampled inside the "
                    f"performance run: element {start + at} is {got[at]!s}, not "
                    f"{self.expected[start + at]!s}: stale, skipped or incomplete"
                )


class Copy(_Moved):
    """``mem_copy`` on the device."""

    def __init__(self, context: Context, numbers: Numbers, size: int) -> None:
        super().__init__(context, numbers, size)
        self.source = self.chip.empty((self.count,), Dtype.F32)
        self._function = self.chip.function("mem_copy")

    def refresh(self) -> None:
        self.expected = self.numbers.slice((self.count,))
        upload(self.chip, self.source, self.expected)
        poison(self.chip, self.output)

    def call(self) -> None:
        kind = int(CopyKind.DEVICE_TO_DEVICE)
        addresses = self.output.address, self.source.address
        status = self._function(self.chip.stream, *addresses, 4 * self.count, kind)
        if status != Status.OK:
            _runtime.check(status, "mem_copy")


class Triad(_Moved):
    """y = b + 2 c, McCalpin's STREAM triad as one pointwise call."""

    def __init__(self, context: Context, numbers: Numbers, size: int) -> None:
        super().__init__(context, numbers, size)
        self.b = self.chip.empty((self.count,), Dtype.F32)
        self.c = self.chip.empty((self.count,), Dtype.F32)
        self.call = Prepared(
            self.chip,
            "pointwise",
            op=PointwiseOp.ADD,
            compute_dtype=Dtype.F32,
            num_inputs=2,
            output=self.output,
            input=[self.b, self.c],
            param=[SCALE],
        )

    def refresh(self) -> None:
        b, c = (self.numbers.slice((self.count,)) for _ in range(2))
        upload(self.chip, self.b, b)
        upload(self.chip, self.c, c)
        self.expected = b + np.float32(SCALE) * c
        poison(self.chip, self.output)


def sweep_memory(context: Context, kind: type[Copy] | type[Triad]) -> list[tuple[int, float]]:
    """(bytes of one array, seconds) for growing arrays, as far as memory goes."""
    numbers = Numbers(context, Dtype.F32, max(COPY_BYTES) // 4)
    found: list[tuple[int, float]] = []
    for size in COPY_BYTES:
        make = partial(kind, context, numbers, size)
        try:
            found.append((size, seconds_per_call(context, make, 3 * size)))
        except Unsupported as reason:
            if not found:
                raise
            context.note(f"ends at arrays of {size} bytes: {reason}")
            break
        if found[-1][1] > SLOWEST_CALL_S:
            break
    return found


# ---- matrix products -----------------------------------------------------------------------------


class Product:
    """d = a @ b of square matrices."""

    def __init__(self, context: Context, numbers: Numbers, n: int) -> None:
        self.chip, self.numbers, self.n = context.chip, numbers, n
        self.dtype = numbers.dtype
        self.a, self.b, self.output = (self.chip.empty((n, n), self.dtype) for _ in range(3))
        self.call = Prepared(self.chip, "gemm", a=self.a, b=self.b, d=self.output, alpha=1.0)

    def refresh(self) -> None:
        self.left = self.numbers.slice((self.n, self.n))
        self.right = self.numbers.slice((self.n, self.n))
        upload(self.chip, self.a, self.left)
        upload(self.chip, self.b, self.right)
        poison(self.chip, self.output)

    def check(self) -> None:
        """Random rows, and the last one."""
        drawn = np.random.default_rng().integers(0, self.n, SAMPLED_ROWS)
        rows = sorted({self.n - 1, *map(int, drawn)})
        got = np.stack([download(self.chip, self.output, row * self.n, self.n) for row in rows])
        exact = product(self.left[rows], self.right, self.dtype)
        # Twice, as at level 2: multiplying and adding round apart.
        exact = Bounded(exact.value, exact.dtype, 2 * exact.error)
        expect_near(got, exact, self.dtype, f"gemm of {self.n} x {self.n}, rows {rows}")


def sweep_gemm(context: Context, dtype: Dtype) -> list[tuple[int, float]]:
    """(n, seconds) for growing square matrices, as far as time and memory go."""
    numbers = Numbers(context, dtype, max(GEMM_SIZES) ** 2)
    found: list[tuple[int, float]] = []
    for n in GEMM_SIZES:
        make = partial(Product, context, numbers, n)
        try:
            found.append((n, seconds_per_call(context, make, 3 * n * n * HOST[dtype].itemsize)))
        except Unsupported as reason:
            if not found:
                raise
            context.note(f"ends at matrices of {n} x {n}: {reason}")
            break
        if found[-1][1] > SLOWEST_CALL_S:
            break
    return found
