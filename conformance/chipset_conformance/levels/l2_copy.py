"""Level 2, pointwise COPY, FILL and ARANGE: conversions, layouts of every rank, moved bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from chipset._interface import MAX_RANK, Dtype, PointwiseOp
from chipset_conformance import values as draw
from chipset_conformance.case import MANDATORY, OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.layouts import INPUT_LAYOUTS, LAYOUTS
from chipset_conformance.numerics import (
    EIGHT_BIT_FLOATS,
    FLOATS,
    FORMATS,
    HOST,
    INTEGERS,
    OPAQUES,
    Array,
    is_float,
    name_of,
    round_to,
    wide,
)
from chipset_conformance.shapes import examples, layouts_of, shapes
from chipset_conformance.trial import Trial, together

CONVERTED = (Dtype.BOOL, *INTEGERS, *FLOATS, *EIGHT_BIT_FLOATS)
COMMON = (Dtype.BOOL, Dtype.I32, Dtype.I64, Dtype.F32)  # mandatory among each other
# Around the tiles and vectors of a transposing copy: one less, equal, one more, long and thin.
PLANES = ((1, 300), (300, 1), (31, 33), (64, 64), (65, 130), (129, 16))
RANKS = (
    (), (5,), (3, 4), (2, 3, 4), (2, 3, 1, 4), (2, 1, 3, 2, 2), (1, 2, 2, 3, 1, 2),
    (2, 1, 2, 1, 3, 1, 2), (2, 2, 1, 2, 2, 1, 2, 2),
)  # fmt: skip


@cases(level=2)
def copy_cases() -> Iterator[Case]:
    for source in CONVERTED:
        for target in CONVERTED:
            common = source in COMMON and target in COMMON
            yield _case(
                f"copy/{name_of(source)}-to-{name_of(target)}/values", source, common,
                partial(check_conversion, source=source, target=target),
            )  # fmt: skip
    for dtype in (*CONVERTED, *OPAQUES):
        common = dtype in COMMON
        yield _case(
            f"copy/{name_of(dtype)}/layouts", dtype, common, partial(check_moved, dtype=dtype)
        )
        yield _case(
            f"copy/{name_of(dtype)}/ranks", dtype, common, partial(check_ranks, dtype=dtype)
        )
        yield _case(
            f"copy/{name_of(dtype)}/planes", dtype, common, partial(check_planes, dtype=dtype)
        )
    yield _case("copy/f32/any-shape", Dtype.F32, True, check_any_shape)
    yield _case("copy/bool/bytes", Dtype.BOOL, True, check_odd_bools)
    for dtype in CONVERTED:
        yield _case(f"fill/{name_of(dtype)}", dtype, dtype in COMMON, partial(_fill, dtype=dtype))
        if dtype not in (Dtype.BOOL, *EIGHT_BIT_FLOATS):
            yield _case(
                f"arange/{name_of(dtype)}", dtype, dtype in COMMON, partial(_arange, dtype=dtype)
            )


def _case(identity: str, dtype: Dtype, common: bool, run: partial[None] | object) -> Case:
    return Case(
        id=f"pointwise/{identity}",
        functions=("pointwise",),
        tags=frozenset({MANDATORY if common else OPTIONAL}),
        dtype=name_of(dtype),
        run=run,  # type: ignore[arg-type]
    )


def convert(values: Array, target: Dtype) -> tuple[Array, Array]:
    """Converted values (NUM-002), and where the specification says what they are."""
    everywhere = np.ones(values.shape, bool)
    if target == Dtype.BOOL:
        return values != 0, everywhere
    if is_float(target):
        with np.errstate(all="ignore"):
            result = round_to(wide(values), target)
        if not FORMATS[target].infinities:  # an infinity saturates, or is not a number
            everywhere = ~np.isinf(wide(values))
        return result, everywhere
    host = HOST[target]
    if values.dtype.kind in "biu":
        return values.astype(host), everywhere
    info = np.iinfo(host)
    with np.errstate(all="ignore"):
        exact = np.trunc(wide(values))
        # 2^63 - 1 is no float: compared with <= it would let 2^63 in.
        known = (exact >= info.min) & (exact < float(info.max) + (info.bits < 64))
        return np.where(known, exact, 0).astype(host), known


def check_conversion(context: Context, source: Dtype, target: Dtype) -> None:
    """Every class of values, and ties between neighbours of the target."""
    rng = context.rng
    columns = [draw.special(source), draw.ordinary(rng, (200,), source)]
    columns.append(draw.spread(rng, 800, source))
    if HOST[source].itemsize <= 2 and source != Dtype.BOOL:
        columns.append(draw.every(source))
    if is_float(source):
        columns.append(draw.subnormal(rng, 50, source))
        if is_float(target):
            columns.append(ties(rng, source, target))
        else:  # what truncation and rounding treat differently
            columns.append(round_to(np.array([0.5, -0.5, 0.99, -0.99, 1.5, -1.5, 2.5]), source))
    values = np.concatenate(columns)
    expected, known = convert(values, target)
    if source in INTEGERS and target in (Dtype.F16, Dtype.BF16, *EIGHT_BIT_FLOATS):
        known &= expected == round_to(values.astype(np.float32).astype(np.float64), target)
    trial = Trial(context, "pointwise", f"COPY {source.name} to {target.name}")
    x = trial.give("x", values, source)
    y = trial.take("y", values.shape, target)
    _copy(trial, x, y, source)
    trial.expect_bits(y, expected, known)


def ties(rng: np.random.Generator, source: Dtype, target: Dtype) -> Array:
    """Halfway between neighbours of the target, and a hair to either side, as the source has it."""
    base = wide(draw.spread(rng, 200, target))
    base = base[np.isfinite(base)]
    with np.errstate(all="ignore"):
        form = FORMATS[target]
        exponent = np.maximum(np.frexp(np.abs(base))[1] - 1, form.emin)
        half = np.ldexp(np.ones_like(base), exponent - form.precision)
        hair = half * 2.0 ** -min(20, max(0, FORMATS[source].precision - form.precision - 2))
        middles = base + half
        out = np.concatenate([middles, middles - hair, middles + hair])
        return round_to(out, source)


def check_moved(context: Context, dtype: Dtype) -> None:
    """The same bits arrive, whatever the layouts of source and target."""
    values = draw.bits(context.rng, (3, 5, 7), dtype)
    checks = []
    for before in INPUT_LAYOUTS:
        for after in LAYOUTS:
            checks.append(
                (f"{before} to {after}", partial(_move, context, dtype, values, before, after))
            )
    for shape in ((0,), (0, 5), (4, 0, 3)):
        empty = values.ravel()[:0].reshape(shape)
        checks.append((f"{shape}", partial(_move, context, dtype, empty, "rows", "sliced")))
    together(checks)


def check_ranks(context: Context, dtype: Dtype) -> None:
    """Rank 0 to 8, in every order of axes that a layout makes."""
    assert len(RANKS) == MAX_RANK + 1
    checks = []
    for shape in RANKS:
        values = draw.bits(context.rng, shape, dtype)
        for layout in ("contiguous", "transposed", "permuted", "far", "expanded"):
            for after in ("contiguous", "permuted", "sliced"):
                label = f"rank {len(shape)}, {layout} to {after}"
                checks.append((label, partial(_move, context, dtype, values, layout, after)))
    together(checks)


def check_planes(context: Context, dtype: Dtype) -> None:
    """Transposing copies around the sizes of tiles."""
    checks = []
    for shape in PLANES:
        values = draw.bits(context.rng, shape, dtype)
        for before, after in (
            ("transposed", "contiguous"), ("contiguous", "transposed"), ("transposed", "rows"),
            ("offset", "transposed"),
        ):  # fmt: skip
            label = f"{shape} {before} to {after}"
            checks.append((label, partial(_move, context, dtype, values, before, after)))
    together(checks)


def check_any_shape(context: Context) -> None:
    """Shapes and layouts that nobody thought of."""

    def one(shape: tuple[int, ...], before: str, after: str) -> None:
        values = draw.bits(context.rng, shape, Dtype.F32)
        _move(context, Dtype.F32, values, before, after)

    examples(context, one, 60, shapes(), layouts_of(INPUT_LAYOUTS), layouts_of(LAYOUTS))


def check_odd_bools(context: Context) -> None:
    """Any byte but 0 reads as 1."""
    raw = np.arange(256, dtype=np.uint8)
    for target in (Dtype.I32, Dtype.F32):
        trial = Trial(context, "pointwise", f"COPY of bytes as BOOL to {target.name}")
        x = trial.give("x", raw, Dtype.U8)
        x.dtype = x.device.dtype = Dtype.BOOL
        y = trial.take("y", raw.shape, target)
        _copy(trial, x, y, Dtype.BOOL)
        trial.expect_bits(y, (raw != 0).astype(HOST[target]))


def _move(context: Context, dtype: Dtype, values: Array, before: str, after: str) -> None:
    trial = Trial(context, "pointwise", f"COPY {dtype.name}, {before} to {after}")
    x = trial.give("x", values, dtype, before)
    y = trial.take("y", values.shape, dtype, after)
    _copy(trial, x, y, dtype)
    same = trial.result(y).tobytes() == x.values.tobytes()
    if not same:
        trial.expect_bits(y, x.values)  # lists the elements
        if dtype in OPAQUES or dtype == Dtype.BOOL:
            trial.fail("bits differ")


def _copy(trial: Trial, x: object, y: object, dtype: Dtype) -> None:
    trial.call(op=PointwiseOp.COPY, compute_dtype=dtype, num_inputs=1, output=y, input=[x])


def _fill(context: Context, dtype: Dtype) -> None:
    numbers: Sequence[float] = (0, 1, 3, 100)
    if is_float(dtype):
        numbers = (0.0, -0.0, 1.0, 0.1, -2.7, 1e-3, float("inf"), float("nan"))
    elif dtype != Dtype.BOOL:
        info = np.iinfo(HOST[dtype])
        numbers = (0, 7, info.max, info.min)
    for number in numbers:
        if number == float("inf") and dtype == Dtype.F8E4M3:
            continue
        for layout in ("contiguous", "sliced", "transposed"):
            trial = Trial(context, "pointwise", f"FILL {number} {dtype.name} {layout}")
            y = trial.take("y", (3, 5, 7), dtype, layout)
            trial.call(
                op=PointwiseOp.FILL, compute_dtype=dtype, num_inputs=0, output=y, param=[number]
            )
            expected = (
                round_to(np.full(y.shape, number), dtype)
                if is_float(dtype)
                else np.full(y.shape, number != 0 if dtype == Dtype.BOOL else number)
            )
            trial.expect_bits(y, expected)


def _arange(context: Context, dtype: Dtype) -> None:
    for start, step in ((0, 1), (5, 3), (20, -2)) if dtype != Dtype.U8 else ((0, 1), (5, 2)):
        for layout in ("contiguous", "sliced", "transposed"):
            trial = Trial(context, "pointwise", f"ARANGE {start} {step} {dtype.name} {layout}")
            y = trial.take("y", (3, 5, 7), dtype, layout)
            trial.call(
                op=PointwiseOp.ARANGE, compute_dtype=dtype, num_inputs=0, output=y,
                param=[start, step],
            )  # fmt: skip
            exact = start + step * np.arange(105).reshape(y.shape)
            if is_float(dtype):
                trial.expect_bits(y, round_to(exact.astype(np.float64), dtype))
            else:
                trial.expect_bits(y, exact.astype(HOST[dtype]))
