"""What reduce gives, and how far from it a sum in any order may end.

A sum of n numbers in any order differs from the exact one by at most gamma_(n-1) * sum |x_i|
(Higham, section 4.2, (4.4)); products likewise by gamma_(n-1) * |product|. F16 and BF16 accumulate
in F32 (NUM-001), so u is F32's for them and one rounding to the output's dtype follows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from chipset._interface import Dtype, ReduceOp
from chipset_conformance.numerics import (
    HOST,
    Array,
    Bounded,
    gamma,
    is_float,
    ulps_of,
    unit_of,
    wide,
)

EXTREMES = (ReduceOp.MAX, ReduceOp.MIN)
ARGUMENTS = (ReduceOp.ARGMAX, ReduceOp.ARGMIN)
TRUTH = (ReduceOp.ANY, ReduceOp.ALL)
# Operations over integers; the others are defined on floats.
WHOLE = (
    ReduceOp.SUM, ReduceOp.PROD, *EXTREMES, *ARGUMENTS, *TRUTH, ReduceOp.COUNT_NONZERO,
)  # fmt: skip


def flatten(values: Array, dims: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
    """The reduced dimensions joined into the last, and the output's shape (1 where reduced)."""
    kept = [d for d in range(values.ndim) if d not in dims]
    moved = np.transpose(values, [*kept, *dims])
    outer = tuple(values.shape[d] for d in kept)
    count = int(np.prod([values.shape[d] for d in dims], dtype=np.int64))
    shape = tuple(1 if d in dims else n for d, n in enumerate(values.shape))
    return moved.reshape((*outer, count)), shape


def floats(op: ReduceOp, values: Array, dtype: Dtype, dims: tuple[int, ...], p: float) -> Bounded:
    """Exact results and bounds of a reduction over floats, in the output's shape."""
    rows, shape = flatten(wide(values), dims)
    with np.errstate(all="ignore"):
        result, error = _REDUCE[op](rows, rows.shape[-1], unit_of(dtype), dtype, p)
    finite = np.where(np.isfinite(error), error, 0)
    return Bounded(result.reshape(shape), dtype, finite.reshape(shape))


Pair = tuple[Array, Array]
Reduction = Callable[[Array, int, float, Dtype, float], Pair]


def _sum(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
    return x.sum(-1), gamma(max(0, n - 1), u) * np.abs(x).sum(-1)


def _nansum(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
    return _sum(np.where(np.isnan(x), 0, x), n, u, dtype, p)


def _mean(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
    return x.sum(-1) / n, gamma(n + 4, u) * np.abs(x).sum(-1) / n


def _prod(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
    result = x.prod(-1)
    return result, gamma(max(0, n - 1), u) * np.abs(result)


def _norm(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
    """Every term of the sum has one sign, so the relative error of the sum is gamma_n.

    The root divides it by p; powers and roots add their own ULPs.
    """
    magnitude = np.abs(x)
    if p == 0:
        return (x != 0).sum(-1).astype(x.dtype), np.zeros(x.shape[:-1], x.dtype)
    if np.isinf(p):
        pick = np.max if p > 0 else np.min
        return pick(magnitude, axis=-1), np.zeros(x.shape[:-1], x.dtype)
    total = (magnitude**p).sum(-1)
    result = total ** (1 / x.dtype.type(p))
    power = {1.0: 0.0, 2.0: 0.5}.get(p, ulps_of("pow", dtype))
    root = {1.0: 0.0, 2.0: ulps_of("sqrt", dtype)}.get(p, ulps_of("pow", dtype))
    relative = gamma(n + 2 * power, u) / abs(p) + 2 * u * root
    return result, relative * result


def _var(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
    """Chan, Golub and LeVeque (1983): a stable algorithm errs by n*u*kappa, kappa^2 = 1 + n*m^2/S;
    the one-pass formula of textbooks by n*u*kappa^2, which this bound does not grant.
    """
    mean = x.sum(-1) / n if n else np.full(x.shape[:-1], np.nan, x.dtype)
    squares = ((x - mean[..., None]) ** 2).sum(-1)
    divisor = max(0.0, n - p)
    result = squares / divisor if n else np.full(x.shape[:-1], np.nan, x.dtype)
    bound = gamma(n + 4, u) * (squares + 2 * np.abs(mean) * np.sqrt(n * squares))
    # The mean itself is off by gamma_n*mean(|x|); its square enters the sum n times.
    bound = bound + n * (gamma(n, u) * np.abs(x).mean(-1) if n else 0) ** 2
    return result, bound / divisor if divisor else np.zeros_like(result)


def _logsumexp(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
    """max + log(sum exp(x - max)): x - max errs by u*|x - max|, which exp turns relative."""
    top = x.max(-1, initial=-np.inf)
    flat = np.isinf(top)
    shift = np.where(flat, 0, top)[..., None]
    terms = np.exp(x - shift)
    total = terms.sum(-1)
    result = np.log(total) + shift[..., 0]
    result = np.where(flat & ~np.isnan(x).any(-1), top, result)
    gap = np.where(np.isfinite(x), np.abs(x - shift), 0)
    weighted = (np.where(terms > 0, terms * gap, 0)).sum(-1) / total
    relative = u * weighted + gamma(n + 2 * ulps_of("exp", dtype), u)
    own = 2 * u * ulps_of("log", dtype) * np.abs(np.log(total))
    return result, relative + own + u * np.abs(result)


def _extreme(pick: np.ufunc, start: float) -> Reduction:
    def evaluate(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
        return pick.reduce(x, axis=-1, initial=start), np.zeros(x.shape[:-1], x.dtype)

    return evaluate


def _count(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
    return (x != 0).sum(-1).astype(x.dtype), np.zeros(x.shape[:-1], x.dtype)


def _any(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
    return (x != 0).any(-1).astype(x.dtype), np.zeros(x.shape[:-1], x.dtype)


def _all(x: Array, n: int, u: float, dtype: Dtype, p: float) -> Pair:
    return (x != 0).all(-1).astype(x.dtype), np.zeros(x.shape[:-1], x.dtype)


_REDUCE: dict[ReduceOp, Reduction] = {
    ReduceOp.SUM: _sum,
    ReduceOp.MEAN: _mean,
    ReduceOp.PROD: _prod,
    ReduceOp.MAX: _extreme(np.maximum, -np.inf),
    ReduceOp.MIN: _extreme(np.minimum, np.inf),
    ReduceOp.ANY: _any,
    ReduceOp.ALL: _all,
    ReduceOp.NORM: _norm,
    ReduceOp.VAR: _var,
    ReduceOp.COUNT_NONZERO: _count,
    ReduceOp.LOGSUMEXP: _logsumexp,
    ReduceOp.NANSUM: _nansum,
}


def integers(op: ReduceOp, values: Array, compute: Dtype, dims: tuple[int, ...]) -> Array:
    """A reduction over integers or BOOL, wrapped to the compute dtype (NUM-004)."""
    rows, shape = flatten(values, dims)
    if op in ARGUMENTS:
        return arguments(op, rows).reshape(shape)
    if op in TRUTH:
        truth = (rows != 0).any(-1) if op == ReduceOp.ANY else (rows != 0).all(-1)
        return np.asarray(truth.reshape(shape))
    rows = rows.astype(np.int64) if compute != Dtype.BOOL else rows != 0
    with np.errstate(over="ignore"):
        result = {
            ReduceOp.SUM: lambda: rows.sum(-1, dtype=np.int64),
            ReduceOp.PROD: lambda: rows.prod(-1, dtype=np.int64),
            ReduceOp.MAX: lambda: rows.max(-1),
            ReduceOp.MIN: lambda: rows.min(-1),
            ReduceOp.COUNT_NONZERO: lambda: (rows != 0).sum(-1),
        }[op]()
    return np.asarray(result).astype(HOST[compute]).reshape(shape)


def arguments(op: ReduceOp, rows: Array) -> Array:
    """Index of the first NaN, else of the first extreme (NUM-003)."""
    numbers = wide(rows) if rows.dtype.kind not in "biu" else rows.astype(np.int64)
    if numbers.dtype.kind == "f":
        nan = np.isnan(numbers)
        low = np.where(nan, np.inf if op == ReduceOp.ARGMAX else -np.inf, numbers)
    else:
        nan, low = np.zeros(numbers.shape, bool), numbers
    best = np.argmax(low, -1) if op == ReduceOp.ARGMAX else np.argmin(low, -1)
    return np.asarray(np.where(nan.any(-1), np.argmax(nan, -1), best), np.int64)


def defined_on(op: ReduceOp, dtype: Dtype) -> bool:
    """Whether an operation is judged in a dtype."""
    return is_float(dtype) or op in WHOLE
