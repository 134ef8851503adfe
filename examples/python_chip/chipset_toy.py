"""A chip in Python: NumPy in the place of kernels, for a prototype in an afternoon.

Its functions show the whole range of answers: what NumPy does in a few lines is done, the rest is
declined, and the core composes it or the host does it, counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chipset._interface import Activation, Dtype, PointwiseOp, ReduceOp, ScatterOp
from chipset_sdk import PythonDevice, Unsupported

# What a compute dtype is evaluated in; the toy chip has no others.
ARITHMETIC = {
    Dtype.F64: np.float64,
    **dict.fromkeys([Dtype.F16, Dtype.F32], np.float32),
    **dict.fromkeys([Dtype.U8, Dtype.I8, Dtype.I16, Dtype.I32, Dtype.I64], np.int64),
}
FLOATS = (np.float16, np.float32, np.float64)
NUMBERS = (*FLOATS, np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64)
POINTWISE = {
    PointwiseOp.COPY: lambda p, x: x,
    PointwiseOp.ADD: lambda p, x, y: x + p[0] * y,
    PointwiseOp.SUB: lambda p, x, y: x - p[0] * y,
    PointwiseOp.MUL: lambda p, x, y: x * y,
}
OF_FLOATS = {
    PointwiseOp.DIV: lambda p, x, y: x / y,
    PointwiseOp.EXP: lambda p, x: np.exp(x),
    PointwiseOp.RSQRT: lambda p, x: 1 / np.sqrt(x),
    PointwiseOp.TANH: lambda p, x: np.tanh(x),
    PointwiseOp.SILU: lambda p, x: x / (1 + np.exp(-x)),
}
REDUCE = {ReduceOp.SUM: np.sum, ReduceOp.MEAN: np.mean, ReduceOp.MAX: np.max, ReduceOp.MIN: np.min}


def only(dtypes: tuple[type, ...], *arrays: np.ndarray | None) -> None:
    """Declines what this chip does not compute with."""
    for array in arrays:
        if array is not None and array.dtype not in dtypes:
            raise Unsupported(f"the toy chip has no {array.dtype} here")


def indexed(walked: np.ndarray, index: list, size: list, stride: list) -> tuple[Any, Any]:
    """The memory behind ``walked`` as one row, and the place in it of each element addressed."""
    places = np.zeros(walked.shape, np.int64)
    for axis, n in enumerate(walked.shape):
        step = walked.strides[axis] // walked.itemsize
        places += (np.arange(n) * step).reshape(-1, *[1] * (walked.ndim - axis - 1))
    for one, n, step in zip(index, size, stride):
        if one is None:
            break
        wide = one.astype(np.int64)
        if ((wide < -n) | (wide >= n)).any():
            raise IndexError(f"an index is out of range for a dimension of size {n}")
        places += np.where(wide < 0, wide + n, wide) * step
    length = int(places.max(initial=-1)) + 1
    return np.lib.stride_tricks.as_strided(walked, (length,), (walked.itemsize,)), places


class Toy(PythonDevice):
    """A few functions, each a few lines of NumPy."""

    name = "toy"

    def pointwise(self, op, compute_dtype, num_inputs, output, input, immediate, param) -> None:
        wide = ARITHMETIC.get(compute_dtype)
        known = POINTWISE if wide is np.int64 else POINTWISE | OF_FLOATS
        if wide is None or op not in {PointwiseOp.FILL, *known}:
            raise Unsupported(f"operation {op} in dtype {compute_dtype}")
        only(NUMBERS, output, *input[:num_inputs])

        def number(scalar):
            return scalar.i if wide is np.int64 else wide(scalar.f)

        if op == PointwiseOp.FILL:
            output[...] = np.asarray(number(param[0])).astype(output.dtype)
            return
        operands = [
            number(immediate[k]) if input[k] is None else input[k] for k in range(num_inputs)
        ]
        if any(isinstance(x, np.ndarray) and x.shape != output.shape for x in operands):
            raise ValueError("an input and the output differ in shape")
        if op != PointwiseOp.COPY:  # which converts from the input's own dtype
            operands = [np.asarray(x).astype(wide) for x in operands]
        result = known[op]([number(p) for p in param], *operands)
        output[...] = np.asarray(result).astype(output.dtype)

    def reduce(self, op, dims, input, output, indices, **rest: Any) -> None:
        if op not in REDUCE or indices is not None or input.size == 0:
            raise Unsupported(f"reduction {op}")
        only(FLOATS, input, output)
        axes = tuple(d for d in range(input.ndim) if dims >> d & 1)
        result = REDUCE[op](input.astype(np.float64), axis=axes, keepdims=True)
        if result.shape != output.shape:
            raise ValueError(f"output has shape {output.shape}; need {result.shape}")
        output[...] = result

    def gemm(self, a, b, c, d, bias, alpha, beta, activation) -> None:
        if activation != Activation.NONE:
            raise Unsupported("no activation in gemm")
        only(FLOATS, a, b, c, d, bias)
        wide = np.float64 if d.dtype == np.float64 else np.float32
        result = alpha * (a.astype(wide) @ b.astype(wide))
        if c is not None and beta != 0:
            result = result + beta * c.astype(wide)
        d[...] = result if bias is None else result + bias.astype(wide)

    def gather(self, output, input, num_indices, index, indexed_size, indexed_stride) -> None:
        if input.shape != output.shape:
            raise ValueError(f"input has shape {input.shape}; need {output.shape}")
        if output.size:
            row, places = indexed(input, index, indexed_size, indexed_stride)
            output[...] = row[places]

    def scatter(
        self, op, destination, source, index, indexed_size, indexed_stride, value, **rest: Any
    ) -> None:
        if op not in (ScatterOp.SET, ScatterOp.ADD) or not isinstance(source, np.ndarray):
            raise Unsupported(f"scatter operation {op}, or of one value")
        only(NUMBERS, destination)
        if source.size:
            row, places = indexed(destination, index, indexed_size, indexed_stride)
            if op == ScatterOp.SET:
                row[places] = source
            else:
                np.add.at(row, places, source)


plugin = Toy().plugin()
