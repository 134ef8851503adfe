"""Level 2, attention forward and backward: sizes around tiles, every way to hide keys, layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from chipset._interface import Dtype
from chipset_conformance import values as draw
from chipset_conformance.case import OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.layouts import LAYOUTS
from chipset_conformance.numerics import FLOATS, Array, evaluated_in, name_of, round_to, wide
from chipset_conformance.oracles import attention as oracle
from chipset_conformance.oracles.attention import Options
from chipset_conformance.trial import Trial, together

# Tiles of 16, 32, 64 and 128 keys: one less, equal, one more, and three and a bit.
KEYS = (1, 2, 15, 16, 17, 33, 64, 65, 127, 129, 391, 1025)
TILES = (16, 32, 64, 128)


@dataclass(frozen=True)
class Problem:
    """Shapes and options of one attention call."""

    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    queries: int = 9
    keys: int = 13
    depth: int = 16
    value_depth: int = 16
    options: Options = field(default_factory=Options)
    mask: Array | None = None
    columns: Array | None = None
    layouts: dict[str, str] = field(default_factory=dict)

    @property
    def q_shape(self) -> tuple[int, ...]:
        return (self.batch, self.heads, self.queries, self.depth)

    @property
    def k_shape(self) -> tuple[int, ...]:
        return (self.batch, self.kv_heads, self.keys, self.depth)

    @property
    def v_shape(self) -> tuple[int, ...]:
        return (self.batch, self.kv_heads, self.keys, self.value_depth)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.batch, self.heads, self.queries, self.value_depth)


Problems = dict[str, Problem]


@cases(level=2)
def attention_cases() -> Iterator[Case]:
    for function, run in (("attention", run_forward), ("attention_backward", run_backward)):
        for dtype in FLOATS:
            for name, problems in FAMILIES.items():
                yield Case(
                    id=f"{function}/{name_of(dtype)}/{name}",
                    functions=(function,),
                    tags=frozenset({OPTIONAL}),
                    rule="NUM-006" if name == "nothing-to-see" else None,
                    dtype=name_of(dtype),
                    run=partial(check, problems=problems, run=run, dtype=dtype),
                )


def check(
    context: Context,
    problems: Callable[[Context, Dtype], Problems],
    run: Callable[[Context, Dtype, str, Problem], None],
    dtype: Dtype,
) -> None:
    """Runs one family of problems: all in F32, half of them, which the seed picks, elsewhere."""
    family = list(problems(context, dtype).items())
    if dtype != Dtype.F32:
        family = family[context.rng.integers(2) :: 2]
    together([(name, partial(run, context, dtype, name, p)) for name, p in family])


# ---- families of problems ------------------------------------------------------------------------


def sizes(context: Context, dtype: Dtype) -> Problems:
    """Keys and queries around the sizes of tiles; head sizes; one and many."""
    family = {f"{n} keys": Problem(queries=5, keys=n) for n in KEYS}
    family |= {f"{n} queries": Problem(queries=n, keys=20) for n in (1, 17, 64, 65, 130)}
    family |= {f"depth {d}": Problem(depth=d, value_depth=d) for d in (1, 8, 24, 64, 80, 128)}
    family["two depths"] = Problem(depth=24, value_depth=40)
    family["no queries"] = Problem(queries=0)
    family["no keys"] = Problem(keys=0)
    return family


def heads(context: Context, dtype: Dtype) -> Problems:
    """Query head h reads key head h / (H / Hkv)."""
    pairs = ((1, 1), (4, 2), (6, 3), (6, 2), (8, 1))
    return {f"{h} over {k}": Problem(batch=2, heads=h, kv_heads=k) for h, k in pairs}


def causal(context: Context, dtype: Dtype) -> Problems:
    """Aligned to the top left, the bottom right, and elsewhere."""
    family: Problems = {}
    for queries, keys in ((9, 9), (5, 70), (70, 130), (130, 70), (4, 2)):
        for offset in {0, keys - queries, 3}:
            options = Options(causal=True, causal_offset=offset)
            family[f"{queries} x {keys} by {offset}"] = Problem(
                queries=queries, keys=keys, options=options
            )
    return family


def windows(context: Context, dtype: Dtype) -> Problems:
    """Left and right limits, exactly to the key; narrower than a tile, and wider."""
    family = {}
    for left, right in ((0, 0), (3, 0), (0, 2), (5, -1), (-1, 5), (64, 3), (15, 16)):
        for is_causal in (False, True):
            options = Options(causal=is_causal, window_left=left, window_right=right)
            family[f"{left}, {right}, {is_causal}"] = Problem(queries=90, keys=90, options=options)
    offset = Options(causal=True, causal_offset=60, window_left=10)
    family["with offset"] = Problem(queries=30, keys=90, options=offset)
    return family


def masks(context: Context, dtype: Dtype) -> Problems:
    """Stored masks, bool and additive, full and broadcast."""
    rng = context.rng
    shape = (2, 4, 20, 70)
    family = {}
    for name, small in (
        ("full", shape), ("per batch", (2, 1, 1, 70)), ("one", (1, 1, 20, 70)),
        ("per head", (1, 4, 20, 70)),
    ):  # fmt: skip
        flags = rng.integers(0, 4, small) != 0
        numbers = np.where(flags, rng.standard_normal(small), -np.inf)
        base = Problem(batch=2, heads=4, kv_heads=2, queries=20, keys=70)
        family[f"bool {name}"] = _with(base, mask=flags)
        family[f"added {name}"] = _with(base, mask=round_to(numbers, dtype))
        family[f"f32 {name}"] = _with(base, mask=round_to(numbers, evaluated_in(dtype)))
    return family


def flashmask(context: Context, dtype: Dtype) -> Problems:
    """FlashMask columns: packed documents, prefixes, and rows at random."""
    rng = context.rng
    family: Problems = {}
    length, ends = 100, (30, 67, 100)
    end = np.array([next(e for e in ends if j < e) for j in range(length)])
    start = np.array([max((e for e in (0, *ends) if e <= j), default=0) for j in range(length)])
    for count in (1, 2, 4):
        base = Problem(batch=2, heads=4, kv_heads=2, queries=length, keys=length, depth=4,
                       value_depth=4)  # fmt: skip

        def columns(*lines: Array, count: int = count) -> Array:
            one = np.stack(lines, -1)[None, None]
            # Each head and each batch has columns of its own.
            shift = np.arange(count)[None, :, None, None] + 3 * np.arange(2)[:, None, None, None]
            return np.minimum(one + shift, length).astype(np.int32)

        down = Options(causal=True)
        low = rng.integers(0, length + 1, length)
        high = np.minimum(length, low + rng.integers(0, 60, length))
        up = rng.integers(0, length, length)
        up_end = np.minimum(length, up + rng.integers(0, 40, length))
        family |= {
            f"documents, {count}": _with(base, options=down, columns=columns(end)),
            f"interval, {count}": _with(base, options=down, columns=columns(low, high)),
            f"both sides, {count}": _with(base, columns=columns(end, start)),
            f"two intervals, {count}": _with(base, columns=columns(low, high, up, up_end)),
        }
    return family


def live_rows(context: Context, dtype: Dtype) -> Problems:
    """Tiles in which one row is live: whoever looks one row too far skips them."""
    family = {}
    for tile in TILES:
        length = 2 * tile
        base = Problem(heads=1, kv_heads=1, queries=length, keys=length, depth=4, value_depth=4)
        for live in (tile - 1, tile, 2 * tile - 1):
            start = np.zeros(length)
            end = np.full(length, live)
            after = np.full(length, live + 1)
            lines = np.stack([start, end, after, np.full(length, length)], -1)
            columns = lines[None, None].astype(np.int32)
            family[f"row {live}"] = _with(base, columns=columns)
        column = np.full(length, length)
        column[tile:] = tile + 1  # of the second tile of keys only row `tile` sees anything
        edge = column[None, None, :, None].astype(np.int32)
        family[f"edge {tile}"] = _with(base, options=Options(causal=True), columns=edge)
    return family


def nothing_to_see(context: Context, dtype: Dtype) -> Problems:
    """Rows that see no key: zeros, -inf and zero gradients; leading and trailing dead tiles."""
    short = Options(causal=True, causal_offset=-2)
    dead = np.ones((1, 1, 40, 150), bool)
    dead[..., 7, :] = dead[..., 39, :] = False
    dead[..., :20, :130] = False
    added = np.where(dead, 0.0, -np.inf)
    columns = np.zeros((1, 1, 150, 1), np.int32)
    columns[..., 100:, 0] = 33
    base = Problem(queries=40, keys=150)
    far = Options(window_left=2, window_right=2, causal_offset=-30)
    return {
        "4 x 2": Problem(queries=4, keys=2, options=short),
        "70 x 5": Problem(queries=70, keys=5, options=Options(causal=True, causal_offset=-65)),
        "bool": _with(base, mask=dead),
        "added": _with(base, mask=round_to(added, dtype)),
        "columns": _with(base, options=Options(causal=True, causal_offset=110), columns=columns),
        "all": _with(base, mask=np.zeros((1, 1, 1, 150), bool)),
        "window": Problem(queries=40, keys=150, options=far),
    }


def scores(context: Context, dtype: Dtype) -> Problems:
    """Scales and caps; scores that overflow exp without the shift."""
    return {
        "scale 1": Problem(options=Options(scale=1.0)),
        "scale 0": Problem(options=Options(scale=0.0)),
        "negative": Problem(options=Options(scale=-0.5)),
        "huge": Problem(options=Options(scale=64.0)),
        "cap": Problem(options=Options(softcap=2.0)),
        "cap, causal": Problem(
            queries=70, keys=70, options=Options(scale=1.0, softcap=5.0, causal=True)
        ),
    }


def layouts(context: Context, dtype: Dtype) -> Problems:
    """Each tensor in each layout; batch-major and sequence-major."""
    family = {}
    for layout in LAYOUTS:
        base = Problem(batch=2, heads=4, kv_heads=2, queries=10, keys=20)
        for name in ("q", "k", "v", "out", "lse"):
            family[f"{name} {layout}"] = _with(base, layouts={name: layout})
        everywhere = dict.fromkeys(("q", "k", "v", "out", "dout", "dq", "dk", "dv"), layout)
        family[f"all {layout}"] = _with(base, layouts=everywhere)
    for layout in ("expanded", "column"):
        for name in ("q", "k", "v"):
            family[f"{name} {layout}"] = _with(Problem(batch=2), layouts={name: layout})
    return family


FAMILIES: dict[str, Callable[[Context, Dtype], Problems]] = {
    "sizes": sizes,
    "heads": heads,
    "causal": causal,
    "windows": windows,
    "masks": masks,
    "flashmask": flashmask,
    "live-rows": live_rows,
    "nothing-to-see": nothing_to_see,
    "scores": scores,
    "layouts": layouts,
}


def _with(problem: Problem, **changes: Any) -> Problem:
    from dataclasses import replace

    return replace(problem, **changes)


# ---- one call ------------------------------------------------------------------------------------


def _inputs(
    trial: Trial, problem: Problem, dtype: Dtype
) -> tuple[dict[str, Any], Array | None, Array | None]:
    """The fields that both directions share, and the masks as the oracle takes them."""
    rng = trial.context.rng
    fields: dict[str, Any] = {}
    shapes = {"q": problem.q_shape, "k": problem.k_shape, "v": problem.v_shape}
    for name, shape in shapes.items():
        place = problem.layouts.get(name, "contiguous")
        fields[name] = trial.give(name, draw.ordinary(rng, shape, dtype), dtype, place)
    full = (problem.batch, problem.heads, problem.queries, problem.keys)
    mask = columns = None
    if problem.mask is not None:
        kind = (
            Dtype.BOOL
            if problem.mask.dtype == np.bool_
            else dtype
            if problem.mask.dtype == fields["q"].values.dtype
            else evaluated_in(dtype)
        )
        operand = trial.give("mask", problem.mask, kind)
        fields["mask"] = trial.spread(operand, full)
        mask = np.broadcast_to(operand.values, full)
    if problem.columns is not None:
        operand = trial.give("startend", problem.columns, Dtype.I32)
        wanted = (problem.batch, *problem.columns.shape[1:])
        fields["startend_row_indices"] = trial.spread(operand, wanted)
        columns = np.broadcast_to(operand.values, wanted)
    options = problem.options
    fields |= {
        "flags": int(options.causal),
        "scale": options.scale,
        "logit_softcap": options.softcap,
        "causal_offset": options.causal_offset,
        "window_left": options.window_left,
        "window_right": options.window_right,
    }
    return fields, mask, columns


def run_forward(context: Context, dtype: Dtype, name: str, problem: Problem) -> None:
    """Calls attention and judges out and lse."""
    trial = Trial(context, "attention", name)
    fields, mask, columns = _inputs(trial, problem, dtype)
    place = problem.layouts.get
    out = trial.take("out", problem.out_shape, dtype, place("out", "contiguous"))
    saved = evaluated_in(dtype)
    lse = trial.take("lse", problem.out_shape[:3], saved, place("lse", "contiguous"))
    trial.call(**fields, out=out, lse=lse)
    if 0 in problem.out_shape:
        return
    q, k, v = (fields[n].values for n in "qkv")
    exact = oracle.forward(q, k, v, dtype, problem.options, mask, columns)
    trial.expect(out, exact.out, flush=True)
    trial.expect(lse, exact.lse, flush=True)


def run_backward(context: Context, dtype: Dtype, name: str, problem: Problem) -> None:
    """Calls attention_backward on exact out and lse, rounded, and judges the gradients."""
    trial = Trial(context, "attention_backward", name)
    fields, mask, columns = _inputs(trial, problem, dtype)
    place = problem.layouts.get
    saved = evaluated_in(dtype)
    q, k, v = (fields[n].values for n in "qkv")
    exact = oracle.forward(q, k, v, dtype, problem.options, mask, columns)
    out = trial.give("out", round_to(exact.out.value, dtype), dtype, place("out", "contiguous"))
    lse = trial.give("lse", round_to(exact.lse.value, saved), saved, place("lse", "contiguous"))
    upstream = draw.ordinary(context.rng, problem.out_shape, dtype)
    dout = trial.give("dout", upstream, dtype, place("dout", "contiguous"))
    shapes = {"dq": problem.q_shape, "dk": problem.k_shape, "dv": problem.v_shape}
    grads = {n: trial.take(n, s, dtype, place(n, "contiguous")) for n, s in shapes.items()}
    trial.call(**fields, out=out, lse=lse, dout=dout, **grads)
    gradients = oracle.backward(
        wide(q), wide(k), wide(v), out.values, lse.values, dout.values, dtype, problem.options,
        mask, columns,
    )  # fmt: skip
    for (n, shape), bounded in zip(shapes.items(), gradients, strict=True):
        if 0 not in shape:
            trial.expect(grads[n], bounded, flush=True)
