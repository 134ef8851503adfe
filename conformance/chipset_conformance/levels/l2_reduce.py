"""Level 2, reduce: every operation x dtype over dimensions, lengths, values and layouts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np

from chipset._interface import Dtype, ReduceOp, Status
from chipset_conformance import values as draw
from chipset_conformance.case import MANDATORY, OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.layouts import INPUT_LAYOUTS, LAYOUTS, Operand
from chipset_conformance.numerics import (
    FLOATS,
    INTEGERS,
    Array,
    is_float,
    name_of,
    round_to,
    wide,
)
from chipset_conformance.oracles import reduce as oracle
from chipset_conformance.shapes import examples, layouts_of, shapes
from chipset_conformance.trial import Trial, together

# Around vectors, blocks and what a thread takes; 4097 ones overflow what F16 can count.
LENGTHS = (1, 2, 3, 7, 8, 31, 33, 64, 127, 257, 1000, 4097)
LONG = 70_001  # that a chip cuts into pieces, to give all of it something to do
PARAMS: dict[ReduceOp, tuple[float, ...]] = {
    ReduceOp.NORM: (2, 1, 0, 3, float("inf"), float("-inf"), 0.5),
    ReduceOp.VAR: (1, 0),
}
SHAPE = (4, 5, 6)


@cases(level=2)
def reduce_cases() -> Iterator[Case]:
    checks = (
        ("dims", check_dims), ("lengths", check_lengths), ("layouts", check_layouts),
        ("values", check_values), ("empty", check_empty),
    )  # fmt: skip
    for op in ReduceOp:
        for dtype in (*FLOATS, *INTEGERS, Dtype.BOOL):
            if not oracle.defined_on(op, dtype):
                continue
            for name, check in checks:
                yield _case(f"{op.name.lower()}/{name_of(dtype)}/{name}", dtype,
                            partial(check, op=op, dtype=dtype))  # fmt: skip
        for dtype in (Dtype.F32, Dtype.I64):
            if oracle.defined_on(op, dtype):
                yield _case(f"{op.name.lower()}/{name_of(dtype)}/long", dtype,
                            partial(check_long, op=op, dtype=dtype))  # fmt: skip
    for dtype in FLOATS:
        yield _case(f"var/{name_of(dtype)}/shifted", dtype, partial(check_shifted, dtype=dtype))
        yield _case(f"sum/{name_of(dtype)}/repeats", dtype, partial(check_repeats, dtype=dtype))
        for op in oracle.EXTREMES:
            yield _case(f"{op.name.lower()}/{name_of(dtype)}/indices", dtype,
                        partial(check_indices, op=op, dtype=dtype))  # fmt: skip
        yield _case(f"var/{name_of(dtype)}/mean", dtype, partial(check_var_mean, dtype=dtype))
    for name, op in (("sum", ReduceOp.SUM), ("argmax", ReduceOp.ARGMAX)):
        yield _case(f"{name}/f32/any-shape", Dtype.F32, partial(check_any_shape, op=op))


def _case(identity: str, dtype: Dtype, run: partial[None]) -> Case:
    common = dtype in (Dtype.F32, Dtype.I64, Dtype.BOOL)
    return Case(
        id=f"reduce/{identity}",
        functions=("reduce",),
        tags=frozenset({MANDATORY if common else OPTIONAL}),
        dtype=name_of(dtype),
        run=run,
    )


# ---- checks --------------------------------------------------------------------------------------


def check_dims(context: Context, op: ReduceOp, dtype: Dtype) -> None:
    """Every set of dimensions of a rank-3 tensor, and one set of rank 8."""
    values = _values(context, op, dtype, SHAPE)
    checks = []
    for count in (1, 2, 3):
        for dims in itertools.combinations(range(3), count):
            checks.append((f"dims {dims}", partial(run_reduce, context, op, dtype, values, dims)))
    high = _values(context, op, dtype, (2, 1, 2, 3, 1, 2, 2, 2))
    checks.append(("rank 8", partial(run_reduce, context, op, dtype, high, (0, 3, 4, 7))))
    scalar = _values(context, op, dtype, ())
    checks.append(("rank 0", partial(run_reduce, context, op, dtype, scalar, ())))
    together(checks)


def check_lengths(context: Context, op: ReduceOp, dtype: Dtype) -> None:
    """Rows and columns of every length at which a loop or a thread might end."""
    checks = []
    for n in LENGTHS:
        rows = _values(context, op, dtype, (3, n))
        checks.append((f"rows of {n}", partial(run_reduce, context, op, dtype, rows, (1,))))
        columns = _values(context, op, dtype, (n, 3))
        checks.append((f"columns of {n}", partial(run_reduce, context, op, dtype, columns, (0,))))
    if op in (ReduceOp.SUM, ReduceOp.MEAN, ReduceOp.NANSUM, ReduceOp.NORM):
        ones = np.ones((2, 4097)).astype(_values(context, op, dtype, (1,)).dtype)
        checks.append(("ones", partial(run_reduce, context, op, dtype, ones, (1,))))
    together(checks)


def check_long(context: Context, op: ReduceOp, dtype: Dtype) -> None:
    """Few results of many elements each, along rows and along columns."""
    rows = _values(context, op, dtype, (2, LONG))
    columns = _values(context, op, dtype, (LONG, 9))
    together(
        [
            (f"rows of {LONG}", partial(run_reduce, context, op, dtype, rows, (1,))),
            (f"columns of {LONG}", partial(run_reduce, context, op, dtype, columns, (0,))),
            ("everything", partial(run_reduce, context, op, dtype, columns, (0, 1))),
        ]
    )


def check_layouts(context: Context, op: ReduceOp, dtype: Dtype) -> None:
    """Inputs and outputs in every layout, the last or the first dimension reduced."""
    values = _values(context, op, dtype, SHAPE)
    checks = []
    for dims in ((2,), (0,), (1, 2)):
        for layout in INPUT_LAYOUTS:
            label = f"input {layout}, dims {dims}"
            checks.append((label, partial(run_reduce, context, op, dtype, values, dims, layout)))
        for layout in LAYOUTS:
            run = partial(run_reduce, context, op, dtype, values, dims, "contiguous", layout)
            checks.append((f"output {layout}, dims {dims}", run))
    together(checks)


def check_values(context: Context, op: ReduceOp, dtype: Dtype) -> None:
    """Corners of the dtype; NaN and infinities in every place of a row; ties."""
    rng = context.rng
    if not is_float(dtype):
        many = np.concatenate([draw.special(dtype), draw.spread(rng, 40, dtype)])
        rows = np.stack([rng.permutation(many) for _ in range(6)])
        rows[3] = rows[3, 0]  # a tie of all
        run_reduce(context, op, dtype, rows, (1,))
        return
    ordinary = _values(context, op, dtype, (13, 40))
    ordinary[0, 0] = ordinary[1, 39] = ordinary[2, 17] = np.nan
    ordinary[3, 5] = ordinary[4, 39] = np.inf
    ordinary[5, 5] = ordinary[6, 0] = -np.inf
    ordinary[7, 2], ordinary[7, 3] = np.nan, np.inf
    ordinary[8, :] = -np.inf
    ordinary[9, :] = np.inf
    ordinary[10, 1] = ordinary[10, 30] = np.nan  # the first NaN wins
    ordinary[11, :] = ordinary[11, 0]
    ordinary[12, :] = 0
    ordinary[12, ::2] = -0.0
    run_reduce(context, op, dtype, ordinary, (1,))
    run_reduce(context, op, dtype, np.ascontiguousarray(ordinary.T), (0,))
    negative = -np.abs(_values(context, op, dtype, (4, 33)))  # a maximum that starts at 0 shows
    run_reduce(context, op, dtype, negative, (1,))
    run_reduce(context, op, dtype, np.abs(negative), (1,))
    if op == ReduceOp.LOGSUMEXP:  # exponentials of these overflow unless the largest goes first
        for centre in (200, -200):
            far = round_to(context.rng.standard_normal((4, 33)) + centre, dtype)
            run_reduce(context, op, dtype, far, (1,))


def check_empty(context: Context, op: ReduceOp, dtype: Dtype) -> None:
    """Nothing to reduce gives the identity or is refused (NUM-005); nothing to write, nothing."""
    none = _values(context, op, dtype, (3, 0))
    refused = op in (*oracle.EXTREMES, *oracle.ARGUMENTS)
    trial, x, y = _trial(context, op, dtype, none, (1,), "contiguous", "sliced", 0)
    fields = _fields(op, dtype, (1,), x, y, 2 if op == ReduceOp.NORM else 1)
    if refused:
        trial.refuse(Status.INVALID, Status.UNSUPPORTED, **fields)
    else:
        trial.call(**fields)
        identity: float = {ReduceOp.PROD: 1, ReduceOp.ALL: 1}.get(op, 0)
        if op in (ReduceOp.MEAN, ReduceOp.VAR):
            identity = np.nan
        if op == ReduceOp.LOGSUMEXP:
            identity = -np.inf
        if is_float(dtype):
            trial.expect_bits(y, round_to(np.full(y.shape, identity, np.float64), dtype))
        else:
            trial.expect_bits(y, np.full(y.shape, identity).astype(y.values.dtype))
    run_reduce(context, op, dtype, _values(context, op, dtype, (0, 4)), (1,))
    run_reduce(context, op, dtype, _values(context, op, dtype, (0, 0)), (0,))


def check_shifted(context: Context, dtype: Dtype) -> None:
    """A variance far from zero: the textbook's one-pass formula loses every digit."""
    centre = {Dtype.F16: 100.0, Dtype.BF16: 64.0, Dtype.F32: 3e3, Dtype.F64: 1e7}[dtype]
    values = round_to(context.rng.standard_normal((5, 200)) + centre, dtype)
    run_reduce(context, ReduceOp.VAR, dtype, values, (1,))


def check_repeats(context: Context, dtype: Dtype) -> None:
    """The same call gives the same bits, however threads are scheduled."""
    values = _values(context, ReduceOp.SUM, dtype, (70, 700))
    for dims in ((0, 1), (0,), (1,)):
        seen = set()
        for _ in range(4):
            trial, x, y = _trial(context, ReduceOp.SUM, dtype, values, dims)
            trial.call(**_fields(ReduceOp.SUM, dtype, dims, x, y, 0))
            seen.add(trial.result(y).tobytes())
        if len(seen) > 1:
            trial.fail(f"{len(seen)} different results of 4 equal calls")


def check_indices(context: Context, op: ReduceOp, dtype: Dtype) -> None:
    """The optional indices beside a maximum: the first NaN, else the first extreme."""
    values = draw.ordinary(context.rng, (5, 6, 7), dtype)
    values[0, 0, 3] = values[0, 0, 5] = values[2, 4, 6] = np.nan
    values[1] = 2.0
    for dim in range(3):
        for layout in ("contiguous", "transposed", "sliced"):
            trial, x, y = _trial(context, op, dtype, values, (dim,), layout, layout)
            indices = trial.take("indices", y.shape, Dtype.I64, layout)
            fields = _fields(op, dtype, (dim,), x, y, 0)
            trial.call(**fields, indices=indices)
            rows, shape = oracle.flatten(values, (dim,))
            which = ReduceOp.ARGMAX if op == ReduceOp.MAX else ReduceOp.ARGMIN
            trial.expect_bits(indices, oracle.arguments(which, rows).reshape(shape))
            trial.expect(y, oracle.floats(op, values, dtype, (dim,), 0))


def check_var_mean(context: Context, dtype: Dtype) -> None:
    """The mean that VAR gives beside the variance."""
    values = draw.ordinary(context.rng, (5, 77), dtype)
    trial, x, y = _trial(context, ReduceOp.VAR, dtype, values, (1,))
    mean = trial.take("mean", y.shape, dtype)
    trial.call(**_fields(ReduceOp.VAR, dtype, (1,), x, y, 1), indices=mean)
    trial.expect(mean, oracle.floats(ReduceOp.MEAN, values, dtype, (1,), 0))
    trial.expect(y, oracle.floats(ReduceOp.VAR, values, dtype, (1,), 1))


def check_any_shape(context: Context, op: ReduceOp) -> None:
    """Shapes, sets of dimensions and layouts that nobody thought of."""

    def one(shape: tuple[int, ...], before: str, after: str) -> None:
        dims = tuple(d for d in range(len(shape)) if context.rng.integers(2)) or (0,)
        values = _values(context, op, Dtype.F32, shape)
        run_reduce(context, op, Dtype.F32, values, dims, before, after)

    examples(
        context, one, 50, shapes(min_rank=1, min_size=1), layouts_of(INPUT_LAYOUTS),
        layouts_of(LAYOUTS),
    )  # fmt: skip


# ---- one call ------------------------------------------------------------------------------------


def run_reduce(
    context: Context,
    op: ReduceOp,
    dtype: Dtype,
    values: Array,
    dims: tuple[int, ...],
    before: str = "contiguous",
    after: str = "contiguous",
) -> None:
    """Calls reduce for each of the operation's params (layouts: the first) and judges it."""
    params = PARAMS.get(op, (0.0,))
    for p in params if before == after == "contiguous" else params[:1]:
        trial, x, y = _trial(context, op, dtype, values, dims, before, after, p)
        trial.call(**_fields(op, dtype, dims, x, y, p))
        if 0 in y.shape:
            continue
        given = x.values
        if op in oracle.ARGUMENTS:
            trial.expect_bits(y, oracle.integers(op, given, dtype, dims))
        elif not is_float(dtype):
            compute = _compute(op, dtype)
            expected = oracle.integers(op, given, compute, dims)
            trial.expect_bits(y, expected.astype(y.values.dtype))
        else:
            exact = oracle.floats(op, given, dtype, dims, p)
            trial.expect(y, exact, flush=True, known=_sure(op, given, dims))


def _sure(op: ReduceOp, values: Array, dims: tuple[int, ...]) -> Array | None:
    """Where an infinity leaves the result open: inf minus inf on the way to it."""
    if op in (ReduceOp.VAR, ReduceOp.NORM, ReduceOp.PROD):
        rows, shape = oracle.flatten(wide(values), dims)
        return np.asarray(~np.isinf(rows).any(-1).reshape(shape))
    return None


def _compute(op: ReduceOp, dtype: Dtype) -> Dtype:
    """Sums of integers are taken in I64, as PyTorch takes them; extremes in the dtype."""
    if op in (ReduceOp.SUM, ReduceOp.PROD, ReduceOp.COUNT_NONZERO):
        return Dtype.I64
    return dtype


def _trial(
    context: Context,
    op: ReduceOp,
    dtype: Dtype,
    values: Array,
    dims: tuple[int, ...],
    before: str = "contiguous",
    after: str = "contiguous",
    p: float = 0.0,
) -> tuple[Trial, Operand, Operand]:
    label = f"{op.name} over {dims}, {before} to {after}, param {p}"
    trial = Trial(context, "reduce", label, op.name.lower())
    x = trial.give("x", values, dtype, before)
    shape = tuple(1 if d in dims else n for d, n in enumerate(values.shape))
    if op in oracle.ARGUMENTS or op == ReduceOp.COUNT_NONZERO:
        target = Dtype.I64
    elif op in oracle.TRUTH:
        target = Dtype.BOOL
    else:
        target = dtype if is_float(dtype) else _compute(op, dtype)
    if op == ReduceOp.COUNT_NONZERO and is_float(dtype):
        target = dtype
    if op in oracle.TRUTH and is_float(dtype):
        target = dtype
    return trial, x, trial.take("y", shape, target, after)


def _fields(
    op: ReduceOp, dtype: Dtype, dims: tuple[int, ...], x: Operand, y: Operand, p: float
) -> dict[str, object]:
    compute = dtype if is_float(dtype) else _compute(op, dtype)
    return {
        "op": op,
        "compute_dtype": compute,
        "dims": sum(1 << d for d in dims),
        "input": x,
        "output": y,
        "param": [p, 0],
    }


def _values(context: Context, op: ReduceOp, dtype: Dtype, shape: tuple[int, ...]) -> Array:
    values = draw.ordinary(context.rng, shape, dtype)
    if not is_float(dtype):
        return values
    if op == ReduceOp.PROD:  # near 1, so that many of them neither vanish nor overflow
        return round_to(np.exp2(wide(values) / 16), dtype)
    if op in (ReduceOp.ANY, ReduceOp.ALL, ReduceOp.COUNT_NONZERO):
        return np.where(context.rng.integers(0, 3, shape) == 0, np.zeros_like(values), values)
    if op == ReduceOp.NANSUM and values.size > 4:
        values = values.copy()
        values.flat[context.rng.integers(0, values.size, 2)] = np.nan
    return values
