"""The composed operators against plain fp64 arithmetic."""

from __future__ import annotations

import pytest
import torch

import chipset_layers.ops
from chipset_layers import ops
from chipset_layers.nibbles import pack_nibbles, unpack_nibbles

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
chip = torch.ops.chipset


def close(found: torch.Tensor, exact: torch.Tensor, factor: float = 4) -> None:
    """Within a few units in the last place of the result's own dtype, relative to the largest."""
    bound = factor * torch.finfo(found.dtype).eps * max(1.0, exact.abs().max().item())
    assert (found.double() - exact).abs().max().item() <= bound


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [(1,), (2, 3), (40,), (0,)])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_int8_is_the_dequantised_product(dtype, rows, bias):
    torch.manual_seed(1)
    x = torch.randn(*rows, 32).to(dtype)
    qweight = torch.randint(-127, 128, (24, 32), dtype=torch.int8)
    scale = torch.rand(24) / 100
    offset = torch.randn(24).to(dtype) if bias else None
    found = chip.linear_int8(x, qweight, scale, offset)
    assert found.dtype == dtype and found.shape == (*rows, 24)
    if x.numel():
        exact = x.double() @ (qweight.double() * scale.double()[:, None]).T
        close(found, exact + (0 if offset is None else offset.double()))


def test_linear_int8_takes_odd_widths_and_strided_weights():
    x = torch.randn(2, 7)
    qweight = torch.randint(-127, 128, (7, 5), dtype=torch.int8).T
    scale = torch.rand(5)
    exact = x.double() @ (qweight.double() * scale.double()[:, None]).T
    close(chip.linear_int8(x, qweight, scale, None), exact)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [(1,), (2, 3), (40,), (0,)])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_linear_int4_is_the_dequantised_product(dtype, rows, groups):
    torch.manual_seed(1)
    x = torch.randn(*rows, 32).to(dtype)
    values = torch.randint(-8, 8, (24, 32), dtype=torch.int8)
    scale, offset = torch.rand(24, groups) / 10, torch.randn(24).to(dtype)
    found = chip.linear_int4(x, pack_nibbles(values), scale, offset)
    assert found.dtype == dtype and found.shape == (*rows, 24)
    if x.numel():
        weight = values.double() * scale.double().repeat_interleave(32 // groups, 1)
        close(found, x.double() @ weight.T + offset.double())


def test_nibbles_are_the_low_half_first_in_twos_complement():
    values = torch.tensor([[1, -1, -8, 7]], dtype=torch.int8)
    assert pack_nibbles(values).tolist() == [[0xF1, 0x78]]
    assert torch.equal(unpack_nibbles(pack_nibbles(values)), values)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rms_norm(dtype):
    x, weight = torch.randn(2, 5, 48).to(dtype), torch.randn(48).to(dtype)
    wide = x.double()
    exact = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5) * weight.double()
    close(chip.rms_norm(x, weight, 1e-5), exact)


def test_rotary_rotates_pairs_by_the_angle():
    q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 3, 8)
    angle = torch.rand(1, 3, 4).repeat(1, 1, 2)
    found_q, found_k = chip.rotary(q, k, angle.cos(), angle.sin())
    for found, given in ((found_q, q), (found_k, k)):
        pair = torch.complex(given[..., :4].double(), given[..., 4:].double())
        turned = pair * torch.exp(1j * angle[0, :, :4].double())
        close(found, torch.cat((turned.real, turned.imag), -1))


@pytest.mark.parametrize("dtype", FLOATS)
def test_swiglu(dtype):
    gate, up = torch.randn(3, 8).to(dtype), torch.randn(3, 8).to(dtype)
    exact = gate.double() * torch.sigmoid(gate.double()) * up.double()
    close(chip.swiglu(gate, up), exact)


def paged_case(lengths, new, heads=6, kv_heads=2, dim=16, block=4, seed=0):
    """Random caches with the sequences scattered over the blocks, and the exact answer."""
    torch.manual_seed(seed)
    width = max(-(-length // block) for length in lengths) + 1
    total = sum(-(-length // block) for length in lengths) + 2
    k_cache, v_cache = torch.randn(2, total, block, kv_heads, dim)
    free = torch.randperm(total).tolist()
    table = torch.zeros(len(lengths), width, dtype=torch.int32)
    for b, length in enumerate(lengths):
        for i in range(-(-length // block)):
            table[b, i] = free.pop()
    starts = torch.tensor([0, *new]).cumsum(0).to(torch.int32)
    q = torch.randn(sum(new), heads, dim)
    exact = torch.zeros(q.shape, dtype=torch.float64)
    for b, length in enumerate(lengths):
        keys = k_cache[table[b].long()].flatten(0, 1)[:length].double()
        values = v_cache[table[b].long()].flatten(0, 1)[:length].double()
        for i in range(new[b]):
            row, seen = starts[b] + i, length - new[b] + i + 1
            for h in range(heads):
                kv = h // (heads // kv_heads)
                weights = (keys[:seen, kv] @ q[row, h].double() * 0.25).softmax(0)
                exact[row, h] = weights @ values[:seen, kv]
    return (q, k_cache, v_cache, table, starts, torch.tensor(lengths, dtype=torch.int32)), exact


@pytest.mark.parametrize(
    ("lengths", "new"),
    [
        ([5], [5]),  # a whole prompt
        ([9], [4]),  # the rest of a prompt, the first part cached
        ([10, 5, 12], [1, 1, 1]),  # decode
        ([10, 5, 1], [3, 5, 1]),  # mixed
        ([7, 6], [2, 0]),  # as many rows as sequences, but not one each
        ([8, 4], [1, 1]),  # full blocks
    ],
)
def test_attention_paged_is_causal_attention(lengths, new):
    inputs, exact = paged_case(lengths, new)
    close(chip.attention_paged(*inputs, 0.25), exact, factor=32)


def test_attention_paged_ignores_what_lies_behind_a_sequence():
    (q, k, v, table, starts, lengths), _ = paged_case([6, 3], [1, 1])
    before = chip.attention_paged(q, k, v, table, starts, lengths, 0.25)
    owned = {(int(table[b, p // 4]), p % 4) for b in range(2) for p in range(int(lengths[b]))}
    for block in range(k.shape[0]):
        for slot in range(4):
            if (block, slot) not in owned:
                k[block, slot], v[block, slot] = 1e4, -1e4
    after = chip.attention_paged(q, k, v, table, starts, lengths, 0.25)
    assert torch.equal(before, after)


def test_shapes_are_known_without_data():
    x = torch.empty(2, 3, 32, device="meta")
    weight = torch.empty(24, 32, dtype=torch.int8, device="meta")
    assert chip.linear_int8(x, weight, torch.empty(24, device="meta"), None).shape == (2, 3, 24)
    q = torch.empty(5, 4, 8, device="meta")
    cache = torch.empty(7, 4, 2, 8, device="meta")
    index = torch.empty(3, 4, dtype=torch.int32, device="meta")
    ends = torch.empty(4, dtype=torch.int32, device="meta")
    found = chip.attention_paged(q, cache, cache, index, ends, ends[1:], 1.0)
    assert found.shape == q.shape


def test_every_schema_has_a_composed_form():
    assert set(ops.SCHEMAS) == set(ops.COMPOSED)
    for name in chipset_layers.ops.SCHEMAS:
        assert hasattr(chip, name)
