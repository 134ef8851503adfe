"""Level 2, attention over a paged cache: ragged sequences, scattered blocks, heads, windows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from chipset._interface import Dtype
from chipset_conformance import values as draw
from chipset_conformance.case import OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.numerics import FLOATS, name_of
from chipset_conformance.oracles.attention import Options, paged
from chipset_conformance.trial import Trial

Sequences = tuple[tuple[int, int], ...]  # (new tokens, keys) of each
DECODE: Sequences = ((1, 1), (1, 16), (1, 17), (1, 100))
PREFILL: Sequences = ((5, 5), (33, 33), (1, 1), (16, 16))
MIXED: Sequences = ((1, 70), (20, 64), (0, 9), (7, 7), (1, 15), (3, 40))


@cases(level=2)
def paged_cases() -> Iterator[Case]:
    for dtype in FLOATS:
        for name, check in (
            ("sequences", check_sequences), ("heads", check_heads), ("blocks", check_blocks),
            ("options", check_options), ("padding", check_padding),
        ):  # fmt: skip
            yield Case(
                id=f"attention_paged/{name_of(dtype)}/{name}", functions=("attention_paged",),
                tags=frozenset({OPTIONAL}), dtype=name_of(dtype), run=partial(check, dtype=dtype),
            )  # fmt: skip


def check_sequences(context: Context, dtype: Dtype) -> None:
    """One new token each, whole prompts, both at once, and sequences with nothing new."""
    for sequences in (DECODE, PREFILL, MIXED):
        run_paged(context, dtype, sequences)


def check_heads(context: Context, dtype: Dtype) -> None:
    """Query head h reads key head h / (H / Hkv); head sizes."""
    for heads, kv_heads in ((1, 1), (4, 2), (6, 2), (8, 1)):
        run_paged(context, dtype, MIXED, heads=heads, kv_heads=kv_heads)
    for depth in (8, 64, 80):
        run_paged(context, dtype, DECODE, depth=depth)


def check_blocks(context: Context, dtype: Dtype) -> None:
    """Block sizes; lengths that end before, at and after the end of a block."""
    for block in (1, 4, 16, 32):
        ends = tuple((1, n) for n in (block, block + 1, 3 * block, max(1, 2 * block - 1)))
        run_paged(context, dtype, ends, block=block)


def check_options(context: Context, dtype: Dtype) -> None:
    """Window, soft cap, scale."""
    for options in (
        Options(window_left=4), Options(window_left=0), Options(softcap=3.0), Options(scale=1.5),
    ):  # fmt: skip
        run_paged(context, dtype, MIXED, options=options)


def check_padding(context: Context, dtype: Dtype) -> None:
    """Tokens beyond query_start[B], as a captured graph has them, are not written."""
    run_paged(context, dtype, DECODE, padding=3)
    run_paged(context, dtype, MIXED, padding=5)


def run_paged(
    context: Context,
    dtype: Dtype,
    sequences: Sequences,
    heads: int = 4,
    kv_heads: int = 2,
    depth: int = 16,
    block: int = 16,
    options: Options | None = None,
    padding: int = 0,
) -> None:
    """Calls attention_paged over blocks in random order and judges the tokens of sequences."""
    rng = context.rng
    options = options or Options()
    trial = Trial(context, "attention_paged", f"{sequences}, block {block}, {options}")
    new = [n for n, _ in sequences]
    lengths = np.array([k for _, k in sequences])
    starts = np.concatenate([[0], np.cumsum(new)])
    tokens = int(starts[-1])
    needed = [-(-int(k) // block) for k in lengths]
    blocks = sum(needed) + 3
    order = rng.permutation(blocks)
    table = np.full((len(sequences), max(needed) + 1), blocks - 1, np.int32)
    used = 0
    for s, count in enumerate(needed):
        table[s, :count] = order[used : used + count]
        used += count
    q = trial.give("q", draw.ordinary(rng, (tokens + padding, heads, depth), dtype), dtype)
    cache = (blocks, block, kv_heads, depth)
    k = trial.give("k_cache", draw.ordinary(rng, cache, dtype), dtype)
    v = trial.give("v_cache", draw.ordinary(rng, cache, dtype), dtype)
    block_table = trial.give("block_table", table, Dtype.I32)
    query_start = trial.give("query_start", starts, Dtype.I32)
    kv_len = trial.give("kv_len", lengths, Dtype.I32)
    out = trial.take("out", (tokens + padding, heads, depth), dtype)
    trial.call(
        max_query=max(new), q=q, k_cache=k, v_cache=v, block_table=block_table,
        query_start=query_start, kv_len=kv_len, out=out, scale=options.scale,
        window_left=options.window_left, logit_softcap=options.softcap,
    )  # fmt: skip
    exact = paged(q.values, k.values, v.values, table, starts, lengths, dtype, options)
    owned = ~np.isnan(exact.value)
    trial.expect(out, exact, flush=True, known=owned)
    untouched = trial.result(out)[tokens:].tobytes() == out.values[tokens:].tobytes()
    if not untouched:
        trial.fail("wrote to tokens beyond query_start[B]")
