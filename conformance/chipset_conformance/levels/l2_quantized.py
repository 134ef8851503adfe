"""Level 2, quantize, dequantize, gemm_quantized: ragged groups, zero points, nibbles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from chipset._interface import Activation, Dtype
from chipset_conformance import values as draw
from chipset_conformance.case import OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.layouts import Operand
from chipset_conformance.numerics import FORMATS, HOST, Array, is_float, judge, name_of, round_to
from chipset_conformance.oracles import quantized as oracle
from chipset_conformance.trial import Trial, View, together

FLOATING = (Dtype.F32, Dtype.F16, Dtype.BF16)
QUANTIZED = (Dtype.I8, Dtype.I4, Dtype.F8E4M3, Dtype.F8E5M2)
WEIGHTS = (Dtype.I8, Dtype.I4, Dtype.F8E4M3)
# (K, group size): one group, groups that divide, a last group of one, of all but one, K of one.
GROUPS = ((32, 0), (64, 32), (33, 32), (63, 32), (1, 16), (70, 16), (130, 128), (5, 0))


@cases(level=2)
def quantize_cases() -> Iterator[Case]:
    for x in FLOATING:
        for q in QUANTIZED:
            for function, check in (("quantize", check_quantize), ("dequantize", check_dequantize)):
                yield _case(f"{function}/{name_of(x)}/{name_of(q)}", function, x,
                            partial(check, x_dtype=x, q_dtype=q))  # fmt: skip


@cases(level=2)
def gemm_quantized_cases() -> Iterator[Case]:
    for x in FLOATING:
        for w in WEIGHTS:
            yield _case(f"gemm_quantized/{name_of(x)}/{name_of(w)}", "gemm_quantized", x,
                        partial(check_gemm, x_dtype=x, w_dtype=w))  # fmt: skip
    for result in FLOATING:
        for w in (Dtype.I8, Dtype.I4):
            yield _case(
                f"gemm_quantized/i8/{name_of(w)}-to-{name_of(result)}", "gemm_quantized", Dtype.I8,
                partial(check_gemm, x_dtype=Dtype.I8, w_dtype=w, result=result),
            )  # fmt: skip


def _case(identity: str, function: str, dtype: Dtype, run: partial[None]) -> Case:
    return Case(
        id=identity, functions=(function,), tags=frozenset({OPTIONAL}), dtype=name_of(dtype),
        run=run,
    )  # fmt: skip


# ---- quantize and dequantize ---------------------------------------------------------------------


def check_quantize(context: Context, x_dtype: Dtype, q_dtype: Dtype) -> None:
    """Given and computed scales, with and without zero points, every way to cut a row."""
    checks = []
    for length, size in GROUPS:
        for given in (0, 1):
            for symmetric in (True, False):
                if is_float(q_dtype) and not symmetric:
                    continue
                label = f"K {length}, groups of {size}, given {given}, symmetric {symmetric}"
                checks.append((label, partial(_quantize, context, x_dtype, q_dtype, length, size,
                                              given, symmetric, label)))  # fmt: skip
    together(checks)


def _quantize(
    context: Context,
    x_dtype: Dtype,
    q_dtype: Dtype,
    length: int,
    size: int,
    given: int,
    symmetric: bool,
    label: str,
) -> None:
    rng = context.rng
    trial = Trial(context, "quantize", label)
    values = draw.ordinary(rng, (5, length), x_dtype)
    if length > 1 and not symmetric:  # a range on both sides of zero
        values[:, 0], values[:, -1] = -np.abs(values[:, 0]) - 1, np.abs(values[:, -1]) + 1
    x = trial.give("x", values, x_dtype)
    count = oracle.groups(length, size)
    low, high = oracle.limits(q_dtype, symmetric)
    zero: Operand | None = None
    if given:
        steps = rng.uniform(0.5, 1.5, (5, count)) * (3.0 / high)
        scale = trial.give("scale", steps.astype(np.float32), Dtype.F32)
        if not symmetric:
            points = rng.integers(int(low) // 2, int(high) // 2 + 1, (5, count))
            zero = trial.give("zero_point", points, Dtype.I32)
    else:
        scale = trial.take("scale", (5, count), Dtype.F32)
        if not symmetric:
            zero = trial.take("zero_point", (5, count), Dtype.I32)
    q, view = _quantized_operand(trial, "q", None, (5, length), q_dtype)
    trial.call(given_scale=given, group_size=size, x=x, q=view, scale=scale, zero_point=zero)
    if not given:
        if symmetric or (size == 0 and length > 1):  # the others may lie on one side of zero
            trial.expect(scale, oracle.scales(x.values, q_dtype, size, symmetric))
        elif not symmetric:
            _check_fits(trial, x, q, scale, zero, q_dtype, length, size)
            return
    used = scale.values if given else np.array(trial.result(scale))
    points_used = None
    if zero is not None:
        points_used = zero.values if given else np.array(trial.result(zero))
    _expect_quantized(trial, q, x.values, used, points_used, q_dtype, size)


def _expect_quantized(
    trial: Trial, q: Operand, x: Array, scale: Array, zero: Array | None, dtype: Dtype, size: int
) -> None:
    """q lies between the roundings of the ends of x/scale's interval, clamped."""
    got = _numbers(trial, q, dtype, x.shape[-1])
    if is_float(dtype):
        ratios = oracle.quotient(x, scale, size)
        # Beyond the largest number E5M2 has infinities, and the header names no clamp for it.
        inside = (np.abs(ratios.value) < FORMATS[dtype].largest) | (not FORMATS[dtype].infinities)
        wrong = judge(got, ratios, dtype, known=inside).wrong
    else:
        low, high = oracle.quantize(x, scale, zero, dtype, size)
        wrong = ~((got >= low) & (got <= high))
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        ratio = oracle.quotient(x, scale, size).value[index]
        trial.fail(
            f"q{list(index)} = {got[index]}, but x = {x[index]}, x/scale = {ratio}, "
            f"scale {scale[index[0]].tolist()}, zero_point "
            f"{None if zero is None else zero[index[0]].tolist()}"
        )


def _check_fits(
    trial: Trial,
    x: Operand,
    q: Operand,
    scale: Operand,
    zero: Operand | None,
    dtype: Dtype,
    length: int,
    size: int,
) -> None:
    """Scale and zero point of a group on one side of zero: whatever they are, x comes back."""
    assert zero is not None
    steps, points = np.array(trial.result(scale)), np.array(trial.result(zero))
    back = oracle.dequantize(_numbers(trial, q, dtype, length), steps, points, size).value
    off = np.abs(back - x.values.astype(np.float64))
    # Half a step of rounding, half a step of the zero point's, and the clamp of both.
    if (off > 1.5 * oracle.expand(steps, length, size) + 1e-6 * np.abs(back)).any():
        trial.fail(f"quantised and back, x is off by {off.max()}, with steps of {steps.max()}")


def check_dequantize(context: Context, x_dtype: Dtype, q_dtype: Dtype) -> None:
    """Every way to cut a row, with and without zero points; all values of q."""
    checks = []
    for length, size in (*GROUPS, (256, 64)):
        for symmetric in (True, False):
            if is_float(q_dtype) and not symmetric:
                continue
            label = f"K {length}, groups of {size}, symmetric {symmetric}"
            checks.append((label, partial(_dequantize, context, x_dtype, q_dtype, length, size,
                                          symmetric, label)))  # fmt: skip
    together(checks)


def _dequantize(
    context: Context,
    x_dtype: Dtype,
    q_dtype: Dtype,
    length: int,
    size: int,
    symmetric: bool,
    label: str,
) -> None:
    rng = context.rng
    trial = Trial(context, "dequantize", label)
    numbers = _draw_quantized(rng, (3, length), q_dtype)
    _, view = _quantized_operand(trial, "q", numbers, (3, length), q_dtype)
    count = oracle.groups(length, size)
    steps = rng.uniform(0.01, 0.1, (3, count)).astype(np.float32)
    scale = trial.give("scale", steps, Dtype.F32)
    zero = None
    if not symmetric:
        zero = trial.give("zero_point", rng.integers(-5, 6, (3, count)), Dtype.I32)
    x = trial.take("x", (3, length), x_dtype)
    trial.call(group_size=size, x=x, q=view, scale=scale, zero_point=zero)
    exact = oracle.dequantize(numbers, steps, zero.values if zero else None, size)
    trial.expect(x, exact.reordered(), known=~np.isnan(exact.value))


# ---- gemm_quantized ------------------------------------------------------------------------------


def check_gemm(
    context: Context, x_dtype: Dtype, w_dtype: Dtype, result: Dtype | None = None
) -> None:
    """Sizes, groups, zero points, bias, activations."""
    result = result or x_dtype
    checks = []
    for m, n in ((1, 1), (1, 40), (5, 33), (17, 64)):
        for length, size in GROUPS:
            label = f"{m} x {n}, K {length}, groups of {size}"
            checks.append((label, partial(_gemm, context, x_dtype, w_dtype, result, m, n, length,
                                          size, label)))  # fmt: skip
    for activation in Activation:
        for zero in (False, True):
            label = f"{activation.name}, zero points {zero}, bias"
            checks.append((label, partial(_gemm, context, x_dtype, w_dtype, result, 4, 20, 64, 32,
                                          label, activation, zero, True)))  # fmt: skip
    for layout in ("transposed", "sliced"):
        label = f"x {layout}"
        checks.append((label, partial(_gemm, context, x_dtype, w_dtype, result, 5, 24, 64, 32,
                                      label, x_layout=layout)))  # fmt: skip
    checks.append(("no rows", partial(_gemm, context, x_dtype, w_dtype, result, 0, 8, 32, 0,
                                      "no rows")))  # fmt: skip
    together(checks)


def _gemm(
    context: Context,
    x_dtype: Dtype,
    w_dtype: Dtype,
    result: Dtype,
    m: int,
    n: int,
    length: int,
    size: int,
    label: str,
    activation: Activation = Activation.NONE,
    with_zero: bool = False,
    with_bias: bool = False,
    x_layout: str = "contiguous",
) -> None:
    rng = context.rng
    if is_float(w_dtype) and with_zero:
        return
    trial = Trial(context, "gemm_quantized", label)
    fields: dict[str, Any] = {}
    if x_dtype == Dtype.I8:
        x = trial.give("x", rng.integers(-127, 128, (m, length)), Dtype.I8, x_layout)
        steps = rng.uniform(0.005, 0.02, m).astype(np.float32)
        fields["x_scale"] = trial.give("x_scale", steps, Dtype.F32)
    else:
        x = trial.give("x", draw.ordinary(rng, (m, length), x_dtype), x_dtype, x_layout)
    numbers = _draw_quantized(rng, (n, length), w_dtype)
    _, weight = _quantized_operand(trial, "w", numbers, (n, length), w_dtype)
    count = oracle.groups(length, size)
    scale = rng.uniform(0.01, 0.1, (n, count)).astype(np.float32)
    fields["w_scale"] = trial.give("w_scale", scale, Dtype.F32)
    points = None
    if with_zero:
        points = rng.integers(-5, 6, (n, count))
        fields["w_zero_point"] = trial.give("w_zero_point", points, Dtype.I32)
    bias = None
    if with_bias:
        bias = draw.ordinary(rng, (n,), result)
        fields["bias"] = trial.give("bias", bias, result)
    d = trial.take("d", (m, n), result)
    trial.call(activation=activation, group_size=size, x=x, w=weight, d=d, **fields)
    if m == 0:
        return
    exact = oracle.gemm_quantized(
        x.values, fields["x_scale"].values if "x_scale" in fields else None,
        oracle.dequantize(numbers, scale, points, size), bias, x_dtype, activation,
    )  # fmt: skip
    trial.expect(d, exact, flush=True)


# ---- quantised tensors ---------------------------------------------------------------------------


def _draw_quantized(rng: np.random.Generator, shape: tuple[int, int], dtype: Dtype) -> Array:
    """Numbers of the quantised dtype; none of them NaN."""
    if is_float(dtype):
        return round_to(rng.uniform(-20, 20, shape), dtype)
    low, high = oracle.ASYMMETRIC[dtype]
    return rng.integers(low, high + 1, shape)


def _quantized_operand(
    trial: Trial, name: str, values: Array | None, shape: tuple[int, int], dtype: Dtype
) -> tuple[Operand, Operand | View]:
    """The operand in memory, and as the function takes it: I4 lies packed, by the byte."""
    if dtype != Dtype.I4:
        operand = (
            trial.take(name, shape, dtype)
            if values is None
            else trial.give(name, values.astype(HOST[dtype]), dtype)
        )
        return operand, operand
    rows, length = shape
    width = (length + 1) // 2
    if values is None:
        packed = trial.take(name, (rows, width), Dtype.U8)
    else:
        packed = trial.give(name, oracle.pack_nibbles(values), Dtype.U8)
    return packed, View(packed, shape, (2 * width, 1), Dtype.I4)


def _numbers(trial: Trial, q: Operand, dtype: Dtype, length: int) -> Array:
    """What was written, as numbers."""
    raw = np.array(trial.result(q))
    return oracle.unpack_nibbles(raw, length) if dtype == Dtype.I4 else raw
