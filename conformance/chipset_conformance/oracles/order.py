"""What scan and sort give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from chipset._interface import Dtype, ScanOp
from chipset_conformance.numerics import HOST, Array, Bounded, gamma, is_float, unit_of, wide


def scan_floats(op: ScanOp, values: Array, dtype: Dtype, dim: int) -> Bounded:
    """Inclusive prefixes along a dimension. Element k errs as a reduction of k + 1 elements."""
    x = np.moveaxis(wide(values), dim, -1)
    n = np.arange(x.shape[-1])
    unit = unit_of(dtype)
    zero = np.zeros_like(x)
    with np.errstate(all="ignore"):
        if op == ScanOp.SUM:
            value, error = np.cumsum(x, -1), gamma(n, unit) * np.cumsum(np.abs(x), -1)
        elif op == ScanOp.PROD:
            value = np.cumprod(x, -1)
            error = gamma(n, unit) * np.abs(value)
        elif op == ScanOp.LOGSUMEXP:
            return _log_cum_sum_exp(x, dtype, dim)
        else:
            pick = np.maximum if op == ScanOp.MAX else np.minimum
            value, error = pick.accumulate(x, -1), zero
    error = np.where(np.isfinite(error), error, 0)
    return Bounded(np.moveaxis(value, -1, dim), dtype, np.moveaxis(error, -1, dim))


def _log_cum_sum_exp(x: Array, dtype: Dtype, dim: int) -> Bounded:
    """Step by step: max + log1p(exp(min - max)), each step bounded from the one before."""
    columns = []
    total = Bounded(x[..., 0], dtype)
    columns.append(total)
    for k in range(1, x.shape[-1]):
        new = Bounded(x[..., k], dtype)
        larger = total.where(total.value >= new.value, new)
        smaller = new.where(total.value >= new.value, total)
        gap = smaller - larger
        nothing = np.isneginf(smaller.value)
        step = larger + gap.apply("exp", np.exp).apply("log1p", np.log1p)
        total = larger.where(nothing, step)
        columns.append(total)
    value = np.stack([c.value for c in columns], dim)
    error = np.stack([np.broadcast_to(c.error, c.value.shape) for c in columns], dim)
    return Bounded(value, dtype, error).reordered()


def scan_integers(op: ScanOp, values: Array, compute: Dtype, dim: int) -> Array:
    """Prefixes of integers, wrapped to the compute dtype."""
    x = values.astype(np.int64)
    with np.errstate(over="ignore"):
        scans: dict[ScanOp, Callable[[], Array]] = {
            ScanOp.SUM: lambda: np.cumsum(x, dim, dtype=np.int64),
            ScanOp.PROD: lambda: np.cumprod(x, dim, dtype=np.int64),
            ScanOp.MAX: lambda: np.maximum.accumulate(x, dim),
            ScanOp.MIN: lambda: np.minimum.accumulate(x, dim),
        }
        result = scans[op]()
    return result.astype(HOST[compute])


def scan_indices(op: ScanOp, values: Array, dim: int) -> Array:
    """Where the running extreme was last reached; NaN, once met, stays and renews itself."""
    x = np.moveaxis(values, dim, -1)
    numbers = wide(x) if x.dtype.kind not in "iu" else x
    out = np.zeros(x.shape, np.int64)
    best = numbers[..., 0]
    at = np.zeros(best.shape, np.int64)
    for k in range(1, x.shape[-1]):
        new = numbers[..., k]
        with np.errstate(invalid="ignore"):
            wins = new >= best if op == ScanOp.MAX else new <= best
        if numbers.dtype.kind == "f":
            wins = (wins & ~np.isnan(best)) | np.isnan(new)
        best, at = np.where(wins, new, best), np.where(wins, k, at)
        out[..., k] = at
    return np.moveaxis(out, -1, dim)


def sort_order(values: Array, dim: int, descending: bool) -> Array:
    """Indices of a stable sort along a dimension; NaN is larger than every number."""
    x = np.moveaxis(values, dim, -1)
    if x.dtype.kind in "biu":
        key = x.astype(np.int64)
        rank = -key - 1 if descending else key  # -key - 1 does not overflow
        order = np.argsort(rank, -1, kind="stable")
    else:
        key = wide(x)
        nan = np.isnan(key)
        number = np.where(nan, 0, -key if descending else key)
        group = ~nan if descending else nan
        order = np.lexsort((number, group), -1)
    return np.moveaxis(order, -1, dim)


def same_values(one: Array, other: Array) -> Array:
    """Equal, where any NaN equals any other and -0 equals 0."""
    if one.dtype.kind in "biu":
        return np.asarray(one == other)
    a, b = wide(one), wide(other)
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def supported(op: ScanOp, dtype: Dtype) -> bool:
    return is_float(dtype) or op != ScanOp.LOGSUMEXP
