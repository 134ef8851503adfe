"""Level 2, random: the same bits on every chip, for every kind, dtype, layout and counter."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from chipset._interface import Dtype, RandomKind
from chipset_conformance.case import OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.layouts import LAYOUTS
from chipset_conformance.numerics import FLOATS, HOST, INTEGERS, Bounded, name_of
from chipset_conformance.oracles import philox
from chipset_conformance.trial import Address, Trial

DTYPES: dict[RandomKind, tuple[Dtype, ...]] = {
    RandomKind.BITS: INTEGERS,
    RandomKind.UNIFORM: FLOATS,
    RandomKind.NORMAL: FLOATS,
    RandomKind.BERNOULLI: (Dtype.BOOL, Dtype.F32, Dtype.BF16),
    RandomKind.EXPONENTIAL: FLOATS,
    RandomKind.RANDINT: (Dtype.I32, Dtype.I64, Dtype.U8),
}
PARAMS: dict[RandomKind, tuple[tuple[float, float], ...]] = {
    RandomKind.BITS: ((0, 0), (0x7F, 0)),
    RandomKind.UNIFORM: ((0, 1), (-2, 3)),
    RandomKind.NORMAL: ((0, 1), (5, 0.25)),
    RandomKind.BERNOULLI: ((0.3, 0), (0, 0), (1, 0)),
    RandomKind.EXPONENTIAL: ((1, 0), (2.5, 0)),
    RandomKind.RANDINT: ((0, 10), (3, 100)),
}
# Seeds and offsets whose halves all count, and where an addition carries.
COUNTERS = ((0, 0), (42, 7), (2**40 + 3, 0), (2**64 - 1, 2**32 - 2), (5, 2**63), (1, 2**64 - 3))
SIZES = (1, 2, 3, 4, 5, 63, 1000, 4099)


@cases(level=2)
def random_cases() -> Iterator[Case]:
    for kind, dtypes in DTYPES.items():
        for dtype in dtypes:
            for name, check in (
                ("counters", check_counters), ("sizes", check_sizes), ("layouts", check_layouts),
                ("device-seed", check_device_seed),
            ):  # fmt: skip
                yield Case(
                    id=f"random/{kind.name.lower()}/{name_of(dtype)}/{name}",
                    functions=("random",),
                    tags=frozenset({OPTIONAL}),
                    rule="RND-001",
                    dtype=name_of(dtype),
                    run=partial(check, kind=kind, dtype=dtype),
                )
    yield Case(
        id="random/bernoulli/f32/probabilities", functions=("random",), rule="RND-001",
        tags=frozenset({OPTIONAL}), dtype="f32", run=check_probabilities,
    )  # fmt: skip


def check_counters(context: Context, kind: RandomKind, dtype: Dtype) -> None:
    """Seeds and offsets; each set of params."""
    for seed, offset in COUNTERS:
        for params in PARAMS[kind]:
            run_random(context, kind, dtype, (101,), seed, offset, params)


def check_sizes(context: Context, kind: RandomKind, dtype: Dtype) -> None:
    """Sizes that end within a block of four words, and nothing."""
    for size in SIZES:
        run_random(context, kind, dtype, (size,), 1234, 99, PARAMS[kind][0])
    run_random(context, kind, dtype, (0, 4), 1, 2, PARAMS[kind][0])
    run_random(context, kind, dtype, (), 1, 2, PARAMS[kind][0])


def check_layouts(context: Context, kind: RandomKind, dtype: Dtype) -> None:
    """Elements count in row-major order, wherever they lie."""
    for layout in LAYOUTS:
        run_random(context, kind, dtype, (3, 5, 7), 77, 3, PARAMS[kind][0], layout)


def check_device_seed(context: Context, kind: RandomKind, dtype: Dtype) -> None:
    """Seed and offset in device memory take the place of the fields."""
    run_random(context, kind, dtype, (50,), 2**50 + 9, 2**33, PARAMS[kind][0], on_device=True)


def check_probabilities(context: Context) -> None:
    """A probability of its own for each element, in any layout."""
    for layout in ("contiguous", "transposed", "expanded"):
        trial = Trial(context, "random", f"BERNOULLI, p {layout}")
        chance = context.rng.uniform(0, 1, (6, 9)).astype(np.float32)
        chance[0, 0], chance[5, 8] = 0, 1
        p = trial.give("p", chance, Dtype.F32, layout)
        y = trial.take("y", chance.shape, Dtype.F32)
        trial.call(kind=RandomKind.BERNOULLI, seed=8, offset=5, output=y, p=p)
        expected = philox.draw(
            RandomKind.BERNOULLI,
            Dtype.F32,
            54,
            8,
            5,
            (0, 0),
            np.ascontiguousarray(p.values).ravel(),
        )
        assert isinstance(expected, np.ndarray)
        trial.expect_bits(y, expected.reshape(y.shape).astype(np.float32))


def run_random(
    context: Context,
    kind: RandomKind,
    dtype: Dtype,
    shape: tuple[int, ...],
    seed: int,
    offset: int,
    params: tuple[float, float],
    layout: str = "contiguous",
    on_device: bool = False,
) -> None:
    """Calls random and judges it."""
    trial = Trial(context, "random", f"{kind.name}, seed {seed}, offset {offset}, {params}")
    y = trial.take("y", shape, dtype, layout)
    fields: dict[str, object] = {"seed": seed, "offset": offset}
    if on_device:
        pair = trial.give(
            "seed_offset", np.array([seed, offset], np.uint64).view(np.int64), Dtype.I64
        )
        fields = {"seed": 1, "offset": 1, "seed_offset": Address(pair)}
    trial.call(kind=kind, output=y, param=list(params), **fields)
    if 0 in shape:
        return
    count = int(np.prod(shape, dtype=np.int64))
    expected = philox.draw(kind, dtype, count, seed, offset, params)
    if isinstance(expected, Bounded):
        exact = Bounded(
            expected.value.reshape(shape), expected.dtype, expected.error.reshape(shape)
        )
        trial.expect(y, exact, flush=True)
    else:
        trial.expect_bits(y, expected.reshape(shape).astype(HOST[dtype]))
