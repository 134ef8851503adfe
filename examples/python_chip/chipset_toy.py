"""A chip in Python: NumPy in the place of kernels, for a prototype in an afternoon.

Its functions show the whole range of answers: what NumPy does in one line is done, the rest is
declined, and the core composes it or the host does it, counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chipset._interface import Activation, Dtype, PointwiseOp, ReduceOp
from chipset_sdk import PythonDevice, Unsupported

FLOATS = (np.float16, np.float32, np.float64)
POINTWISE = {
    PointwiseOp.COPY: lambda p, x: x,
    PointwiseOp.ADD: lambda p, x, y: x + p[0] * y,
    PointwiseOp.SUB: lambda p, x, y: x - p[0] * y,
    PointwiseOp.MUL: lambda p, x, y: x * y,
    PointwiseOp.DIV: lambda p, x, y: x / y,
    PointwiseOp.EXP: lambda p, x: np.exp(x),
    PointwiseOp.RSQRT: lambda p, x: 1 / np.sqrt(x),
    PointwiseOp.TANH: lambda p, x: np.tanh(x),
    PointwiseOp.SILU: lambda p, x: x / (1 + np.exp(-x)),
}
REDUCE = {ReduceOp.SUM: np.sum, ReduceOp.MEAN: np.mean, ReduceOp.MAX: np.max, ReduceOp.MIN: np.min}


def only_floats(*arrays: np.ndarray | None) -> None:
    """Declines what this chip does not compute with."""
    for array in arrays:
        if array is not None and array.dtype not in FLOATS:
            raise Unsupported(f"the toy chip has no {array.dtype}")


class Toy(PythonDevice):
    """A few functions, each a line of NumPy."""

    name = "toy"

    def pointwise(self, op, compute_dtype, num_inputs, output, input, immediate, param) -> None:
        if op not in POINTWISE or compute_dtype not in (Dtype.F16, Dtype.F32, Dtype.F64):
            raise Unsupported(f"operation {op} in dtype {compute_dtype}")
        only_floats(output, *input[:num_inputs])
        operands = [
            np.asarray(immediate[k].f, np.float32) if input[k] is None else input[k]
            for k in range(num_inputs)
        ]
        wide = [
            x.astype(np.float64) if x.dtype == np.float64 else x.astype(np.float32)
            for x in operands
        ]
        output[...] = POINTWISE[op]([p.f for p in param], *wide)

    def reduce(self, op, dims, input, output, indices, **rest: Any) -> None:
        if op not in REDUCE or indices is not None or input.size == 0:
            raise Unsupported(f"reduction {op}")
        only_floats(input, output)
        axes = tuple(d for d in range(input.ndim) if dims >> d & 1)
        output[...] = REDUCE[op](input.astype(np.float64), axis=axes, keepdims=True)

    def gemm(self, a, b, c, d, bias, alpha, beta, activation) -> None:
        if activation != Activation.NONE:
            raise Unsupported("no activation in gemm")
        only_floats(a, b, c, d, bias)
        wide = np.float64 if d.dtype == np.float64 else np.float32
        result = alpha * (a.astype(wide) @ b.astype(wide))
        if c is not None and beta != 0:
            result = result + beta * c.astype(wide)
        d[...] = result if bias is None else result + bias.astype(wide)


plugin = Toy().plugin()
