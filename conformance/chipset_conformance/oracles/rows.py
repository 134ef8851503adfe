"""What the functions over rows give: softmax, norms, rotary embedding, cross-entropy.

Each is written once as a formula over :class:`Bounded`; its bound is the formula's running error.
"""

from __future__ import annotations

import numpy as np

from chipset._interface import Dtype
from chipset_conformance.numerics import Array, Bounded, evaluated_in, wide
from chipset_conformance.oracles.pointwise import exp


def _exponentials(x: Bounded) -> tuple[Bounded, Array]:
    """exp(x - max) along the last axis, and the maximum (kept)."""
    with np.errstate(all="ignore"):
        top = x.value.max(-1, keepdims=True, initial=-np.inf)
    return exp(x - Bounded(top, x.dtype)), top


def log_sum_exp(x: Bounded) -> Bounded:
    """log(sum(exp(x))) along the last axis, kept; -inf for a row of -inf."""
    powers, top = _exponentials(x)
    with np.errstate(all="ignore"):
        total = powers.sum(-1, keepdims=True).apply("log", np.log)
        result = total + Bounded(top, x.dtype)
    nothing = np.isneginf(top)
    return Bounded(np.where(nothing, -np.inf, result.value), x.dtype, result.error)


def softmax(values: Array, dtype: Dtype, dim: int, log: bool) -> Bounded:
    """Softmax or log-softmax along a dimension."""
    x = Bounded(np.moveaxis(wide(values), dim, -1), dtype)
    powers, top = _exponentials(x)
    total = powers.sum(-1, keepdims=True)
    with np.errstate(all="ignore"):
        if log:
            result = (x - Bounded(top, dtype)) - total.apply("log", np.log)
        else:
            result = powers / total
    return _moved(result, dim)


def softmax_backward(grad: Array, result: Array, dtype: Dtype, dim: int, log: bool) -> Bounded:
    """The gradient of softmax from its result and the result's gradient."""
    dy = Bounded(np.moveaxis(wide(grad), dim, -1), dtype)
    y = Bounded(np.moveaxis(wide(result), dim, -1), dtype)
    if log:
        out = dy - exp(y) * dy.sum(-1, keepdims=True)
    else:
        out = (dy - (dy * y).sum(-1, keepdims=True)) * y
    return _moved(out.reordered(), dim)


def _moved(x: Bounded, dim: int) -> Bounded:
    return Bounded(np.moveaxis(x.value, -1, dim), x.dtype, np.moveaxis(x.error, -1, dim))


# ---- norms ---------------------------------------------------------------------------------------


def norm(
    values: Array,
    weight: Array | None,
    bias: Array | None,
    dtype: Dtype,
    layer: bool,
    eps: float,
    offset: float,
) -> tuple[Bounded, Bounded, Bounded]:
    """y, mean (zeros for RMS) and rstd of an RMS or layer norm over the last of two dimensions."""
    x = Bounded(values, dtype)
    n = values.shape[-1]
    mean = x.sum(-1, keepdims=True) / n if layer else Bounded(np.zeros((len(values), 1)), dtype)
    centred = x - mean if layer else x
    variance = (centred * centred).sum(-1, keepdims=True) / n + eps
    rstd = variance.apply("rsqrt", lambda v: 1 / np.sqrt(v))
    y = centred * rstd
    if weight is not None:
        y = y * (Bounded(weight, dtype) + offset if offset else Bounded(weight, dtype))
    elif offset:
        y = y * (1 + offset)
    if bias is not None:
        y = y + Bounded(bias, dtype)
    return y.reordered(), mean.reordered()[:, 0], rstd.reordered()[:, 0]


def norm_backward(
    dy: Array,
    values: Array,
    weight: Array | None,
    mean: Array | None,
    rstd: Array,
    dtype: Dtype,
    offset: float,
) -> tuple[Bounded, Bounded, Bounded]:
    """dx, dweight and dbias from the saved statistics; ``mean`` is None for RMS."""
    x, g = Bounded(values, dtype), Bounded(dy, dtype)
    n = values.shape[-1]
    scale = Bounded(wide(rstd)[:, None], dtype)
    unscaled = x - Bounded(wide(mean)[:, None], dtype) if mean is not None else x
    normal = unscaled * scale
    inner = g
    if weight is not None:
        inner = g * (Bounded(weight, dtype) + offset if offset else Bounded(weight, dtype))
    elif offset:
        inner = g * (1 + offset)
    dx = inner - normal * ((inner * normal).sum(-1, keepdims=True) / n)
    if mean is not None:
        dx = dx - inner.sum(-1, keepdims=True) / n
    dx = dx * scale
    return dx.reordered(), (g * normal).sum(0).reordered(), g.sum(0).reordered()


# ---- rotary embedding ----------------------------------------------------------------------------


def rotary(
    values: Array, cos: Array, sin: Array, dtype: Dtype, interleaved: bool, inverse: bool
) -> Bounded:
    """x*cos + rotate(x)*sin over the first R of D; the rest is copied. cos, sin: [B,S,R]."""
    rotated = cos.shape[-1]
    x = wide(values[..., :rotated])
    turned = np.empty_like(x)
    if interleaved:
        turned[..., 0::2], turned[..., 1::2] = -x[..., 1::2], x[..., 0::2]
    else:
        half = rotated // 2
        turned[..., :half], turned[..., half:] = -x[..., half:], x[..., :half]
    if inverse:
        turned = -turned
    c, s = (Bounded(wide(t)[:, None], dtype) for t in (cos, sin))
    front = (Bounded(x, dtype) * c + Bounded(turned, dtype) * s).reordered()
    rest = wide(values[..., rotated:])
    value = np.concatenate([front.value, rest], -1)
    return Bounded(value, dtype, np.concatenate([front.error, np.zeros_like(rest)], -1))


# ---- cross-entropy -------------------------------------------------------------------------------


def cross_entropy(
    logits: Array, target: Array, dtype: Dtype, smoothing: float, ignore: int
) -> tuple[Bounded, Bounded]:
    """Loss and log-sum-exp per row; the loss of an ignored row is 0."""
    x = Bounded(logits, dtype)
    lse = log_sum_exp(x)[:, 0]
    kept = target != ignore
    rows = np.arange(len(target))
    chosen = x[rows, np.where(kept, target, 0)]
    loss = lse - chosen
    if smoothing:
        uniform = lse - x.sum(-1) / logits.shape[-1]
        loss = loss * (1 - smoothing) + uniform * smoothing
    return loss.reordered().where(kept, 0.0), lse.reordered()


def cross_entropy_backward(
    logits: Array,
    target: Array,
    lse: Array,
    dloss: Array,
    dtype: Dtype,
    smoothing: float,
    ignore: int,
) -> Bounded:
    """(softmax(logits) - onehot(target), smoothed) * dloss; 0 in ignored rows."""
    evaluated = evaluated_in(dtype)
    x = Bounded(logits, evaluated)
    classes = logits.shape[-1]
    probability = exp(x - Bounded(wide(lse)[:, None], evaluated))
    kept = target != ignore
    hot = np.full(logits.shape, smoothing / classes)
    rows = np.arange(len(target))[kept]
    hot[rows, target[kept]] += 1 - smoothing
    grad = (probability - hot) * Bounded(wide(dloss)[:, None], evaluated)
    return grad.reordered().where(np.broadcast_to(kept[:, None], logits.shape), 0.0)
