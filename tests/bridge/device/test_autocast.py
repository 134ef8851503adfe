"""Mixed precision: autocast and loss scaling."""

from __future__ import annotations

import pytest
import torch


def test_defaults(chip: torch.device) -> None:
    assert torch.get_autocast_dtype("chip") == torch.bfloat16
    assert torch.amp.is_autocast_available("chip")
    assert torch.bfloat16 in torch.chip.get_amp_supported_dtype()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_lists(chip: torch.device, dtype: torch.dtype) -> None:
    a = torch.randn(4, 4, device=chip)
    with torch.autocast("chip", dtype=dtype):
        assert torch.mm(a, a).dtype == dtype
        assert torch.nn.functional.linear(a, a).dtype == dtype
        assert torch.softmax(torch.mm(a, a), 0).dtype == torch.float32
        assert torch.exp(torch.mm(a, a)).dtype == torch.float32
        assert (torch.mm(a, a) + a).dtype == torch.float32
        with torch.autocast("chip", enabled=False):
            assert torch.mm(a, a).dtype == torch.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            torch.nn.functional.binary_cross_entropy(a.sigmoid(), a.sigmoid())
    with torch.chip.amp.autocast():
        assert torch.mm(a, a).dtype == torch.bfloat16


def test_gradients_arrive_in_the_parameters_dtype(chip: torch.device) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8)
    with torch.autocast("cpu"):
        layer(x).float().square().mean().backward()
    expected = layer.weight.grad
    layer.weight.grad = None
    there = layer.to(chip)
    with torch.autocast("chip"):
        there(x.to(chip)).float().square().mean().backward()
    assert there.weight.grad.dtype == torch.float32
    assert torch.allclose(there.weight.grad.cpu(), expected, atol=2e-3)


def test_grad_scaler_skips_a_step_with_infinities(chip: torch.device, no_fallback: None) -> None:
    weight = torch.nn.Parameter(torch.ones(4, device=chip))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("chip", init_scale=8.0, growth_interval=1)

    scaler.scale((weight * 2).sum()).backward()
    assert torch.equal(weight.grad.cpu(), torch.full((4,), 16.0))
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(weight.detach().cpu(), torch.zeros(4))
    assert scaler.get_scale() == 16.0

    optimizer.zero_grad()
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(weight.detach().cpu(), torch.zeros(4))
    assert scaler.get_scale() == 8.0
