"""Level 2, gather and scatter: every kind of indexing x dtype, duplicates, range, layouts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from chipset._interface import Dtype, ScatterOp, Status
from chipset_conformance import values as draw
from chipset_conformance.case import MANDATORY, OPTIONAL, Case, CaseFailure, cases
from chipset_conformance.context import Context
from chipset_conformance.layouts import INPUT_LAYOUTS, LAYOUTS, Operand
from chipset_conformance.numerics import (
    EIGHT_BIT_FLOATS,
    FLOATS,
    HOST,
    INTEGERS,
    OPAQUES,
    Array,
    Bounded,
    is_float,
    name_of,
    round_to,
)
from chipset_conformance.oracles import indexing as oracle
from chipset_conformance.trial import Null, Trial, View, together

MOVED = (Dtype.BOOL, *INTEGERS, *FLOATS, *EIGHT_BIT_FLOATS, *OPAQUES)
COMBINED = (*INTEGERS, *FLOATS)
COMMON = (Dtype.F32, Dtype.I64)


@dataclass(frozen=True)
class Kind:
    """One way to index an input of shape ``sizes`` into an output of shape ``shape``.

    Attributes:
        plain: dimension of the input -> dimension of the output that walks it.
        varies: indexed dimension of the input -> dimensions of the output over which it varies.
    """

    name: str
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    plain: dict[int, int]
    varies: dict[int, tuple[int, ...]]

    def draw(self, context: Context, dtype: Dtype, few: bool = False) -> dict[int, Array]:
        """Random indices, of which some are negative; ``few``: many duplicates."""
        indices = {}
        for dim, over in self.varies.items():
            shape = tuple(n if d in over else 1 for d, n in enumerate(self.shape))
            size = self.sizes[dim]
            top = min(size, 2) if few else size
            indices[dim] = context.rng.integers(-top, top, shape).astype(HOST[dtype])
        return indices

    def permutation(self, context: Context) -> dict[int, Array]:
        """Indices without duplicates, for kinds that index one dimension."""
        ((dim, over),) = self.varies.items()
        shape = tuple(n if d in over else 1 for d, n in enumerate(self.shape))
        count = int(np.prod(shape))
        return {dim: context.rng.permutation(self.sizes[dim])[:count].reshape(shape)}


KINDS = (
    Kind("embedding", (50, 24), (4, 7, 24), {1: 2}, {0: (0, 1)}),
    Kind("index_select_0", (9, 5, 6), (7, 5, 6), {1: 1, 2: 2}, {0: (0,)}),
    Kind("index_select_1", (9, 5, 6), (9, 8, 6), {0: 0, 2: 2}, {1: (1,)}),
    Kind("index_select_2", (9, 5, 6), (9, 5, 11), {0: 0, 1: 1}, {2: (2,)}),
    Kind("gather_1", (6, 7, 5), (6, 9, 5), {0: 0, 2: 2}, {1: (0, 1, 2)}),
    Kind("take", (97,), (5, 13), {}, {0: (0, 1)}),
    Kind("two", (8, 9, 5), (6, 4, 5), {2: 2}, {0: (0,), 1: (1,)}),
    Kind("three", (4, 5, 6), (31,), {}, {0: (0,), 1: (0,), 2: (0,)}),
    Kind("rank_8", (2, 3, 2, 2, 3, 2, 2, 2), (2, 4, 2, 2, 3, 2, 2, 2),
         {d: d for d in range(8) if d != 1}, {1: (1,)}),
    Kind("eight", (2, 3, 2, 2, 3, 2, 2, 2), (40,), {}, dict.fromkeys(range(8), (0,))),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}


@cases(level=2)
def gather_cases() -> Iterator[Case]:
    for dtype in MOVED:
        for index in (Dtype.I64, Dtype.I32):
            yield _case(
                f"gather/{name_of(dtype)}/{name_of(index)}-indices", "gather", dtype,
                partial(check_gather, dtype=dtype, index=index),
            )  # fmt: skip
        yield _case(f"gather/{name_of(dtype)}/layouts", "gather", dtype,
                    partial(check_gather_layouts, dtype=dtype))  # fmt: skip
    yield _case("gather/f32/range", "gather", Dtype.F32, partial(check_range, function="gather"))
    yield _case("gather/f32/empty", "gather", Dtype.F32, partial(check_empty, function="gather"))


@cases(level=2)
def scatter_cases() -> Iterator[Case]:
    for op in ScatterOp:
        for dtype in MOVED if op == ScatterOp.SET else COMBINED:
            for name, check in (
                ("kinds", check_scatter), ("duplicates", check_duplicates),
                ("layouts", check_scatter_layouts), ("number", check_number),
            ):  # fmt: skip
                if name == "number" and dtype in (*OPAQUES, *EIGHT_BIT_FLOATS):
                    continue
                yield _case(
                    f"scatter/{op.name.lower()}/{name_of(dtype)}/{name}", "scatter", dtype,
                    partial(check, op=op, dtype=dtype),
                )  # fmt: skip
    for dtype in FLOATS:
        for op in (ScatterOp.MIN, ScatterOp.MAX):
            yield _case(f"scatter/{op.name.lower()}/{name_of(dtype)}/nan", "scatter", dtype,
                        partial(check_nan, op=op, dtype=dtype))  # fmt: skip
        yield _case(f"scatter/add/{name_of(dtype)}/repeats", "scatter", dtype,
                    partial(check_repeats, dtype=dtype))  # fmt: skip
    yield _case("scatter/f32/range", "scatter", Dtype.F32, partial(check_range, function="scatter"))
    yield _case("scatter/f32/empty", "scatter", Dtype.F32, partial(check_empty, function="scatter"))


def _case(identity: str, function: str, dtype: Dtype, run: partial[None]) -> Case:
    return Case(
        id=identity,
        functions=(function,),
        tags=frozenset({MANDATORY if dtype in COMMON else OPTIONAL}),
        dtype=name_of(dtype),
        run=run,
    )


# ---- gather --------------------------------------------------------------------------------------


def check_gather(context: Context, dtype: Dtype, index: Dtype) -> None:
    """Every kind of indexing, with negative indices."""
    for kind in KINDS:
        values = draw.bits(context.rng, kind.sizes, dtype)
        run_gather(context, kind, values, dtype, kind.draw(context, index), index)


def check_gather_layouts(context: Context, dtype: Dtype) -> None:
    """Input, indices and output in every layout."""
    checks = []
    for name in ("embedding", "gather_1", "index_select_1"):
        kind = BY_NAME[name]
        values = draw.bits(context.rng, kind.sizes, dtype)
        indices = kind.draw(context, Dtype.I64)
        call = partial(run_gather, context, kind, values, dtype, indices, Dtype.I64)
        for layout in INPUT_LAYOUTS:
            checks.append((f"{name}, input {layout}", partial(call, layouts=(layout, None, None))))
            checks.append((f"{name}, index {layout}", partial(call, layouts=(None, layout, None))))
        for layout in LAYOUTS:
            checks.append((f"{name}, output {layout}", partial(call, layouts=(None, None, layout))))
    together(checks)


def run_gather(
    context: Context,
    kind: Kind,
    values: Array,
    dtype: Dtype,
    indices: dict[int, Array],
    index: Dtype,
    layouts: tuple[str | None, str | None, str | None] = (None, None, None),
) -> None:
    """Calls gather and compares bits. ``layouts``: of input, indices, output."""
    trial = Trial(context, "gather", f"{kind.name} {dtype.name} {layouts}")
    x = trial.give("x", values, dtype, layouts[0] or "contiguous")
    fields = _indexing(trial, kind, x, indices, index, layouts[1] or "contiguous")
    y = trial.take("y", kind.shape, dtype, layouts[2] or "contiguous")
    trial.call(output=y, input=_restrided(kind, x), **fields)
    where = oracle.coordinates(kind.shape, kind.plain, _given(fields, kind), kind.sizes)
    expected = np.ascontiguousarray(x.values[where])
    if np.ascontiguousarray(trial.result(y)).tobytes() != expected.tobytes():
        trial.expect_bits(y, expected)
        trial.fail("bits differ")


# ---- scatter -------------------------------------------------------------------------------------


def check_scatter(context: Context, op: ScatterOp, dtype: Dtype) -> None:
    """Every kind of indexing."""
    for kind in KINDS:
        run_scatter(context, op, kind, dtype, kind.draw(context, Dtype.I64), Dtype.I64)
    kind = BY_NAME["embedding"]
    run_scatter(context, op, kind, dtype, kind.draw(context, Dtype.I32), Dtype.I32)


def check_duplicates(context: Context, op: ScatterOp, dtype: Dtype) -> None:
    """Many sources for one element: the last wins, or all count, in row-major order."""
    for name in ("embedding", "index_select_0", "gather_1", "take", "three"):
        kind = BY_NAME[name]
        few = kind.draw(context, Dtype.I64, few=True)
        run_scatter(context, op, kind, dtype, few, Dtype.I64)
        same = {dim: np.zeros_like(index) for dim, index in few.items()}
        run_scatter(context, op, kind, dtype, same, Dtype.I64)


def check_scatter_layouts(context: Context, op: ScatterOp, dtype: Dtype) -> None:
    """Destination, indices and source in every layout."""
    checks = []
    for name in ("embedding", "gather_1"):
        kind = BY_NAME[name]
        indices = kind.draw(context, Dtype.I64)
        call = partial(run_scatter, context, op, kind, dtype, indices, Dtype.I64)
        for layout in LAYOUTS:
            checks.append((f"{name} to {layout}", partial(call, layouts=(layout, None, None))))
        for layout in INPUT_LAYOUTS:
            checks.append((f"{name} by {layout}", partial(call, layouts=(None, layout, None))))
            checks.append((f"{name} from {layout}", partial(call, layouts=(None, None, layout))))
    together(checks)


def check_number(context: Context, op: ScatterOp, dtype: Dtype) -> None:
    """A number from the host in the place of the source."""
    number = 1 if dtype == Dtype.BOOL else 3
    for name in ("embedding", "three"):
        kind = BY_NAME[name]
        indices = kind.draw(context, Dtype.I64)
        run_scatter(context, op, kind, dtype, indices, Dtype.I64, number=number)


def check_nan(context: Context, op: ScatterOp, dtype: Dtype) -> None:
    """NaN wins, whether it comes or was there (NUM-003)."""
    kind = BY_NAME["take"]
    source = draw.ordinary(context.rng, kind.shape, dtype)
    source[0, ::3] = np.nan
    target = draw.ordinary(context.rng, kind.sizes, dtype)
    target[::5] = np.nan
    indices = kind.draw(context, Dtype.I64)
    run_scatter(context, op, kind, dtype, indices, Dtype.I64, source=source, target=target)


def check_repeats(context: Context, dtype: Dtype) -> None:
    """The order of additions is row-major, so equal calls give equal bits."""
    kind = Kind("rows", (40, 24), (900, 24), {1: 1}, {0: (0,)})
    indices = kind.draw(context, Dtype.I64)
    source = draw.ordinary(context.rng, kind.shape, dtype)
    target = draw.ordinary(context.rng, kind.sizes, dtype)
    results = [
        run_scatter(context, ScatterOp.ADD, kind, dtype, indices, Dtype.I64, source=source,
                    target=target).tobytes()
        for _ in range(3)
    ]  # fmt: skip
    context.check(len(set(results)) == 1, "equal scatter ADD calls gave different bits")


def run_scatter(
    context: Context,
    op: ScatterOp,
    kind: Kind,
    dtype: Dtype,
    indices: dict[int, Array],
    index: Dtype,
    layouts: tuple[str | None, str | None, str | None] = (None, None, None),
    number: float | None = None,
    source: Array | None = None,
    target: Array | None = None,
) -> Array:
    """Calls scatter and judges it; ``layouts``: of destination, index, source."""
    trial = Trial(context, "scatter", f"{op.name} {kind.name} {dtype.name} {layouts}", op.name)
    if target is None:
        target = _operand_values(context, op, kind.sizes, dtype)
    if source is None:
        source = _operand_values(context, op, kind.shape, dtype)
    d = trial.give("d", target, dtype, layouts[0] or "contiguous", written=True)
    fields = _indexing(trial, kind, d, indices, index, layouts[1] or "contiguous")
    if number is None:
        s = trial.give("s", source, dtype, layouts[2] or "contiguous")
        given, values = s, s.values
        trial.call(op=op, destination=_restrided(kind, d), source=given, **fields)
    else:
        shape_only = Null(context.chip, kind.shape, dtype)
        values = np.full(kind.shape, number).astype(HOST[dtype])
        trial.call(
            op=op, destination=_restrided(kind, d), source=shape_only, **fields,
            value=_scalar(number),
        )  # fmt: skip
    where = oracle.coordinates(kind.shape, kind.plain, _given(fields, kind), kind.sizes)
    expected = oracle.scatter(op, np.array(d.values), where, np.array(values), dtype)
    result = np.ascontiguousarray(trial.result(d))
    if isinstance(expected, Bounded):
        trial.expect(d, expected, flush=True)
    elif result.tobytes() != np.ascontiguousarray(expected).tobytes():
        trial.expect_bits(d, expected)
        trial.fail("bits differ")
    return result


def _operand_values(context: Context, op: ScatterOp, shape: tuple[int, ...], dtype: Dtype) -> Array:
    if op == ScatterOp.SET:
        return draw.bits(context.rng, shape, dtype)
    values = draw.ordinary(context.rng, shape, dtype)
    if op == ScatterOp.MUL and is_float(dtype):  # near ±1, so that products stay in range
        return round_to(np.sign(values.astype(np.float64)) * 2 ** (
            values.astype(np.float64) / 8), dtype)  # fmt: skip
    return values


# ---- range and nothing ---------------------------------------------------------------------------


def check_range(context: Context, function: str) -> None:
    """An index outside anywhere in the tensor is OUT_OF_RANGE, once, and touches nothing outside.

    2^32 + 1 and 2^31 + 5 are inside for whoever keeps 32 bits of an index.
    """
    kind = BY_NAME["embedding"]
    size = kind.sizes[0]
    for bad in (size, -size - 1, 2**31 + 5, 2**32 + 1, -(2**32)):
        for at in (0, 13, 27):
            indices = kind.draw(context, Dtype.I64)
            indices[0].reshape(-1)[at] = bad
            trial = Trial(context, function, f"index {bad} at {at}")
            values = draw.ordinary(context.rng, kind.sizes, Dtype.F32)
            x = trial.give("x", values, Dtype.F32, written=function == "scatter")
            fields = _indexing(trial, kind, x, indices, Dtype.I64, "contiguous")
            if function == "gather":
                y = trial.take("y", kind.shape, Dtype.F32)
                trial.refuse(Status.OUT_OF_RANGE, output=y, input=_restrided(kind, x), **fields)
            else:
                s = trial.give("s", np.zeros(kind.shape, np.float32), Dtype.F32)
                trial.refuse(
                    Status.OUT_OF_RANGE, op=ScatterOp.SET, destination=_restrided(kind, x),
                    source=s, **fields,
                )  # fmt: skip
            again = Status(context.chip.status("stream_sync", context.chip.stream))
            if again != Status.OK:
                raise CaseFailure(f"OUT_OF_RANGE surfaced again, as {again.name} (ERR-003)")


def check_empty(context: Context, function: str) -> None:
    """No index, nothing to do; also where the indexed dimension has no elements."""
    for sizes in ((5, 4), (0, 4)):
        kind = Kind("none", sizes, (0, 4), {1: 1}, {0: (0,)})
        indices = {0: np.zeros((0, 1), np.int64)}
        values = draw.ordinary(context.rng, sizes, Dtype.F32)
        trial = Trial(context, function, f"no index into {sizes}")
        x = trial.give("x", values, Dtype.F32, written=function == "scatter")
        fields = _indexing(trial, kind, x, indices, Dtype.I64, "contiguous")
        other = trial.take("y", kind.shape, Dtype.F32)
        if function == "gather":
            trial.call(output=other, input=_restrided(kind, x), **fields)
        else:
            destination = _restrided(kind, x)
            trial.call(op=ScatterOp.ADD, destination=destination, source=other, **fields)
            trial.expect_untouched(x)


# ---- fields --------------------------------------------------------------------------------------


def _restrided(kind: Kind, x: Operand) -> View:
    """The input with the output's shape: stride 0 where an index replaces a dimension."""
    strides = [0] * len(kind.shape)
    for dim, walks in kind.plain.items():
        strides[walks] = x.strides[dim]
    return View(x, kind.shape, tuple(strides))


def _indexing(
    trial: Trial, kind: Kind, x: Operand, indices: dict[int, Array], index: Dtype, layout: str
) -> dict[str, object]:
    """The fields that gather and scatter share."""
    views = []
    for dim, values in indices.items():
        operand = trial.give(f"i{dim}", values, index, layout)
        strides = tuple(
            0 if n == 1 else s for n, s in zip(operand.shape, operand.strides, strict=True)
        )
        views.append(View(operand, kind.shape, strides))
    return {
        "num_indices": len(views),
        "index": views,
        "indexed_size": [kind.sizes[dim] for dim in indices],
        "indexed_stride": [x.strides[dim] for dim in indices],
    }


def _given(fields: dict[str, object], kind: Kind) -> dict[int, Array]:
    """The index values as they lie in memory (a repeating layout changes them)."""
    views = fields["index"]
    assert isinstance(views, list)
    return {dim: view.operand.values for dim, view in zip(kind.varies, views, strict=True)}


def _scalar(number: float) -> object:
    from chipset.driver import scalar

    return scalar(number)
