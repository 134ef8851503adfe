"""torch.compile, export and tracing with tensors on a chip."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def model(chip: torch.device) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)]
    return torch.nn.Sequential(*layers).to(chip)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
def test_loss_and_gradients_are_eager_s(
    chip: torch.device, model: torch.nn.Module, backend: str
) -> None:
    x = torch.randn(5, 8, device=chip)

    def step(call: torch.nn.Module) -> tuple[float, torch.Tensor]:
        model.zero_grad()
        loss = call(x).square().mean()
        loss.backward()
        return loss.item(), model[0].weight.grad.cpu()

    loss, gradient = step(model)
    compiled_loss, compiled_gradient = step(torch.compile(model, backend=backend))
    assert compiled_loss == pytest.approx(loss, rel=1e-6)
    assert torch.allclose(compiled_gradient, gradient, rtol=1e-5, atol=1e-7)


def test_dynamic_shapes(chip: torch.device) -> None:
    compiled = torch.compile(
        lambda a, b: (a @ b).relu().sum(0), backend="aot_eager", dynamic=True, fullgraph=True
    )
    for rows in (3, 4, 7):
        got = compiled(torch.ones(rows, 8, device=chip), torch.ones(8, 2, device=chip))
        assert torch.equal(got.cpu(), torch.full((2,), 8.0 * rows))


def test_export(chip: torch.device, model: torch.nn.Module) -> None:
    x = torch.randn(5, 8, device=chip)
    program = torch.export.export(model, (x,))
    assert torch.equal(program.module()(x).cpu(), model(x).cpu())
