"""gemm_quantized against fp64: formats of weights, groups, zero points, activations of I8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
UNIT = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11}
ROWS = [1, 2, 3, 5, 8, 9, 17, 40]
# [N, K], group (0: the whole row). A last group that is not full, odd groups, one element.
SHAPES = [
    (1, 1, 0), (5, 33, 32), (37, 576, 0), (3, 200, 128), (40, 97, 32), (19, 60, 5),
    (130, 64, 32), (7, 70, 1000), (33, 2500, 0),
]  # fmt: skip


@dataclass
class Weights:
    """Quantised weights as the function takes them, and what they stand for in fp64."""

    w: Any
    scale: torch.Tensor
    zero: torch.Tensor | None
    exact: torch.Tensor  # [N, K]
    largest: torch.Tensor  # |w| + |zero| times scale: the size of what is added up


def make_weights(packed_i4: Any, kind: Any, n: int, k: int, group: int, zeros: bool) -> Weights:
    groups = -(-k // (group or k))
    scale = torch.rand(n, groups) / 50 + 1e-3
    zero = torch.randint(-9, 10, (n, groups), dtype=torch.int32) if zeros else None
    if kind == "i4":
        values = torch.randint(-8, 8, (n, k))
        pairs = F.pad(values & 15, (0, k % 2))
        w = packed_i4((pairs[:, ::2] | pairs[:, 1::2] << 4).to(torch.uint8), k)
    elif kind == torch.int8:
        values = torch.randint(-128, 128, (n, k))
        w = values.to(torch.int8)
    else:
        w = (torch.randn(n, k) * 20).to(kind)
        values = w.double()
    wide = scale.repeat_interleave(group or k, 1)[:, :k].double()
    shift = torch.zeros_like(wide)
    if zero is not None:
        shift = zero.repeat_interleave(group or k, 1)[:, :k].double()
    exact = (values.double() - shift) * wide
    return Weights(w, scale, zero, exact, (values.double().abs() + shift.abs()) * wide)


def close(result: torch.Tensor, want: torch.Tensor, size: torch.Tensor, inner: int) -> None:
    """One rounding of the result; those of an F32 sum of `inner` terms in some order."""
    bound = UNIT[result.dtype] * want.abs() + (4 + inner**0.5) * 2**-24 * size
    if result.dtype == torch.float16:
        bound = bound + 2**-25
    error = (result.double() - want).abs()
    assert (error <= bound).all(), f"worst ratio {(error / bound).max():.3g}"


def kinds() -> list[Any]:
    return [torch.int8, "i4", torch.float8_e4m3fn]


@pytest.mark.parametrize("kind", kinds(), ids=str)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_float_activations(
    table: Any, packed_i4: Any, kind: Any, zeros: bool, shape: tuple[int, int, int]
) -> None:
    if zeros and kind == torch.float8_e4m3fn:
        pytest.skip("zero points belong to integers")
    n, k, group = shape
    torch.manual_seed(n)
    weights = make_weights(packed_i4, kind, n, k, group, zeros)
    for i, rows in enumerate(ROWS):
        dtype, d_dtype = FLOATS[i % 3], FLOATS[(i // 2) % 3]
        x = torch.randn(rows, k, dtype=torch.float64).to(dtype)
        bias = torch.randn(n).to(d_dtype) if i % 2 else None
        d = torch.full((rows, n), float("nan"), dtype=d_dtype)
        table.call(
            "gemm_quantized", x=x, w=weights.w, w_scale=weights.scale, w_zero_point=weights.zero,
            bias=bias, d=d, group_size=group,
        )  # fmt: skip
        want = x.double() @ weights.exact.T
        size = x.double().abs() @ weights.largest.T
        if bias is not None:
            want, size = want + bias.double(), size + bias.double().abs()
        close(d, want, size, k)


@pytest.mark.parametrize("kind", kinds(), ids=str)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_int8_activations(
    table: Any, packed_i4: Any, kind: Any, zeros: bool, shape: tuple[int, int, int]
) -> None:
    if zeros and kind == torch.float8_e4m3fn:
        pytest.skip("zero points belong to integers")
    n, k, group = shape
    torch.manual_seed(k)
    weights = make_weights(packed_i4, kind, n, k, group, zeros)
    for i, rows in enumerate([*ROWS, 140]):
        d_dtype = FLOATS[i % 3]
        x = torch.randint(-128, 128, (rows, k), dtype=torch.int8)
        x_scale = torch.rand(rows) / 100
        bias = torch.randn(n).to(d_dtype) if i % 2 else None
        d = torch.full((rows, n), float("nan"), dtype=d_dtype)
        table.call(
            "gemm_quantized", x=x, x_scale=x_scale, w=weights.w, w_scale=weights.scale,
            w_zero_point=weights.zero, bias=bias, d=d, group_size=group,
        )  # fmt: skip
        left = x.double() * x_scale.double()[:, None]
        want, size = left @ weights.exact.T, left.abs() @ weights.largest.T
        if bias is not None:
            want, size = want + bias.double(), size + bias.double().abs()
        close(d, want, size, k)


def test_integer_sums_are_exact_at_their_extremes(table: Any) -> None:
    """128 times 128 over so many elements that I32 alone would overflow."""
    k = 140_001
    x = torch.full((2, k), -128, dtype=torch.int8)
    w = torch.full((3, k), -128, dtype=torch.int8)
    d = torch.empty(2, 3)
    table.call("gemm_quantized", x=x, x_scale=torch.ones(2), w=w, w_scale=torch.ones(3, 1), d=d)
    assert (d == torch.tensor(128.0 * 128 * k)).all()
    zero = torch.full((3, 1), -128, dtype=torch.int32)
    table.call(
        "gemm_quantized", x=x, x_scale=torch.ones(2), w=w, w_scale=torch.ones(3, 1),
        w_zero_point=zero, d=d,
    )  # fmt: skip
    assert (d == 0).all()


@pytest.mark.parametrize("rows", [3, 30])
@pytest.mark.parametrize("integers", [False, True])
def test_activations(table: Any, rows: int, integers: bool) -> None:
    torch.manual_seed(0)
    w, scale, bias = torch.randint(-9, 9, (20, 16), dtype=torch.int8), torch.ones(20, 1), None
    x = torch.randint(-3, 4, (rows, 16), dtype=torch.int8)
    fields = {"x": x, "x_scale": torch.full((rows,), 0.02)} if integers else {"x": x * 0.02}
    linear = 0.02 * x.double() @ w.double().T
    functions = [
        lambda y: y, F.relu, F.gelu, lambda y: F.gelu(y, approximate="tanh"), F.silu,
    ]  # fmt: skip
    for activation, function in enumerate(functions):
        d = torch.empty(rows, 20)
        table.call(
            "gemm_quantized", w=w, w_scale=scale, bias=bias, d=d, activation=activation, **fields
        )
        torch.testing.assert_close(d.double(), function(linear), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize("integers", [False, True])
def test_strides(table: Any, rows: int, integers: bool) -> None:
    torch.manual_seed(rows)
    n, k = 21, 50
    x = torch.randint(-100, 100, (k, rows), dtype=torch.int8).T
    w = torch.randint(-100, 100, (k, 2 * n), dtype=torch.int8)[:, ::2].T
    scale = torch.rand(1).expand(n, 2)
    zero = torch.randint(-5, 5, (2, n), dtype=torch.int32).T
    d = torch.zeros(n, rows, dtype=torch.bfloat16).T
    bias = torch.randn(2 * n).bfloat16()[::2]
    x_scale = torch.rand(1).expand(rows)
    fields = {"x": x, "x_scale": x_scale} if integers else {"x": x.half()}
    table.call(
        "gemm_quantized", w=w, w_scale=scale, w_zero_point=zero, bias=bias, d=d, group_size=32,
        **fields,
    )  # fmt: skip
    shift, wide = (t.repeat_interleave(32, 1)[:, :k].double() for t in (zero, scale))
    exact = (w.double() - shift) * wide
    left = x.double() * (x_scale.double()[:, None] if integers else 1)
    want = left @ exact.T + bias.double()
    close(d, want, left.abs() @ exact.abs().T + bias.double().abs(), k)


def test_special_values(table: Any) -> None:
    w = torch.zeros(5, 40, dtype=torch.float8_e4m3fn)
    w[2, 7] = float("nan")
    for rows in (1, 20):
        d = torch.empty(rows, 5)
        table.call("gemm_quantized", x=torch.ones(rows, 40), w=w, w_scale=torch.ones(5, 1), d=d)
        assert d[:, 2].isnan().all() and (d[:, [0, 1, 3, 4]] == 0).all()
    bits = torch.arange(256, dtype=torch.uint8)  # every number; NaN elsewhere
    bits[[127, 255]] = 0
    every = bits.view(torch.float8_e4m3fn).reshape(1, 256)
    d = torch.empty(256, 1)
    table.call("gemm_quantized", x=torch.eye(256), w=every, w_scale=torch.ones(1, 1), d=d)
    assert torch.equal(d[:, 0], every[0].float())


def test_nothing_to_do(table: Any, packed_i4: Any) -> None:
    for rows, n in [(0, 4), (3, 0)]:
        table.call(
            "gemm_quantized", x=torch.zeros(rows, 8), w=torch.zeros(n, 8, dtype=torch.int8),
            w_scale=torch.zeros(n, 1), d=torch.zeros(rows, n),
        )  # fmt: skip
    bias, d = torch.arange(4.0), torch.zeros(30, 4)
    for rows in (1, 30):  # k = 0: the bias alone
        for x, x_scale in [(torch.zeros(rows, 0), None),
                           (torch.zeros(rows, 0, dtype=torch.int8), torch.ones(rows))]:  # fmt: skip
            d = torch.full((rows, 4), 9.0)
            table.call(
                "gemm_quantized", x=x, x_scale=x_scale, w=torch.zeros(4, 0, dtype=torch.int8),
                w_scale=torch.zeros(4, 1), bias=bias, d=d,
            )  # fmt: skip
            assert torch.equal(d, bias.expand(rows, 4))


def test_refusals(table: Any, refused: type[Exception]) -> None:
    x, w = torch.zeros(2, 33), torch.zeros(3, 33, dtype=torch.int8)
    scale, d = torch.zeros(3, 2), torch.zeros(2, 3)
    good = {"x": x, "w": w, "w_scale": scale, "d": d, "group_size": 32}
    table.call("gemm_quantized", **good)
    cases = [
        ({"w_scale": scale[:, :1]}, r"w_scale has shape \[3, 1\], need \[3, 2\]"),
        ({"w_zero_point": scale}, "w_zero_point is f32; need i32"),
        ({"x": x.to(torch.int8)}, r"x is i8 and x_scale is missing"),
        ({"x_scale": torch.zeros(2)}, "x is f32 and x_scale is given"),
        ({"x": x.double()}, "x is f64; need"),
        ({"w": w.int()}, "w is i32; need i8, i4 or f8e4m3"),
        ({"w": w.to(torch.float8_e5m2)}, "w is f8e5m2; need"),
        ({"w": w.to(torch.float8_e4m3fn), "w_zero_point": scale.int()}, "belongs to i8 and i4"),
        ({"bias": torch.zeros(3).half()}, "bias is f16; need f32"),
        ({"activation": 9}, "unknown activation 9"),
        ({"group_size": -1}, "group_size is -1"),
        ({"d": d.T}, r"d has shape \[3, 2\], need \[2, 3\]"),
    ]
    for change, text in cases:
        with pytest.raises(refused, match=text):
            table.call("gemm_quantized", **{**good, **change})
