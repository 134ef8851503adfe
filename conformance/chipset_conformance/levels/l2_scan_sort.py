"""Level 2, scan and sort: lengths, dimensions, ties, NaN, top-k, layouts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from chipset._interface import Dtype, ScanOp
from chipset_conformance import values as draw
from chipset_conformance.case import OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.layouts import INPUT_LAYOUTS, LAYOUTS
from chipset_conformance.numerics import FLOATS, INTEGERS, Array, is_float, name_of, round_to, wide
from chipset_conformance.oracles import order as oracle
from chipset_conformance.trial import Trial, together

LENGTHS = (1, 2, 3, 8, 31, 33, 64, 257, 1025)
EXTREMES = (ScanOp.MAX, ScanOp.MIN)


@cases(level=2)
def scan_cases() -> Iterator[Case]:
    for op in ScanOp:
        for dtype in (*FLOATS, *INTEGERS):
            if not oracle.supported(op, dtype):
                continue
            for name, check in (
                ("lengths", scan_lengths), ("layouts", scan_layouts), ("values", scan_values),
            ):  # fmt: skip
                yield _case(f"scan/{op.name.lower()}/{name_of(dtype)}/{name}", "scan", dtype,
                            partial(check, op=op, dtype=dtype))  # fmt: skip


@cases(level=2)
def sort_cases() -> Iterator[Case]:
    for dtype in (*FLOATS, *INTEGERS, Dtype.BOOL):
        for name, check in (
            ("lengths", sort_lengths), ("layouts", sort_layouts), ("ties", sort_ties),
            ("top-k", sort_top),
        ):  # fmt: skip
            yield _case(f"sort/{name_of(dtype)}/{name}", "sort", dtype,
                        partial(check, dtype=dtype))  # fmt: skip


def _case(identity: str, function: str, dtype: Dtype, run: partial[None]) -> Case:
    return Case(
        id=identity, functions=(function,), tags=frozenset({OPTIONAL}), dtype=name_of(dtype),
        run=run,
    )  # fmt: skip


# ---- scan ----------------------------------------------------------------------------------------


def scan_lengths(context: Context, op: ScanOp, dtype: Dtype) -> None:
    """Every length, along each dimension; in place; nothing."""
    for n in LENGTHS[:-1] if op == ScanOp.LOGSUMEXP else LENGTHS:
        run_scan(context, op, dtype, _scanned(context, op, dtype, (3, n)), 1)
        run_scan(context, op, dtype, _scanned(context, op, dtype, (n, 3)), 0)
    cube = _scanned(context, op, dtype, (4, 5, 6))
    for dim in range(3):
        run_scan(context, op, dtype, cube, dim)
        run_scan(context, op, dtype, cube, dim, in_place=True)
    run_scan(context, op, dtype, cube[:0], 1)
    run_scan(context, op, dtype, cube[:, :0], 1)


def scan_layouts(context: Context, op: ScanOp, dtype: Dtype) -> None:
    values = _scanned(context, op, dtype, (4, 5, 6))
    checks = []
    for dim in (0, 2):
        for layout in INPUT_LAYOUTS:
            checks.append((f"input {layout}", partial(run_scan, context, op, dtype, values, dim,
                                                      layout)))  # fmt: skip
        for layout in LAYOUTS:
            checks.append((f"output {layout}", partial(run_scan, context, op, dtype, values, dim,
                                                       "contiguous", layout)))  # fmt: skip
    together(checks)


def scan_values(context: Context, op: ScanOp, dtype: Dtype) -> None:
    """Ties, NaN, infinities; integers that wrap."""
    values = _scanned(context, op, dtype, (6, 40))
    if is_float(dtype):
        values[0, 7] = values[0, 20] = np.nan
        values[1, 3] = np.inf
        values[2, 5] = -np.inf
        values[3, :4] = -np.inf
        values[4] = values[4, 0]
    else:
        values[0] = draw.spread(context.rng, 40, dtype)
        values[1] = values[1, 0]
    run_scan(context, op, dtype, values, 1)


def run_scan(
    context: Context,
    op: ScanOp,
    dtype: Dtype,
    values: Array,
    dim: int,
    before: str = "contiguous",
    after: str = "contiguous",
    in_place: bool = False,
) -> None:
    """Calls scan and judges values and, of extremes, indices."""
    label = f"{op.name}, dim {dim}, {before} to {after}, in place {in_place}"
    trial = Trial(context, "scan", label, op.name.lower())
    sums = not is_float(dtype) and op in (ScanOp.SUM, ScanOp.PROD)
    compute = Dtype.I64 if sums else dtype
    in_place = in_place and compute == dtype
    x = trial.give("x", values, dtype, before, written=in_place)
    y = x if in_place else trial.take("y", values.shape, compute, after)
    given = np.array(x.values)
    fields = {}
    if op in EXTREMES:
        fields["indices"] = trial.take("indices", values.shape, Dtype.I64, after)
    trial.call(op=op, dim=dim, compute_dtype=compute, input=x, output=y, **fields)
    if 0 in values.shape:
        return
    if is_float(dtype):
        trial.expect(y, oracle.scan_floats(op, given, dtype, dim), flush=True)
    else:
        trial.expect_bits(y, oracle.scan_integers(op, given, compute, dim))
    if op in EXTREMES:
        trial.expect_bits(fields["indices"], oracle.scan_indices(op, given, dim))


def _scanned(context: Context, op: ScanOp, dtype: Dtype, shape: tuple[int, ...]) -> Array:
    values = draw.ordinary(context.rng, shape, dtype)
    if op == ScanOp.PROD and is_float(dtype):  # near 1, so that products stay in range
        return round_to(np.exp2(wide(values) / 16), dtype)
    return values


# ---- sort ----------------------------------------------------------------------------------------


def sort_lengths(context: Context, dtype: Dtype) -> None:
    """Every length, both directions, each dimension; nothing to sort."""
    for n in LENGTHS:
        for descending in (0, 1):
            run_sort(context, dtype, _sorted(context, dtype, (3, n)), 1, descending, 1)
    cube = _sorted(context, dtype, (4, 5, 6))
    for dim in range(3):
        run_sort(context, dtype, cube, dim, 0, 0)
        run_sort(context, dtype, cube, dim, 1, 1)
    run_sort(context, dtype, cube[:0], 1, 0, 1)
    run_sort(context, dtype, cube[:, :0], 1, 0, 1)


def sort_layouts(context: Context, dtype: Dtype) -> None:
    values = _sorted(context, dtype, (4, 5, 6))
    checks = []
    for dim in (0, 2):
        for layout in INPUT_LAYOUTS:
            checks.append((f"input {layout}", partial(run_sort, context, dtype, values, dim, 0, 1,
                                                      before=layout)))  # fmt: skip
        for layout in LAYOUTS:
            checks.append((f"output {layout}", partial(run_sort, context, dtype, values, dim, 1, 1,
                                                       after=layout)))  # fmt: skip
    together(checks)


def sort_ties(context: Context, dtype: Dtype) -> None:
    """A stable sort keeps the order of equal elements; NaN is the largest; zeros are equal."""
    rng = context.rng
    if is_float(dtype):
        values = round_to(rng.integers(-3, 4, (5, 130)).astype(np.float64), dtype)
        values[0, ::7] = np.nan
        values[1, ::5], values[1, 1::5] = np.inf, -np.inf
        values[2, ::3] = -0.0
        values[3] = np.nan
    else:
        values = draw.ordinary(rng, (5, 130), dtype)
        if dtype != Dtype.BOOL:
            values[0] = draw.spread(rng, 130, dtype)
    for descending in (0, 1):
        run_sort(context, dtype, values, 1, descending, 1)
        run_sort(context, dtype, values, 1, descending, 0)


def sort_top(context: Context, dtype: Dtype) -> None:
    """The first k of the order, in order."""
    values = _sorted(context, dtype, (6, 200))
    if is_float(dtype):
        values[2, 5] = np.nan
    for k in (0, 1, 2, 17, 100, 199):
        for descending in (0, 1):
            for stable in (0, 1):
                run_sort(context, dtype, values, 1, descending, stable, k)
    run_sort(context, dtype, np.ascontiguousarray(values.T), 0, 1, 0, 5)


def run_sort(
    context: Context,
    dtype: Dtype,
    values: Array,
    dim: int,
    descending: int,
    stable: int,
    k: int | None = None,
    before: str = "contiguous",
    after: str = "contiguous",
) -> None:
    """Calls sort; values must be in order; indices lead to them, once each, in order if stable."""
    k = values.shape[dim] if k is None else k
    label = f"dim {dim}, descending {descending}, stable {stable}, k {k}, {before} to {after}"
    trial = Trial(context, "sort", label)
    shape = (*values.shape[:dim], k, *values.shape[dim + 1 :])
    x = trial.give("x", values, dtype, before)
    y = trial.take("values", shape, dtype, after)
    indices = trial.take("indices", shape, Dtype.I64, after)
    trial.call(
        dim=dim, descending=descending, stable=stable, k=k, input=x, values=y, indices=indices
    )
    if 0 in shape:
        return
    order = oracle.sort_order(x.values, dim, bool(descending)).take(range(k), dim)
    wanted = np.take_along_axis(x.values, order, dim)
    got = trial.result(y)
    if not oracle.same_values(got, wanted).all():
        trial.expect_bits(y, wanted)
    if stable:
        trial.expect_bits(indices, order)
        return
    found = np.array(trial.result(indices))
    if found.min() < 0 or found.max() >= values.shape[dim]:
        trial.fail(f"indices reach from {found.min()} to {found.max()}")
    once = np.diff(np.sort(found, dim), axis=dim) > 0
    reached = oracle.same_values(np.take_along_axis(x.values, found, dim), got)
    if not reached.all() or not once.all():
        trial.fail("indices do not lead to the values, each once")


def _sorted(context: Context, dtype: Dtype, shape: tuple[int, ...]) -> Array:
    return draw.ordinary(context.rng, shape, dtype)
