"""What an out-of-tree PyTorch device gets wrong easily, where no subject's own file has it.

Elsewhere: tied weights, exit right after backward and one backend name in device/test_activation;
autoload in tests/packaging/test_autoload; random state in device/test_random; the choice of an
attention kernel in ops/test_neural; conjugate, negative and zero tensors, float8 and `.data =` in
device/test_copy; forked workers and queues in device/test_processes; transformers.Trainer in
test_trainer.
"""

from __future__ import annotations

import copy
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_over_several_processes(
    chip: torch.device, no_fallback: None, dtype: torch.dtype
) -> None:
    """torch calls CUDA's operators, which its CPU does not have. Here each process's part by hand:
    as torch.nn.modules._functions.SyncBatchNorm does, with the collectives left out."""
    x, dy = seeded(7, 3, 4, 4).to(dtype), seeded(7, 3, 4, 4).flip(0).to(dtype)
    weight, bias = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([1.0, -1.0, 0.0])
    running = [torch.zeros(3), torch.ones(3)]

    leaves = [t.clone().requires_grad_() for t in (x.float(), weight, bias)]
    want = F.batch_norm(leaves[0], *running, *leaves[1:], training=True, eps=1e-5)
    want_grads = torch.autograd.grad(want, leaves, dy.float())

    parts, grads = ([t.to(chip) for t in whole.split([2, 5])] for whole in (x, dy))
    w, b = weight.to(chip), bias.to(chip)
    found_running = [torch.zeros(3, device=chip), torch.ones(3, device=chip)]
    stats = [torch.batch_norm_stats(part, 1e-5) for part in parts]
    counts = torch.tensor([2.0 * 16, 5.0 * 16], device=chip)
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0], *(torch.stack(s) for s in zip(*stats)), *found_running, 0.1, 1e-5, counts
    )
    found = [torch.batch_norm_elemt(part, w, b, mean, invstd, 1e-5) for part in parts]
    reduced = [
        torch.batch_norm_backward_reduce(g, part, mean, invstd, w, True, True, True)
        for g, part in zip(grads, parts)
    ]
    sums = [sum(r[i] for r in reduced) for i in range(4)]
    dx = [
        torch.batch_norm_backward_elemt(g, part, mean, invstd, w, *sums[:2], counts.int())
        for g, part in zip(grads, parts)
    ]
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    assert found[0].dtype == dx[0].dtype == dtype
    torch.testing.assert_close(torch.cat(found).cpu().float(), want.detach(), **close)
    torch.testing.assert_close(torch.cat(dx).cpu().float(), want_grads[0], **close)
    for mine, theirs in zip([*sums[2:], *found_running], [*want_grads[1:], *running]):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-3)


def test_a_model_converted_to_sync_batch_norm(chip: torch.device) -> None:
    """Alone it is batch norm, in training and in evaluation."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    twin = torch.nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model)).to(chip)
    assert isinstance(twin[1], torch.nn.SyncBatchNorm)
    x = seeded(2, 3, 8, 8)
    for training in (True, False):
        found, want = twin.train(training)(x.to(chip)), model.train(training)(x)
        torch.testing.assert_close(found.cpu(), want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(twin[1].running_var.cpu(), model[1].running_var)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_histogram_of_whole_numbers(chip: torch.device, dtype: torch.dtype) -> None:
    """Mixtures of experts count their tokens with histc, which torch's CPU has for floats only."""
    experts = torch.tensor([3, 0, 0, 1, 3, 3], dtype=dtype)
    found = torch.histc(experts.to(chip), bins=4, min=0, max=3)
    assert found.device == chip
    assert found.tolist() == [2, 1, 0, 3]


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
