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
