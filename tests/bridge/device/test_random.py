"""Random numbers: defined bit by bit, so tests hold them to an independent Philox."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch


def philox(seed: int, counter: int) -> list[int]:
    """Philox4x32-10 (Salmon et al., SC11), straight from the paper: four words of one block."""
    mask = 0xFFFFFFFF
    c = [counter & mask, counter >> 32 & mask, 0, 0]
    k = [seed & mask, seed >> 32 & mask]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k[0], p1 & mask, p0 >> 32 ^ c[3] ^ k[1], p0 & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def test_the_test_s_philox_matches_the_paper() -> None:
    # Known answer of Random123's kat_vectors: zero counter, zero key.
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def words(seed: int, count: int) -> np.ndarray:
    blocks = [philox(seed, block) for block in range(math.ceil(count / 4))]
    return np.array(blocks, dtype=np.uint64).reshape(-1)[:count]


def test_uniform_is_the_definition(chip: torch.device) -> None:
    torch.manual_seed(1234)
    got = torch.rand(37, device=chip).cpu().numpy()
    expected = (words(1234, 37) >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
    assert np.array_equal(got, expected)


def test_normal_is_the_definition(chip: torch.device) -> None:
    torch.manual_seed(99)
    got = torch.randn(40, device=chip).cpu().double().numpy()
    w = words(99, 40).astype(np.float64)
    radius = np.sqrt(-2 * np.log((w[0::2] + 1) * 2.0**-32))
    angle = 2 * np.pi * w[1::2] * 2.0**-32
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
    assert np.allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_integers_are_the_definition(chip: torch.device) -> None:
    torch.manual_seed(7)
    got = torch.randint(-3, 1000, (20,), device=chip).cpu().numpy()
    w = words(7, 40)
    wide = w[0::2] | w[1::2] << np.uint64(32)
    assert np.array_equal(got, (wide % np.uint64(1003)).astype(np.int64) - 3)


def test_the_host_s_own_numbers_are_the_same(chip: torch.device, run_python) -> None:
    """What the bridge computes for a plugin without `random`."""
    program = (
        "import ctypes, chipset\n"
        "{hide}"
        "d = chipset.select('cpu').torch\n"
        "import torch; torch.manual_seed(5)\n"
        "print([torch.rand(9, device=d).tolist(), torch.randn(8, device=d, dtype=torch.float64)"
        ".tolist(), torch.randint(0, 99, (5,), device=d).tolist(),"
        " torch.empty(6, device=d).bernoulli_(0.3).tolist(), "
        "torch.randperm(11, device=d).tolist()])\n"
        "print('chipset::random' in chipset.fallbacks())\n"
    )
    hide = (
        "import os; chipset.select('cpu')\n"
        "from chipset import _runtime, _interface\n"
        "api = _interface.Api.from_address(_runtime.api_address(0))\n"
        "api.random = type(api.random)()\n"
    )
    native = run_python(program.format(hide=""))
    hidden = run_python(program.format(hide=hide))
    assert native.returncode == 0, native.stderr
    assert hidden.returncode == 0, hidden.stderr
    assert native.stdout.splitlines()[1] == "False"
    assert hidden.stdout.splitlines()[1] == "True"
    mine, theirs = eval(native.stdout.splitlines()[0]), eval(hidden.stdout.splitlines()[0])
    for a, b in zip(mine, theirs, strict=True):
        assert a == pytest.approx(b, rel=1e-6)


def test_a_seed_repeats_and_calls_differ(chip: torch.device) -> None:
    torch.manual_seed(3)
    first, second = torch.rand(1000, device=chip), torch.rand(1000, device=chip)
    assert not torch.equal(first.cpu(), second.cpu())
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1000, device=chip).cpu(), first.cpu())
    generator = torch.Generator(device=chip).manual_seed(3)
    assert torch.equal(torch.rand(1000, device=chip, generator=generator).cpu(), first.cpu())


def test_layout_does_not_change_the_numbers(chip: torch.device) -> None:
    torch.manual_seed(11)
    dense = torch.empty(6, 5, device=chip).normal_()
    torch.manual_seed(11)
    strided = torch.empty(5, 6, device=chip).t().normal_()
    assert torch.equal(dense.cpu(), strided.cpu())


def test_state_is_sixteen_bytes(chip: torch.device) -> None:
    # torch.distributed.tensor asserts on CUDA's layout: seed, then offset.
    torch.manual_seed(42)
    state = torch.chip.get_rng_state()
    assert (state.dtype, state.numel(), state.device.type) == (torch.uint8, 16, "cpu")
    assert state.view(torch.int64).tolist() == [42, 0]
    first = torch.rand(5, device=chip)
    torch.chip.set_rng_state(state)
    assert torch.equal(torch.rand(5, device=chip).cpu(), first.cpu())
    with pytest.raises(RuntimeError, match="16 bytes"):
        torch.chip.set_rng_state(torch.zeros(5, dtype=torch.uint8))
    generator = torch.Generator(device=chip)
    generator.manual_seed(8)
    assert generator.initial_seed() == 8
    assert generator.clone_state().initial_seed() == 8


def test_fork_rng_and_checkpoint_restore_the_state(chip: torch.device) -> None:
    torch.manual_seed(0)
    with torch.random.fork_rng(device_type="chip"):
        torch.rand(10, device=chip)
    inside = torch.rand(3, device=chip).cpu()
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3, device=chip).cpu(), inside)

    weight = torch.randn(50, device=chip, requires_grad=True)
    noise = []

    def layer(x: torch.Tensor) -> torch.Tensor:
        mask = torch.nn.functional.dropout(torch.ones_like(x))
        noise.append(mask.detach().cpu())
        return (x * mask).sum()

    torch.utils.checkpoint.checkpoint(layer, weight, use_reentrant=False).backward()
    assert len(noise) == 2 and torch.equal(*noise)
    assert torch.equal(weight.grad.cpu(), noise[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_moments(chip: torch.device, no_fallback: None, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    n = 200_000

    def check(tensor: torch.Tensor, mean: float, deviation: float) -> None:
        host = tensor.cpu().double()
        assert abs(host.mean() - mean) < 6 * deviation / math.sqrt(n) + 2e-3 * abs(mean)
        assert abs(host.std() / deviation - 1) < 0.03

    check(torch.rand(n, device=chip, dtype=dtype), 0.5, 12**-0.5)
    check(torch.empty(n, device=chip, dtype=dtype).uniform_(-3, 1), -1, 4 * 12**-0.5)
    check(torch.empty(n, device=chip, dtype=dtype).normal_(2, 0.5), 2, 0.5)
    check(torch.empty(n, device=chip, dtype=dtype).exponential_(2), 0.5, 0.5)
    check(torch.empty(n, device=chip, dtype=dtype).bernoulli_(0.3), 0.3, 0.21**0.5)


def test_other_distributions(chip: torch.device) -> None:
    torch.manual_seed(0)
    n = 100_000
    geometric = torch.empty(n, device=chip).geometric_(0.25).cpu()
    assert geometric.min() == 1 and abs(geometric.mean() - 4) < 0.06
    assert abs(torch.empty(n, device=chip).cauchy_(1, 2).cpu().median() - 1) < 0.05
    assert abs(torch.empty(n, device=chip).log_normal_(0, 0.5).cpu().log().std() - 0.5) < 0.02
    p = torch.tensor([0.1, 0.9], device=chip).expand(n // 2, 2)
    assert torch.allclose(torch.bernoulli(p).cpu().mean(0), torch.tensor([0.1, 0.9]), atol=0.01)
    mean, std = torch.tensor([1.0, -1.0]).to(chip), torch.tensor([0.1, 2.0]).to(chip)
    sample = torch.normal(mean.expand(n, 2), std.expand(n, 2)).cpu()
    assert torch.allclose(sample.mean(0), mean.cpu(), atol=0.05)
    assert torch.allclose(sample.std(0), std.cpu(), rtol=0.05)
    complex_normal = torch.randn(n, device=chip, dtype=torch.complex64).cpu()
    assert abs(complex_normal.abs().pow(2).mean() - 1) < 0.03


def test_random_covers_the_range_of_each_dtype(chip: torch.device) -> None:
    torch.manual_seed(0)
    for dtype, largest in [(torch.bool, 1), (torch.int8, 127), (torch.uint8, 255),
                           (torch.int16, 2**15 - 1), (torch.int32, 2**31 - 1),
                           (torch.int64, 2**63 - 1), (torch.float32, 2**24)]:  # fmt: skip
        sample = torch.empty(50_000, device=chip, dtype=dtype).random_().cpu().double()
        assert sample.min() >= 0 and sample.max() <= largest
        assert abs(sample.mean() / largest - 0.5) < 0.02
    wide = torch.empty(1000, device=chip, dtype=torch.int64).random_(-(2**62), 2**62).cpu()
    assert wide.min() < 0 < wide.max()
    with pytest.raises(RuntimeError, match="expects 'from' to be less than 'to'"):
        torch.randint(5, 5, (2,), device=chip)


def test_permutation_dropout_and_sampling(chip: torch.device) -> None:
    torch.manual_seed(0)
    permutation = torch.randperm(1000, device=chip)
    assert torch.equal(permutation.sort().values.cpu(), torch.arange(1000))
    assert not torch.equal(permutation.cpu(), torch.arange(1000))
    assert torch.randperm(0, device=chip).shape == (0,)

    x = torch.ones(100_000, device=chip, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.2)
    kept = (y != 0).cpu()
    assert abs(kept.double().mean() - 0.8) < 0.01
    assert torch.allclose(y.detach().cpu()[kept], torch.tensor(1.25))
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())
    assert torch.equal(torch.nn.functional.dropout(x, 0.2, training=False).cpu(), x.cpu())
    assert torch.nn.functional.dropout(x, 1.0).sum().item() == 0

    p = torch.tensor([[1.0, 2.0, 0.0, 1.0], [0.0, 0.0, 5.0, 0.0]]).to(chip)
    many = torch.multinomial(p, 40_000, replacement=True).cpu()
    share = torch.bincount(many[0], minlength=4) / 40_000
    assert torch.allclose(share, torch.tensor([0.25, 0.5, 0.0, 0.25]), atol=0.02)
    assert (many[1] == 2).all()
    few = torch.multinomial(p[0], 3, replacement=False).cpu()
    assert sorted(few.tolist()) == [0, 1, 3]
    with pytest.raises(RuntimeError, match="inf"):
        torch.multinomial(torch.tensor([-1.0, 2.0]).to(chip), 5, replacement=True)


def test_generator_of_the_wrong_device(chip: torch.device) -> None:
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device=chip, generator=torch.Generator())
