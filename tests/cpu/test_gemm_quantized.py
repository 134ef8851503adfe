"""gemm_quantized through PyTorch's device: the chip's own few-row kernel, and what it composes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

# Rounding of the result's dtype, plus that of a float32 sum.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 4e-3, torch.float16: 6e-4}


@pytest.fixture(scope="module")
def chip():
    import chipset
    import chipset_layers.ops  # noqa: F401  (defines torch.ops.chipset)

    return chipset.select("cpu").torch


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 16, 17])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("inner", "columns"), [(576, 1537), (33, 5), (1, 1), (1536, 576)])
def test_weight_only_int8_against_fp64(chip, rows, dtype, inner, columns):
    torch.manual_seed(rows)
    x = torch.randn(rows, inner, dtype=dtype)
    weight = torch.randint(-127, 128, (columns, inner), dtype=torch.int8)
    scale = torch.rand(columns) / 100
    bias = torch.randn(columns, dtype=dtype)
    expected = x.double() @ (weight.double() * scale.double()[:, None]).T + bias.double()

    result = torch.ops.chipset.linear_int8(
        x.to(chip), weight.to(chip), scale.to(chip), bias.to(chip)
    )

    error = (result.cpu().double() - expected).abs().max() / expected.abs().max()
    assert result.dtype == dtype
    assert error < TOLERANCE[dtype]
