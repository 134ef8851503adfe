"""gemm against an fp64 oracle: every dtype, layout, epilogue and edge that the header allows."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
# Rounding of the output and of a sum of k products of the compute dtype.
UNIT = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float64: 2**-53}
NONE, RELU, GELU_ERF, GELU_TANH, SILU = range(5)


def check(result: torch.Tensor, exact: torch.Tensor, k: int, magnitude: torch.Tensor) -> None:
    """|error| <= one rounding of the output + k roundings of the accumulator (worst case bound)."""
    compute = 2**-53 if result.dtype == torch.float64 else 2**-24
    bound = (
        UNIT[result.dtype] * exact.abs()
        + (k + 4) * compute * (magnitude + 1e-30)
        + 1e-7 * (result.dtype == torch.float16)
    )
    error = (result.double() - exact).abs()
    assert (error <= bound).all(), f"worst ratio {(error / bound).max():.3g}"


def operand(shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> torch.Tensor:
    if layout == "row":
        return torch.randn(shape, dtype=torch.float64).to(dtype)
    if layout == "column":
        return torch.randn(*shape[:-2], shape[-1], shape[-2], dtype=torch.float64).to(dtype).mT
    wide = torch.randn(*shape[:-1], 2 * shape[-1] + 3, dtype=torch.float64).to(dtype)
    return wide[..., 1 : 2 * shape[-1] + 1 : 2]  # strided


def run(table: Any, a: torch.Tensor, b: torch.Tensor, **extra: Any) -> None:
    d = extra.pop("d", None)
    if d is None:
        d = torch.full((*a.shape[:-1], b.shape[-1]), float("nan"), dtype=a.dtype)
    alpha, beta = extra.pop("alpha", 1.0), extra.pop("beta", 0.0)
    table.call("gemm", a=a, b=b, d=d, alpha=alpha, beta=beta, **extra)
    product = a.double() @ b.double()
    magnitude = abs(alpha) * (a.double().abs() @ b.double().abs())
    exact = alpha * product
    check(d, exact, a.shape[-1], magnitude)


SIZES = [
    (1, 1, 1), (1, 7, 3), (2, 3, 5), (16, 16, 16), (14, 32, 64), (15, 33, 65), (13, 31, 7),
    (64, 64, 64), (65, 130, 300), (1, 576, 576), (3, 200, 1000), (16, 129, 257), (17, 129, 257),
    (200, 1, 300), (200, 3, 5), (1, 1, 5000), (300, 90, 1100), (90, 260, 2000), (5, 5, 3000),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m,n,k", SIZES)
def test_sizes_and_layouts(table: Any, dtype: torch.dtype, m: int, n: int, k: int) -> None:
    torch.manual_seed(m * 7 + n)
    for la, lb in itertools.product(["row", "column", "strided"], repeat=2):
        run(table, operand((m, k), dtype, la), operand((k, n), dtype, lb))


@pytest.mark.parametrize("dtype", FLOATS)
def test_batches(table: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for batch, m, n, k in [(1, 5, 6, 7), (3, 20, 40, 30), (40, 33, 17, 64), (9, 130, 64, 70)]:
        run(table, operand((batch, m, k), dtype, "row"), operand((batch, k, n), dtype, "column"))
    shared = operand((1, 30, 20), dtype, "row").expand(5, 30, 20)
    run(table, operand((5, 10, 30), dtype, "row"), shared)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(5, 7, 9), (40, 70, 50), (64, 96, 1500), (2, 300, 600)])
def test_epilogue(table: Any, dtype: torch.dtype, size: tuple[int, int, int]) -> None:
    torch.manual_seed(1)
    m, n, k = size
    a, b = operand((m, k), dtype, "row"), operand((k, n), dtype, "row")
    a = (a.double() / k**0.5).to(dtype)
    c, bias = torch.randn(m, n).to(dtype), torch.randn(n).to(dtype)
    inner = 0.5 * (a.double() @ b.double()) + 2 * c.double() + bias.double()
    functions = {
        NONE: inner,
        RELU: inner.relu(),
        GELU_ERF: torch.nn.functional.gelu(inner),
        GELU_TANH: torch.nn.functional.gelu(inner, approximate="tanh"),
        SILU: torch.nn.functional.silu(inner),
    }
    magnitude = 0.5 * (a.double().abs() @ b.double().abs()) + 2 * c.double().abs() + 4
    for activation, exact in functions.items():
        d = torch.empty(m, n, dtype=dtype)
        table.call(
            "gemm", a=a, b=b, c=c, d=d, bias=bias, alpha=0.5, beta=2.0, activation=activation
        )
        check(d, exact, k + 8, magnitude)


@pytest.mark.parametrize("dtype", FLOATS)
def test_c_is_d_and_broadcast_c(table: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    for m, n, k in [(6, 5, 4), (50, 64, 1600), (100, 70, 200)]:
        a, b = operand((m, k), dtype, "row"), operand((k, n), dtype, "row")
        magnitude = a.double().abs() @ b.double().abs() + 10
        d = torch.randn(m, n).to(dtype)
        exact = a.double() @ b.double() + d.double()
        table.call("gemm", a=a, b=b, c=d, d=d, alpha=1.0, beta=1.0)
        check(d, exact, k, magnitude)
        row = torch.randn(1, n).to(dtype)
        table.call("gemm", a=a, b=b, c=row.expand(m, n), d=d, alpha=1.0, beta=-1.0)
        check(d, a.double() @ b.double() - row.double(), k, magnitude)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_f32_output_of_half_operands(table: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    for m, n, k in [(6, 5, 4), (50, 64, 1600), (1, 700, 300)]:
        a, b = operand((m, k), dtype, "row"), operand((k, n), dtype, "column")
        c = torch.randn(m, n)
        d = torch.empty(m, n)
        table.call("gemm", a=a, b=b, c=c, d=d, alpha=1.0, beta=1.0)
        magnitude = a.double().abs() @ b.double().abs() + c.abs()
        check(d, a.double() @ b.double() + c, k, magnitude)


@pytest.mark.parametrize("dtype", FLOATS)
def test_strided_output(table: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    a, b = operand((40, 900), dtype, "row"), operand((900, 50), dtype, "row")
    run(table, a, b, d=torch.zeros(50, 40, dtype=dtype).mT)
    wide = torch.zeros(40, 101, dtype=dtype)
    run(table, a, b, d=wide[:, 1:101:2])
    assert (wide[:, 0::2] == 0).all()


def test_nan_in_c_does_not_spread_when_beta_is_zero(table: Any) -> None:
    a, b = torch.ones(4, 4), torch.ones(4, 4)
    d = torch.full((4, 4), float("nan"))
    table.call("gemm", a=a, b=b, c=d, d=d, alpha=1.0, beta=0.0)
    assert (d == 4).all()


def test_nan_and_infinity_of_operands_spread(table: Any) -> None:
    for m, n, k in [(3, 5, 4), (40, 40, 2000)]:
        a, b = torch.ones(m, k), torch.ones(k, n)
        a[1, 2], b[0, 3] = float("nan"), float("inf")
        d = torch.zeros(m, n)
        table.call("gemm", a=a, b=b, d=d, alpha=1.0)
        assert d[1].isnan().all()
        assert (d[0, 3], d[0, 0]) == (float("inf"), k)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nothing_to_add_or_to_do(table: Any, dtype: torch.dtype) -> None:
    a, b = torch.zeros(5, 0, dtype=dtype), torch.zeros(0, 6, dtype=dtype)
    c, bias = torch.randn(5, 6).to(dtype), torch.randn(6).to(dtype)
    d = torch.full((5, 6), float("nan"), dtype=dtype)
    table.call("gemm", a=a, b=b, c=c, d=d, bias=bias, alpha=1.0, beta=1.0)
    torch.testing.assert_close(d, (c.double() + bias.double()).to(dtype))
    table.call("gemm", a=a, b=b, d=d, alpha=1.0)
    assert (d == 0).all()
    empty = torch.zeros(0, 6, dtype=dtype)
    table.call(
        "gemm", a=torch.zeros(0, 3, dtype=dtype), b=torch.zeros(3, 6, dtype=dtype), d=empty,
        alpha=1.0,
    )  # fmt: skip


def test_same_call_gives_same_bits(table: Any) -> None:
    torch.manual_seed(5)
    a, b = torch.randn(200, 1500), torch.randn(1500, 300)
    first, second = torch.empty(200, 300), torch.empty(200, 300)
    table.call("gemm", a=a, b=b, d=first, alpha=1.0)
    table.call("gemm", a=a, b=b, d=second, alpha=1.0)
    assert torch.equal(first, second)


def test_refusals(table: Any, refused: type[Exception]) -> None:
    x = torch.zeros(3, 3)
    with pytest.raises(refused, match=r"shapes a \[3, 3\] @ b \[4, 3\]"):
        table.call("gemm", a=x, b=torch.zeros(4, 3), d=x.clone(), alpha=1.0)
    with pytest.raises(refused, match="dtypes a i64"):
        table.call("gemm", a=x.long(), b=x.long(), d=x.long(), alpha=1.0)
    with pytest.raises(refused, match="'b' is missing"):
        table.call("gemm", a=x, d=x.clone(), alpha=1.0)
    with pytest.raises(refused, match="unknown activation 9"):
        table.call("gemm", a=x, b=x, d=x.clone(), alpha=1.0, activation=9)
    with pytest.raises(refused, match="stride 0"):
        table.call("gemm", a=x, b=x, d=torch.zeros(1, 3).expand(3, 3), alpha=1.0)
