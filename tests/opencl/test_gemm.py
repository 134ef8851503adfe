"""The GEMM for processors against float64: dtypes, layouts, sizes at every edge, options."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from chipset._interface import Dtype

EPSILON = {Dtype.F64: 2.0**-52, Dtype.F32: 2.0**-23, Dtype.F16: 2.0**-10, Dtype.BF16: 2.0**-7}
SIZES = [  # batch, rows, columns, depth
    (1, 1, 1, 1),
    (1, 1, 70, 33),  # a row: dot products, with a tail
    (1, 2, 33, 16),
    (1, 3, 5, 7),
    (1, 65, 33, 300),  # more than one block of depth
    (1, 530, 96, 20),  # more than one block of rows
    (3, 17, 40, 64),
    (2, 8, 32, 0),  # nothing to sum
]


def store(values: Any, dtype: Dtype) -> Any:
    if dtype == Dtype.BF16:
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return values.astype({Dtype.F64: "f8", Dtype.F32: "f4", Dtype.F16: "f2"}[dtype])


def load(stored: Any, dtype: Dtype) -> Any:
    if dtype == Dtype.BF16:
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def upload(chip: Any, stored: Any, dtype: Dtype, transposed: bool = False) -> Any:
    held = np.ascontiguousarray(stored.swapaxes(-1, -2)) if transposed else stored
    array = chip.array(held, dtype) if held.size else chip.empty(held.shape, dtype)
    return array.transpose(0, 2, 1) if transposed else array


def close(got: Any, wanted: Any, magnitude: Any, dtype: Dtype, depth: int) -> None:
    """Within a rounding of the result and the error of a float32 (or float64) sum."""
    summed = EPSILON[Dtype.F64 if dtype == Dtype.F64 else Dtype.F32] * (depth + 8)
    bound = np.abs(wanted) * EPSILON[dtype] + magnitude * summed + 1e-7 * (dtype == Dtype.F16)
    assert np.all(np.abs(got - wanted) <= bound), np.max(np.abs(got - wanted) / (bound + 1e-300))


@pytest.mark.parametrize("dtype", list(EPSILON), ids=lambda d: d.name)
@pytest.mark.parametrize("left", [False, True], ids=["a", "at"])
@pytest.mark.parametrize("right", [False, True], ids=["b", "bt"])
def test_product(chip: Any, dtype: Dtype, left: bool, right: bool) -> None:
    rng = np.random.default_rng(1)
    for batch, m, n, k in SIZES:
        a = store(rng.standard_normal((batch, m, k)), dtype)
        b = store(rng.standard_normal((batch, k, n)), dtype)
        out = upload(chip, store(np.full((batch, m, n), np.nan), dtype), dtype)
        chip.call(
            "gemm",
            a=upload(chip, a, dtype, left),
            b=upload(chip, b, dtype, right),
            d=out,
            alpha=1.0,
        )
        x, y = load(a, dtype), load(b, dtype)
        close(load(out.numpy(), dtype), x @ y, np.abs(x) @ np.abs(y), dtype, k)


ACTIVATIONS = {
    1: lambda x: np.maximum(x, 0),
    3: lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    4: lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_alpha_beta_bias_and_activation_in_place(chip: Any, rows: int, activation: int) -> None:
    rng = np.random.default_rng(2)
    a, b, c, bias = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in [(rows, 50), (50, 40), (rows, 40), (40,)]
    )
    out = chip.array(c)
    options = {"alpha": 0.5, "beta": 2.0, "activation": activation}
    chip.call(
        "gemm", a=chip.array(a), b=chip.array(b), c=out, d=out, bias=chip.array(bias), **options
    )
    linear = 0.5 * (a.astype("f8") @ b) + 2.0 * c + bias
    assert np.allclose(out.numpy(), ACTIVATIONS[activation](linear), rtol=1e-5, atol=1e-5)


def test_strided_and_broadcast_operands(chip: Any) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((24, 48)), rng.standard_normal((48, 80))
    wide_a, wide_b = chip.array(a), chip.array(b)
    every_other = wide_a.view((12, 24), (96, 2))
    out = chip.array(np.full((12, 160), 7.0))
    spread = {"b": wide_b.view((24, 40), (160, 2)), "d": out.view((12, 40), (160, 4))}
    chip.call("gemm", a=every_other, alpha=1.0, **spread)
    got = out.numpy()
    assert np.allclose(got[:, ::4], a[::2, ::2] @ b[::2, ::2])
    assert np.all(got[:, 1::4] == 7) and np.all(got[:, 2::4] == 7)  # between them nothing
    batched = chip.empty((3, 24, 80), Dtype.F64)
    left, right = wide_a.view((3, 24, 48), (0, 48, 1)), wide_b.view((3, 48, 80), (0, 80, 1))
    chip.call("gemm", a=left, b=right, d=batched, alpha=1.0)
    assert np.allclose(batched.numpy(), np.broadcast_to(a @ b, (3, 24, 80)))


def test_halves_may_give_float32(chip: Any) -> None:
    rng = np.random.default_rng(4)
    a, b = (store(rng.standard_normal((33, 33)), Dtype.BF16) for _ in range(2))
    out = chip.empty((33, 33), Dtype.F32)
    left, right = (chip.array(x, Dtype.BF16) for x in (a, b))
    chip.call("gemm", a=left, b=right, d=out, alpha=1.0)
    expected = load(a, Dtype.BF16) @ load(b, Dtype.BF16)
    assert np.allclose(out.numpy(), expected, rtol=1e-5, atol=1e-4)


def test_nan_and_infinity_go_where_they_belong(chip: Any) -> None:
    for dtype, (m, k) in itertools.product([Dtype.F32, Dtype.BF16], [(1, 40), (20, 40)]):
        a = np.ones((1, m, k))
        a[0, 0, 3] = np.nan
        c = np.full((1, m, 4), np.nan)  # beta is 0: it is not read
        out = upload(chip, store(c, dtype), dtype)
        b = upload(chip, store(np.ones((1, k, 4)), dtype), dtype)
        chip.call("gemm", a=upload(chip, store(a, dtype), dtype), b=b, c=out, d=out, alpha=1.0)
        got = load(out.numpy(), dtype)[0]
        assert np.all(np.isnan(got[0])) and np.all(got[1:] == k)
