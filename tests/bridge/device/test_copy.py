"""Copies in every direction and between every pair of dtypes, against torch's CPU."""

from __future__ import annotations

import itertools

import pytest
import torch

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 2),
    "strided": lambda t: t[::2, :, 1::3],
    "expanded": lambda t: t[:, :1].expand(-1, 5, -1),
    "scalar": lambda t: t[1, 1, 1],
    "empty": lambda t: t[:0],
}


def values(dtype: torch.dtype) -> torch.Tensor:
    """[4, 5, 6] numbers that every dtype holds exactly (small, and not negative)."""
    base = torch.arange(120).reshape(4, 5, 6) % 97
    if dtype.is_complex:
        return torch.complex(base.double(), base.flip(0).double()).to(dtype)
    return (base % 2 == 0) if dtype == torch.bool else base.to(dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_there_and_back(chip: torch.device, dtype: torch.dtype, layout: str) -> None:
    host = LAYOUTS[layout](values(dtype))
    there = host.to(chip)
    assert (there.device, there.dtype, there.shape) == (chip, dtype, host.shape)
    assert torch.equal(there.cpu(), host)
    # Views made on the chip, too.
    seen = LAYOUTS[layout](values(dtype).to(chip))
    assert torch.equal(seen.cpu(), host)
    assert torch.equal(seen.contiguous().cpu(), host)
    assert torch.equal(seen.clone().cpu(), host)


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.permutations(DTYPES, 2)), ids=lambda d: str(d)[6:]
)
def test_conversion_on_the_chip(
    chip: torch.device, no_fallback: None, source: torch.dtype, target: torch.dtype
) -> None:
    host = values(source)
    expected = host.to(target)
    assert torch.equal(host.to(chip).to(target).cpu(), expected)
    strided = host.to(chip).transpose(0, 2).to(target)
    assert torch.equal(strided.cpu(), expected.transpose(0, 2))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_dtypes_that_a_chip_only_moves(chip: torch.device, dtype: torch.dtype) -> None:
    host = torch.arange(24).reshape(4, 6).to(dtype)
    there = host.to(chip)
    assert torch.equal(there.t().contiguous().cpu(), host.t())
    assert torch.equal(there.to(torch.float32).cpu(), host.to(torch.float32))


@pytest.mark.parametrize("layout", ["transposed", "strided"])
def test_copy_into_a_strided_destination(chip: torch.device, layout: str) -> None:
    base = torch.zeros(6, 5, 4, device=chip)
    expected = torch.zeros(6, 5, 4)
    source = torch.randn(LAYOUTS[layout](expected).shape)
    LAYOUTS[layout](base).copy_(source)
    LAYOUTS[layout](expected).copy_(source)
    assert torch.equal(base.cpu(), expected)
    host = torch.zeros(6, 5, 4)
    LAYOUTS[layout](host).copy_(source.to(chip))
    assert torch.equal(host, expected)


def test_copy_broadcasts_and_converts(chip: torch.device) -> None:
    target = torch.zeros(3, 4, dtype=torch.float64, device=chip)
    target.copy_(torch.arange(4, dtype=torch.int32))
    assert torch.equal(target.cpu(), torch.arange(4.0).double().expand(3, 4))
    target.copy_(torch.ones(3, 1, dtype=torch.bfloat16, device=chip))
    assert torch.equal(target.cpu(), torch.ones(3, 4, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="size"):
        target.copy_(torch.zeros(5))


def test_overlapping_views_copy_as_on_the_cpu(chip: torch.device) -> None:
    chip_tensor, host = torch.arange(10.0).to(chip), torch.arange(10.0)
    for tensor in (chip_tensor, host):
        tensor[1:6].copy_(tensor[1:6].clone() * 2)
    assert torch.equal(chip_tensor.cpu(), host)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_conjugate_and_negative_views(chip: torch.device, dtype: torch.dtype) -> None:
    # A prototype recursed without end here.
    host = torch.randn(3, 4, dtype=dtype)
    there = host.to(chip)
    assert torch.equal(there.conj().cpu(), host.conj())
    assert torch.equal(there.conj().resolve_conj().cpu(), host.conj())
    assert torch.equal(there.conj().imag.cpu(), host.conj().imag)
    assert torch.equal(torch.view_as_real(there.conj().clone()).cpu(),
                       torch.view_as_real(host.conj().resolve_conj()))  # fmt: skip
    assert torch.equal(host.conj().to(chip).cpu(), host.conj())
    target = torch.empty_like(there)
    target.conj().copy_(there)
    assert torch.equal(target.cpu(), host.conj().resolve_conj())


def test_negative_views(chip: torch.device) -> None:
    host = torch.randn(3, 4)
    there = host.to(chip)._neg_view()
    assert torch.equal(there.cpu(), -host)
    assert torch.equal(there.resolve_neg().cpu(), -host)
    assert torch.equal(there.double().cpu(), -host.double())


def test_zero_tensors_are_real_zeros(chip: torch.device) -> None:
    zeros = torch._efficientzerotensor((2, 3), device=chip)
    assert torch.equal(zeros.cpu(), torch.zeros(2, 3))
    target = torch.ones(2, 3, device=chip)
    target.copy_(torch._efficientzerotensor((2, 3)))
    assert torch.equal(target.cpu(), torch.zeros(2, 3))


def test_pinned_memory(chip: torch.device) -> None:
    host = torch.randn(1000).pin_memory()
    assert host.is_pinned()
    assert not torch.randn(3).is_pinned()
    there = host.to(chip, non_blocking=True)
    back = torch.empty(1000, pin_memory=True)
    back.copy_(there, non_blocking=True)
    torch.chip.synchronize()
    assert torch.equal(back, host)
    # A block is not given again before the copy out of it has passed.
    for step in range(50):
        block = torch.full((4096,), float(step)).pin_memory()
        sent = block.to(chip, non_blocking=True)
        del block
        assert torch.equal(sent.cpu(), torch.full((4096,), float(step)))


def test_rank_above_the_waists_limit(chip: torch.device) -> None:
    host = torch.arange(2.0**10).reshape([2] * 10).permute(9, 0, 8, 1, 7, 2, 6, 3, 5, 4)
    there = host.to(chip)
    assert torch.equal(there.cpu(), host)
    moved = there.permute(3, 1, 0, 2, 9, 8, 7, 6, 5, 4)
    expected = host.permute(3, 1, 0, 2, 9, 8, 7, 6, 5, 4)
    assert torch.equal(moved.contiguous().cpu(), expected)
    assert torch.equal(moved.double().cpu(), expected.double())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_item(chip: torch.device, dtype: torch.dtype) -> None:
    host = values(dtype)
    there = host.to(chip)
    assert there[3, 4, 5].item() == host[3, 4, 5].item()
    assert there.tolist() == host.tolist()


def test_memory_formats(chip: torch.device) -> None:
    host = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    there = host.to(chip)
    assert there.stride() == host.stride()
    assert torch.equal(there.cpu(), host)
    made = torch.empty(2, 3, 4, 5, device=chip, memory_format=torch.channels_last)
    assert made.is_contiguous(memory_format=torch.channels_last)


FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def same_bits(found: torch.Tensor, want: torch.Tensor) -> bool:
    """Also of NaN; a NaN's payload is free."""
    assert found.dtype == want.dtype
    nan = want.float().isnan()
    equal = found.view(torch.uint8) == want.view(torch.uint8)
    return bool((found.float().isnan() == nan).all() and (equal | nan).all())


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_float8_number_goes_there_and_back(chip: torch.device, dtype: torch.dtype) -> None:
    host = torch.arange(256, dtype=torch.uint8).view(dtype).reshape(16, 16)
    there = host.to(chip)
    assert torch.equal(there.cpu().view(torch.uint8), host.view(torch.uint8))
    for view in (lambda t: t.t(), lambda t: t[::3, 1::2], lambda t: t[5, 7], lambda t: t[:0]):
        assert same_bits(view(there).cpu(), view(host).contiguous())
        assert same_bits(view(there).contiguous().cpu(), view(host).contiguous())
    assert same_bits(there.clone().cpu(), host)
    assert there[3, 4].item() == host[3, 4].item()


@pytest.mark.parametrize("other", FLOATS, ids=str)
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8_converts_exactly(
    chip: torch.device, no_fallback: None, dtype: torch.dtype, other: torch.dtype
) -> None:
    host = torch.arange(256, dtype=torch.uint8).view(dtype)
    found = host.to(chip).to(other).cpu()
    assert torch.equal(found.nan_to_num(nan=-1.5), host.to(other).nan_to_num(nan=-1.5))


@pytest.mark.parametrize("other", FLOATS, ids=str)
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_numbers_are_rounded_to_float8(
    chip: torch.device, no_fallback: None, dtype: torch.dtype, other: torch.dtype
) -> None:
    """To the nearest, ties to even, at every boundary between two numbers of the format."""
    # Up to the largest: above it the interface saturates e4m3 and torch gives NaN (NUM-002).
    finite = torch.arange(256, dtype=torch.uint8).view(dtype).double()
    finite = finite[finite.isfinite()].unique()
    middle = (finite[1:] + finite[:-1]) / 2
    near = torch.cat([finite, middle, middle * (1 + 2**-6), middle * (1 - 2**-6)])
    near = torch.cat([near[near.abs() <= finite.max()], torch.tensor([-0.0])]).to(other)
    near = near[near.double().abs() <= finite.max()]
    host = torch.cat([near, torch.tensor([torch.nan], dtype=other)])
    # torch's own conversion from f64 goes through f32; so does the exact one, for these.
    assert same_bits(host.to(chip).to(dtype).cpu(), host.float().to(dtype))
    strided = torch.stack([host, host]).t()
    assert same_bits(strided.to(chip).to(dtype).contiguous().cpu(),
                     strided.float().to(dtype).contiguous())  # fmt: skip


def test_float8_between_its_formats_and_into_a_view(chip: torch.device) -> None:
    host = torch.randn(6, 8).to(torch.float8_e4m3fn)
    assert same_bits(host.to(chip).to(torch.float8_e5m2).cpu(), host.to(torch.float8_e5m2))
    base = torch.zeros(8, 6, dtype=torch.float8_e5m2, device=chip)
    base.t().copy_(host.to(chip))
    assert same_bits(base.cpu(), host.to(torch.float8_e5m2).t().contiguous())
    into = torch.zeros(8, 6)
    into.t().copy_(host.to(chip))
    assert torch.equal(into, host.float().t())


def test_a_parameter_s_data_becomes_the_chip_s(chip: torch.device) -> None:
    """`p.data = tensor` is how FSDP and old training loops move a parameter."""
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    parameter.data = torch.ones(2, 3, device=chip)
    assert parameter.device == chip and parameter.is_leaf and parameter.requires_grad
    (parameter * 2).sum().backward()
    assert parameter.grad.device == chip
    assert torch.equal(parameter.grad.cpu(), torch.full((2, 3), 2.0))
    parameter.grad = None
    parameter.data = torch.full((2, 3), 5.0)
    assert parameter.device.type == "cpu" and parameter.sum().item() == 30
