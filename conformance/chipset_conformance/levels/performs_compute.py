"""Performs: matrix products and attention, as fractions of the chip's own roofline."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from chipset._interface import Dtype
from chipset_conformance import roofline
from chipset_conformance.case import MANDATORY, OPTIONAL, Case, Unsupported, cases
from chipset_conformance.context import Context
from chipset_conformance.numerics import HOST, Bounded, name_of
from chipset_conformance.oracles import attention as oracle
from chipset_conformance.speed import (
    Numbers,
    Prepared,
    download,
    expect_near,
    poison,
    seconds_per_call,
    upload,
)

LONG_S = 300.0
DTYPES = (Dtype.F32, Dtype.F16, Dtype.BF16)
HEADS, KV_HEADS, DEPTH = 8, 2, 64
LENGTHS = (32, 128, 512, 1024, 2048)
SAMPLED_ROWS = 4


@cases(level="performs")
def compute_cases() -> Iterator[Case]:
    for dtype in DTYPES:
        tag = frozenset({MANDATORY if dtype == Dtype.F32 else OPTIONAL})
        for name, run in (
            ("gemm", check_gemm),
            ("attention", partial(check_attention, causal=False)),
            ("attention-causal", partial(check_attention, causal=True)),
        ):
            function = name.partition("-")[0]
            yield Case(
                id=f"performs/{name}/{name_of(dtype)}",
                functions=(function,),
                tags=tag if function == "gemm" else frozenset({OPTIONAL}),
                dtype=name_of(dtype),
                run=partial(run, dtype=dtype),
                timeout_s=LONG_S,
            )


def check_gemm(context: Context, dtype: Dtype) -> None:
    """Square matrices of growing size."""
    line = roofline.of(context)
    points = roofline.sweep_gemm(context, dtype)
    rates = {n: 2.0 * n**3 / seconds for n, seconds in points}
    line.peak[dtype] = max([*rates.values(), line.peak.get(dtype, 0.0)])
    for n, rate in rates.items():
        limit = line.limit(dtype, 2.0 * n**3, 3.0 * n * n * HOST[dtype].itemsize)
        context.measure(
            f"gemm {name_of(dtype)}", rate / 1e9, "GFLOP/s", x=n, x_label="rows of square matrices",
            limit=limit / 1e9, limit_is="roofline: best product, or bandwidth",
        )  # fmt: skip
    context.measure(f"peak {name_of(dtype)}, matrix products", line.peak[dtype] / 1e9, "GFLOP/s")


class Attention:
    """One sequence of self-attention, query heads in groups over key heads."""

    def __init__(self, context: Context, numbers: Numbers, length: int, causal: bool) -> None:
        self.chip, self.numbers, self.length = context.chip, numbers, length
        self.dtype, self.causal = numbers.dtype, causal
        self.shapes = [(1, heads, length, DEPTH) for heads in (HEADS, KV_HEADS, KV_HEADS)]
        self.inputs = [self.chip.empty(shape, self.dtype) for shape in self.shapes]
        self.output = self.chip.empty(self.shapes[0], self.dtype)
        q, k, v = self.inputs
        self.scale = DEPTH**-0.5
        self.call = Prepared(
            self.chip, "attention", q=q, k=k, v=v, out=self.output, scale=self.scale,
            flags=int(causal), window_left=-1, window_right=-1,
        )  # fmt: skip

    def refresh(self) -> None:
        self.values = [self.numbers.slice(shape) for shape in self.shapes]
        for array, values in zip(self.inputs, self.values, strict=True):
            upload(self.chip, array, values)
        poison(self.chip, self.output)

    def check(self) -> None:
        """Random queries of random heads, and the last of all."""
        draw = np.random.default_rng()
        places = [(HEADS - 1, self.length - 1)]
        places += [
            (int(draw.integers(HEADS)), int(draw.integers(self.length)))
            for _ in range(SAMPLED_ROWS)
        ]
        for head, row in places:
            q, k, v = self.values
            of = head // (HEADS // KV_HEADS)
            options = oracle.Options(scale=self.scale, causal=self.causal, causal_offset=row)
            one = q[:, head : head + 1, row : row + 1]
            exact = oracle.forward(
                one, k[:, of : of + 1], v[:, of : of + 1], self.dtype, options
            ).out
            start = (head * self.length + row) * DEPTH
            got = download(self.chip, self.output, start, DEPTH).reshape(1, 1, 1, DEPTH)
            what = f"attention over {self.length} keys, head {head}, query {row}"
            expect_near(got, Bounded(exact.value, exact.dtype, exact.error), self.dtype, what)


def check_attention(context: Context, dtype: Dtype, causal: bool) -> None:
    """One sequence of growing length; half the scores are computed where it is causal."""
    line = roofline.of(context, dtype)
    numbers = Numbers(context, dtype, HEADS * max(LENGTHS) * DEPTH)
    size = HOST[dtype].itemsize
    for length in LENGTHS:
        moved = 2.0 * (HEADS + KV_HEADS) * length * DEPTH * size
        seen = length * (length + 1) / 2 if causal else length**2
        operations = 4.0 * HEADS * seen * DEPTH
        make = partial(Attention, context, numbers, length, causal)
        try:
            seconds = seconds_per_call(context, make, int(moved))
        except Unsupported as reason:
            if length == LENGTHS[0]:
                raise
            context.note(f"ends at {length} keys: {reason}")
            break
        context.measure(
            f"attention {name_of(dtype)}{', causal' if causal else ''}",
            operations / seconds / 1e9,
            "GFLOP/s",
            x=length,
            x_label=f"queries and keys, {HEADS} heads of {DEPTH}",
            limit=line.limit(dtype, operations, moved) / 1e9,
            limit_is="roofline: best product, or bandwidth",
        )
        if seconds > roofline.SLOWEST_CALL_S:
            break
