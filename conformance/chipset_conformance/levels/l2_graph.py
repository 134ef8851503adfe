"""Computes: ONNX graphs are compiled and run in stream order, and what is none is refused.

The models are encoded here, field by field of ``onnx.proto`` (ModelProto of IR version 8, opset
17), so that the suite needs no ONNX package.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import numpy as np

from chipset._interface import Dtype, Status, Tensor
from chipset_conformance.case import OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.probes import Buffer, Delay

_FLOAT = 1  # TensorProto.FLOAT
_SHAPE = (4, 8)
_COUNT = 32


@cases(level=2)
def graph_cases() -> Iterator[Case]:
    optional = frozenset({OPTIONAL})
    functions = ("graph_compile", "graph_run", "graph_destroy")
    yield Case("graph/onnx/add-relu", functions, add_relu, tags=optional, dtype="f32")
    yield Case("graph/onnx/in-stream-order", functions, in_stream_order, tags=optional)
    yield Case(
        "graph/onnx/wrong-shape-is-refused", functions, wrong_shape, tags=optional, rule="ERR-002"
    )
    yield Case(
        "graph/onnx/garbage-is-refused",
        ("graph_compile",),
        garbage,
        tags=optional,
        rule="ERR-001",
    )
    yield Case(
        "graph/onnx/unknown-operator-is-named", ("graph_compile",), unknown_operator, tags=optional
    )


# ---- encoding ------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, value: int | str | bytes) -> bytes:
    """One field: varints for integers, length-delimited for the rest."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _value_info(name: str, shape: Sequence[int]) -> bytes:
    dims = b"".join(_field(1, _field(1, size)) for size in shape)
    tensor = _field(1, _FLOAT) + _field(2, dims)
    return _field(1, name) + _field(2, _field(1, tensor))


def _node(operator: str, inputs: Sequence[str], output: str) -> bytes:
    names = b"".join(_field(1, name) for name in inputs)
    return names + _field(2, output) + _field(4, operator)


def model(*nodes: bytes) -> bytes:
    """A ModelProto with inputs x and y and output z, all F32 of one shape."""
    graph = b"".join(_field(1, node) for node in nodes) + _field(2, "case")
    graph += b"".join(_field(11, _value_info(name, _SHAPE)) for name in ("x", "y"))
    graph += _field(12, _value_info("z", _SHAPE))
    opset = _field(1, "") + _field(2, 17)
    return _field(1, 8) + _field(7, graph) + _field(8, opset)


def add_then_relu() -> bytes:
    return model(_node("Add", ("x", "y"), "sum"), _node("Relu", ("sum",), "z"))


# ---- cases ---------------------------------------------------------------------------------------


class _Graph:
    """A compiled graph with its operands; ended by ``end``."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.x, self.y, self.z = (Buffer(ctx, _COUNT, Dtype.F32) for _ in range(3))
        text = add_then_relu()
        out = ctypes.c_void_p()
        where = (ctx.chip.local, text, len(text), ctypes.addressof(out))
        ctx.expect(Status.OK, "graph_compile", *where)
        self.handle = out.value

    def run(self, stream: int, wanted: Status = Status.OK, shape: Sequence[int] = _SHAPE) -> None:
        inputs = (Tensor * 2)(
            self.x.array.view(_SHAPE).tensor(), self.y.array.view(_SHAPE).tensor()
        )
        outputs = (Tensor * 1)(self.z.array.view(shape).tensor())
        ends = (2, ctypes.addressof(inputs), 1, ctypes.addressof(outputs))
        self.ctx.expect(wanted, "graph_run", stream, self.handle, *ends)

    def end(self) -> None:
        self.ctx.chip.invoke("device_sync", self.ctx.chip.local)
        self.ctx.expect(Status.OK, "graph_destroy", self.handle)


def add_relu(ctx: Context) -> None:
    """z = max(x + y, 0), twice with other contents."""
    stream, graph = ctx.chip.stream, _Graph(ctx)
    for x, y in ((3, 4), (-5, 1), (0, 0)):
        graph.x.fill(stream, x)
        graph.y.fill(stream, y)
        graph.run(stream)
        graph.z.expect(stream, max(x + y, 0), f"relu({x} + {y}) as an ONNX graph")
    graph.end()


def in_stream_order(ctx: Context) -> None:
    """The graph reads what the stream wrote before it, and work behind it reads its result."""
    stream, graph, delay = ctx.stream(), _Graph(ctx), Delay(ctx)
    graph.y.fill(stream, 1)
    for value in range(1, 5):
        graph.x.fill(stream, 0)
        delay.put(stream)
        graph.x.fill(stream, value)
        graph.run(stream)
        graph.x.fill(stream, -9)
        graph.z.add(stream, graph.z, 100)
        graph.z.expect(stream, value + 101, "an ONNX graph between other work of its stream")
    graph.end()


def wrong_shape(ctx: Context) -> None:
    """INVALID, and the output is as it was."""
    stream, graph = ctx.chip.stream, _Graph(ctx)
    for buffer in (graph.x, graph.y, graph.z):
        buffer.fill(stream, 7)
    graph.run(stream, Status.INVALID, (8, 4))
    graph.z.expect(stream, 7, "the output of a graph_run that was refused (ERR-002)")
    graph.run(stream)
    graph.z.expect(stream, 14, "the graph after a refused run")
    graph.end()


def _refused(ctx: Context, text: bytes) -> str:
    """The text with which graph_compile refuses; it must leave the handle empty."""
    from chipset import _runtime

    out = ctypes.c_void_p()
    _runtime.take_error()
    status = Status(
        ctx.chip.status("graph_compile", ctx.chip.local, text, len(text), ctypes.addressof(out))
    )
    said = _runtime.take_error()
    ctx.check(
        status in (Status.INVALID, Status.UNSUPPORTED),
        f"graph_compile answered {status.name} to what it cannot compile",
    )
    ctx.check(bool(said), f"graph_compile answered {status.name} without a text (ERR-001)")
    ctx.check(not out.value, "graph_compile refused but gave a graph")
    return said


def garbage(ctx: Context) -> None:
    """Random bytes, half a model and nothing are no graphs."""
    whole = add_then_relu()
    for text in (bytes(ctx.rng.integers(0, 256, 200, dtype=np.uint8)), whole[: len(whole) // 2]):
        _refused(ctx, text)


def unknown_operator(ctx: Context) -> None:
    """The refusal names the first operator that cannot be compiled."""
    _Graph(ctx).end()  # Unsupported where no graph can be compiled
    said = _refused(ctx, model(_node("NoSuchOperator", ("x", "y"), "z")))
    ctx.check("NoSuchOperator" in said, f"the refusal does not name the operator: {said!r}")
