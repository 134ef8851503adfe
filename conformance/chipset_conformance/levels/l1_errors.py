"""Streams: faults are answered with a status and a text, write nothing, and end nothing."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from chipset import _runtime
from chipset._interface import CopyKind, Dtype, Status
from chipset_conformance.case import Case, CaseFailure, Unsupported, cases
from chipset_conformance.context import Context
from chipset_conformance.probes import Buffer, copy, status_of

_COUNT = 64
_SQUARE = (8, 8)
# Calls that break a rule; each writes to ``out`` if it is carried out all the same.
_UNKNOWN_OP = 9999


@cases(level=1)
def error_cases() -> Iterator[Case]:
    for name, (function, _) in faulty_calls(None).items():
        run = partial(refused, name=name)
        yield Case(f"error/refused-and-nothing-written/{name}", (function,), run, rule="ERR-002")
    for function in ("gather", "scatter"):
        run = partial(out_of_range, function=function)
        yield Case(f"error/index-out-of-range/{function}", (function,), run, rule="ERR-003")
    yield Case(
        "error/out-of-range-spares-other-streams", ("gather",), spares_others, rule="ERR-003"
    )
    yield Case(
        "error/nothing-is-printed", ("pointwise", "mem_alloc"), nothing_printed, rule="ERR-001"
    )


class _Operands:
    """Operands of the faulty calls, filled with what they must still hold afterwards."""

    def __init__(self, ctx: Context) -> None:
        stream = ctx.chip.stream
        self.x, self.out = (Buffer(ctx, _COUNT, Dtype.F32) for _ in range(2))
        self.index = Buffer(ctx, _COUNT, Dtype.I64)
        self.x.fill(stream, 3)
        self.out.fill(stream, 7)
        self.index.fill(stream, 0)
        ctx.chip.synchronize()


def faulty_calls(operands: _Operands | None) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name: the function and its fields; without operands only the names count."""
    x = operands.x.array if operands else None
    out = operands.out.array if operands else None
    index = operands.index.array if operands else None

    def shaped(array: Any, shape: tuple[int, ...], strides: Any = None) -> Any:
        return array.view(shape, strides) if array is not None else None

    add = {"op": 3, "compute_dtype": Dtype.F32, "num_inputs": 2, "param": [1]}
    total = {"compute_dtype": Dtype.F32, "dims": 1, "input": x}
    picked = {"num_indices": 1, "index": [index], "indexed_size": [_COUNT], "indexed_stride": [1]}
    return {
        "pointwise-unknown-op": (
            "pointwise",
            {**add, "op": _UNKNOWN_OP, "output": out, "input": [x, x]},
        ),
        "pointwise-shapes-differ": (
            "pointwise",
            {**add, "output": out, "input": [x, shaped(x, (_COUNT // 2,))]},
        ),
        "pointwise-unknown-compute-dtype": (
            "pointwise",
            {**add, "compute_dtype": 77, "output": out, "input": [x, x]},
        ),
        "reduce-unknown-op": ("reduce", {**total, "op": _UNKNOWN_OP, "output": shaped(out, (1,))}),
        "reduce-shapes-differ": ("reduce", {**total, "op": 0, "output": shaped(out, (3,))}),
        "gemm-shapes-differ": (
            "gemm",
            {
                "a": shaped(x, _SQUARE),
                "b": shaped(x, (4, 16)),
                "d": shaped(out, _SQUARE),
                "alpha": 1.0,
            },
        ),
        "gather-shapes-differ": (
            "gather",
            {**picked, "output": out, "input": shaped(x, (_COUNT // 2,), (0,))},
        ),
        "scatter-unknown-op": (
            "scatter",
            {
                **picked,
                "op": _UNKNOWN_OP,
                "destination": shaped(out, (_COUNT,), (0,)),
                "source": x,
            },
        ),
    }


def refused(ctx: Context, name: str) -> None:
    """INVALID (or UNSUPPORTED) with a text; the output holds what it held."""
    operands = _Operands(ctx)
    function, fields = faulty_calls(operands)[name]
    arguments = ctx.chip.arguments(function, **fields)
    _runtime.take_error()
    status = _status(ctx, function, arguments)
    text = _runtime.take_error()
    ctx.check(
        status in (Status.INVALID, Status.UNSUPPORTED),
        f"{name}: {function} answered {status.name}, not INVALID",
    )
    ctx.check(bool(text), f"{name}: {function} answered {status.name} without a text (ERR-001)")
    operands.out.expect(ctx.chip.stream, 7, f"{name}: the output after a refused call (ERR-002)")
    operands.x.expect(ctx.chip.stream, 3, f"{name}: the input after a refused call")


def _status(ctx: Context, function: str, arguments: Any) -> Status:
    return status_of(ctx, function, ctx.chip.stream, ctypes.addressof(arguments))


def _stray(ctx: Context, function: str, stream: int) -> tuple[Buffer, Status]:
    """A gather or scatter whose last index is out of range; the first reading of one."""
    x, out = (Buffer(ctx, _COUNT, Dtype.F32) for _ in range(2))
    index = Buffer(ctx, _COUNT, Dtype.I64)
    x.fill(stream, 1)
    out.fill(stream, 0)
    places = np.arange(_COUNT)
    places[-1] = 2**31 + 5
    host = places.view(np.uint8)
    copy(ctx, stream, index.address, host.ctypes.data, host.nbytes, CopyKind.HOST_TO_DEVICE)
    one = (_COUNT,)
    ends: dict[str, Any] = {"output": out.array, "input": x.array.view(one, (0,))}
    if function == "scatter":
        ends = {"op": 0, "destination": out.array.view(one, (0,)), "source": x.array}
    arguments = ctx.chip.arguments(
        function,
        num_indices=1,
        index=[index.array],
        indexed_size=[_COUNT],
        indexed_stride=[1],
        **ends,
    )
    status = status_of(ctx, function, stream, ctypes.addressof(arguments))
    if status == Status.UNSUPPORTED:
        raise Unsupported(_runtime.take_error())
    return out, status


def out_of_range(ctx: Context, function: str) -> None:
    """OUT_OF_RANGE from the call or from the next synchronisation, once; the stream goes on."""
    stream = ctx.stream()
    for _ in range(3):
        _runtime.take_error()
        out, status = _stray(ctx, function, stream)
        if status == Status.OK:
            status = status_of(ctx, "stream_sync", stream)
        text = _runtime.take_error()
        ctx.check(
            status == Status.OUT_OF_RANGE,
            f"{function} with index 2**31 + 5 of {_COUNT}: {status.name}, not OUT_OF_RANGE",
        )
        ctx.check(bool(text), f"{function}: OUT_OF_RANGE without a text (ERR-001)")
        ctx.expect(Status.OK, "stream_sync", stream)
        out.fill(stream, 5)
        out.expect(stream, 5, "in the stream of an index that was out of range")


def spares_others(ctx: Context) -> None:
    """A stray index in one stream is no fault of another."""
    stream, other = ctx.stream(), ctx.stream()
    buffer = Buffer(ctx, _COUNT)
    _, status = _stray(ctx, "gather", stream)
    buffer.fill(other, 2)
    ctx.expect(Status.OK, "stream_sync", other)
    buffer.expect(other, 2, "beside a stream with an index out of range")
    if status == Status.OK:
        status = status_of(ctx, "stream_sync", stream)
    ctx.check(status == Status.OUT_OF_RANGE, f"the stray index gave {status.name}")


def nothing_printed(ctx: Context) -> None:
    """Calls that go well and calls that fail leave standard output and error alone."""
    operands = _Operands(ctx)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        try:
            stream = ctx.stream()
            operands.out.fill(stream, 7)
            ctx.chip.invoke("stream_sync", stream)  # the faulty calls are in another stream
            for function, fields in faulty_calls(operands).values():
                _status(ctx, function, ctx.chip.arguments(function, **fields))
            status_of(ctx, "stream_create", -1, 0, ctypes.addressof(ctypes.c_void_p()))
            ctx.chip.invoke("stream_sync", stream)
        finally:
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            os.close(saved[0])
            os.close(saved[1])
        printed.seek(0)
        text = printed.read().decode(errors="replace")
    if text:
        raise CaseFailure(f"the plugin printed (ERR-001): {text[:500]}")
