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


def test_fake_tensors(chip: torch.device) -> None:
    """Shapes, dtypes and devices without memory, as torch.compile and export need them."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    weight = torch.randn(4, 6, device=chip)
    before = torch.chip.memory_allocated()
    with FakeTensorMode() as mode:
        x = torch.empty(1 << 20, 4, device=chip)
        y = torch.nn.functional.gelu(x @ mode.from_tensor(weight)).softmax(-1)
        q = torch.empty(2, 4, 9, 8, device=chip, dtype=torch.bfloat16)
        attended = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        host = y.cpu()
    assert torch.chip.memory_allocated() == before
    assert isinstance(y, FakeTensor) and (y.device, y.shape) == (chip, (1 << 20, 6))
    assert (attended.device, attended.dtype, attended.shape) == (chip, torch.bfloat16, q.shape)
    assert host.device.type == "cpu"


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(chip: torch.device, mode: str) -> None:
    """A traced program gives the eager one's numbers, on other values of the same shapes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.nn.functional.rms_norm(x @ w, (5,)).relu()
        return hidden.sum(0), hidden.new_zeros(3) + x.shape[0]

    def operands(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(rows, 4, device=chip), torch.randn(4, 5, device=chip)

    traced = make_fx(program, tracing_mode=mode)(*operands(3))
    assert any(str(node.target) == "aten.mm.default" for node in traced.graph.nodes)
    for rows in (3, 7) if mode == "symbolic" else (3,):
        given = operands(rows)
        for found, want in zip(traced(*given), program(*given), strict=True):
            assert found.device == chip
            assert torch.equal(found.cpu(), want.cpu())


def test_make_fx_of_a_gradient(chip: torch.device) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(x.tanh().square().sum(), x)[0]

    x = torch.randn(6, device=chip)
    assert torch.allclose(make_fx(gradient)(x)(x).cpu(), gradient(x).cpu())
