"""What gemm gives. |computed - exact| <= gamma_K |A||B| for any order of the sum (Higham, (3.13));
the scalings, the addition of c and of the bias, and the activation add their own roundings.
"""

from __future__ import annotations

import numpy as np

from chipset._interface import Activation, Dtype
from chipset_conformance.numerics import Array, Bounded, gamma, unit_of, wide
from chipset_conformance.oracles.pointwise import gelu_erf, gelu_tanh, silu


def product(a: Array, b: Array, dtype: Dtype) -> Bounded:
    """a @ b, accumulated in the type that NUM-001 names."""
    left, right = wide(a), wide(b)
    length = a.shape[-1]
    with np.errstate(all="ignore"):
        value = left @ right
        error = gamma(length, unit_of(dtype)) * (np.abs(left) @ np.abs(right))
    return Bounded(value, dtype, np.where(np.isfinite(error), error, 0))


def activate(x: Bounded, activation: Activation) -> Bounded:
    """The activation of a result; reordered, since it may be evaluated in any way."""
    if activation == Activation.RELU:
        return Bounded(np.maximum(x.value, 0), x.dtype, x.error)
    if activation == Activation.GELU_ERF:
        return gelu_erf(x).reordered()
    if activation == Activation.GELU_TANH:
        return gelu_tanh(x).reordered()
    if activation == Activation.SILU:
        return silu(x).reordered()
    return x


def gemm(
    a: Array,
    b: Array,
    dtype: Dtype,
    c: Array | None = None,
    bias: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    activation: Activation = Activation.NONE,
) -> Bounded:
    """activation(alpha * a @ b + beta * c + bias) with its bound."""
    result = product(a, b, dtype)
    if alpha != 1.0:
        result = result * alpha
    if c is not None and beta != 0.0:
        result = result + Bounded(c, dtype) * beta
    if bias is not None:
        result = result + Bounded(bias, dtype)
    return activate(Bounded(result.value, dtype, 2 * result.error), activation)
