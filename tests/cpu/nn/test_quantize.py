"""quantize and dequantize against torch, with a last group that is not full."""

from __future__ import annotations

from typing import Any

import pytest
import torch

FORMATS = [(torch.int8, 127), ("i4", 7), (torch.float8_e4m3fn, 448), (torch.float8_e5m2, 57344)]


@pytest.mark.parametrize("kind,largest", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("zero_points", [False, True])
def test_there_and_back(
    table: Any, packed_i4: Any, kind: Any, largest: int, dtype: Any, zero_points: bool
) -> None:
    if zero_points and kind not in (torch.int8, "i4"):
        pytest.skip("zero points belong to integers")
    x = torch.randn(5, 70, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[1, :32] = 0
    groups = [x[:, i : i + 32].float() for i in range(0, 70, 32)]
    low = torch.stack([g.amin(1) for g in groups], 1)
    high = torch.stack([g.amax(1) for g in groups], 1)
    want_scale = torch.maximum(high, -low) / largest
    if zero_points:
        want_scale = (high - low) / (2 * largest + 1)
    is_i4 = kind == "i4"
    data = torch.zeros(5, 35 if is_i4 else 70, dtype=torch.uint8 if is_i4 else kind)
    q = packed_i4(data, 70) if is_i4 else data
    scale = torch.empty(5, 3)
    zero = torch.zeros(5, 3, dtype=torch.int32) if zero_points else None
    table.call("quantize", group_size=32, x=x, q=q, scale=scale, zero_point=zero)
    torch.testing.assert_close(scale, want_scale, rtol=1e-6, atol=0)
    wide = scale.repeat_interleave(32, 1)[:, :70]
    divisor = torch.where(wide == 0, 1.0, wide)
    values = data.float()
    if is_i4:
        nibbles = torch.stack([data & 15, data >> 4], 2).flatten(1).int()
        values = torch.where(nibbles > 7, nibbles - 16, nibbles).float()
    shift = zero.repeat_interleave(32, 1)[:, :70] if zero_points else torch.zeros(5, 70)
    exact = x.float() / divisor
    if kind in (torch.int8, "i4"):
        want = (exact.round() + shift).clamp(-largest - zero_points, largest)
    else:
        want = exact.clamp(-largest, largest).to(kind).float()
    assert torch.equal(values, want)
    back = torch.empty(5, 70)
    table.call("dequantize", group_size=32, x=back, q=q, scale=scale, zero_point=zero)
    torch.testing.assert_close(back, (values - shift) * wide, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind,largest", FORMATS[:2])
def test_groups_of_one_value_keep_it(table: Any, packed_i4: Any, kind: Any, largest: int) -> None:
    """Formulas of the header: a constant is one step from zero, and comes back exactly."""
    values = torch.tensor([0.0, 3.7, -2.9, 1e-30, -6e4, 1e8])
    x = values[:, None].repeat(1, 9)
    x[4] += torch.linspace(0, 0.5, 9)  # within 2**-16 of a constant
    is_i4 = kind == "i4"
    data = torch.zeros(6, 5 if is_i4 else 9, dtype=torch.uint8 if is_i4 else kind)
    q = packed_i4(data, 9) if is_i4 else data
    scale, zero = torch.empty(6, 1), torch.empty(6, 1, dtype=torch.int32)
    fields = {"q": q, "scale": scale, "zero_point": zero}
    table.call("quantize", x=x, **fields)
    assert torch.equal(scale[:, 0], x.abs().amax(1))
    steps = torch.tensor([0, 1, -1, 1, -1, 1])
    assert torch.equal(zero[:, 0], (-largest - 1 - steps).int())
    back = torch.empty_like(x)
    table.call("dequantize", x=back, **fields)
    exact = [0, 1, 2, 3, 5]
    assert torch.equal(back[exact], x[exact])
    torch.testing.assert_close(back[4], x[4], rtol=2**-16, atol=0)


@pytest.mark.parametrize("kind,largest", FORMATS[:2])
def test_values_far_from_zero(table: Any, packed_i4: Any, kind: Any, largest: int) -> None:
    """x/scale has more digits than F32 here; the error stays half a step."""
    x = 1000 + torch.linspace(0, 0.25, 64)[torch.randperm(64)].reshape(2, 32)
    is_i4 = kind == "i4"
    data = torch.zeros(2, 16 if is_i4 else 32, dtype=torch.uint8 if is_i4 else kind)
    q = packed_i4(data, 32) if is_i4 else data
    scale, zero = torch.empty(2, 1), torch.empty(2, 1, dtype=torch.int32)
    table.call("quantize", x=x, q=q, scale=scale, zero_point=zero)
    back = torch.empty_like(x)
    table.call("dequantize", x=back, q=q, scale=scale, zero_point=zero)
    # Half a step, half a step of the rounded zero point, and the rounding of the result.
    assert ((back - x).abs() <= scale + 1000 * 2**-23).all()


def test_strides_dtypes_and_given_scales(table: Any) -> None:
    torch.manual_seed(2)
    x = torch.randn(50, 6, dtype=torch.float64).T
    q = torch.full((6, 100), 99, dtype=torch.int8)
    scale = torch.full((1, 1), 0.02).expand(6, 4)
    table.call("quantize", x=x, q=q[:, ::2], scale=scale, group_size=16, given_scale=1)
    want = (x.float() / scale[0, 0]).round().clamp(-127, 127)
    assert torch.equal(q[:, ::2].float(), want) and (q[:, 1::2] == 99).all()
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        back = torch.zeros(50, 6, dtype=dtype).T
        table.call("dequantize", x=back, q=q[:, ::2], scale=scale, group_size=16)
        assert torch.equal(back, (want * scale[0, 0]).to(dtype))


@pytest.mark.parametrize("kind,largest", FORMATS)
def test_nan_and_infinity(table: Any, packed_i4: Any, kind: Any, largest: int) -> None:
    """Given scales: infinities saturate; NaN stays where the format has one, else becomes 0."""
    x = torch.tensor([[float("nan"), float("inf"), -float("inf"), 1.0]]).repeat(1, 20)
    is_i4 = kind == "i4"
    data = torch.zeros(1, 40 if is_i4 else 80, dtype=torch.uint8 if is_i4 else kind)
    q = packed_i4(data, 80) if is_i4 else data
    scale, back = torch.ones(1, 1), torch.empty(1, 80)
    table.call("quantize", x=x, q=q, scale=scale, given_scale=1)
    table.call("dequantize", x=back, q=q, scale=scale)
    whole = is_i4 or kind == torch.int8
    row = [0.0 if whole else float("nan"), largest, -largest, 1.0]
    torch.testing.assert_close(back, torch.tensor([row]).repeat(1, 20), equal_nan=True)


def test_zero_points_belong_to_integers(table: Any, refused: type[Exception]) -> None:
    x, q = torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.float8_e4m3fn)
    scale, zero = torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int32)
    with pytest.raises(refused, match="zero_point belongs to i8 and i4, but q is f8e4m3"):
        table.call("quantize", x=x, q=q, scale=scale, zero_point=zero)
