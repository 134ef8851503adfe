"""What quantize, dequantize and gemm_quantized give. G = ceil(K / group_size) groups per row."""

from __future__ import annotations

import numpy as np

from chipset._interface import Activation, Dtype
from chipset_conformance.numerics import FORMATS, Array, Bounded, is_float, wide
from chipset_conformance.oracles.attention import matmul
from chipset_conformance.oracles.gemm import activate

# Least and largest value: symmetric, and with zero points.
SYMMETRIC = {Dtype.I8: (-127, 127), Dtype.I4: (-7, 7)}
ASYMMETRIC = {Dtype.I8: (-128, 127), Dtype.I4: (-8, 7)}


def groups(length: int, size: int) -> int:
    """Groups along a row; size 0 means one."""
    return 1 if size == 0 else -(-length // size)


def expand(per_group: Array, length: int, size: int) -> Array:
    """A value per group repeated for each of the row's elements."""
    return np.repeat(per_group, size or length, -1)[..., :length]


def pack_nibbles(values: Array) -> Array:
    """Signed nibbles two per byte, the even element low; a row of odd length gets one more."""
    padded = np.concatenate([values, np.zeros((*values.shape[:-1], values.shape[-1] % 2), int)], -1)
    nibbles = padded.astype(np.int64) & 15
    return (nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)).astype(np.uint8)


def unpack_nibbles(values: Array, length: int) -> Array:
    """The reverse of pack_nibbles, as I64."""
    both = np.stack([values & 15, values >> 4], -1).reshape(*values.shape[:-1], -1)
    signed = both.astype(np.int64)
    return np.where(signed > 7, signed - 16, signed)[..., :length]


def limits(dtype: Dtype, symmetric: bool) -> tuple[float, float]:
    if is_float(dtype):
        return -FORMATS[dtype].largest, FORMATS[dtype].largest
    return (SYMMETRIC if symmetric else ASYMMETRIC)[dtype]


def scales(x: Array, dtype: Dtype, size: int, symmetric: bool) -> Bounded:
    """absmax / largest, or (max - min) / range, of each group."""
    rows, length = x.shape
    count = groups(length, size)
    width = size or length
    padded = np.full((rows, count * width), np.nan)
    padded[:, :length] = wide(x)
    parts = padded.reshape(rows, count, width)
    low, high = limits(dtype, symmetric)
    if symmetric:
        return Bounded(np.nanmax(np.abs(parts), -1), Dtype.F32) / high
    spread = Bounded(np.nanmax(parts, -1), Dtype.F32) - Bounded(np.nanmin(parts, -1), Dtype.F32)
    return spread / (high - low)


def quotient(x: Array, scale: Array, size: int) -> Bounded:
    """x / scale of its group, which is then rounded."""
    return Bounded(x, Dtype.F32) / Bounded(expand(scale, x.shape[-1], size), Dtype.F32)


def quantize(
    x: Array, scale: Array, zero_point: Array | None, dtype: Dtype, size: int
) -> tuple[Array, Array]:
    """Least and largest integer that rounding x/scale may give: half to even, then the clamp."""
    exact = quotient(x, scale, size)
    shift = 0 if zero_point is None else expand(zero_point, x.shape[-1], size).astype(np.int64)
    low, high = limits(dtype, zero_point is None)
    ends = [np.rint(exact.value + sign * exact.error) + shift for sign in (-1, 1)]
    return np.clip(ends[0], low, high), np.clip(ends[1], low, high)


def dequantize(q: Array, scale: Array, zero_point: Array | None, size: int) -> Bounded:
    """(q - zero_point) * scale."""
    length = q.shape[-1]
    whole = wide(q) if zero_point is None else wide(q) - expand(zero_point, length, size)
    return Bounded(whole, Dtype.F32) * Bounded(expand(scale, length, size), Dtype.F32)


def gemm_quantized(
    x: Array,
    x_scale: Array | None,
    weight: Bounded,
    bias: Array | None,
    dtype: Dtype,
    activation: Activation,
) -> Bounded:
    """activation(x @ weight^T + bias). Weights may be rounded to x's dtype on their way."""
    if dtype in (Dtype.F16, Dtype.BF16):
        weight = weight.rounded(dtype)
    left = Bounded(x, Dtype.F32)
    if x_scale is not None:
        left = left * Bounded(wide(x_scale)[:, None], Dtype.F32)
    turned = Bounded(weight.value.T, Dtype.F32, weight.error.T)
    result = matmul(left, turned)
    if bias is not None:
        result = result + Bounded(bias, Dtype.F32)
    return activate(result.reordered(), activation)
