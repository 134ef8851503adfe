"""The ``torch.ops.chipset.*`` operators, composed from plain PyTorch.

Each operator is defined here once, with an implementation that runs on any device. A device
that has a native kernel registers it under its own dispatch key, which then takes precedence.
Their gradients are in :mod:`chipset_layers.gradients`.

Importing this module is what makes the operators exist; it may be imported more than once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from chipset_layers import gradients
from chipset_layers.nibbles import dequantize_int4

SCHEMAS = {
    "linear_int8": "(Tensor x, Tensor qweight, Tensor scale, Tensor? bias) -> Tensor",
    "linear_int4": "(Tensor x, Tensor qweight, Tensor scale, Tensor? bias) -> Tensor",
    "rms_norm": "(Tensor x, Tensor weight, float eps) -> Tensor",
    "rotary": "(Tensor q, Tensor k, Tensor cos, Tensor sin) -> (Tensor, Tensor)",
    "attention_paged": (
        "(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor query_start, "
        "Tensor kv_len, float scale) -> Tensor"
    ),
    "swiglu": "(Tensor gate, Tensor up) -> Tensor",
}


def linear_int8(x: Tensor, qweight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ (qweight * scale[:, None]).T + bias``: int8 weights, floating-point activations.

    Args:
        x: f32, bf16 or f16 ``[..., K]``.
        qweight: int8 ``[N, K]``, symmetric (zero point 0).
        scale: f32 ``[N]``, one per output channel.
        bias: ``[N]`` or None.

    Returns:
        ``[..., N]`` in the dtype of ``x``. Every int8 value is exact in bf16, so the product
        is taken unscaled and the scale applied to the sum.
    """
    y = F.linear(x, qweight.to(x.dtype)) * scale
    if bias is not None:
        y = y + bias
    return y.to(x.dtype)


def linear_int8_cpu(x: Tensor, qweight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """:func:`linear_int8` for PyTorch's own CPU, which has a kernel that reads int8 directly."""
    rows = x.reshape(-1, x.shape[-1])
    # The kernel walks the weights once per few rows; above these counts (measured on AVX-512
    # with BF16) converting the weights and calling the GEMM is faster.
    most = 2 if x.dtype == torch.float32 else 16
    if not 0 < rows.shape[0] <= most or x.shape[-1] % 16 or not qweight.is_contiguous():
        return linear_int8(x, qweight, scale, bias)
    # The kernel wants scales in the dtype of x; rounding them to bf16 would bias a channel.
    one = torch.ones_like(scale, dtype=x.dtype)
    y = torch._weight_int8pack_mm(rows.contiguous(), qweight, one) * scale
    if bias is not None:
        y = y + bias
    return y.to(x.dtype).view(*x.shape[:-1], qweight.shape[0])


def linear_int4(x: Tensor, qweight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ dequantize(qweight, scale).T + bias``: int4 weights, floating-point activations.

    Args:
        x: f32, bf16 or f16 ``[..., K]``, K even.
        qweight: uint8 ``[N, K / 2]``: two weights a byte, the even column in the low half, each in
            two's complement, symmetric (zero point 0).
        scale: f32 ``[N, G]``: one for each K / G neighbours in a row; G divides K.
        bias: ``[N]`` or None.

    Returns:
        ``[..., N]`` in the dtype of ``x``.
    """
    weight = dequantize_int4(qweight, scale).to(x.dtype)
    return F.linear(x, weight, None if bias is None else bias.to(x.dtype))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension, as ``transformers`` computes it.

    The mean is taken in f32, the normalised value is rounded to the dtype of ``x`` and then
    multiplied by ``weight`` ``[..., D]``. Source: Zhang and Sennrich, arXiv 1910.07467.
    """
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary position embedding, half-rotation ("neox") layout, as in Llama.

    Args:
        q: ``[B, H, S, D]``.
        k: ``[B, Hkv, S, D]``.
        cos, sin: ``[B or 1, S, D]``, in the dtype of ``q``.

    Source: Su et al., arXiv 2104.09864.
    """
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin


def _rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) * up``, elementwise. Source: Shazeer, arXiv 2002.05202."""
    return F.silu(gate) * up


def attention_paged(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start: Tensor,
    kv_len: Tensor,
    scale: float,
) -> Tensor:
    """Causal attention of packed new tokens over a paged key/value cache.

    Args:
        q: ``[T, H, D]``, the new tokens of all sequences one after the other.
        k_cache, v_cache: ``[num_blocks, block_size, Hkv, D]``; ``H`` is a multiple of ``Hkv``.
            The keys and values of the new tokens have been written already.
        block_table: int32 ``[B, max_blocks]``, the blocks of each sequence in order.
        query_start: int32 ``[B + 1]``; sequence ``b`` owns rows ``query_start[b:b + 2]``.
        kv_len: int32 ``[B]``, tokens in the cache including the new ones. A query's mask is
            bottom-right aligned: the last new token sees all ``kv_len`` keys.
        scale: multiplies the scores, usually ``D ** -0.5``.

    Returns:
        ``[T, H, D]`` in the dtype of ``q``. Layout after vLLM's PagedAttention,
        arXiv 2309.06180.
    """
    if q.shape[0] == block_table.shape[0]:
        # One token a sequence (decode): no value leaves the device, so it can be captured.
        return _attention_gathered(q, k_cache, v_cache, block_table, query_start, kv_len, scale)
    out = torch.empty_like(q)
    starts, lengths = query_start.tolist(), kv_len.tolist()
    block_size = k_cache.shape[1]
    for b, length in enumerate(lengths):
        rows = slice(starts[b], starts[b + 1])
        blocks = block_table[b, : -(-length // block_size)].long()
        keys = k_cache[blocks].flatten(0, 1)[:length]
        values = v_cache[blocks].flatten(0, 1)[:length]
        out[rows] = _attention_one(q[rows], keys, values, scale)
    return out


def _attention_one(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """``q [S, H, D]`` over ``k, v [L, Hkv, D]``, bottom-right causal."""
    new, length = q.shape[0], k.shape[0]
    mask = None
    if new > 1 and new != length:
        mask = torch.ones(new, length, dtype=torch.bool, device=q.device).tril(length - new)
    y = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        attn_mask=mask,
        is_causal=new > 1 and new == length,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return y[0].transpose(0, 1)


def _attention_gathered(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start: Tensor,
    kv_len: Tensor,
    scale: float,
) -> Tensor:
    """All rows at once over every slot of the block table, the unused ones masked."""
    tokens, heads, dim = q.shape
    kv_heads = k_cache.shape[2]
    row = torch.arange(tokens, device=q.device, dtype=query_start.dtype)
    seq = torch.searchsorted(query_start[1:].contiguous(), row, right=True)
    last = kv_len[seq] - (query_start[1:][seq] - row)  # index of the last key a row may see
    table = block_table[seq].long()
    k = k_cache[table].flatten(1, 2).transpose(1, 2)  # [T, Hkv, L, D]
    v = v_cache[table].flatten(1, 2).transpose(1, 2)
    slot = torch.arange(k.shape[2], device=q.device)
    mask = slot[None] <= last[:, None]
    # The query heads that share a key head become rows of one attention.
    grouped = q.view(tokens, kv_heads, heads // kv_heads, dim)
    y = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask[:, None, None, :], scale=scale)
    return y.reshape(tokens, heads, dim)


def _meta_linear(x: Tensor, qweight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], qweight.shape[0])


def _meta_attention_paged(q: Tensor, *rest: object) -> Tensor:
    return torch.empty_like(q)


COMPOSED = {
    "linear_int8": linear_int8,
    "linear_int4": linear_int4,
    "rms_norm": rms_norm,
    "rotary": rotary,
    "attention_paged": attention_paged,
    "swiglu": swiglu,
}


def _register() -> torch.library.Library:
    library = torch.library.Library("chipset", "FRAGMENT")
    for name, schema in SCHEMAS.items():
        library.define(name + schema)
        library.impl(name, COMPOSED[name], "CompositeExplicitAutograd")
    library.impl("linear_int8", linear_int8_cpu, "CPU")
    library.impl("linear_int8", _meta_linear, "Meta")
    library.impl("linear_int4", _meta_linear, "Meta")
    library.impl("attention_paged", _meta_attention_paged, "Meta")
    gradients.register(library)
    return library


_library = _register()
