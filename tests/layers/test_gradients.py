"""Gradients of torch.ops.chipset.*: against numerical ones, and what torch asks of an operator."""

from __future__ import annotations

import pytest
import torch

import chipset_layers.ops  # noqa: F401  (defines torch.ops.chipset)
from chipset_layers import gradients, ops
from chipset_layers.nibbles import pack_nibbles

chip = torch.ops.chipset


def real(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def cases() -> dict[str, tuple[object, ...]]:
    torch.manual_seed(0)
    qweight = torch.randint(-20, 20, (5, 6), dtype=torch.int8)
    scale = (torch.rand(5) / 10).double().requires_grad_()
    scales = (torch.rand(5, 3) / 10).double().requires_grad_()
    return {
        "linear_int8": (real(2, 3, 6), qweight, scale, real(5)),
        "linear_int4": (real(2, 3, 6), pack_nibbles(qweight % 16 - 8), scales, real(5)),
        "rms_norm": (real(2, 3, 6), real(6), 1e-5),
        "rotary": (real(2, 4, 3, 8), real(2, 2, 3, 8), real(1, 3, 8), real(1, 3, 8)),
        "swiglu": (real(3, 4), real(3, 4)),
    }


@pytest.mark.parametrize("name", cases())
def test_gradients_are_the_numerical_ones(name: str) -> None:
    function, inputs = getattr(chip, name), cases()[name]
    if name in ("rms_norm", "linear_int8"):
        # Both keep statistics or scales in f32, so the forward is composed here in f64.
        function = COMPOSED_IN_F64[name]
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, eps):  # type: ignore[override]
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight

    setup_context = staticmethod(gradients._rms_norm_setup)
    backward = staticmethod(gradients._rms_norm_backward)


class LinearInt8(torch.autograd.Function):
    @staticmethod
    def forward(x, qweight, scale, bias):  # type: ignore[override]
        return x @ (qweight.to(x.dtype) * scale[:, None]).T + bias

    setup_context = staticmethod(gradients._linear_setup)
    backward = staticmethod(gradients._linear_int8_backward)


COMPOSED_IN_F64 = {"rms_norm": RmsNorm.apply, "linear_int8": LinearInt8.apply}


@pytest.mark.parametrize("name", cases())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_those_of_the_composed_form(name: str, dtype: torch.dtype) -> None:
    """The composed form is plain torch, so autograd differentiates it by itself."""
    found, want = [], []
    for function, into in ((getattr(chip, name), found), (ops.COMPOSED[name], want)):
        inputs = [
            v.detach().to(torch.float32 if i == 2 and name.startswith("linear_int") else dtype)
            .requires_grad_()
            if isinstance(v, torch.Tensor) and v.is_floating_point()
            else v
            for i, v in enumerate(cases()[name])
        ]  # fmt: skip
        result = function(*inputs)
        result = torch.cat([r.flatten() for r in result]) if name == "rotary" else result
        result.float().square().sum().backward()
        into += [v.grad for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
    tolerance = {"rtol": 2e-2, "atol": 3e-1} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(found, want, **tolerance)


def test_attention_paged_says_that_it_has_none() -> None:
    q = torch.randn(1, 2, 8, requires_grad=True)
    cache = torch.randn(3, 4, 2, 8)
    table = torch.zeros(1, 2, dtype=torch.int32)
    ends, length = torch.tensor([0, 1], dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    result = chip.attention_paged(q, cache, cache, table, ends, length, 1.0)
    with pytest.raises(NotImplementedError, match="has no gradient"):
        result.sum().backward()


@pytest.mark.parametrize("name", cases())
def test_what_torch_asks_of_an_operator(name: str) -> None:
    inputs = tuple(
        v.detach().float().requires_grad_()
        if isinstance(v, torch.Tensor) and v.is_floating_point()
        else v
        for v in cases()[name]
    )
    torch.library.opcheck(getattr(chip, name).default, inputs)
