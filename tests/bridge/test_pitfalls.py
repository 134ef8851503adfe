"""What an out-of-tree PyTorch device gets wrong easily, where no subject's own file has it.

Elsewhere: tied weights, exit right after backward and one backend name in device/test_activation;
autoload in tests/packaging/test_autoload; random state in device/test_random; the choice of an
attention kernel in ops/test_neural; conjugate, negative and zero tensors in device/test_copy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

HOST = torch.device("cpu")


def both(chip: torch.device, run: Callable[[torch.device], Any], **tolerance: float) -> None:
    """The same program on the chip and on the host gives the same numbers."""
    found, want = run(chip), run(HOST)
    moved = torch.utils._pytree.tree_map(lambda x: x.to(HOST), found)
    torch.testing.assert_close(moved, want, **tolerance)


def seeded(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize("name", ["abs", "angle", "sgn", "exp", "neg", "sqrt", "reciprocal"])
def test_complex_numbers(chip: torch.device, name: str) -> None:
    """The result's dtype of some differs from the operand's, and a chip computes none of them."""
    both(chip, lambda d: getattr(torch, name)(seeded(3, 4, dtype=torch.complex64).to(d)))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.bfloat16, torch.complex64])
def test_iterators_without_a_common_dtype(chip: torch.device, dtype: torch.dtype) -> None:
    """fill, copy, where and predicates ask for no common dtype, which may not be asked of them."""
    x = seeded(3, 4).to(dtype)

    def run(d: torch.device) -> Any:
        y = x.to(d)
        return (
            torch.empty_like(y).fill_(1),
            torch.empty_like(y).copy_(y.t().contiguous().t()),
            torch.where(torch.ones(3, 4, dtype=torch.bool, device=d), y, torch.zeros_like(y)),
            torch.logical_not(y),
        )

    both(chip, run)


def test_recurrent_layers(chip: torch.device) -> None:
    """torch chooses _thnn_fused_lstm_cell for such devices, which its CPU does not have."""
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.LSTMCell):
        torch.manual_seed(0)
        layer = kind(5, 7)

        def run(d: torch.device, layer: Any = layer) -> Any:
            moved = kind(5, 7).to(d)  # noqa: B023
            moved.load_state_dict(layer.state_dict())
            x = seeded(4, 3, 5)[0 if isinstance(layer, torch.nn.LSTMCell) else slice(None)].to(d)
            y = moved(x)[0]
            y.square().sum().backward()
            return y.detach(), [p.grad for p in moved.parameters()]

        both(chip, run, rtol=1e-4, atol=1e-5)


def test_batch_norm_in_training(chip: torch.device) -> None:
    def run(d: torch.device) -> Any:
        layer = torch.nn.BatchNorm2d(3).to(d)
        x = seeded(4, 3, 5, 5).to(d).requires_grad_()
        layer(x).square().sum().backward()
        return x.grad, layer.running_mean, layer.running_var

    both(chip, run, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["layer", "group", "rms"])
def test_norms_of_bf16_round_once(chip: torch.device, no_fallback: None, norm: str) -> None:
    """As composite operators they would round every step, as far as 0.06 from the CPU's."""
    x = (3 * seeded(4, 8, 32) + 5).bfloat16()

    def run(x: torch.Tensor) -> torch.Tensor:
        if norm == "layer":
            return F.layer_norm(x, (32,))
        return F.group_norm(x, 4) if norm == "group" else F.rms_norm(x, (32,), eps=1e-6)

    exact = run(x.double())
    error = (run(x.to(chip)).to(HOST).double() - exact).abs()
    assert (error <= 2**-8 * exact.abs() + 1e-5).all()


def test_attention_that_the_chip_does_not_take(chip: torch.device) -> None:
    """With dropout, or a mask that learns, the choice must fall on the composed form."""
    q, k, v = (seeded(1, 2, 5, 8).to(chip).requires_grad_() for _ in range(3))
    mask = torch.zeros(1, 2, 5, 5, device=chip, requires_grad=True)
    F.scaled_dot_product_attention(q, k, v, attn_mask=mask).sum().backward()
    assert mask.grad is not None and mask.grad.shape == mask.shape
    torch.manual_seed(0)
    dropped = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert not torch.allclose(dropped, F.scaled_dot_product_attention(q, k, v))


def test_random_numbers_of_sharded_tensors(run_python: Any) -> None:
    """DTensor wants a generator whose state is sixteen bytes, seed and offset."""
    done = run_python(
        """
import chipset; chipset.select('cpu').torch
import torch
from torch import distributed
from torch.testing._internal.distributed import fake_pg
from torch.distributed.tensor import Shard, randn
distributed.Backend.register_backend(
    'chipfake', fake_pg._create_fake_pg, extended_api=True, devices=['chip'])
distributed.init_process_group(
    'cpu:fake,chip:chipfake', rank=0, world_size=2, store=fake_pg.FakeStore())
mesh = distributed.device_mesh.init_device_mesh('chip', (2,))
torch.manual_seed(0)
x, y = (randn(4, 6, device_mesh=mesh, placements=[Shard(0)]).to_local() for _ in range(2))
assert x.device.type == 'chip' and x.shape == (2, 6)
assert not torch.equal(x, y), 'the offset did not move'
"""
    )
    assert done.returncode == 0, done.stderr


def test_the_build_does_not_load_the_chip(repository: Path) -> None:
    """`import torch` in setup.py would otherwise load the very extension that is being built."""
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" in (repository / "setup.py").read_text()
