"""Elementwise operators of the chip give what torch's own CPU kernels give, on the chip."""

from __future__ import annotations

import math

import pytest
import torch

import chipset

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]

# Name, and the interval that arguments are drawn from.
UNARY = {
    "exp": (-3, 3), "exp2": (-3, 3), "expm1": (-3, 3), "log": (0.01, 5), "log2": (0.01, 5),
    "log10": (0.01, 5), "log1p": (-0.9, 5), "sqrt": (0, 5), "rsqrt": (0.1, 5),
    "reciprocal": (0.1, 5), "sin": (-3, 3), "cos": (-3, 3), "tan": (-1, 1), "asin": (-1, 1),
    "acos": (-1, 1), "atan": (-3, 3), "sinh": (-3, 3), "cosh": (-3, 3), "tanh": (-3, 3),
    "asinh": (-3, 3), "acosh": (1, 5), "atanh": (-0.9, 0.9), "erf": (-2, 2), "erfc": (-2, 2),
    "erfinv": (-0.9, 0.9), "lgamma": (0.5, 5), "digamma": (0.5, 5), "sigmoid": (-5, 5),
    "sinc": (-2, 2), "i0": (-2, 2), "neg": (-3, 3), "abs": (-3, 3), "sign": (-3, 3),
    "sgn": (-3, 3), "ceil": (-3, 3), "floor": (-3, 3), "round": (-3, 3), "trunc": (-3, 3),
    "frac": (-3, 3), "relu": (-3, 3), "logit": (0.1, 0.9), "angle": (-3, 3),
    "nan_to_num": (-3, 3),
}  # fmt: skip
PREDICATES = ["isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "logical_not"]
BINARY = [
    "add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign",
    "logaddexp", "logaddexp2", "xlogy", "remainder", "fmod", "floor_divide", "heaviside",
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
]  # fmt: skip
INTEGER_BINARY = [
    "add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", "gcd",
    "lcm", "eq", "lt", "remainder", "fmod", "floor_divide", "logical_and",
]  # fmt: skip
HOSTILE = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 1e-30]


def interval(shape, low, high, dtype=torch.float32):
    return (torch.rand(shape, dtype=torch.float64) * (high - low) + low).to(dtype)


def layouts(make):
    """The same kind of values, laid out in the ways that kernels get wrong."""
    yield make((4, 5))
    yield make((5, 4)).t()
    yield make((6, 10))[::2, ::2]
    yield make((3, 1)).expand(3, 4)
    yield make(())
    yield make((0, 3))
    yield make((2, 3, 4, 5)).to(memory_format=torch.channels_last)
    yield make((2,) * 8)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(agree, name, dtype):
    agree(getattr(torch, name), interval((7, 9), *UNARY[name], dtype))


@pytest.mark.parametrize("name", ["exp", "neg", "relu", "abs", "sigmoid", "isnan", "logical_not"])
def test_unary_layouts(agree, name):
    for x in layouts(lambda shape: interval(shape, -2, 2)):
        agree(getattr(torch, name), x)


@pytest.mark.parametrize("name", ["exp", "sqrt", "sin", "sigmoid", "rsqrt"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_integers_become_floats(agree, name, dtype):
    agree(getattr(torch, name), torch.arange(6).to(dtype))


@pytest.mark.parametrize("name", ["neg", "abs", "sign", "ceil", "floor", "round", "trunc", "relu"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8], ids=str)
def test_integers_stay_integers(agree, name, dtype):
    agree(getattr(torch, name), torch.arange(-5, 6).to(dtype))


@pytest.mark.parametrize("name", [*PREDICATES, "exp", "log", "sqrt", "relu", "abs", "sign", "floor",
                                  "nan_to_num", "angle", "neg", "sigmoid", "tanh"])  # fmt: skip
def test_infinities_and_nan(agree, name):
    agree(getattr(torch, name), torch.tensor(HOSTILE))


@pytest.mark.parametrize("name", PREDICATES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.bool], ids=str)
def test_predicates_of_integers(agree, name, dtype):
    allow = ("aten::signbit.out",) if name == "signbit" and dtype == torch.bool else ()
    agree(getattr(torch, name), torch.tensor([0, 1, 2, 0]).to(dtype), allow=allow)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(agree, name, dtype):
    x, y = interval((7, 9), -3, 3, dtype), interval((7, 9), 0.5, 3, dtype)
    agree(getattr(torch, name), x, y)


@pytest.mark.parametrize("name", ["add", "mul", "div", "lt", "maximum"])
def test_binary_layouts_and_broadcast(agree, name):
    function = getattr(torch, name)
    for x in layouts(lambda shape: interval(shape, -2, 2)):
        agree(function, x, x)
        agree(function, x, torch.tensor(1.5))
        if x.dim():
            agree(function, x, interval(x.shape[-1:], 0.5, 2))
            agree(function, interval(x.shape[-1:], 0.5, 2), x)
    agree(function, interval((3, 1, 5), 1, 2), interval((4, 1), 1, 2))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", INTEGER_BINARY)
def test_integer_binary(agree, name, dtype):
    low = 0 if dtype == torch.uint8 else -9
    x = torch.arange(low, low + 12).to(dtype)
    y = torch.tensor([1, 2, 3, 4, 5, 7] * 2).to(dtype)
    agree(getattr(torch, name), x, y)


@pytest.mark.parametrize("name", ["add", "mul", "maximum", "minimum", "eq", "lt", "logical_xor",
                                  "bitwise_and", "bitwise_or", "bitwise_xor"])  # fmt: skip
def test_bool_binary(agree, name):
    x = torch.tensor([True, True, False, False])
    agree(getattr(torch, name), x, torch.tensor([True, False, True, False]))
    agree(torch.bitwise_not, x)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "eq", "gt", "pow", "fmod"])
@pytest.mark.parametrize(
    "number", [2, -1.5, True, 3.0, 0.1], ids=lambda n: f"{type(n).__name__}{n}"
)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.bool], ids=str)
def test_numbers(agree, name, number, dtype):
    if (dtype == torch.bool and name in {"sub", "pow", "fmod"}) or (
        number is True and name == "sub"
    ):
        pytest.skip("torch itself refuses")
    if dtype == torch.int64 and name == "pow":
        number = 3
    x = interval((4, 5), 0.5, 3, dtype)
    agree(lambda x: getattr(torch, name)(x, number), x)


def test_number_first(agree):
    x = interval((4, 5), 0.5, 3)
    agree(lambda x: (2 - x, 2 / x, 2**x, 2.5 + x, 1 // x, 7 % x), x)
    agree(lambda x: (5 - x, 5 + x, 5 * x, 7 % x), torch.arange(1, 7))


@pytest.mark.parametrize("other", [torch.float64, torch.bfloat16, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("name", ["add", "mul", "div", "lt", "maximum", "fmod"])
def test_type_promotion(agree, name, other):
    agree(getattr(torch, name), interval((3, 4), 1, 3), interval((3, 4), 1, 3).to(other))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_pow(agree, exponent, dtype):
    agree(lambda x: x**exponent, interval((3, 4), 0.5, 3, dtype))


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_rounded_division(agree, mode):
    x, y = interval((20,), -9, 9), interval((20,), 0.5, 3)
    agree(lambda x, y: torch.div(x, y, rounding_mode=mode), x, y)
    if mode:
        agree(lambda x: torch.div(x, 3, rounding_mode=mode), torch.arange(-9, 9))


def test_alpha(agree):
    x, y = interval((3, 4), -1, 1), interval((3, 4), -1, 1)
    agree(lambda x, y: torch.add(x, y, alpha=2.5), x, y)
    agree(lambda x, y: torch.sub(x, y, alpha=-2), x, y)
    agree(lambda x, y: torch.rsub(x, y, alpha=3), x, y)
    agree(lambda x, y: x.add_(y, alpha=0.5), x, y)


def test_in_place(agree):
    x, y = interval((3, 4), 0.5, 2), interval((3, 4), 0.5, 2)
    for name in ["add_", "sub_", "mul_", "div_", "fmod_", "pow_", "copysign_", "lt_"]:
        agree(lambda x, y, name=name: getattr(x, name)(y), x, y)
    for name in ["exp_", "neg_", "sqrt_", "relu_", "sigmoid_", "zero_", "abs_", "floor_"]:
        agree(lambda x, name=name: getattr(x, name)(), x)
    agree(lambda x: x.t().add_(x.t()), x)
    agree(lambda x: x[:, ::2].mul_(3), x)


def test_out_argument(agree, chip):
    x, y = interval((3, 4), 0.5, 2), interval((3, 4), 0.5, 2)
    agree(lambda x, y: torch.add(x, y, out=torch.empty(3, 4, device=x.device)), x, y)
    agree(lambda x: torch.exp(x, out=torch.empty(4, 3, device=x.device).t()), x)
    agree(lambda x: torch.exp(x, out=torch.empty(3, 4, device=x.device, dtype=torch.float64)), x)
    agree(lambda x: torch.mul(x, 2, out=torch.empty(0, device=x.device)), x)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(x.to(chip), y.to(chip), out=torch.empty(3, 4, device=chip, dtype=torch.int32))


def test_shifts(agree):
    x, y = torch.arange(8), torch.tensor([0, 1, 2, 3] * 2)
    agree(lambda x, y: (x << y, x >> y, x << 2, (x * 16) >> 2), x, y)


def test_clamp(agree):
    x = torch.tensor([*HOSTILE, 0.3, 0.7])
    agree(lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0.2), x.clamp(max=0.2)), x)
    agree(lambda x: (x.clamp(0.5, -0.5), x.clamp(min=math.nan)), x)
    agree(lambda x: (x.clamp_min(0.1), x.clamp_max(0.1), x.clamp_(-1, 1)), x)
    agree(lambda x: (x.clamp(2, 5), x.clamp(min=3)), torch.arange(8))
    low, high = interval((12,), -1, 0), interval((12,), 0, 1)
    agree(torch.clamp, x, low, high)
    agree(lambda x, low: (torch.clamp(x, min=low), torch.clamp(x, max=low)), x, low)


def test_where_and_masked_fill(agree):
    mask = torch.rand(3, 4) > 0.5
    x, y = interval((3, 4), -1, 1), interval((4,), -1, 1)
    agree(torch.where, mask, x, y)
    agree(lambda m, x: torch.where(m, x, 0.0), mask, x)
    agree(lambda m, x: torch.where(m, -math.inf, x), mask, x)
    agree(torch.where, mask, x, y.double())
    agree(lambda x, m: x.masked_fill(m, -math.inf), x, mask)
    agree(lambda x, m: x.masked_fill_(m[0], 3), x, mask)
    agree(lambda x, m, v: x.masked_fill(m, v), x, mask, torch.tensor(2.5))
    agree(lambda x, m: x.masked_fill(m, 7), torch.arange(12).view(3, 4), mask)
    agree(lambda x, m: x.t().masked_fill_(m.t(), 1.5), x, mask)


def test_lerp_addcmul_addcdiv(agree):
    x, y, z = (interval((3, 4), 0.5, 2) for _ in range(3))
    agree(lambda x, y: (torch.lerp(x, y, 0.3), torch.lerp(x, y, 0.8)), x, y)
    agree(torch.lerp, x, y, z)
    agree(lambda x, y: x.lerp_(y, 0.1), x, y)
    agree(lambda x, y, z: torch.addcmul(x, y, z, value=0.5), x, y, z)
    agree(lambda x, y, z: torch.addcdiv(x, y, z, value=-0.5), x, y, z)
    agree(lambda x, y, z: x.addcdiv_(y, z, value=2), x, y, z)
    agree(torch.addcmul, x, y[0], z[:, :1])


ACTIVATIONS = {
    "silu": {}, "gelu": {}, "mish": {}, "relu": {}, "relu6": {}, "elu": {"alpha": 1.3}, "celu": {},
    "selu": {}, "leaky_relu": {"negative_slope": 0.2}, "hardtanh": {}, "hardsigmoid": {},
    "hardswish": {}, "softplus": {"beta": 2.0}, "logsigmoid": {}, "threshold":
    {"threshold": 0.3, "value": -1.0}, "hardshrink": {}, "softshrink": {}, "tanhshrink": {},
    "softsign": {}, "glu": {}, "sigmoid": {}, "tanh": {},
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_derivatives(agree_on_gradients, name, dtype):
    function = getattr(torch.nn.functional, name)
    x = interval((6, 8), -4, 4, dtype).requires_grad_()
    # bf16: torch composes some of these and rounds in between.
    tolerance = (3e-2, 3e-2) if dtype == torch.bfloat16 else None
    agree_on_gradients(lambda x: function(x, **ACTIVATIONS[name]), x, tolerance=tolerance)


def test_gelu_by_tanh(agree_on_gradients):
    x = interval((6, 8), -4, 4).requires_grad_()
    agree_on_gradients(lambda x: torch.nn.functional.gelu(x, approximate="tanh"), x)


def test_prelu(agree_on_gradients):
    x, w = interval((4, 3, 2), -2, 2).requires_grad_(), interval((3,), 0, 1).requires_grad_()
    agree_on_gradients(torch.nn.functional.prelu, x, w)


LOSSES = ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
          "binary_cross_entropy_with_logits"]  # fmt: skip


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(agree_on_gradients, name, reduction):
    function = getattr(torch.nn.functional, name)
    x = interval((5, 6), 0.05, 0.95).requires_grad_()
    agree_on_gradients(lambda x, y: function(x, y, reduction=reduction), x, interval((5, 6), 0, 1))


def test_fill(agree, chip):
    for dtype in [*FLOATS, *INTEGERS, torch.bool]:
        empty = torch.empty(3, dtype=dtype)
        agree(lambda x: (x.fill_(3), torch.ones_like(x), torch.zeros_like(x)), empty)
    agree(lambda x: x.fill_(2**62 + 1), torch.empty(3, dtype=torch.int64))
    agree(lambda x: x[:, 1].fill_(5.0), interval((3, 4), 0, 1))
    agree(lambda x, v: x.fill_(v), interval((3, 4), 0, 1), torch.tensor(1.5))
    agree(lambda x: x.zero_(), torch.randn(3, dtype=torch.complex64))
    one = torch.zeros(1, 3, device=chip).expand(4, 3)
    one.fill_(2.0)
    assert one.cpu().tolist() == [[2.0] * 3] * 4
    agree(lambda x: torch.full((2, 3), 1.5, device=x.device), interval((1,), 0, 1))


def test_sequences(agree):
    def sequences(x):
        options = {"device": x.device}
        return (
            torch.arange(10, **options),
            torch.arange(3, 20, 4, **options),
            torch.arange(10, 0, -3, **options),
            torch.arange(0, 1, 0.1, **options),
            torch.arange(5, dtype=torch.bfloat16, **options),
            torch.arange(0, **options),
            torch.linspace(-1, 1, 7, **options),
            torch.linspace(3, 3, 1, **options),
            torch.logspace(0, 2, 5, **options),
            torch.eye(4, **options),
            torch.eye(3, 5, **options),
        )

    agree(sequences, torch.zeros(1))


def test_large_integers_are_exact(agree):
    x = torch.tensor([2**53 + 1, 2**62 + 3, -(2**60) - 1])
    agree(lambda x: (x + 1, x - 2, x == x, x // 3, x & 255), x)


def test_two_tensors_on_two_devices(chip):
    with pytest.raises(RuntimeError, match="on the same device"):
        torch.randn(3, device=chip) + torch.randn(3)
    with pytest.raises(RuntimeError, match="on the same device"):
        torch.where(torch.ones(3, dtype=torch.bool, device=chip), torch.randn(3), torch.randn(3))


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.ones(3, device=d) + torch.ones(4, device=d),
        lambda d: torch.ones(3, device=d).add_(torch.ones(2, 3, device=d)),
        lambda d: torch.ones(3, device=d).bool() - torch.ones(3, device=d).bool(),
        lambda d: -torch.ones(3, device=d).bool(),
        lambda d: torch.ones(3, dtype=torch.int64, device=d) ** -1,
        lambda d: torch.ones(3, device=d).bitwise_and(1.5),
        lambda d: torch.ones(1, 3, device=d).expand(4, 3).add_(1),
        lambda d: torch.arange(0, 10, 0, device=d),
        lambda d: torch.ones(3, dtype=torch.int64, device=d).add_(1.5),
    ],
)
def test_errors_are_those_of_torch(chip, call):
    with pytest.raises(Exception) as theirs:
        call(torch.device("cpu"))
    with pytest.raises(type(theirs.value)) as ours:
        call(chip)
    first = str(theirs.value).splitlines()[0].replace("_cpu", "")
    assert str(ours.value).splitlines()[0].replace("_cpu", "") == first


def test_what_the_waist_does_not_compute_runs_on_the_host_and_is_counted(chip):
    chipset.reset_fallbacks()
    x = torch.randn(4, dtype=torch.complex64)
    torch.testing.assert_close((x.to(chip) * x.to(chip)).cpu(), x * x)
    assert any("mul" in name for name in chipset.fallbacks())
