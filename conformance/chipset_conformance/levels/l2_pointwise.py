"""Level 2, pointwise: every opcode x dtype over values, subnormal numbers and layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from chipset._interface import Dtype, PointwiseOp
from chipset_conformance import values as draw
from chipset_conformance.case import MANDATORY, OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.layouts import INPUT_LAYOUTS, LAYOUTS, Operand
from chipset_conformance.numerics import (
    FLOATS,
    FORMATS,
    HOST,
    INTEGERS,
    Array,
    Bounded,
    evaluated_in,
    is_float,
    name_of,
    round_to,
    wide,
)
from chipset_conformance.oracles.pointwise import (
    ARITHMETIC,
    BITWISE,
    FLOAT,
    INTEGER,
    NUMBER,
    OPS,
    Op,
    Params,
)
from chipset_conformance.trial import Trial, together

DTYPES_OF = {
    FLOAT: FLOATS,
    NUMBER: (*FLOATS, *INTEGERS),
    INTEGER: INTEGERS,
    BITWISE: (Dtype.BOOL, *INTEGERS),
}
DIVISIONS = (PointwiseOp.DIV_FLOOR, PointwiseOp.DIV_TRUNC, PointwiseOp.REMAINDER, PointwiseOp.FMOD)
SHIFTS = (PointwiseOp.SHIFT_LEFT, PointwiseOp.SHIFT_RIGHT)
DIVISORS = (PointwiseOp.GCD, PointwiseOp.LCM)
SHAPE = (3, 5, 7)
NOTHING = ((0, 5), (0,), (4, 0, 3))  # shapes with no elements
# One operation of each arity and kind meets every layout in every place; the others, a choice.
THOROUGH = (PointwiseOp.ADD, PointwiseOp.EXP, PointwiseOp.LT, PointwiseOp.WHERE, PointwiseOp.ABS)
EVERY_NTH = 5
Memo = dict[bytes, Bounded]


@cases(level=2)
def pointwise_cases() -> Iterator[Case]:
    for op, entry in OPS.items():
        for dtype in dtypes_of(op):
            checks = [("values", check_values), ("layouts", check_layouts)]
            if is_float(dtype):
                checks.append(("subnormal", check_subnormal))
            for name, check in checks:
                yield Case(
                    id=f"pointwise/{op.name.lower()}/{name_of(dtype)}/{name}",
                    functions=("pointwise",),
                    tags=frozenset({MANDATORY if dtype == Dtype.F32 else OPTIONAL}),
                    dtype=name_of(dtype),
                    run=partial(check, op=op, entry=entry, dtype=dtype),
                )


def dtypes_of(op: PointwiseOp) -> Sequence[Dtype]:
    """Dtypes in which an operation is judged."""
    if op == PointwiseOp.NEXTAFTER:
        return (Dtype.F32, Dtype.F64)  # of a narrower type it would be the next F32, rounded back
    if OPS[op].kind == "predicate" and OPS[op].of == NUMBER and op != PointwiseOp.SIGNBIT:
        return (Dtype.BOOL, *DTYPES_OF[NUMBER])
    return DTYPES_OF[OPS[op].of]


# ---- checks --------------------------------------------------------------------------------------


def check_values(context: Context, op: PointwiseOp, entry: Op, dtype: Dtype) -> None:
    """Every class of values but subnormal ones, contiguous."""
    operands = usable(op, dtype, value_columns(context, entry.arity, dtype))
    for params in entry.params:
        run_op(context, op, entry, dtype, operands, params, label="values")


def check_subnormal(context: Context, op: PointwiseOp, entry: Op, dtype: Dtype) -> None:
    """Subnormal operands: moved exactly; computed with, or as if they were zero."""
    tiny = draw.subnormal(context.rng, 60, dtype)
    columns = [tiny]
    for _ in range(entry.arity - 1):
        other = np.concatenate([tiny[::-1], draw.ordinary(context.rng, (60,), dtype)])
        columns = [np.concatenate([c, c]) for c in columns]
        columns.append(np.resize(other, columns[0].shape))
    for params in entry.params:
        run_op(context, op, entry, dtype, columns, params, label="subnormal", subnormal=True)


def check_layouts(context: Context, op: PointwiseOp, entry: Op, dtype: Dtype) -> None:
    """Each operand in turn in each layout, then all; in place; immediates; nothing to do."""
    params = entry.params[0]
    host = [draw.ordinary(context.rng, SHAPE, dtype) for _ in range(entry.arity)]
    host = [c.reshape(SHAPE) for c in usable(op, dtype, [h.ravel() for h in host], keep=True)]
    call = partial(run_op, context, op, entry, dtype, memo={})
    checks = []
    for layouts in layout_choices(entry.arity, thorough=op in THOROUGH):
        label = " ".join(layouts)
        checks.append((label, partial(call, host, params, layouts, label)))
    for k in range(entry.arity):
        checks.append((f"in place {k}", partial(_in_place, context, op, entry, dtype, host, k)))
        checks.append((f"number {k}", partial(_immediate, context, op, entry, dtype, host, k)))
    for shape in NOTHING if op in THOROUGH else NOTHING[:1]:
        none = [h.ravel()[:0].reshape(shape) for h in host]
        checks.append((f"shape {shape}", partial(call, none, params, None, f"shape {shape}")))
    together(checks)


def layout_choices(arity: int, thorough: bool) -> list[tuple[str, ...]]:
    """Layouts of the output, then of each operand; thorough: every one in every place alone."""
    plain = ("contiguous",) * (arity + 1)
    choices = [plain] + [(layout,) * (arity + 1) for layout in LAYOUTS]
    for k in range(arity + 1):
        alone = LAYOUTS if k == 0 else INPUT_LAYOUTS
        few = ("sliced",) if k == 0 else ("expanded", "column") if k == 1 else ("expanded",)
        for layout in alone if thorough else few:
            choices.append((*plain[:k], layout, *plain[k + 1 :]))
    return list(dict.fromkeys(choices))


def _in_place(
    context: Context, op: PointwiseOp, entry: Op, dtype: Dtype, host: list[Array], k: int
) -> None:
    """The output is operand k (SHP-002); only where their dtypes agree."""
    if operand_dtypes(op, entry, dtype)[k] != dtype:
        return
    for layout in ("contiguous", "sliced") if op in THOROUGH else ("sliced",):
        run_op(
            context, op, entry, dtype, host, entry.params[0],
            layouts=tuple([layout] * (entry.arity + 1)), label=f"in place of {k}, {layout}",
            in_place=k,
        )  # fmt: skip


def _immediate(
    context: Context,
    op: PointwiseOp,
    entry: Op,
    dtype: Dtype,
    host: list[Array],
    k: int,
) -> None:
    """Operand k is a number given from the host."""
    constant = host[k].copy()
    constant[...] = constant.flat[0]
    given = [*host[:k], constant, *host[k + 1 :]]
    params = entry.params[0]
    run_op(context, op, entry, dtype, given, params, label=f"immediate {k}", immediate=k)


# ---- one call ------------------------------------------------------------------------------------


def run_op(
    context: Context,
    op: PointwiseOp,
    entry: Op,
    dtype: Dtype,
    host: Sequence[Array],
    params: Params,
    layouts: tuple[str, ...] | None = None,
    label: str = "",
    subnormal: bool = False,
    in_place: int | None = None,
    immediate: int | None = None,
    memo: Memo | None = None,
) -> None:
    """Calls one operation and judges it.

    Args:
        layouts: of the output, then of each operand.
        in_place: the operand that is the output too.
        immediate: the operand that is given as a number.
        memo: results of the oracle by operands; layouts repeat them.
    """
    layouts = layouts or ("contiguous",) * (entry.arity + 1)
    label = f"{op.name}, {label}, params {list(params)}"
    trial = Trial(context, "pointwise", label, op.name.lower())
    inputs: list[Operand | None] = []
    dtypes = operand_dtypes(op, entry, dtype)
    for k in range(entry.arity):
        if k == immediate:
            inputs.append(None)
            continue
        values = host[k].astype(np.bool_) if dtypes[k] == Dtype.BOOL else host[k]
        inputs.append(
            trial.give("xyz"[k], values, dtypes[k], layouts[k + 1], written=in_place == k)
        )
    operands = [i.values if i is not None else host[k] for k, i in enumerate(inputs)]
    result_dtype = Dtype.BOOL if entry.kind == "predicate" else dtype
    if in_place is not None:
        output = inputs[in_place]
        assert output is not None
        result_dtype = dtype
    else:
        output = trial.take("out", host[0].shape, result_dtype, layouts[0])
    trial.call(
        op=op,
        compute_dtype=dtype,
        num_inputs=entry.arity,
        output=output,
        input=list(inputs),
        immediate=[_number(host[k]) if k == immediate else 0 for k in range(entry.arity)],
        param=[float(p) if is_float(dtype) else int(p) for p in params],
    )
    operands = [np.array(o) for o in operands]
    expect_op(trial, op, entry, dtype, operands, params, output, subnormal, memo)


def expect_op(
    trial: Trial,
    op: PointwiseOp,
    entry: Op,
    dtype: Dtype,
    operands: list[Array],
    params: Params,
    output: Operand,
    subnormal: bool = False,
    memo: Memo | None = None,
) -> None:
    """Holds the output of a call against the oracle of its operation."""
    if 0 in output.shape:
        return
    if not is_float(dtype):
        expected = evaluate_integers(entry, dtype, operands, params)
        if entry.kind != "predicate":
            expected = expected.astype(HOST[dtype])
        trial.expect_bits(output, expected.astype(HOST[output.dtype]))
        return
    known = ~_open(entry, dtype, operands, params)
    if not subnormal:
        for operand in operands:
            known &= ~is_subnormal(operand, dtype)
    if entry.kind == "predicate":
        expected = np.asarray(entry.evaluate(_evaluated(operands, dtype), params))
        trial.expect_bits(output, expected.astype(HOST[output.dtype]), known)
        return
    key = b"".join(o.tobytes() for o in operands)
    exact = memo.get(key) if memo is not None else None
    if exact is None:
        exact = evaluate_floats(entry, dtype, operands, params)
        if memo is not None:
            memo[key] = exact
    if entry.composite:  # an infinite operand may give NaN where a limit exists, or the limit
        infinite = np.zeros(output.shape, bool)
        for operand in operands:
            infinite |= np.isinf(wide(operand))
        known &= ~(infinite & np.isnan(exact.value)) & ~exact.over
    flush = entry.kind == "bounded" or op in ARITHMETIC
    if subnormal and flush and dtype != Dtype.F16:
        flushed = [_flush(o, dtype) for o in operands]
        other = evaluate_floats(entry, dtype, flushed, params)
        exact = _either(exact, other)
        known &= ~np.isnan(exact.value) & ~_open(entry, dtype, flushed, params)
    trial.expect(output, exact, entry.signed_zero and not subnormal, flush, known)


def evaluate_floats(entry: Op, dtype: Dtype, operands: list[Array], params: Params) -> Bounded:
    """Exact values of an operation over floats."""
    with np.errstate(all="ignore"):
        if entry.kind == "bounded":
            bounded = [Bounded(o, dtype) for o in operands]
            result = entry.evaluate(bounded, params)
            assert isinstance(result, Bounded)
            return result.reordered() if entry.composite else result
        result = entry.evaluate(_evaluated(operands, dtype), params)
        return result if isinstance(result, Bounded) else Bounded(result, dtype)


def evaluate_integers(entry: Op, dtype: Dtype, operands: list[Array], params: Params) -> Array:
    """Values of an operation over integers, in I64; BOOL stays."""
    evaluate = entry.integer or entry.evaluate
    with np.errstate(all="ignore"):
        if dtype == Dtype.BOOL:
            return np.asarray(evaluate(operands, params))
        whole = tuple(int(p) for p in params)
        widened = [o if o.dtype == np.bool_ else o.astype(np.int64) for o in operands]
        return np.asarray(evaluate(widened, whole))


def operand_dtypes(op: PointwiseOp, entry: Op, dtype: Dtype) -> list[Dtype]:
    """Dtypes of the operands: WHERE's first is a mask."""
    if op == PointwiseOp.WHERE:
        return [Dtype.BOOL, dtype, dtype]
    return [dtype] * entry.arity


# ---- values --------------------------------------------------------------------------------------


def value_columns(context: Context, arity: int, dtype: Dtype) -> list[Array]:
    """Operands of a call: a fifth of all values of a narrow float, which seeds add up to all;
    else corners against corners, and many more.
    """
    rng = context.rng
    if arity == 1 and dtype in (Dtype.F16, Dtype.BF16):
        some = draw.every(dtype)[rng.integers(EVERY_NTH) :: EVERY_NTH]
        return [np.concatenate([draw.special(dtype), some])]
    corners = draw.special(dtype)
    if arity == 3:
        corners = corners[:: max(1, len(corners) // 9)]
        if is_float(dtype):
            corners = np.concatenate([corners, round_to(np.array([np.nan, np.inf]), dtype)])
    columns = draw.pairs(*[corners] * arity)
    for k in range(arity):
        more = [draw.ordinary(rng, (403,), dtype), draw.spread(rng, 403, dtype)]
        columns[k] = np.concatenate([columns[k], *more])
    return columns


def usable(op: PointwiseOp, dtype: Dtype, columns: list[Array], keep: bool = False) -> list[Array]:
    """Drops, or with ``keep`` replaces, integer operands for which an operation has no value."""
    if is_float(dtype) or dtype == Dtype.BOOL:
        return columns
    second = columns[-1]
    if op in DIVISIONS:
        good = second != 0
    elif op in SHIFTS:
        good = (second >= 0) & (second.astype(np.int64) < 8 * HOST[dtype].itemsize)
    elif op == PointwiseOp.POW:
        good = (second >= 0) & (second < 20)
    elif op in DIVISORS:
        good = (np.abs(columns[0].astype(np.float64)) < 100) & (
            np.abs(second.astype(np.float64)) < 100
        )
    else:
        return columns
    if keep:
        replaced = np.where(good, second, np.asarray(2, second.dtype)).astype(second.dtype)
        return [*columns[:-1], replaced]
    return [c[good] for c in columns]


def is_subnormal(values: Array, dtype: Dtype) -> Array:
    """Below the smallest normal number of the type evaluated in, and not zero."""
    if values.dtype == np.bool_:
        return np.zeros(values.shape, bool)
    magnitude = np.abs(wide(values))
    return (magnitude > 0) & (magnitude < FORMATS[evaluated_in(dtype)].smallest_normal)


def _flush(values: Array, dtype: Dtype) -> Array:
    zero = np.asarray(0, values.dtype)
    return np.where(is_subnormal(values, dtype), zero, values)


def _either(one: Bounded, other: Bounded) -> Bounded:
    """An interval that holds both; NaN where they do not agree on being a number."""
    same = np.isnan(one.value) == np.isnan(other.value)
    same &= ~(np.isinf(one.value) ^ np.isinf(other.value))
    same &= ~(np.isinf(one.value) & (one.value != other.value))
    with np.errstate(all="ignore"):
        gap = np.abs(one.value - other.value)
    gap = np.where(np.isfinite(gap), gap, 0)
    value = np.where(same, one.value, np.nan)
    return Bounded(value, one.dtype, np.maximum(one.error, other.error + gap), one.over)


def _evaluated(operands: list[Array], dtype: Dtype) -> list[Array]:
    host = HOST[evaluated_in(dtype)]
    return [o if o.dtype == np.bool_ else o.astype(host) for o in operands]


def _open(entry: Op, dtype: Dtype, operands: list[Array], params: Params) -> Array:
    if entry.open is None:
        return np.zeros(operands[0].shape, bool)
    with np.errstate(all="ignore"):
        return np.asarray(entry.open(_evaluated(operands, dtype), params))


def _number(values: Array) -> float | int:
    value = values.flat[0]
    return float(value) if values.dtype.kind in "fV" else int(value)
