"""Level 2, functions over rows: softmax, norms, rotary embedding, cross-entropy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from chipset._interface import Dtype, Status
from chipset_conformance import values as draw
from chipset_conformance.case import OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.layouts import INPUT_LAYOUTS, LAYOUTS
from chipset_conformance.numerics import (
    FLOATS,
    Array,
    Bounded,
    evaluated_in,
    name_of,
    round_to,
    wide,
)
from chipset_conformance.oracles import rows as oracle
from chipset_conformance.trial import Trial, together

# Around vectors, blocks and what a thread or a work-group takes.
LENGTHS = (1, 2, 3, 7, 16, 31, 33, 64, 100, 257, 1025)
Checks = tuple[tuple[str, Callable[..., None]], ...]


@cases(level=2)
def softmax_cases() -> Iterator[Case]:
    yield from _family("softmax", "softmax", (
        ("lengths", check_softmax), ("layouts", check_softmax_layouts),
        ("values", check_softmax_values), ("widening", check_softmax_widening),
    ))  # fmt: skip
    yield from _family("softmax_backward", "softmax_backward", (
        ("lengths", check_softmax_backward), ("layouts", check_softmax_backward_layouts),
    ))  # fmt: skip


@cases(level=2)
def norm_cases() -> Iterator[Case]:
    yield from _family("norm", "norm", (
        ("lengths", check_norm), ("layouts", check_norm_layouts), ("values", check_norm_values),
    ))  # fmt: skip
    yield from _family("norm_backward", "norm_backward", (
        ("lengths", check_norm_backward), ("layouts", check_norm_backward_layouts),
    ))  # fmt: skip


@cases(level=2)
def rotary_cases() -> Iterator[Case]:
    yield from _family("rotary", "rotary", (
        ("sizes", check_rotary), ("layouts", check_rotary_layouts),
    ))  # fmt: skip


@cases(level=2)
def cross_entropy_cases() -> Iterator[Case]:
    yield from _family("cross_entropy", "cross_entropy", (
        ("classes", check_cross_entropy), ("layouts", check_cross_entropy_layouts),
        ("range", check_cross_entropy_range),
    ))  # fmt: skip
    yield from _family("cross_entropy_backward", "cross_entropy_backward", (
        ("classes", check_cross_entropy_backward),
    ))  # fmt: skip


def _family(name: str, function: str, checks: Checks) -> Iterator[Case]:
    for dtype in FLOATS:
        for label, check in checks:
            yield Case(
                id=f"{name}/{name_of(dtype)}/{label}",
                functions=(function,),
                tags=frozenset({OPTIONAL}),
                dtype=name_of(dtype),
                run=partial(check, dtype=dtype),
            )


# ---- softmax -------------------------------------------------------------------------------------


def check_softmax(context: Context, dtype: Dtype) -> None:
    """Every length, along each dimension, plain and logarithmic."""
    for log in (0, 1):
        for n in LENGTHS:
            _softmax(context, dtype, draw.ordinary(context.rng, (3, n), dtype), 1, log)
            _softmax(context, dtype, draw.ordinary(context.rng, (n, 3), dtype), 0, log)
        for dim in range(4):
            values = draw.ordinary(context.rng, (3, 4, 5, 6), dtype)
            _softmax(context, dtype, values, dim, log)
        _softmax(context, dtype, draw.ordinary(context.rng, (0, 5), dtype), 1, log)
        _softmax(context, dtype, draw.ordinary(context.rng, (5, 0), dtype), 1, log)


def check_softmax_layouts(context: Context, dtype: Dtype) -> None:
    values = draw.ordinary(context.rng, (4, 5, 6), dtype)
    checks = []
    for dim in (0, 2):
        for log in (0, 1):
            call = partial(_softmax, context, dtype, values, dim, log)
            for layout in INPUT_LAYOUTS:
                checks.append((f"input {layout}", partial(call, before=layout)))
            for layout in LAYOUTS:
                checks.append((f"output {layout}", partial(call, after=layout)))
    together(checks)


def check_softmax_values(context: Context, dtype: Dtype) -> None:
    """-inf masks; a row of -inf and a row with NaN give NaN; large numbers do not overflow."""
    values = draw.ordinary(context.rng, (9, 37), dtype)
    values[0, 5:] = -np.inf
    values[1, :20] = -np.inf  # a first block without anything
    values[2, 1:] = -np.inf
    values[3, :] = -np.inf
    values[4, 7] = np.nan
    values[5] = values[5, 0]
    values[6] *= values.dtype.type(1000)
    values[7] = 60000 if dtype == Dtype.F16 else 1e30
    values[8] = -60000 if dtype == Dtype.F16 else -1e30
    for log in (0, 1):
        _softmax(context, dtype, values, 1, log)
        _softmax(context, dtype, np.ascontiguousarray(values.T), 0, log)


def check_softmax_widening(context: Context, dtype: Dtype) -> None:
    """A result of another float dtype is not rounded to the input's on the way."""
    values = draw.ordinary(context.rng, (5, 40), dtype)
    result = Dtype.F32 if dtype != Dtype.F32 else Dtype.BF16
    for log in (0, 1):
        _softmax(context, dtype, values, 1, log, result=result)


def _softmax(
    context: Context,
    dtype: Dtype,
    values: Array,
    dim: int,
    log: int,
    before: str = "contiguous",
    after: str = "contiguous",
    result: Dtype | None = None,
) -> None:
    trial = Trial(context, "softmax", f"log {log}, dim {dim}, {before} to {after}")
    x = trial.give("x", values, dtype, before)
    y = trial.take("y", values.shape, result or dtype, after)
    trial.call(dim=dim, log=log, input=x, output=y)
    if values.size:
        evaluated = Dtype.F64 if dtype == Dtype.F64 else Dtype.F32
        exact = oracle.softmax(x.values, evaluated, dim, bool(log)).reordered()
        trial.expect(y, exact, flush=True)


def check_softmax_backward(context: Context, dtype: Dtype) -> None:
    """Every length, along each dimension, plain and logarithmic."""
    for log in (0, 1):
        for n in LENGTHS:
            _softmax_backward(context, dtype, (3, n), 1, log)
            _softmax_backward(context, dtype, (n, 3), 0, log)
        for dim in range(3):
            _softmax_backward(context, dtype, (3, 4, 5), dim, log)
        _softmax_backward(context, dtype, (0, 5), 1, log)


def check_softmax_backward_layouts(context: Context, dtype: Dtype) -> None:
    checks = []
    for log in (0, 1):
        for layout in INPUT_LAYOUTS:
            call = partial(_softmax_backward, context, dtype, (4, 5, 6), 2, log)
            checks.append((f"dy {layout}", partial(call, layouts=(layout, "rows", "contiguous"))))
            checks.append((f"y {layout}", partial(call, layouts=("rows", layout, "contiguous"))))
        for layout in LAYOUTS:
            checks.append((f"dx {layout}", partial(call, layouts=("rows", "offset", layout))))
    together(checks)


def _softmax_backward(
    context: Context,
    dtype: Dtype,
    shape: tuple[int, ...],
    dim: int,
    log: int,
    layouts: tuple[str, str, str] = ("contiguous",) * 3,
) -> None:
    trial = Trial(context, "softmax_backward", f"log {log}, dim {dim}, {layouts}")
    result = np.zeros(shape)
    if 0 not in shape:
        forward = oracle.softmax(
            draw.ordinary(context.rng, shape, dtype), Dtype.F64, dim, bool(log)
        )
        result = forward.value
    dy = trial.give("dy", draw.ordinary(context.rng, shape, dtype), dtype, layouts[0])
    y = trial.give("y", round_to(result, dtype), dtype, layouts[1])
    dx = trial.take("dx", shape, dtype, layouts[2])
    trial.call(dim=dim, log=log, input=dy, result=y, output=dx)
    if 0 not in shape:
        exact = oracle.softmax_backward(dy.values, y.values, dtype, dim, bool(log))
        trial.expect(dx, exact, flush=True)


# ---- norms ---------------------------------------------------------------------------------------


def check_norm(context: Context, dtype: Dtype) -> None:
    """Every length; with and without weight, bias, offset and statistics."""
    for layer in (0, 1):
        for n in LENGTHS:
            _norm(context, dtype, draw.ordinary(context.rng, (5, n), dtype), layer)
        values = draw.ordinary(context.rng, (4, 24), dtype)
        for weight in (False, True):
            for bias in (False, True) if layer else (False,):
                for offset in (0.0, 1.0):
                    for statistics in (False, True):
                        _norm(context, dtype, values, layer, weight, bias, offset, statistics)
        _norm(context, dtype, draw.ordinary(context.rng, (0, 8), dtype), layer)


def check_norm_layouts(context: Context, dtype: Dtype) -> None:
    values = draw.ordinary(context.rng, (6, 20), dtype)
    checks = []
    for layer in (0, 1):
        call = partial(_norm, context, dtype, values, layer)
        for layout in INPUT_LAYOUTS:
            checks.append((f"x {layout}", partial(call, before=layout)))
        for layout in LAYOUTS:
            checks.append((f"y {layout}", partial(call, after=layout)))
        for layout in ("sliced", "offset"):
            checks.append((f"weight {layout}", partial(call, small=layout)))
    together(checks)


def check_norm_values(context: Context, dtype: Dtype) -> None:
    """A large mean, rows of zeros, of one value, of tiny and of large numbers."""
    values = draw.ordinary(context.rng, (6, 64), dtype)
    values[1] = 0
    values[2] = values[2, 0]
    small, large = (2.0**-10, 2.0**7) if dtype == Dtype.F16 else (2.0**-40, 2.0**40)
    values[3] *= values.dtype.type(small)
    values[4] *= values.dtype.type(large)
    values[5] += values.dtype.type(50)
    for layer in (0, 1):
        _norm(context, dtype, values, layer, eps=1e-6)
        _norm(context, dtype, values, layer, eps=1e-2)


def _norm(
    context: Context,
    dtype: Dtype,
    values: Array,
    layer: int,
    weighted: bool = True,
    biased: bool = True,
    offset: float = 0.0,
    statistics: bool = True,
    eps: float = 1e-5,
    before: str = "contiguous",
    after: str = "contiguous",
    small: str = "contiguous",
) -> None:
    n = values.shape[-1]
    label = f"{'layer' if layer else 'RMS'} {values.shape}, {before} to {after}, offset {offset}"
    trial = Trial(context, "norm", label)
    x = trial.give("x", values, dtype, before)
    weight = bias = mean = rstd = None
    if weighted:
        weight = trial.give("weight", draw.ordinary(context.rng, (n,), dtype), dtype, small)
    if layer and biased:
        bias = trial.give("bias", draw.ordinary(context.rng, (n,), dtype), dtype, small)
    saved = evaluated_in(dtype)
    if statistics:
        rstd = trial.take("rstd", values.shape[:1], saved, small)
        mean = trial.take("mean", values.shape[:1], saved, small) if layer else None
    y = trial.take("y", values.shape, dtype, after)
    trial.call(
        kind=layer, eps=eps, weight_offset=offset, x=x, weight=weight, bias=bias, y=y, mean=mean,
        rstd=rstd,
    )  # fmt: skip
    if 0 in values.shape:
        return
    exact = oracle.norm(
        x.values, weight.values if weight else None, bias.values if bias else None, dtype,
        bool(layer), eps, offset if weight else 0.0,
    )  # fmt: skip
    if offset and weight is None:
        return  # an offset of no weight is not specified
    trial.expect(y, exact[0], flush=True)
    if mean is not None:
        trial.expect(mean, exact[1], flush=True)
    if rstd is not None:
        trial.expect(rstd, exact[2], flush=True)


def check_norm_backward(context: Context, dtype: Dtype) -> None:
    """Every length; many rows, which dweight and dbias sum; each output may be left out."""
    for layer in (0, 1):
        for n in LENGTHS:
            _norm_backward(context, dtype, (4, n), layer)
        for rows in (1, 33, 700):
            _norm_backward(context, dtype, (rows, 18), layer)
        for outputs in ("dx", "dweight", "dbias") if layer else ("dx", "dweight"):
            _norm_backward(context, dtype, (5, 12), layer, outputs=(outputs,))
        _norm_backward(context, dtype, (5, 12), layer, offset=1.0)
        _norm_backward(context, dtype, (5, 12), layer, weighted=False, outputs=("dx",))


def check_norm_backward_layouts(context: Context, dtype: Dtype) -> None:
    checks = []
    for layer in (0, 1):
        call = partial(_norm_backward, context, dtype, (6, 20), layer)
        for layout in INPUT_LAYOUTS:
            for name in ("x", "dy"):
                checks.append((f"{name} {layout}", partial(call, layouts={name: layout})))
        for layout in LAYOUTS:
            everywhere = dict.fromkeys(("dx", "dweight", "dbias"), layout)
            checks.append((f"gradients {layout}", partial(call, layouts=everywhere)))
    together(checks)


def _norm_backward(
    context: Context,
    dtype: Dtype,
    shape: tuple[int, int],
    layer: int,
    outputs: tuple[str, ...] = ("dx", "dweight", "dbias"),
    offset: float = 0.0,
    weighted: bool = True,
    layouts: dict[str, str] | None = None,
) -> None:
    layouts = layouts or {}
    outputs = outputs if layer else tuple(name for name in outputs if name != "dbias")
    label = f"{'layer' if layer else 'RMS'} {shape}, {outputs}, {layouts}, offset {offset}"
    trial = Trial(context, "norm_backward", label)

    def place(name: str) -> str:
        return layouts.get(name, "contiguous")

    x = trial.give("x", draw.ordinary(context.rng, shape, dtype), dtype, place("x"))
    dy = trial.give("dy", draw.ordinary(context.rng, shape, dtype), dtype, place("dy"))
    weight = None
    if weighted:
        weight = trial.give("weight", draw.ordinary(context.rng, shape[1:], dtype), dtype)
    saved = evaluated_in(dtype)
    _, centre, scale = oracle.norm(x.values, None, None, Dtype.F64, bool(layer), 1e-5, 0.0)
    rstd = trial.give("rstd", round_to(scale.value, saved), saved)
    mean = trial.give("mean", round_to(centre.value, saved), saved) if layer else None
    sizes = {"dx": shape, "dweight": shape[1:], "dbias": shape[1:]}
    given = {name: trial.take(name, sizes[name], dtype, place(name)) for name in outputs}
    trial.call(
        kind=layer, eps=1e-5, weight_offset=offset, x=x, weight=weight, mean=mean, rstd=rstd,
        dy=dy, **given,
    )  # fmt: skip
    exact = oracle.norm_backward(
        dy.values, x.values, weight.values if weight else None, mean.values if mean else None,
        rstd.values, dtype, offset,
    )  # fmt: skip
    for name, bounded in zip(("dx", "dweight", "dbias"), exact, strict=True):
        if name in given:
            trial.expect(given[name], bounded, flush=True)


# ---- rotary embedding ----------------------------------------------------------------------------


def check_rotary(context: Context, dtype: Dtype) -> None:
    """Head sizes, partial rotation, both pairings, both directions, cos of either dtype."""
    for size, rotated in ((2, 2), (8, 8), (16, 8), (64, 64), (80, 32), (128, 128)):
        for interleaved in (0, 1):
            for inverse in (0, 1):
                _rotary(context, dtype, (2, 3, 5, size), rotated, interleaved, inverse)
    _rotary(context, dtype, (2, 3, 5, 16), 16, 0, 0, table=dtype)
    _rotary(context, dtype, (1, 1, 300, 16), 16, 0, 0)
    _rotary(context, dtype, (2, 3, 0, 16), 16, 0, 0)


def check_rotary_layouts(context: Context, dtype: Dtype) -> None:
    checks = []
    for interleaved in (0, 1):
        call = partial(_rotary, context, dtype, (2, 3, 4, 16), 8, interleaved, 0)
        for layout in INPUT_LAYOUTS:
            checks.append((f"x {layout}", partial(call, layouts={"x": layout})))
        for layout in LAYOUTS:
            checks.append((f"y {layout}", partial(call, layouts={"y": layout})))
        for layout in ("sliced", "offset", "expanded"):
            checks.append((f"cos {layout}", partial(call, layouts={"cos": layout})))
        for layout in ("contiguous", "permuted"):
            checks.append((f"in place {layout}", partial(call, layouts={"x": layout},
                                                         in_place=True)))  # fmt: skip
    together(checks)


def _rotary(
    context: Context,
    dtype: Dtype,
    shape: tuple[int, ...],
    rotated: int,
    interleaved: int,
    inverse: int,
    table: Dtype | None = None,
    layouts: dict[str, str] | None = None,
    in_place: bool = False,
) -> None:
    layouts = layouts or {}
    table = table or evaluated_in(dtype)
    batch, _, steps, _ = shape
    angles = context.rng.uniform(-4, 4, (batch, steps, rotated // 2))
    angles = np.repeat(angles, 2, -1) if interleaved else np.concatenate([angles, angles], -1)
    label = f"{shape}, {rotated} rotated, interleaved {interleaved}, inverse {inverse}, {layouts}"
    trial = Trial(context, "rotary", label)
    values = draw.ordinary(context.rng, shape, dtype)
    x = trial.give("x", values, dtype, layouts.get("x", "contiguous"), written=in_place)
    cos_layout = layouts.get("cos", "contiguous")
    cos = trial.give("cos", round_to(np.cos(angles), table), table, cos_layout)
    sin = trial.give("sin", round_to(np.sin(angles), table), table, cos_layout)
    y = x if in_place else trial.take("y", shape, dtype, layouts.get("y", "contiguous"))
    before = np.array(x.values)
    trial.call(interleaved=interleaved, inverse=inverse, x=x, cos=cos, sin=sin, y=y)
    if 0 not in shape:
        exact = oracle.rotary(
            before, cos.values, sin.values, dtype, bool(interleaved), bool(inverse)
        )
        trial.expect(y, exact, flush=True)


# ---- cross-entropy -------------------------------------------------------------------------------


def check_cross_entropy(context: Context, dtype: Dtype) -> None:
    """Numbers of classes, smoothing, ignored rows."""
    for classes in LENGTHS:
        for smoothing in (0.0, 0.1):
            _cross_entropy(context, dtype, (5, classes), smoothing)
    _cross_entropy(context, dtype, (0, 7), 0.0)
    large = draw.ordinary(context.rng, (4, 50), dtype)
    large *= large.dtype.type(100)
    _cross_entropy(context, dtype, (4, 50), 0.0, logits=large)


def check_cross_entropy_layouts(context: Context, dtype: Dtype) -> None:
    checks = []
    for layout in INPUT_LAYOUTS:
        call = partial(_cross_entropy, context, dtype, (6, 20), 0.1)
        checks.append((f"logits {layout}", partial(call, layout=layout)))
    for layout in ("offset", "sliced"):
        checks.append((f"rows {layout}", partial(call, small=layout)))
    together(checks)


def _cross_entropy(
    context: Context,
    dtype: Dtype,
    shape: tuple[int, int],
    smoothing: float,
    layout: str = "contiguous",
    small: str = "contiguous",
    logits: Array | None = None,
) -> None:
    trial = Trial(context, "cross_entropy", f"{shape}, smoothing {smoothing}, {layout}")
    target = context.rng.integers(0, shape[1], shape[0])
    target[1::4] = -100
    target[-1:] = shape[1] - 1
    values = draw.ordinary(context.rng, shape, dtype) if logits is None else logits
    x = trial.give("logits", values, dtype, layout)
    t = trial.give("target", target, Dtype.I64, small)
    loss = trial.take("loss", shape[:1], evaluated_in(dtype), small)
    lse = trial.take("lse", shape[:1], evaluated_in(dtype), small)
    trial.call(ignore_index=-100, label_smoothing=smoothing, logits=x, target=t, loss=loss, lse=lse)
    if 0 in shape:
        return
    exact = oracle.cross_entropy(x.values, t.values, dtype, smoothing, -100)
    trial.expect(loss, exact[0], flush=True)
    trial.expect(lse, exact[1], flush=True, known=t.values != -100)


def check_cross_entropy_range(context: Context, dtype: Dtype) -> None:
    """A target that is no class is OUT_OF_RANGE, except the ignored one."""
    for bad in (-1, 9, 2**32 + 1):
        trial = Trial(context, "cross_entropy", f"target {bad} of 9 classes")
        target = np.array([0, 8, 3, bad, 1])
        x = trial.give("logits", draw.ordinary(context.rng, (5, 9), dtype), dtype)
        t = trial.give("target", target, Dtype.I64)
        loss = trial.take("loss", (5,), evaluated_in(dtype))
        lse = trial.take("lse", (5,), evaluated_in(dtype))
        trial.refuse(
            Status.OUT_OF_RANGE, ignore_index=-100, label_smoothing=0.0, logits=x, target=t,
            loss=loss, lse=lse,
        )  # fmt: skip


def check_cross_entropy_backward(context: Context, dtype: Dtype) -> None:
    """Numbers of classes, smoothing, ignored rows, one gradient for all rows, in place."""
    for classes in LENGTHS:
        for smoothing in (0.0, 0.1):
            _cross_entropy_backward(context, dtype, (5, classes), smoothing)
    for layout in LAYOUTS:
        _cross_entropy_backward(context, dtype, (6, 20), 0.1, layout=layout)
    _cross_entropy_backward(context, dtype, (6, 20), 0.0, repeated=True)
    _cross_entropy_backward(context, dtype, (6, 20), 0.0, in_place=True)
    _cross_entropy_backward(context, dtype, (0, 20), 0.0)


def _cross_entropy_backward(
    context: Context,
    dtype: Dtype,
    shape: tuple[int, int],
    smoothing: float,
    layout: str = "contiguous",
    repeated: bool = False,
    in_place: bool = False,
) -> None:
    label = f"{shape}, smoothing {smoothing}, {layout}, in place {in_place}"
    trial = Trial(context, "cross_entropy_backward", label)
    target = context.rng.integers(0, shape[1], shape[0])
    target[1::4] = -100
    saved = evaluated_in(dtype)
    values = draw.ordinary(context.rng, shape, dtype)
    x = trial.give("logits", values, dtype, layout, written=in_place)
    t = trial.give("target", target, Dtype.I64)
    totals = oracle.log_sum_exp(Bounded(values, Dtype.F64)).value[:, 0]
    lse = trial.give("lse", round_to(totals, saved), saved)
    grads = draw.ordinary(context.rng, shape[:1], saved)
    dloss = trial.give("dloss", grads, saved, "column" if repeated else "contiguous")
    out = x if in_place else trial.take("dlogits", shape, dtype, layout)
    trial.call(
        ignore_index=-100, label_smoothing=smoothing, logits=x, target=t, lse=lse, dloss=dloss,
        dlogits=out,
    )  # fmt: skip
    if 0 not in shape:
        exact = oracle.cross_entropy_backward(
            wide(values), t.values, lse.values, dloss.values, dtype, smoothing, -100
        )
        trial.expect(out, exact, flush=True)
