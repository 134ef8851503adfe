"""Attention in bf16, forward and backward, against f64.

The bound is that of the kernel's own tests: at most twice the error of a plain bf16 computation,
plus a rounding floor.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

HEADS, HEAD_SIZE = 4, 64
FLOOR = 2**-7  # of the largest value: one rounding of the result and one of the incoming gradient


def mask_of(kind: str, rows: int, columns: int) -> torch.Tensor | None:
    """What is added to the scores, in f64; None for none."""
    generator = torch.Generator().manual_seed(1)
    if kind == "causal":
        keep = torch.ones(rows, columns, dtype=torch.bool).tril()
    elif kind == "bool":
        keep = torch.rand(2, 1, rows, columns, generator=generator) > 0.4
        keep[..., 0] = True
    elif kind == "float":
        return torch.randn(1, HEADS, rows, columns, generator=generator).bfloat16().double()
    else:
        return None
    return torch.zeros(keep.shape, dtype=torch.float64).masked_fill(~keep, -torch.inf)


def plain(q, k, v, mask):
    """The textbook's formula in the dtype of its operands."""
    groups = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
    scores = q @ k.transpose(-2, -1) * HEAD_SIZE**-0.5
    if mask is not None:
        scores = scores + mask.to(scores.dtype)
    return scores.softmax(-1) @ v


def with_gradients(attend, tensors, cotangent):
    leaves = [t.detach().requires_grad_() for t in tensors]
    out = attend(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, cotangent.to(out))]


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "float"])
@pytest.mark.parametrize(("rows", "columns"), [(37, 37), (5, 70)], ids=["square", "wide"])
def test_attention(chip, no_fallback, kind, kv_heads, rows, columns):
    torch.manual_seed(0)
    shapes = [(HEADS, rows), (kv_heads, columns), (kv_heads, columns)]
    inputs = [torch.randn(2, h, n, HEAD_SIZE).bfloat16() for h, n in shapes]
    cotangent = torch.randn(2, HEADS, rows, HEAD_SIZE).bfloat16()
    mask = mask_of(kind, rows, columns)

    given = None
    if kind in ("bool", "float"):
        given = (mask == 0 if kind == "bool" else mask.bfloat16()).to(chip)

    def on_chip(q, k, v):
        causal = kind == "causal"
        return F.scaled_dot_product_attention(q, k, v, given, is_causal=causal, enable_gqa=True)

    found = with_gradients(on_chip, [t.to(chip) for t in inputs], cotangent)
    rough = with_gradients(lambda *t: plain(*t, mask), inputs, cotangent)
    exact = with_gradients(lambda *t: plain(*t, mask), [t.double() for t in inputs], cotangent)
    for name, mine, naive, want in zip(["out", "dq", "dk", "dv"], found, rough, exact, strict=True):
        assert mine.dtype == torch.bfloat16 and mine.device == chip
        error = (mine.cpu().double() - want).abs().max()
        allowed = 2 * (naive.double() - want).abs().max() + FLOOR * want.abs().max()
        assert error <= allowed, f"{name}: error {error:.3g}, allowed {allowed:.3g}"


def test_rows_without_keys(chip, no_fallback):
    """Zeros, and zero gradients, never NaN (NUM-006); the other rows are as without them."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 6, HEAD_SIZE).bfloat16().to(chip) for _ in range(3))
    keep = torch.ones(6, 6, dtype=torch.bool, device=chip).tril()
    keep[2] = False
    ones = torch.ones(1, 2, 6, HEAD_SIZE, dtype=torch.bfloat16, device=chip)
    out, dq, dk, dv = with_gradients(
        lambda *t: F.scaled_dot_product_attention(*t, attn_mask=keep), (q, k, v), ones
    )
    assert not out[:, :, 2].any() and not dq[:, :, 2].any()
    assert all(t.isfinite().all() for t in (out, dq, dk, dv))
    causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    rest = [0, 1, 3, 4, 5]
    assert torch.equal(out[:, :, rest], causal[:, :, rest])


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_causal_with_dropout_is_composed(chip, no_fallback, kv_heads):
    """No kernel drops weights, so torch's composed form must run, and must still be causal."""
    torch.manual_seed(0)
    q = torch.randn(2, 4, 24, 16).bfloat16().to(chip).requires_grad_()
    k, v = (torch.randn(2, kv_heads, 24, 16).bfloat16().to(chip).requires_grad_() for _ in "kv")

    def attend(p: float) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p, enable_gqa=True)

    torch.manual_seed(1)
    out = attend(0.5)
    torch.manual_seed(1)
    assert torch.equal(attend(0.5), out)
    # The first row sees one key alone: its weight is 0 or 1 / (1 - p).
    first = v[:, :, 0].repeat_interleave(4 // kv_heads, 1)
    dropped, kept = (out[:, :, 0] == 0).all(-1), (out[:, :, 0] == 2 * first).all(-1)
    assert (dropped ^ kept).all() and 0 < kept.sum() < kept.numel()
    # Its gradient falls on that key alone, where it was kept.
    (grad,) = torch.autograd.grad(out[:, :, 0].float().sum(), v)
    share = kept.view(2, kv_heads, -1).sum(-1, keepdim=True) * 2
    assert torch.equal(grad[:, :, 0], share.expand(-1, -1, 16).to(grad))
    assert not grad[:, :, 1:].any()
    # On the average it is attention without dropout.
    mean = sum(attend(0.5).detach().float() for _ in range(400)) / 400
    assert (mean - attend(0.0).float()).abs().mean() < 0.08


def test_a_mask_and_causal_hold_together(chip, no_fallback):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 9, HEAD_SIZE).bfloat16().to(chip) for _ in range(3))
    keep = (torch.rand(9, 9) > 0.4).to(chip)
    keep[:, 0] = True
    both = F.scaled_dot_product_attention(q, k, v, keep, is_causal=True)
    assert torch.equal(both, F.scaled_dot_product_attention(q, k, v, keep.tril()))
