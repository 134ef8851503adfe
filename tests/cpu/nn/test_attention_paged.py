"""attention_paged against fp64 attention over the keys that the block table names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

UNIT = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float64: 2**-53}


def exact(q: Any, k: Any, v: Any, scale: float, window: int, cap: float) -> torch.Tensor:
    """q [n, H, D] are the last tokens of k, v [keys, Hkv, D]."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = scale * torch.einsum("nhd,khd->hnk", q, k)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    position = len(k) - len(q) + torch.arange(len(q))[:, None]
    key = torch.arange(len(k))[None]
    hidden = key > position
    if window >= 0:
        hidden |= key < position - window
    p = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("hnk,khd->nhd", p, v)


@pytest.mark.parametrize("dtype", list(UNIT))
@pytest.mark.parametrize("window,cap", [(-1, 0.0), (20, 0.0), (-1, 5.0), (0, 2.0)])
@pytest.mark.parametrize("heads,kv_heads,size", [(4, 4, 64), (8, 2, 40), (3, 1, 129)])
def test_matches_fp64(
    table: Any, dtype: Any, window: int, cap: float, heads: int, kv_heads: int, size: int
) -> None:
    check(table, dtype, window, cap, heads, kv_heads, size, contiguous)


@pytest.mark.parametrize("dtype", list(UNIT))
def test_elements_may_have_a_stride(table: Any, dtype: Any) -> None:
    check(table, dtype, 20, 0.0, 4, 2, 33, column)


def contiguous(t: torch.Tensor) -> torch.Tensor:
    return t


def column(t: torch.Tensor) -> torch.Tensor:
    """The same numbers, the elements of a row three apart."""
    return t.repeat_interleave(3, -1)[..., ::3]


def check(
    table: Any, dtype: Any, window: int, cap: float, heads: int, kv_heads: int, size: int,
    layout: Callable[[torch.Tensor], torch.Tensor],
) -> None:  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    tokens, keys, block = [1, 7, 0, 1], [300, 33, 5, 1], 16
    max_blocks = 20
    blocks = 4 * max_blocks
    order = torch.randperm(blocks, generator=generator).int().view(4, max_blocks)
    cache = [torch.randn(blocks, block, kv_heads, size, generator=generator) for _ in range(2)]
    k_cache, v_cache = (layout(c.to(dtype)) for c in cache)
    q = layout(torch.randn(sum(tokens) + 2, heads, size, generator=generator).to(dtype))
    out = layout(torch.full(q.shape, 7.0, dtype=dtype))
    start = torch.tensor([0, *torch.tensor(tokens).cumsum(0)], dtype=torch.int32)
    table.call(
        "attention_paged", max_query=7, q=q, k_cache=k_cache, v_cache=v_cache, block_table=order,
        query_start=start, kv_len=torch.tensor(keys, dtype=torch.int32), out=out,
        scale=size**-0.5, window_left=window, logit_softcap=cap,
    )  # fmt: skip
    for s, count in enumerate(tokens):
        used = order[s].long()
        k, v = (c[used].flatten(0, 1)[: keys[s]].double() for c in (k_cache, v_cache))
        rows = slice(int(start[s]), int(start[s]) + count)
        want = exact(q[rows].double(), k, v, size**-0.5, window, cap)
        error = (out[rows].double() - want).abs()
        compute = 4e-15 if dtype == torch.float64 else 2e-6
        assert (error <= UNIT[dtype] * want.abs() + compute).all(), error.max()
    assert (out[sum(tokens) :] == 7).all(), "tokens beyond query_start[B] were written"


@pytest.mark.parametrize("fault", ["block", "keys", "tokens"])
def test_refuses_what_lies_outside(table: Any, refused: Any, fault: str) -> None:
    q, cache = torch.randn(2, 2, 8), torch.randn(3, 4, 1, 8)
    block_table = torch.tensor([[0, 3 if fault == "block" else 2]], dtype=torch.int32)
    kv_len = torch.tensor([9 if fault == "keys" else 8], dtype=torch.int32)
    start = torch.tensor([0, 3 if fault == "tokens" else 2], dtype=torch.int32)
    with pytest.raises(refused, match="block_table|kv_len|tokens"):
        table.call(
            "attention_paged", max_query=2, q=q, k_cache=cache, v_cache=cache,
            block_table=block_table, query_start=start, kv_len=kv_len,
            out=torch.empty_like(q), scale=1.0, window_left=-1,
        )  # fmt: skip
