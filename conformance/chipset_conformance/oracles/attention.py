"""What attention gives, forward, backward and over a paged cache.

The bound is the running error of the naive algorithm in F32 (F64 for F64), plus, for F16 and BF16,
one rounding of the probabilities and of their gradients to that dtype before the second product:
matrix units take them so, and FlashAttention's own tests grant as much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chipset._interface import Dtype
from chipset_conformance.numerics import FORMATS, Array, Bounded, evaluated_in, gamma, wide


@dataclass(frozen=True)
class Options:
    """What hides keys and shapes scores; fields as in chipset_attention_args."""

    scale: float = 0.25
    causal: bool = False
    causal_offset: int = 0
    window_left: int = -1
    window_right: int = -1
    softcap: float = 0.0


@dataclass(frozen=True)
class Forward:
    """out [B,H,Sq,Dv]; lse [B,H,Sq]; what the backward needs."""

    out: Bounded
    lse: Bounded


def matmul(a: Bounded, b: Bounded) -> Bounded:
    """a @ b of bounded operands: their errors, and gamma_K |a||b| of the sum."""
    relative = gamma(a.value.shape[-1], FORMATS[a.dtype].unit)
    # Errors need few digits, and F64 is multiplied many times faster than longdouble.
    left, right, left_error, right_error = (
        x.astype(np.float64) for x in (np.abs(a.value), np.abs(b.value), a.error, b.error)
    )
    error = left @ (right_error + relative * right) + left_error @ (right + right_error)
    return Bounded(a.value @ b.value, a.dtype, error)


def transposed(x: Bounded) -> Bounded:
    return Bounded(np.swapaxes(x.value, -1, -2), x.dtype, np.swapaxes(x.error, -1, -2))


def visible(
    heads: tuple[int, int],
    queries: int,
    keys: int,
    options: Options,
    mask: Array | None,
    columns: Array | None,
) -> Array:
    """Which keys each query sees, bool [B,H,Sq,Sk]. heads: (B, H)."""
    row, column = np.arange(queries)[:, None], np.arange(keys)[None, :]
    distance = column - row - options.causal_offset
    seen = np.ones((queries, keys), bool)
    if options.causal:
        seen &= distance <= 0
    if options.window_left >= 0:
        seen &= distance >= -options.window_left
    if options.window_right >= 0:
        seen &= distance <= options.window_right
    out = np.broadcast_to(seen, (*heads, queries, keys)).copy()
    if mask is not None and mask.dtype == np.bool_:
        out &= mask
    if columns is not None:  # FlashMask: [B, H or Hkv or 1, Sk, n]
        given = np.repeat(columns, heads[1] // columns.shape[1], 1).astype(np.int64)
        bounds = [given[..., i][:, :, None, :] for i in range(given.shape[-1])]
        if options.causal:
            hidden = row >= bounds[0]
            if len(bounds) == 2:
                hidden = hidden & (row < bounds[1])
        elif len(bounds) == 2:
            hidden = (row >= bounds[0]) | (row < bounds[1])
        else:
            hidden = ((row >= bounds[0]) & (row < bounds[1])) | (
                (row >= bounds[2]) & (row < bounds[3])
            )
        out &= ~hidden
    return out


def _scores(
    q: Array, k: Array, dtype: Dtype, options: Options, mask: Array | None
) -> tuple[Bounded, Bounded]:
    """Scores after the cap and the additive mask, and the capped scores."""
    group = q.shape[1] // k.shape[1]
    keys = Bounded(np.repeat(wide(k), group, 1), dtype)
    scores = matmul(Bounded(q, dtype), transposed(keys)) * options.scale
    if options.softcap:
        scores = (scores / options.softcap).apply("tanh", np.tanh) * options.softcap
    capped = scores
    if mask is not None and mask.dtype != np.bool_:
        with np.errstate(all="ignore"):
            scores = scores + Bounded(np.broadcast_to(wide(mask), scores.value.shape), dtype)
    return scores, capped


def forward(
    q: Array,
    k: Array,
    v: Array,
    dtype: Dtype,
    options: Options,
    mask: Array | None = None,
    columns: Array | None = None,
) -> Forward:
    """softmax(scale*q k^T, masked) v; a row that sees nothing gives 0 and -inf (NUM-006)."""
    group = q.shape[1] // k.shape[1]
    scores, _ = _scores(q, k, dtype, options, mask)
    seen = visible(q.shape[:2], q.shape[2], k.shape[2], options, mask, columns)
    with np.errstate(all="ignore"):
        hidden = np.where(seen, scores.value, -np.inf)
        top = hidden.max(-1, keepdims=True, initial=-np.inf)
        live = np.isfinite(top)
        shift = Bounded(np.where(live, top, 0), dtype)
        kept = Bounded(np.where(np.isfinite(hidden), hidden, 0), dtype, scores.error)
        powers = (kept - shift).apply("exp", np.exp).where(np.isfinite(hidden), 0.0)
        powers = Bounded(powers.value, dtype, np.where(np.isfinite(hidden), powers.error, 0))
        total = powers.sum(-1, keepdims=True)
        lse = total.apply("log", np.log) + shift
        safe = total.where(live, 1.0)
        probability = powers / safe
        if dtype != evaluated_in(dtype):
            probability = probability.rounded(dtype)
        values = Bounded(np.repeat(wide(v), group, 1), dtype)
        out = matmul(probability, values)
    zero = ~live
    out_error = np.where(zero, 0, 2 * out.error)
    lse_error = np.where(zero, 0, 2 * lse.error)[..., 0]
    return Forward(
        Bounded(np.where(zero, 0, out.value), dtype, out_error),
        Bounded(np.where(zero, -np.inf, lse.value)[..., 0], dtype, lse_error),
    )


def backward(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    dout: Array,
    dtype: Dtype,
    options: Options,
    mask: Array | None = None,
    columns: Array | None = None,
) -> tuple[Bounded, Bounded, Bounded]:
    """dq, dk and dv from out and lse; zero for a row that sees nothing (NUM-006)."""
    group = q.shape[1] // k.shape[1]
    scores, capped = _scores(q, k, dtype, options, mask)
    seen = visible(q.shape[:2], q.shape[2], k.shape[2], options, mask, columns)
    total = wide(lse)[..., None]
    with np.errstate(all="ignore"):
        seen = seen & np.isfinite(total) & np.isfinite(scores.value)
        shift = Bounded(np.where(np.isfinite(total), total, 0), dtype)
        kept = Bounded(np.where(seen, scores.value, 0), dtype, np.where(seen, scores.error, 0))
        powers = (kept - shift).apply("exp", np.exp)
    probability = Bounded(np.where(seen, powers.value, 0), dtype, np.where(seen, powers.error, 0))
    keys = Bounded(np.repeat(wide(k), group, 1), dtype)
    values = Bounded(np.repeat(wide(v), group, 1), dtype)
    upstream = Bounded(dout, dtype)
    delta = (upstream * Bounded(out, dtype)).sum(-1, keepdims=True)
    inner = probability * (matmul(upstream, transposed(values)) - delta)
    if options.softcap:
        ratio = capped / options.softcap
        inner = inner * (1 - ratio * ratio)
    inner = Bounded(np.where(seen, inner.value, 0), dtype, np.where(seen, inner.error, 0))
    used = probability
    if dtype != evaluated_in(dtype):
        inner, used = inner.rounded(dtype), probability.rounded(dtype)
    dq = matmul(inner, keys) * options.scale
    dk = matmul(transposed(inner), Bounded(q, dtype)) * options.scale
    dv = matmul(transposed(used), upstream)
    return dq.reordered(), _grouped(dk, group).reordered(), _grouped(dv, group).reordered()


def _grouped(x: Bounded, group: int) -> Bounded:
    """Gradients of the query heads that share a key head, added."""
    batch, heads, rows, columns = x.value.shape
    shape = (batch, heads // group, group, rows, columns)
    return Bounded(x.value.reshape(shape), x.dtype, x.error.reshape(shape)).sum(2)


def paged(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    table: Array,
    query_start: Array,
    kv_len: Array,
    dtype: Dtype,
    options: Options,
) -> Bounded:
    """Attention of packed tokens [T,H,D] over the blocks that each sequence owns.

    Rows of no sequence have value NaN; they must not be written.
    """
    block = k_cache.shape[1]
    value = np.full((*q.shape[:2], v_cache.shape[-1]), np.nan, wide(q).dtype)
    error = np.zeros_like(value)
    for s, length in enumerate(kv_len):
        begin, end = int(query_start[s]), int(query_start[s + 1])
        if end == begin:
            continue
        blocks = table[s, : -(-int(length) // block)]
        keys = k_cache[blocks].reshape(-1, *k_cache.shape[2:])[:length]
        values = v_cache[blocks].reshape(-1, *v_cache.shape[2:])[:length]
        first, second, third = (np.swapaxes(x, 0, 1)[None] for x in (q[begin:end], keys, values))
        own = Options(
            scale=options.scale, causal=True, causal_offset=int(length) - (end - begin),
            window_left=options.window_left, softcap=options.softcap,
        )  # fmt: skip
        out = forward(first, second, third, dtype, own).out
        value[begin:end] = np.swapaxes(out.value[0], 0, 1)
        error[begin:end] = np.swapaxes(out.error[0], 0, 1)
    return Bounded(value, dtype, error)
