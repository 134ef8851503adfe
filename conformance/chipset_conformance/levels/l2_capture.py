"""Level 2, captured graphs: recorded calls do not run, replays give what the calls would give."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from chipset._interface import (
    Capability,
    CopyKind,
    Dtype,
    PointwiseOp,
    ReduceOp,
    Status,
)
from chipset.driver import DeviceArray
from chipset_conformance.case import OPTIONAL, Case, Unsupported, cases
from chipset_conformance.context import Context
from chipset_conformance.numerics import Array

FUNCTIONS = ("capture_begin", "capture_end", "capture_replay", "graph_destroy")


@cases(level=2)
def capture_cases() -> Iterator[Case]:
    for name, check in (
        ("replays", check_replays), ("contents", check_contents), ("other-stream", check_other),
        ("empty", check_empty), ("host-copy", check_host_copy), ("random", check_random),
        ("twice", check_two_graphs),
    ):  # fmt: skip
        yield Case(
            id=f"capture/{name}", functions=FUNCTIONS, tags=frozenset({OPTIONAL}), run=check,
            group="graph",
        )  # fmt: skip


def _need(context: Context) -> None:
    context.need(*FUNCTIONS)
    if not context.can(Capability.CAPTURE):
        raise Unsupported("the device has no capability CAPTURE")


def _call(context: Context, stream: int, function: str, **fields: object) -> None:
    arguments = context.chip.arguments(function, **fields)
    context.chip.invoke(function, stream, ctypes.addressof(arguments))


def _add(context: Context, stream: int, y: DeviceArray, a: DeviceArray, b: DeviceArray) -> None:
    _call(
        context, stream, "pointwise", op=PointwiseOp.ADD, compute_dtype=Dtype.F32, num_inputs=2,
        output=y, input=[a, b], param=[1],
    )  # fmt: skip


def _write(context: Context, stream: int, target: DeviceArray, values: Array) -> None:
    host = np.ascontiguousarray(values)
    context.chip.invoke(
        "mem_copy", stream, target.address, host.ctypes.data, host.nbytes,
        int(CopyKind.HOST_TO_DEVICE),
    )  # fmt: skip
    context.chip.invoke("stream_sync", stream)


def _end(context: Context, stream: int) -> int:
    graph = context.out("capture_end", stream)
    context.check(graph != 0, "capture_end answered OK and gave no graph")
    return graph


def _expect(context: Context, array: DeviceArray, wanted: Array, what: str) -> None:
    context.chip.invoke("device_sync", context.chip.local)
    got = array.numpy()
    context.check(np.array_equal(got, wanted), f"{what}: got {got!r}, not {wanted!r}")


def check_replays(context: Context) -> None:
    """x += 1 three times in a graph: nothing while recording, three more with every replay."""
    _need(context)
    stream = context.stream()
    x = context.chip.array(np.zeros(300, np.float32))
    one = context.chip.array(np.ones(300, np.float32))
    context.chip.invoke("capture_begin", stream)
    for _ in range(3):
        _add(context, stream, x, x, one)
    graph = _end(context, stream)
    context.chip.invoke("stream_sync", stream)
    _expect(context, x, np.zeros(300, np.float32), "after recording, before any replay")
    for replays in (1, 2, 3):
        context.chip.invoke("capture_replay", graph, stream)
        context.chip.invoke("stream_sync", stream)
        _expect(context, x, np.full(300, 3.0 * replays, np.float32), f"after replay {replays}")
    context.chip.invoke("graph_destroy", graph)


def check_contents(context: Context) -> None:
    """A chain of a product, a reduction, a fill and a copy works on the contents of the day."""
    _need(context)
    stream = context.stream()
    rng = context.rng
    a = context.chip.empty((8, 8))
    b = context.chip.empty((8, 8))
    product = context.chip.empty((8, 8))
    total = context.chip.empty((8, 1))
    copy = context.chip.empty((8, 1))
    context.chip.invoke("device_sync", context.chip.local)
    context.chip.invoke("capture_begin", stream)
    context.chip.invoke("mem_fill", stream, product.address, 0xFF, 256)
    _call(context, stream, "gemm", a=a, b=b, d=product, alpha=1.0)
    _call(
        context, stream, "reduce", op=ReduceOp.SUM, compute_dtype=Dtype.F32, dims=2, input=product,
        output=total,
    )  # fmt: skip
    context.chip.invoke(
        "mem_copy", stream, copy.address, total.address, 32, int(CopyKind.DEVICE_TO_DEVICE)
    )
    graph = _end(context, stream)
    for _ in range(3):
        left, right = (rng.integers(-4, 5, (8, 8)).astype(np.float32) for _ in range(2))
        _write(context, stream, a, left)
        _write(context, stream, b, right)
        context.chip.invoke("capture_replay", graph, stream)
        context.chip.invoke("stream_sync", stream)
        _expect(context, copy, (left @ right).sum(1, keepdims=True), "sums of a product")
    context.chip.invoke("graph_destroy", graph)


def check_other(context: Context) -> None:
    """A graph runs in any stream of its device, in that stream's order."""
    _need(context)
    stream, other = context.stream(), context.stream()
    x = context.chip.array(np.zeros(64, np.float32))
    two = context.chip.array(np.full(64, 2, np.float32))
    context.chip.invoke("capture_begin", stream)
    _add(context, stream, x, x, two)
    graph = _end(context, stream)
    _add(context, other, x, x, two)
    context.chip.invoke("capture_replay", graph, other)
    _call(
        context, other, "pointwise", op=PointwiseOp.MUL, compute_dtype=Dtype.F32, num_inputs=2,
        output=x, input=[x, x],
    )  # fmt: skip
    context.chip.invoke("stream_sync", other)
    _expect(context, x, np.full(64, 16, np.float32), "(0 + 2 + 2) squared")
    context.chip.invoke("graph_destroy", graph)


def check_empty(context: Context) -> None:
    """A recording of nothing is a graph that does nothing; NULL may be destroyed."""
    _need(context)
    stream = context.stream()
    context.chip.invoke("capture_begin", stream)
    graph = _end(context, stream)
    context.chip.invoke("capture_replay", graph, stream)
    context.chip.invoke("stream_sync", stream)
    context.chip.invoke("graph_destroy", graph)
    context.chip.invoke("graph_destroy", None)


def check_host_copy(context: Context) -> None:
    """A copy that touches host memory is INVALID and ends the recording; the stream goes on."""
    _need(context)
    stream = context.stream()
    x = context.chip.array(np.zeros(16, np.float32))
    host = np.ones(16, np.float32)
    context.chip.invoke("capture_begin", stream)
    context.expect(
        Status.INVALID, "mem_copy", stream, x.address, host.ctypes.data, 64,
        int(CopyKind.HOST_TO_DEVICE),
    )  # fmt: skip
    value = ctypes.c_void_p()
    context.chip.status("capture_end", stream, ctypes.addressof(value))
    context.check(not value.value, "a spoilt recording gave a graph")
    _add(context, stream, x, x, x)
    context.chip.invoke("stream_sync", stream)
    _expect(context, x, np.zeros(16, np.float32), "what a spoilt recording left")


def check_random(context: Context) -> None:
    """random with its seed in device memory draws anew in every replay."""
    _need(context)
    context.need("random")
    stream = context.stream()
    pair = context.chip.array(np.array([7, 0], np.int64))
    y = context.chip.empty((100,))
    context.chip.invoke("capture_begin", stream)
    _call(context, stream, "random", kind=1, output=y, seed_offset=pair.address, param=[0, 1])
    graph = _end(context, stream)
    seen = set()
    for offset in (0, 50, 100):
        _write(context, stream, pair, np.array([7, offset], np.int64))
        context.chip.invoke("capture_replay", graph, stream)
        context.chip.invoke("stream_sync", stream)
        seen.add(y.numpy().tobytes())
    context.check(len(seen) == 3, "replays with different offsets drew the same numbers")
    context.chip.invoke("graph_destroy", graph)


def check_two_graphs(context: Context) -> None:
    """Two graphs of one stream keep their own calls and scalars."""
    _need(context)
    stream = context.stream()
    x = context.chip.array(np.zeros(32, np.float32))
    graphs = []
    for amount in (1.0, 100.0):
        context.chip.invoke("capture_begin", stream)
        _call(
            context, stream, "pointwise", op=PointwiseOp.ADD, compute_dtype=Dtype.F32,
            num_inputs=2, output=x, input=[x, None], immediate=[0, amount], param=[1],
        )  # fmt: skip
        graphs.append(_end(context, stream))
    for which in (1, 0, 0):
        context.chip.invoke("capture_replay", graphs[which], stream)
    context.chip.invoke("stream_sync", stream)
    _expect(context, x, np.full(32, 102, np.float32), "100 + 1 + 1")
    for graph in graphs:
        context.chip.invoke("graph_destroy", graph)
