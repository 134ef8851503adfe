"""What the reducing collectives give, and how far a sum in any order of ranks may end from it.

A sum over n ranks differs from the exact one by at most gamma_(n-1) * sum |x_i|, whatever the
order (Higham, section 4.2, (4.4)); a product likewise relative to itself. F16 and BF16 accumulate
in F32 and round once (COL-002), so u is F32's for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from chipset._interface import CollectiveOp, Dtype
from chipset_conformance.numerics import HOST, Array, Bounded, is_float, wide

BITWISE = (CollectiveOp.BAND, CollectiveOp.BOR, CollectiveOp.BXOR)
_WHOLE: dict[CollectiveOp, Callable[[Array, Array], Array]] = {
    CollectiveOp.SUM: np.add,
    CollectiveOp.PROD: np.multiply,
    CollectiveOp.MIN: np.minimum,
    CollectiveOp.MAX: np.maximum,
    CollectiveOp.BAND: np.bitwise_and,
    CollectiveOp.BOR: np.bitwise_or,
    CollectiveOp.BXOR: np.bitwise_xor,
}
# Truth values count as 0 and 1, and what is not 0 is stored as 1 (NUM-002).
_TRUTH: dict[CollectiveOp, Callable[[Array, Array], Array]] = {
    **_WHOLE,
    CollectiveOp.SUM: np.logical_or,
    CollectiveOp.PROD: np.logical_and,
    CollectiveOp.MIN: np.logical_and,
    CollectiveOp.MAX: np.logical_or,
}


def supported(op: CollectiveOp, dtype: Dtype) -> bool:
    """Whether the interface says what the operation gives for the dtype."""
    if is_float(dtype):
        return op not in BITWISE
    return not (op == CollectiveOp.AVG and dtype == Dtype.BOOL)


def whole(op: CollectiveOp, dtype: Dtype, parts: Sequence[Array]) -> Array:
    """Integers and truth values; they wrap (NUM-004). An average must come out even."""
    if op == CollectiveOp.AVG:
        total = sum(part.astype(np.int64) for part in parts)
        return np.asarray(total // len(parts)).astype(HOST[dtype])
    table = _TRUTH if dtype == Dtype.BOOL else _WHOLE
    with np.errstate(over="ignore"):
        return functools.reduce(table[op], parts).astype(HOST[dtype])


def floats(op: CollectiveOp, dtype: Dtype, parts: Sequence[Array]) -> Bounded:
    """Floats, within their bound."""
    stacked = wide(np.stack(parts))
    if op in (CollectiveOp.MIN, CollectiveOp.MAX):
        extreme = np.minimum if op == CollectiveOp.MIN else np.maximum
        with np.errstate(invalid="ignore"):
            return Bounded(extreme.reduce(stacked, 0), dtype)  # NaN propagates (NUM-003)
    if op == CollectiveOp.PROD:
        return functools.reduce(
            lambda left, right: left * right, [Bounded(part, dtype) for part in stacked]
        ).reordered()
    with np.errstate(invalid="ignore"):
        total = Bounded(stacked, dtype).sum(0)
    return total / float(len(parts)) if op == CollectiveOp.AVG else total
