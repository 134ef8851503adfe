"""The paged attention that unmodified transformers models call through the attention registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import chipset_layers.ops  # noqa: F401  (defines torch.ops.chipset)
from chipset_layers.errors import LayerError

NAME = "chipset_paged"


@dataclass
class PagedStep:
    """What attention needs to know of one step; all tensors lie on the device.

    Attributes:
        keys, values: per layer ``[num_blocks, block_size, Hkv, D]``.
        slots: int64 ``[T]``, where each new token goes in a cache seen as ``[slots, Hkv, D]``.
        block_table: int32 ``[B, max_blocks]``.
        query_start: int32 ``[B + 1]``.
        kv_len: int32 ``[B]``, including the new tokens.
    """

    keys: list[Tensor]
    values: list[Tensor]
    slots: Tensor
    block_table: Tensor
    query_start: Tensor
    kv_len: Tensor


def paged_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    paged_step: PagedStep | None = None,
    sliding_window: int | None = None,
    **other: Any,
) -> tuple[Tensor, None]:
    """Write the new keys and values into the cache, then attend over it.

    Args:
        query: ``[1, H, T, D]``; key, value: ``[1, Hkv, T, D]``: one packed row.
        paged_step: handed through the model's forward call.

    Returns:
        ``[1, T, H, D]`` and no attention weights.
    """
    if paged_step is None:
        raise LayerError("paged attention was called outside of the inference engine")
    for unsupported in ("softcap", "s_aux"):
        if other.get(unsupported) is not None:
            raise LayerError(f"paged attention does not support '{unsupported}' of this model")
    capacity = paged_step.block_table.shape[1] * paged_step.keys[0].shape[1]
    if sliding_window is not None and sliding_window < capacity:
        raise LayerError(
            f"paged attention has no sliding window; this model's is {sliding_window} tokens, "
            f"so limit the length of a sequence to it (now {capacity})"
        )
    k_cache = paged_step.keys[module.layer_idx]
    v_cache = paged_step.values[module.layer_idx]
    k_cache.flatten(0, 1).index_copy_(0, paged_step.slots, key[0].transpose(0, 1))
    v_cache.flatten(0, 1).index_copy_(0, paged_step.slots, value[0].transpose(0, 1))
    out = torch.ops.chipset.attention_paged(
        query[0].transpose(0, 1).contiguous(),
        k_cache,
        v_cache,
        paged_step.block_table,
        paged_step.query_start,
        paged_step.kv_len,
        query.shape[-1] ** -0.5 if scaling is None else scaling,
    )
    return out[None], None


def register_attention() -> str:
    """Make the attention known to transformers and return its name.

    No mask function is registered under the name, so transformers builds no mask.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, paged_attention)
    return NAME
