"""Softmax, losses, norms, attention, convolution and fused optimizers agree with torch's CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

LOOSE = (1e-4, 1e-5)


def values(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_softmax(agree_on_gradients, dtype):
    x = values(3, 5, 7, dtype=dtype)
    for dim in (0, 1, -1):
        agree_on_gradients(lambda x, d=dim: x.softmax(d), x)
        agree_on_gradients(lambda x, d=dim: x.log_softmax(d), x)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy(agree_on_gradients, reduction):
    x, target = values(6, 9), torch.tensor([0, 8, -100, 3, 3, 1])
    weight = torch.rand(9)
    agree_on_gradients(lambda x, t: F.cross_entropy(x, t, reduction=reduction), x, target)
    agree_on_gradients(
        lambda x, t, w: F.cross_entropy(x, t, w, reduction=reduction), x, target, weight
    )
    image, labels = values(2, 4, 3, 3), torch.randint(0, 4, (2, 3, 3))
    agree_on_gradients(lambda x, t: F.cross_entropy(x, t, reduction=reduction), image, labels)


def test_target_out_of_bounds(chip):
    for target in (9, -1):
        with pytest.raises((IndexError, RuntimeError), match=r"range|bounds"):
            F.nll_loss(torch.zeros(1, 9, device=chip), torch.tensor([target], device=chip)).cpu()


def test_norms(agree_on_gradients):
    x, w, b = values(4, 6, 8), values(8), values(8)
    agree_on_gradients(lambda x, w, b: F.layer_norm(x, (8,), w, b), x, w, b, tolerance=LOOSE)
    agree_on_gradients(lambda x: F.layer_norm(x, (6, 8)), x, tolerance=LOOSE)
    agree_on_gradients(lambda x, w: F.rms_norm(x, (8,), w, 1e-5), x, w, tolerance=LOOSE)
    w, b = values(6), values(6)
    agree_on_gradients(lambda x, w, b: F.group_norm(x, 3, w, b), x, w, b, tolerance=LOOSE)
    agree_on_gradients(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), x, w, b, tolerance=LOOSE
    )


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float"])
def test_attention(agree_on_gradients, kv_heads, mask):
    q, k, v = values(2, 4, 5, 8), values(2, kv_heads, 7, 8), values(2, kv_heads, 7, 8)
    given = {"bool": torch.rand(5, 7) > 0.3, "float": torch.randn(2, 1, 5, 7)}.get(mask)

    def attend(q, k, v, given):
        causal = mask == "causal"
        return F.scaled_dot_product_attention(q, k, v, given, is_causal=causal, enable_gqa=True)

    agree_on_gradients(attend, q, k, v, given, tolerance=LOOSE)


def test_attention_row_without_keys_gives_zeros(chip):
    q, k = torch.randn(1, 1, 3, 8, device=chip), torch.randn(1, 1, 4, 8, device=chip)
    mask = torch.ones(3, 4, dtype=torch.bool, device=chip)
    mask[1] = False
    out = F.scaled_dot_product_attention(q, k, k, mask)
    assert torch.equal(out[0, 0, 1].cpu(), torch.zeros(8))
    assert not out.isnan().any()


def test_sdpa_kernel_choice_is_obeyed(chip):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(1, 2, 3, 8, device=chip)
    with torch.profiler.profile() as profile, sdpa_kernel(SDPBackend.MATH):
        F.scaled_dot_product_attention(q, q, q)
    names = {event.name for event in profile.events()}
    assert not any("overrideable" in name for name in names)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution(agree_on_gradients, groups, transposed):
    x, b = values(2, 4, 9, 8), values(4)
    w = values(4, 4 // groups, 3, 2)
    options = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 2), "groups": groups}
    if transposed:
        convolve = lambda x, w, b: F.conv_transpose2d(x, w, b, output_padding=(1, 0), **options)  # noqa: E731
    else:
        convolve = lambda x, w, b: F.conv2d(x, w, b, **options)  # noqa: E731
    agree_on_gradients(convolve, x, w, b, tolerance=(1e-4, 1e-4))


def test_depthwise_convolution_of_one_dimension(agree_on_gradients):
    agree_on_gradients(
        lambda x, w: F.conv1d(x, w, padding=3, groups=6), values(2, 6, 10), values(6, 1, 4),
        tolerance=LOOSE,
    )  # fmt: skip


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adam])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_fused_optimizer(agree, optimizer, amsgrad):
    def train(*start):
        params = [p.detach().clone().requires_grad_() for p in start]
        step = optimizer(params, lr=0.1, weight_decay=0.1, amsgrad=amsgrad, fused=True)
        for _ in range(3):
            sum(p.square().sum() for p in params).backward()
            step.step()
            step.zero_grad()
        return [p.detach() for p in params]

    agree(train, torch.randn(5, 3), torch.randn(7), tolerance=LOOSE)


def test_sort_and_scan(agree):
    x = torch.randn(4, 9)
    agree(lambda x: x.sort(1, descending=True), x)
    agree(lambda x: x.topk(3, 0), x)
    agree(lambda x: x.kthvalue(2, 1), x)
    agree(lambda x: x.median(1), x)
    agree(lambda x: (x.cumsum(1), x.cumprod(0), x.cummax(1), x.logcumsumexp(0)), x)
    agree(lambda x: torch.unique(x.long(), return_inverse=True, return_counts=True), x)
