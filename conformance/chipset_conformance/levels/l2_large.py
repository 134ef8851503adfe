"""Level 2, offsets and counts beyond 2^31: few elements far apart, or many that repeat.

Memory is allocated but touched only where elements lie, which costs a device with lazy pages
nothing; a device that has not three times the memory free answers Unsupported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial

import numpy as np

from chipset._interface import CopyKind, Dtype, ReduceOp, ScatterOp
from chipset.driver import DeviceArray
from chipset_conformance.case import OPTIONAL, Case, Unsupported, cases
from chipset_conformance.context import Context
from chipset_conformance.numerics import HOST, Array, name_of

# Bytes between rows, and so elements of U8. As int32 the first is negative; as uint32 it is kept,
# hence the second.
FAR, FARTHER = 2**31 + 12, 2**32 + 20


@cases(level=2)
def large_cases() -> Iterator[Case]:
    for dtype in (Dtype.U8, Dtype.F32):
        for name, apart in (("2g", FAR), ("4g", FARTHER)):
            stride = apart // HOST[dtype].itemsize
            for function, check in (
                ("pointwise", check_copy), ("gather", check_gather), ("scatter", check_scatter),
                ("reduce", check_reduce),
            ):  # fmt: skip
                yield Case(
                    id=f"large/{function}/{name_of(dtype)}/{name}",
                    functions=(function,),
                    tags=frozenset({OPTIONAL}),
                    rule="SHP-001",
                    dtype=name_of(dtype),
                    run=partial(check, dtype=dtype, stride=stride),
                )
    yield Case(
        id="large/gemm/f32/2g", functions=("gemm",), tags=frozenset({OPTIONAL}), rule="SHP-001",
        dtype="f32", run=check_gemm,
    )  # fmt: skip
    yield Case(
        id="large/reduce/u8/count", functions=("reduce",), tags=frozenset({OPTIONAL}),
        rule="SHP-001", dtype="u8", run=check_many,
    )  # fmt: skip


class Far:
    """Rows of a few elements that lie ``stride`` elements apart in one allocation."""

    def __init__(self, context: Context, dtype: Dtype, rows: int, width: int, stride: int) -> None:
        size = HOST[dtype].itemsize
        needed = ((rows - 1) * stride + width) * size
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        context.chip.invoke(
            "device_memory", context.chip.local, ctypes.addressof(free), ctypes.addressof(total)
        )
        if free.value < 3 * needed or context.device.info.max_allocation < needed:
            raise Unsupported(f"{needed >> 20} MiB of memory that is {free.value >> 20} MiB free")
        self.context = context
        self.dtype, self.shape, self.stride, self.size = dtype, (rows, width), stride, size
        self.address = context.memory(needed)
        base = context.chip.empty((1,), Dtype.U8).memory
        self.array = DeviceArray(base, dtype, self.shape, (stride, 1))
        self.array.memory = _Raw(base.driver, self.address, needed)  # type: ignore[assignment]

    def write(self, values: Array) -> None:
        for row, line in enumerate(np.ascontiguousarray(values.astype(HOST[self.dtype]))):
            self._copy(row, line, CopyKind.HOST_TO_DEVICE)

    def read(self) -> Array:
        out = np.empty(self.shape, HOST[self.dtype])
        for row in range(len(out)):
            self._copy(row, out[row], CopyKind.DEVICE_TO_HOST)
        return out

    def _copy(self, row: int, line: Array, kind: CopyKind) -> None:
        chip = self.context.chip
        ends = [self.address + row * self.stride * self.size, line.ctypes.data]
        if kind == CopyKind.DEVICE_TO_HOST:
            ends.reverse()
        chip.invoke("mem_copy", chip.stream, *ends, line.nbytes, int(kind))
        chip.synchronize()


class _Raw:
    """Memory straight from the plugin, as DeviceArray wants it; the context frees it."""

    def __init__(self, driver: object, address: int, size: int) -> None:
        self.driver, self.address, self.bytes = driver, address, size


def _numbers(context: Context, shape: tuple[int, int], dtype: Dtype) -> Array:
    return context.rng.integers(0, 90, shape).astype(HOST[dtype])


def check_copy(context: Context, dtype: Dtype, stride: int) -> None:
    """COPY into rows far apart, and back."""
    far = Far(context, dtype, 2, 40, stride)
    values = _numbers(context, far.shape, dtype)
    near = context.chip.array(values)
    far.write(np.zeros(far.shape))
    context.chip.pointwise("COPY", far.array, near)
    context.chip.synchronize()
    context.check(np.array_equal(far.read(), values), f"COPY into a row {stride} elements away")
    back = context.chip.empty(far.shape, dtype)
    context.chip.pointwise("COPY", back, far.array)
    context.check(np.array_equal(back.numpy(), values), f"COPY from a row {stride} elements away")
    context.chip.pointwise("ADD", far.array, far.array, near)
    context.chip.synchronize()
    doubled = (values + values).astype(values.dtype)
    context.check(np.array_equal(far.read(), doubled), f"ADD in place, {stride} elements away")


def check_gather(context: Context, dtype: Dtype, stride: int) -> None:
    """An index times its stride is beyond 2^31."""
    far = Far(context, dtype, 2, 40, stride)
    values = _numbers(context, far.shape, dtype)
    far.write(values)
    wanted = np.array([1, 0, -1, -2])
    index = context.chip.array(wanted.reshape(4, 1)).broadcast_to((4, 40))
    out = context.chip.empty((4, 40), dtype)
    context.chip.call(
        "gather", num_indices=1, output=out, input=far.array.view((4, 40), (0, 1)), index=[index],
        indexed_size=[2], indexed_stride=[stride],
    )  # fmt: skip
    context.check(np.array_equal(out.numpy(), values[wanted]), f"gather, {stride} elements away")


def check_scatter(context: Context, dtype: Dtype, stride: int) -> None:
    """Likewise where it writes."""
    far = Far(context, dtype, 2, 40, stride)
    values = _numbers(context, far.shape, dtype)
    far.write(np.zeros(far.shape))
    index = context.chip.array(np.array([[1], [0]])).broadcast_to((2, 40))
    for op, times in ((ScatterOp.SET, 1), (ScatterOp.ADD, 2)):
        context.chip.call(
            "scatter", op=op, num_indices=1, destination=far.array.view((2, 40), (0, 1)),
            source=context.chip.array(values), index=[index], indexed_size=[2],
            indexed_stride=[stride],
        )  # fmt: skip
        context.chip.synchronize()
        wanted = (values[::-1] * times).astype(values.dtype)
        context.check(np.array_equal(far.read(), wanted), f"scatter {op.name}, {stride} away")


def check_reduce(context: Context, dtype: Dtype, stride: int) -> None:
    """Over rows far apart, and along them."""
    far = Far(context, dtype, 2, 40, stride)
    values = _numbers(context, far.shape, dtype)
    far.write(values)
    compute = Dtype.I64 if dtype == Dtype.U8 else dtype
    for dims, axis in ((1, 0), (2, 1)):
        wanted = values.astype(np.int64).sum(axis, keepdims=True)
        out = context.chip.empty(wanted.shape, compute)
        context.chip.call(
            "reduce", op=ReduceOp.SUM, compute_dtype=compute, dims=dims, input=far.array, output=out
        )
        context.check(np.array_equal(out.numpy(), wanted), f"SUM over dim {axis}, {stride} apart")


def check_gemm(context: Context) -> None:
    """A matrix whose rows lie far apart, as each operand."""
    far = Far(context, Dtype.F32, 2, 8, FAR // 4)
    values = _numbers(context, far.shape, Dtype.F32)
    far.write(values)
    square = _numbers(context, (8, 8), Dtype.F32)
    out = context.chip.empty((2, 8))
    context.chip.call("gemm", a=far.array, b=context.chip.array(square), d=out, alpha=1.0)
    context.check(np.array_equal(out.numpy(), values @ square), "gemm with a far apart")
    context.chip.call(
        "gemm", a=context.chip.array(values), b=context.chip.array(square), d=far.array, alpha=1.0
    )
    context.chip.synchronize()
    context.check(np.array_equal(far.read(), values @ square), "gemm with d far apart")


def check_many(context: Context) -> None:
    """More than 2^31 elements, one byte repeated: a 32-bit count stops early or never starts."""
    count = 2**31 + 8
    one = context.chip.array(np.array([3], np.uint8))
    out = context.chip.empty((1,), Dtype.I64)
    context.chip.call(
        "reduce", op=ReduceOp.SUM, compute_dtype=Dtype.I64, dims=1, input=one.view((count,), (0,)),
        output=out,
    )  # fmt: skip
    got = int(out.numpy()[0])
    context.check(got == 3 * count, f"the sum of {count} threes is {got}, not {3 * count}")
