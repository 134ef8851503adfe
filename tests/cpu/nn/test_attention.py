"""attention, forward and backward, against fp64 attention over a stored score matrix."""

from __future__ import annotations

from typing import Any

import pytest
import torch

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
UNIT = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float64: 2**-53}


def visible(s_q: int, s_k: int, causal: bool, offset: int, left: int, right: int) -> torch.Tensor:
    i, j = torch.arange(s_q)[:, None], torch.arange(s_k)[None]
    keep = torch.ones(s_q, s_k, dtype=torch.bool)
    if causal:
        keep &= j <= i + offset
    if left >= 0:
        keep &= j >= i + offset - left
    if right >= 0:
        keep &= j <= i + offset + right
    return keep


def column_mask(columns: torch.Tensor, s_q: int, causal: bool) -> torch.Tensor:
    """True where FlashMask columns [B, h, Sk, n] leave a score visible: [B, h, Sq, Sk]."""
    i = torch.arange(s_q)[None, None, :, None]
    c = columns.long().permute(3, 0, 1, 2)[:, :, :, None, :]
    if causal:
        masked = i >= c[0] if len(c) == 1 else (i >= c[0]) & (i < c[1])
    elif len(c) == 2:
        masked = (i >= c[0]) | (i < c[1])
    else:
        masked = ((i >= c[0]) & (i < c[1])) | ((i >= c[2]) & (i < c[3]))
    return ~masked


def exact(q: Any, k: Any, v: Any, keep: Any, bias: Any, scale: float, cap: float) -> Any:
    """Out and log-sum-exp in fp64; rows without a key give 0 and -inf (NUM-006)."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = scale * (q @ k.mT)
    if cap:
        s = cap * torch.tanh(s / cap)
    if bias is not None:
        s = s + bias
    s = s.masked_fill(~keep, float("-inf"))
    lse = torch.logsumexp(s, -1)
    p = (s - lse.nan_to_num(neginf=0.0)[..., None]).exp()
    return p @ v, lse


def check(name: str, result: torch.Tensor, want: torch.Tensor, size: float) -> None:
    """Error <= one rounding + 64 roundings of the compute dtype at the given magnitude."""
    compute = 2**-53 if result.dtype == torch.float64 else 2**-24
    bound = UNIT[result.dtype] * want.abs() + 64 * compute * (want.abs() + size)
    if result.dtype == torch.float16:
        bound = bound + 2**-25
    error = (result.double() - want).abs()
    same_infinity = (result.double() == want) | (error <= bound)
    assert same_infinity.all(), f"{name}: worst ratio {(error / bound).max():.3g}"


def run(table: Any, dtype: torch.dtype, b: int, h: int, hkv: int, s_q: int, s_k: int, d: int,
        dv: int | None = None, causal: bool = False, offset: int | None = None, left: int = -1,
        right: int = -1, cap: float = 0.0, mask: torch.Tensor | None = None,
        columns: torch.Tensor | None = None, layout: str = "bhsd") -> None:  # fmt: skip
    torch.manual_seed(s_q + 3 * s_k + d)
    dv = dv or d
    offset = s_k - s_q if offset is None else offset

    def tensor(heads: int, s: int, size: int) -> torch.Tensor:
        if layout == "bshd":
            x = torch.randn(b, s, heads, size, dtype=torch.float64).to(dtype).transpose(1, 2)
        else:
            x = torch.randn(b, heads, s, size, dtype=torch.float64).to(dtype)
        return x

    q, k, v = tensor(h, s_q, d), tensor(hkv, s_k, d), tensor(hkv, s_k, dv)
    out = torch.full((b, h, s_q, dv), float("nan"), dtype=dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    lse = torch.full((b, h, s_q), float("nan"), dtype=wide)
    scale = d**-0.5
    common = {
        "q": q, "k": k, "v": v, "mask": mask, "startend_row_indices": columns, "flags": int(causal),
        "scale": scale, "logit_softcap": cap, "causal_offset": offset, "window_left": left,
        "window_right": right,
    }  # fmt: skip
    table.call("attention", out=out, lse=lse, **common)

    keep = visible(s_q, s_k, causal, offset, left, right)[None, None].expand(b, h, s_q, s_k)
    if columns is not None:
        by_columns = column_mask(columns, s_q, causal)
        keep = keep & by_columns.repeat_interleave(h // by_columns.shape[1], 1)
    bias = None
    if mask is not None and mask.dtype == torch.bool:
        keep = keep & mask
    elif mask is not None:
        keep = keep & (mask > float("-inf"))
        bias = mask.double().clamp(min=-1e30)
    qd, kd, vd = (x.double().requires_grad_() for x in (q, k, v))
    want, want_lse = exact(qd, kd, vd, keep, bias, scale, cap)
    check("out", out, want.detach(), 1.0)
    check("lse", lse, want_lse.detach(), 4.0)

    dout = torch.randn(out.shape, dtype=torch.float64).to(dtype)
    dq, dk, dv_ = torch.full_like(q, 9.0), torch.full_like(k, 9.0), torch.full_like(v, 9.0)
    table.call("attention_backward", out=out, lse=lse, dout=dout, dq=dq, dk=dk, dv=dv_, **common)
    if s_q * s_k:
        want.backward(dout.double())
    # The rounding of `out` enters through rowsum(dout * out), as in every flash backward.
    half = UNIT[dtype] if dtype in (torch.float16, torch.bfloat16) else 0.0
    extra = half * dv**0.5 * 4 * 2**24
    for name, got, leaf in (("dq", dq, qd), ("dk", dk, kd), ("dv", dv_, vd)):
        gradient = leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)
        size = (1 + s_q**0.5) * (1 + (extra / 64 if name != "dv" else 0.0))
        check(name, got, gradient, size)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1, 1, 1, 1), (2, 4, 2, 7, 7, 16), (1, 3, 1, 57, 57, 64), (1, 2, 2, 130, 259, 32),
     (1, 2, 1, 200, 90, 40), (2, 3, 3, 1, 300, 64), (1, 1, 1, 300, 1, 8), (1, 2, 2, 64, 129, 80)],
)  # fmt: skip
def test_shapes(table: Any, dtype: torch.dtype, causal: bool, shape: tuple[int, ...]) -> None:
    run(table, dtype, *shape, causal=causal)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape",
    [(1, 9, 3, 1, 1029, 64), (1, 2, 1, 8, 2100, 24), (3, 4, 4, 16, 140, 33), (2, 5, 1, 3, 600, 72),
     (1, 1, 1, 1, 5000, 128), (20, 2, 2, 1, 700, 16)],
)  # fmt: skip
def test_few_queries_over_many_keys(table: Any, dtype: torch.dtype, shape: Any) -> None:
    """Decoding: the keys of a head are split among threads and the splits put together."""
    run(table, dtype, *shape, causal=True)
    run(table, dtype, *shape, dv=40, left=200, causal=True, layout="bshd")
    run(table, dtype, *shape, cap=3.0, left=150, right=-1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_few_queries_with_masks(table: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    b, h, hkv, s_q, s_k = 2, 6, 2, 4, 1500
    keep = torch.rand(b, 1, s_q, s_k) > 0.5
    keep[0, 0, 2] = False  # a row without keys, in every split
    keep[1, 0, 1, 512:] = False  # whole splits without keys
    run(table, dtype, b, h, hkv, s_q, s_k, 16, mask=keep.expand(b, h, s_q, s_k))
    added = torch.randn(b, h, s_q, s_k).to(dtype)
    run(table, dtype, b, h, hkv, s_q, s_k, 16, mask=added, cap=3.0, causal=True)
    start = torch.randint(0, s_q + 2, (b, hkv, s_k, 1), dtype=torch.int32)
    start[:, :, 600:1200] = 2  # rows 2 and 3 skip whole tiles
    run(table, dtype, b, h, hkv, s_q, s_k, 16, columns=start, causal=True)
    two = torch.cat([start, start - 1], -1)
    run(table, dtype, b, h, hkv, s_q, s_k, 16, columns=two)


@pytest.mark.parametrize("dtype", FLOATS)
def test_value_size_offset_and_layout(table: Any, dtype: torch.dtype) -> None:
    run(table, dtype, 1, 2, 2, 70, 80, 24, dv=40)
    run(table, dtype, 1, 2, 1, 70, 150, 32, dv=16, causal=True, offset=0)
    run(table, dtype, 2, 4, 2, 65, 65, 32, causal=True, layout="bshd")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "left,right,causal",
    [(20, -1, True), (5, 9, False), (0, 0, False), (-1, 30, False), (200, -1, True)],
)
def test_window(table: Any, dtype: torch.dtype, left: int, right: int, causal: bool) -> None:
    run(table, dtype, 1, 2, 1, 300, 300, 16, left=left, right=right, causal=causal)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softcap(table: Any, dtype: torch.dtype) -> None:
    run(table, dtype, 1, 2, 1, 90, 131, 16, cap=2.0)
    run(table, dtype, 1, 2, 1, 90, 131, 16, cap=0.5, causal=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_masks(table: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    keep = torch.rand(2, 1, 70, 140) > 0.4
    keep[0, 0, 3] = False  # a row without keys
    run(table, dtype, 2, 4, 2, 70, 140, 16, mask=keep.expand(2, 4, 70, 140))
    added = torch.randn(1, 4, 70, 140).to(dtype)
    run(table, dtype, 2, 4, 2, 70, 140, 16, mask=added.expand(2, 4, 70, 140), cap=3.0)
    infinite = torch.zeros(2, 4, 70, 140).masked_fill(~keep, float("-inf"))
    run(table, dtype, 2, 4, 2, 70, 140, 16, mask=infinite, causal=True)


def documents(lengths: list[int]) -> list[int]:
    """For each key the first row of the next document."""
    ends = torch.tensor(lengths).cumsum(0)
    return [int(e) for e, n in zip(ends, lengths, strict=True) for _ in range(n)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_flash_mask(table: Any, dtype: torch.dtype, heads: int) -> None:
    torch.manual_seed(heads)
    s = 400
    ends = torch.tensor(documents([150, 30, 120, 100]), dtype=torch.int32)
    start = ends[None, None, :, None].expand(2, heads, s, 1)
    run(table, dtype, 2, 4, 2, s, s, 16, causal=True, columns=start)
    first = torch.randint(0, s, (2, heads, s, 1), dtype=torch.int32)
    length = torch.randint(0, 200, (2, heads, s, 1), dtype=torch.int32)
    two = torch.cat([first, first + length], -1)
    run(table, dtype, 2, 4, 2, s, s, 16, causal=True, columns=two)
    begins = torch.tensor([0] * 150 + [150] * 30 + [180] * 120 + [300] * 100, dtype=torch.int32)
    block = torch.stack([ends, begins], -1)[None, None].expand(2, heads, s, 2)
    run(table, dtype, 2, 4, 2, s, s, 16, columns=block.contiguous())
    upper = torch.randint(0, s, (2, heads, s, 1), dtype=torch.int32)
    four = torch.cat([first, first + length, upper, upper + length], -1)
    run(table, dtype, 2, 4, 2, s, s, 16, columns=four)
    run(table, dtype, 2, 4, 2, s, s, 16, columns=four, left=64, right=100)


def test_skipped_tiles_are_those_that_are_masked_as_a_whole(table: Any) -> None:
    """A boundary one row past a tile must not skip the tile's last row."""
    s = 168
    for boundary in range(54, 60):
        start = torch.full((1, 1, s, 1), boundary, dtype=torch.int32)
        run(table, torch.float32, 1, 1, 1, s, s, 8, causal=True, columns=start)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nothing_visible_gives_zeros(table: Any, dtype: torch.dtype) -> None:
    run(table, dtype, 1, 2, 2, 20, 5, 8, causal=True)  # the first 15 queries see nothing
    run(table, dtype, 1, 2, 2, 20, 0, 8)
    run(table, dtype, 1, 2, 2, 0, 20, 8)
    run(table, dtype, 1, 2, 2, 9, 9, 8, mask=torch.zeros(1, 2, 9, 9, dtype=torch.bool))


def test_hidden_infinity_and_nan_do_not_spread(table: Any) -> None:
    q, k, v = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8)
    k[0, 0, 3] = float("nan")
    out = torch.zeros_like(q)
    table.call(
        "attention", q=q, k=k, v=v, out=out, flags=1, scale=1.0, causal_offset=0, window_left=-1,
        window_right=-1,
    )  # fmt: skip
    assert out[0, 0, :3].isfinite().all()
    assert out[0, 0, 3].isnan().all()


def test_some_gradients_only_and_same_bits(table: Any) -> None:
    torch.manual_seed(1)
    q, k, v, dout = (torch.randn(1, 2, 300, 16) for _ in range(4))
    out, lse = torch.empty_like(q), torch.empty(1, 2, 300)
    common = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "flags": 1, "scale": 0.25,
              "causal_offset": 0, "window_left": -1, "window_right": -1}  # fmt: skip
    table.call("attention", **common)
    first, second, alone = torch.empty_like(q), torch.empty_like(q), torch.empty_like(k)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    table.call("attention_backward", dout=dout, dq=first, dk=dk, dv=dv, **common)
    table.call("attention_backward", dout=dout, dq=second, **common)
    table.call("attention_backward", dout=dout, dk=alone, **common)
    assert torch.equal(first, second) and torch.equal(dk, alone)


def test_refusals(table: Any, refused: type[Exception]) -> None:
    q, k = torch.zeros(1, 3, 4, 8), torch.zeros(1, 2, 4, 8)
    with pytest.raises(refused, match="3 query heads are no multiple of 2"):
        table.call("attention", q=q, k=k, v=k, out=q.clone())
    k = torch.zeros(1, 3, 4, 8)
    with pytest.raises(refused, match=r"out has shape \[1, 3, 4, 7\], need \[1, 3, 4, 8\]"):
        table.call("attention", q=q, k=k, v=k, out=torch.zeros(1, 3, 4, 7))
    columns = torch.zeros(1, 1, 4, 4, dtype=torch.int32)
    with pytest.raises(refused, match="1 or 2"):
        table.call("attention", q=q, k=k, v=k, out=q.clone(), flags=1, startend_row_indices=columns)
    with pytest.raises(refused, match="mask is i64"):
        mask = torch.zeros(1, 3, 4, 4, dtype=torch.int64)
        table.call("attention", q=q, k=k, v=k, out=q.clone(), mask=mask)
