"""Special functions that NumPy lacks, in longdouble or F64, far better than the types judged."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from chipset_conformance.numerics import Array

# Bernoulli numbers B_2k / (2k (2k-1)) of Stirling's series (DLMF 5.11.1).
_STIRLING_SERIES = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400,
)  # fmt: skip
# Bernoulli numbers B_2k / 2k of digamma's asymptotic series (DLMF 5.11.2).
_DIGAMMA_SERIES = (
    1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160,
)  # fmt: skip


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python's math module over an array, in F64."""

    def apply(values: Array) -> Array:
        flat = np.asarray(values, np.float64).ravel()
        out = np.fromiter((function(float(v)) for v in flat), np.float64, len(flat))
        return out.reshape(np.shape(values))

    return apply


def _erfinv(y: float) -> float:
    """Newton's method on erfc, which keeps its digits where erf saturates."""
    if math.isnan(y) or abs(y) > 1:
        return math.nan
    if abs(y) == 1:
        return math.copysign(math.inf, y)
    if y == 0:
        return y
    target = 1.0 - abs(y)
    a = 0.147  # Winitzki's approximation: two digits to start from
    log = math.log(target * (1.0 + abs(y)))
    t = 2 / (math.pi * a) + log / 2
    x = math.sqrt(max(math.sqrt(t * t - log / a) - t, 1e-300))
    for _ in range(4):
        small = abs(y) < 0.5
        error = math.erf(x) - abs(y) if small else target - math.erfc(x)
        step = error / (2 / math.sqrt(math.pi) * math.exp(-x * x))
        x -= step / (1 + x * step)  # Halley's correction
    return math.copysign(x, y)


erf = _each(math.erf)
erfc = _each(math.erfc)
erfinv = _each(_erfinv)


def lgamma(values: Array) -> Array:
    """log |gamma(x)|: reflection below 0, recurrence up to 24, then Stirling's series."""
    x = np.asarray(values, np.longdouble)
    with np.errstate(all="ignore"):
        fraction = x - np.rint(x)
        pole = (x <= 0) & (fraction == 0)
        negative = x < 0
        pi = 4 * np.arctan(np.longdouble(1))
        z = np.where(negative, 1 - x, x)
        product = np.ones_like(z)
        for _ in range(24):
            low = z < 24
            product = np.where(low, product * z, product)
            z = np.where(low, z + 1, z)
        square = 1 / (z * z)
        series = np.zeros_like(z)
        for term in reversed(_STIRLING_SERIES):
            series = series * square + np.longdouble(term)
        result = (z - 0.5) * np.log(z) - z + np.log(2 * pi) / 2 + series / z - np.log(product)
        reflected = np.log(pi / np.abs(np.sin(pi * fraction))) - result
        result = np.where(negative, reflected, result)
        return np.where(pole | np.isinf(x), np.inf, result)


def digamma(values: Array) -> Array:
    """psi(x): reflection below 0, recurrence up to 16, then the asymptotic series."""
    x = np.asarray(values, np.longdouble)
    with np.errstate(all="ignore"):
        negative = x < 0
        fraction = x - np.rint(x)
        pole = negative & (fraction == 0)
        pi = 4 * np.arctan(np.longdouble(1))
        reflected = np.where(negative, -pi / np.tan(pi * fraction), 0)
        z = np.where(negative, 1 - x, x)
        shifted = np.zeros_like(z)
        for _ in range(16):
            low = z < 16
            shifted = np.where(low, shifted - 1 / z, shifted)
            z = np.where(low, z + 1, z)
        square = 1 / (z * z)
        series = np.zeros_like(z)
        for term in reversed(_DIGAMMA_SERIES):
            series = (series + np.longdouble(term)) * square
        result = np.log(z) - 1 / (2 * z) - series + shifted + reflected
        result = np.where(x == 0, -np.copysign(np.inf, x), result)
        result = np.where(np.isposinf(x), np.inf, result)
        return np.where(pole | np.isneginf(x), np.nan, result)


def i0(values: Array) -> Array:
    """Modified Bessel function of order 0."""
    x = np.asarray(values, np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(x)
        out = np.i0(np.where(finite, x, 0.0))
        return np.where(np.isinf(x), np.inf, np.where(finite, out, np.nan))
