"""Gradients of the ``torch.ops.chipset.*`` operators.

Each is written in operators that have gradients themselves, so second derivatives exist too.
Attention over a paged cache has none: a cache is written in place, and serves inference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from chipset_layers.nibbles import dequantize_int4, unpack_nibbles

Saved = Any  # what torch hands from the forward to the backward


def _linear_setup(ctx: Saved, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, qweight, scale, _ = inputs
    ctx.save_for_backward(x, qweight, scale)


def _linear_int8_backward(ctx: Saved, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The weights are integers and have no gradient; their scale has."""
    x, qweight, scale = ctx.saved_tensors
    grad_x = grad_scale = grad_bias = None
    weight = qweight.to(x.dtype)
    rows = grad.reshape(-1, grad.shape[-1])
    if ctx.needs_input_grad[0]:
        grad_x = ((grad * scale).to(x.dtype) @ weight).to(x.dtype)
    if ctx.needs_input_grad[2]:
        product = F.linear(x, weight).reshape(rows.shape)
        wide = torch.promote_types(x.dtype, torch.float32)
        grad_scale = (rows.to(wide) * product.to(wide)).sum(0).to(scale.dtype)
    if ctx.needs_input_grad[3]:
        grad_bias = rows.sum(0)
    return grad_x, None, grad_scale, grad_bias


def _linear_int4_backward(ctx: Saved, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The weights are integers and have no gradient; their scales have."""
    x, qweight, scale = ctx.saved_tensors
    grad_x = grad_scale = grad_bias = None
    rows = grad.reshape(-1, grad.shape[-1])
    if ctx.needs_input_grad[0]:
        grad_x = grad @ dequantize_int4(qweight, scale).to(grad.dtype)
    if ctx.needs_input_grad[2]:
        grad_weight = (rows.T @ x.reshape(-1, x.shape[-1])).to(scale.dtype)
        steps = grad_weight * unpack_nibbles(qweight).to(scale.dtype)
        grad_scale = steps.view(*scale.shape, -1).sum(-1)
    if ctx.needs_input_grad[3]:
        grad_bias = rows.sum(0)
    return grad_x, None, grad_scale, grad_bias


def _rms_norm_setup(ctx: Saved, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _rms_norm_backward(ctx: Saved, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + ctx.eps)
    unit = wide * scale
    slope = grad.to(wide.dtype) * weight.to(wide.dtype)
    grad_x = grad_weight = None
    if ctx.needs_input_grad[0]:
        grad_x = scale * (slope - unit * (slope * unit).mean(-1, keepdim=True))
        grad_x = grad_x.to(x.dtype)
    if ctx.needs_input_grad[1]:
        terms = grad.to(wide.dtype) * unit
        grad_weight = terms.reshape(-1, terms.shape[-1]).sum(0).to(weight.dtype)
    return grad_x, grad_weight, None


def _rotary_setup(ctx: Saved, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs)


def _rotary_backward(ctx: Saved, grad_q: Tensor, grad_k: Tensor) -> tuple[Tensor | None, ...]:
    q, k, cos, sin = ctx.saved_tensors
    grad_cos = grad_sin = None
    if ctx.needs_input_grad[2]:
        grad_cos = _over_heads(grad_q * q, cos) + _over_heads(grad_k * k, cos)
    if ctx.needs_input_grad[3]:
        grad_sin = _over_heads(grad_q * _turned(q), sin) + _over_heads(grad_k * _turned(k), sin)
    return (
        grad_q * cos.unsqueeze(1) - _turned(grad_q * sin.unsqueeze(1)),
        grad_k * cos.unsqueeze(1) - _turned(grad_k * sin.unsqueeze(1)),
        grad_cos,
        grad_sin,
    )


def _turned(x: Tensor) -> Tensor:
    """``(a, b)`` as ``(-b, a)``, by halves of the last dimension; its transpose is its negative."""
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def _over_heads(terms: Tensor, like: Tensor) -> Tensor:
    """``[B, H, S, D]`` summed to the shape of ``like [B or 1, S, D]``."""
    return terms.sum(1).sum_to_size(like.shape)


def _swiglu_setup(ctx: Saved, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _swiglu_backward(ctx: Saved, grad: Tensor) -> tuple[Tensor, Tensor]:
    gate, up = ctx.saved_tensors
    share = torch.sigmoid(gate)
    return grad * up * share * (1 + gate * (1 - share)), grad * gate * share


def _attention_paged_setup(ctx: Saved, inputs: tuple[Any, ...], output: Tensor) -> None:
    pass


def _attention_paged_backward(ctx: Saved, grad: Tensor) -> tuple[Tensor | None, ...]:
    raise NotImplementedError(
        "torch.ops.chipset.attention_paged has no gradient: a paged cache serves inference; train "
        "with torch.nn.functional.scaled_dot_product_attention, or detach its inputs"
    )


GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "linear_int8": (_linear_int8_backward, _linear_setup),
    "linear_int4": (_linear_int4_backward, _linear_setup),
    "rms_norm": (_rms_norm_backward, _rms_norm_setup),
    "rotary": (_rotary_backward, _rotary_setup),
    "swiglu": (_swiglu_backward, _swiglu_setup),
    "attention_paged": (_attention_paged_backward, _attention_paged_setup),
}


def register(library: torch.library.Library) -> None:
    """Gives the operators of ``library`` (namespace ``chipset``) their gradients."""
    for name, (backward, setup) in GRADIENTS.items():
        torch.library.register_autograd(
            f"chipset::{name}", backward, setup_context=setup, lib=library
        )
