"""Level 2, gemm: sizes around blocks, layouts, scalars, bias, activations, special values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from chipset._interface import Activation, Dtype, Status
from chipset_conformance import values as draw
from chipset_conformance.case import MANDATORY, OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.layouts import INPUT_LAYOUTS, LAYOUTS
from chipset_conformance.numerics import FLOATS, Array, name_of, round_to
from chipset_conformance.oracles.gemm import gemm
from chipset_conformance.shapes import examples, layouts_of
from chipset_conformance.trial import Trial, together

# (M, N, K): one of each; vectors; around tiles of 16, 32, 64 and 128; long, thin, flat.
SIZES = (
    (1, 1, 1), (1, 7, 5), (5, 1, 9), (2, 3, 1), (8, 8, 8), (15, 17, 16), (16, 16, 16), (33, 31, 32),
    (64, 65, 63), (1, 130, 64), (130, 1, 64), (3, 5, 1023), (127, 129, 40), (70, 16, 257),
)  # fmt: skip
WIDENING = (Dtype.F16, Dtype.BF16)


@cases(level=2)
def gemm_cases() -> Iterator[Case]:
    for dtype in FLOATS:
        for name, check in (
            ("sizes", check_sizes), ("layouts", check_layouts), ("batches", check_batches),
            ("scalars", check_scalars), ("activations", check_activations),
            ("values", check_values), ("accumulates", check_accumulation), ("empty", check_empty),
        ):  # fmt: skip
            yield _case(f"{name_of(dtype)}/{name}", dtype, partial(check, dtype=dtype))
        if dtype in WIDENING:
            yield _case(f"{name_of(dtype)}/f32-result", dtype, partial(check_wide, dtype=dtype))
    yield _case("f32/any-shape", Dtype.F32, check_any_shape)
    yield _case("f32/refuses", Dtype.F32, check_refuses)


def _case(identity: str, dtype: Dtype, run: object) -> Case:
    return Case(
        id=f"gemm/{identity}",
        functions=("gemm",),
        tags=frozenset({MANDATORY if dtype == Dtype.F32 else OPTIONAL}),
        dtype=name_of(dtype),
        run=run,  # type: ignore[arg-type]
    )


# ---- checks --------------------------------------------------------------------------------------


def check_sizes(context: Context, dtype: Dtype) -> None:
    """Every size at which a block, a vector or a thread might end."""
    for m, n, k in SIZES:
        a, b = _matrices(context, dtype, (m, k), (k, n))
        run_gemm(context, dtype, a, b)


def check_layouts(context: Context, dtype: Dtype) -> None:
    """a, b, c and d in every layout; each plain and transposed."""
    a, b, c = _matrices(context, dtype, (19, 21), (21, 23), (19, 23))
    checks = []
    for layout in INPUT_LAYOUTS:
        checks += [
            (f"a {layout}", partial(run_gemm, context, dtype, a, b, layouts={"a": layout})),
            (f"b {layout}", partial(run_gemm, context, dtype, a, b, layouts={"b": layout})),
            (f"c {layout}", partial(run_gemm, context, dtype, a, b, c=c, beta=0.5,
                                    layouts={"c": layout})),
        ]  # fmt: skip
    for layout in LAYOUTS:
        everywhere = dict.fromkeys("abcd", layout)
        checks += [
            (f"d {layout}", partial(run_gemm, context, dtype, a, b, layouts={"d": layout})),
            (f"all {layout}", partial(run_gemm, context, dtype, a, b, c=c, beta=1.0,
                                      layouts=everywhere)),
        ]  # fmt: skip
    together(checks)


def check_batches(context: Context, dtype: Dtype) -> None:
    """Rank 3, also where one operand is the same for the whole batch."""
    a, b = _matrices(context, dtype, (3, 17, 9), (3, 9, 12))
    checks = []
    for layout in INPUT_LAYOUTS:
        for name in ("a", "b"):
            run = partial(run_gemm, context, dtype, a, b, layouts={name: layout})
            checks.append((f"{name} {layout}", run))
    for layout in LAYOUTS:
        run = partial(run_gemm, context, dtype, a, b, layouts={"d": layout})
        checks.append((f"d {layout}", run))
    together(checks)


def check_scalars(context: Context, dtype: Dtype) -> None:
    """alpha, beta, c in place, broadcast c, bias; beta = 0 does not read c."""
    a, b, c = _matrices(context, dtype, (18, 10), (10, 14), (18, 14))
    (bias,) = _matrices(context, dtype, (14,))
    unread = np.full_like(c, np.nan)
    row = np.broadcast_to(c[:1], c.shape)
    checks = [
        ("alpha", {"alpha": -0.5}),
        ("alpha 0", {"alpha": 0.0, "bias": bias}),
        ("c", {"c": c, "beta": 1.0}),
        ("beta 0 over NaN", {"c": unread, "beta": 0.0}),
        ("c in place", {"c": c, "beta": -2.0, "in_place": True}),
        ("NaN in place", {"c": unread, "beta": 0.0, "in_place": True}),
        ("c repeated", {"c": row, "beta": 1.5, "layouts": {"c": "expanded"}}),
        ("bias", {"bias": bias}),
        ("bias sliced", {"bias": bias, "layouts": {"bias": "sliced"}}),
        ("all", {"alpha": 0.25, "c": c, "beta": 3.0, "bias": bias}),
    ]
    together(
        [(name, partial(run_gemm, context, dtype, a, b, **more)) for name, more in checks]  # type: ignore[arg-type]
    )


def check_activations(context: Context, dtype: Dtype) -> None:
    """Each activation, after bias and c."""
    a, b, c = _matrices(context, dtype, (18, 10), (10, 14), (18, 14))
    (bias,) = _matrices(context, dtype, (14,))
    checks = []
    for activation in Activation:
        run = partial(run_gemm, context, dtype, a, b, activation=activation)
        checks.append((activation.name, run))
        run = partial(run, c=c, beta=1.0, bias=bias)
        checks.append((f"{activation.name} of all", run))
    together(checks)


def check_values(context: Context, dtype: Dtype) -> None:
    """NaN and infinity stay in their rows and columns; zeros hide nothing; large and small."""
    a, b = _matrices(context, dtype, (21, 37), (37, 19))
    a[2, 5] = np.nan
    b[7, 3] = np.nan
    a[4, 8] = np.inf
    b[11, 6] = -np.inf
    a[6, :] = 0
    run_gemm(context, dtype, a, b)
    tiny, huge = (2.0**-9, 2.0**5) if dtype == Dtype.F16 else (2.0**-30, 2.0**30)
    run_gemm(context, dtype, a * a.dtype.type(tiny), b * b.dtype.type(huge))


def check_accumulation(context: Context, dtype: Dtype) -> None:
    """A sum that a narrow accumulator cannot hold, and one that cancels (NUM-001)."""
    ones_a, ones_b = np.ones((4, 4100)), np.ones((4100, 5))
    run_gemm(context, dtype, round_to(ones_a, dtype), round_to(ones_b, dtype))
    a, b = _matrices(context, dtype, (6, 600), (600, 5))
    a[:, 300:] = -a[:, :300]
    b[300:] = b[:300]
    b[5] = round_to(np.asarray(1.5), dtype)
    run_gemm(context, dtype, a, b)


def check_empty(context: Context, dtype: Dtype) -> None:
    """K = 0 gives beta*c + bias; M, N or the batch 0 gives nothing."""
    (c, bias) = _matrices(context, dtype, (4, 3), (3,))
    a, b = _matrices(context, dtype, (4, 0), (0, 3))
    run_gemm(context, dtype, a, b)
    run_gemm(context, dtype, a, b, c=c, beta=2.0, bias=bias, activation=Activation.RELU)
    for m, n, k in ((0, 3, 4), (4, 0, 3), (0, 0, 0)):
        a, b = _matrices(context, dtype, (m, k), (k, n))
        run_gemm(context, dtype, a, b)
    a, b = _matrices(context, dtype, (0, 4, 3), (0, 3, 2))
    run_gemm(context, dtype, a, b)


def check_wide(context: Context, dtype: Dtype) -> None:
    """F16 and BF16 operands, F32 result: not rounded on the way."""
    a, b = _matrices(context, dtype, (33, 70), (70, 18))
    (c,) = _matrices(context, Dtype.F32, (33, 18))
    run_gemm(context, dtype, a, b, result=Dtype.F32)
    run_gemm(context, dtype, a, b, c=c, beta=1.0, result=Dtype.F32)


def check_any_shape(context: Context) -> None:
    """Sizes and layouts that nobody thought of."""
    from hypothesis import strategies as st

    def one(m: int, n: int, k: int, first: str, second: str, out: str) -> None:
        a, b = _matrices(context, Dtype.F32, (m, k), (k, n))
        run_gemm(context, Dtype.F32, a, b, layouts={"a": first, "b": second, "d": out})

    size = st.integers(0, 70)
    examples(
        context, one, 40, size, size, size, layouts_of(INPUT_LAYOUTS), layouts_of(INPUT_LAYOUTS),
        layouts_of(LAYOUTS),
    )  # fmt: skip


def check_refuses(context: Context) -> None:
    """Operands that do not agree are INVALID, and nothing is written (SHP-003)."""
    shapes = {
        "K differs": ((4, 5), (6, 3), (4, 3)),
        "M differs": ((4, 5), (5, 3), (5, 3)),
        "N differs": ((4, 5), (5, 3), (4, 4)),
        "ranks differ": ((2, 4, 5), (5, 3), (2, 4, 3)),
    }
    for label, (first, second, out) in shapes.items():
        a, b = _matrices(context, Dtype.F32, first, second)
        trial = Trial(context, "gemm", label)
        x, y = trial.give("a", a, Dtype.F32), trial.give("b", b, Dtype.F32)
        d = trial.take("d", out, Dtype.F32)
        trial.refuse(Status.INVALID, Status.UNSUPPORTED, a=x, b=y, d=d, alpha=1.0)


# ---- one call ------------------------------------------------------------------------------------


def run_gemm(
    context: Context,
    dtype: Dtype,
    a: Array,
    b: Array,
    c: Array | None = None,
    bias: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    activation: Activation = Activation.NONE,
    result: Dtype | None = None,
    layouts: dict[str, str] | None = None,
    in_place: bool = False,
) -> None:
    """Calls gemm and judges it; ``in_place``: c is d."""
    layouts = layouts or {}
    result = result or dtype
    label = f"{a.shape} @ {b.shape}, {layouts}, alpha {alpha}, beta {beta}, {activation.name}"
    trial = Trial(context, "gemm", label)
    left = trial.give("a", a, dtype, layouts.get("a", "contiguous"))
    right = trial.give("b", b, dtype, layouts.get("b", "contiguous"))
    shape = (*a.shape[:-1], b.shape[-1])
    added, shift = None, None
    if c is not None:
        added = trial.give("c", c, result, layouts.get("c", "contiguous"), written=in_place)
    if bias is not None:
        shift = trial.give("bias", bias, result, layouts.get("bias", "contiguous"))
    out = trial.take("d", shape, result, layouts.get("d", "contiguous"))
    if in_place:
        assert added is not None
        trial.operands.remove(out)
        out = added
    addend = None if added is None else np.array(added.values)
    trial.call(
        a=left, b=right, c=added, d=out, bias=shift, alpha=alpha, beta=beta, activation=activation
    )
    if 0 in shape:
        return
    exact = gemm(
        left.values, right.values, dtype, addend, None if shift is None else shift.values, alpha,
        beta, activation,
    )  # fmt: skip
    trial.expect(out, exact, flush=True)


def _matrices(context: Context, dtype: Dtype, *shapes: tuple[int, ...]) -> list[Array]:
    return [draw.ordinary(context.rng, shape, dtype) for shape in shapes]
