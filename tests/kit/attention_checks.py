"""Attention of the kit against float64, as functions that a test or a child process runs.

``python attention_checks.py`` runs them all on ``opencl:0`` and prints what it compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import chipset
from chipset._interface import Dtype

Array = Any


def reference(q: Array, k: Array, v: Array, sees: Array, added: Array, cap: float, scale: float):
    """out, lse and the function that gives dq, dk, dv for dout; every array float64."""
    group = q.shape[1] // k.shape[1]
    keys, values = np.repeat(k, group, 1), np.repeat(v, group, 1)
    raw = scale * q @ keys.swapaxes(-1, -2)
    bent = cap * np.tanh(raw / cap) if cap else raw
    scores = np.where(sees, bent + added, -np.inf)
    most = scores.max(-1, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(most), most, 0.0)
    weights = np.exp(scores - shift)
    total = weights.sum(-1, keepdims=True)
    p = weights / np.where(total > 0, total, 1.0)
    with np.errstate(divide="ignore"):
        lse = (shift + np.log(total))[..., 0]

    def backward(dout: Array) -> tuple[Array, Array, Array]:
        dp = dout @ values.swapaxes(-1, -2)
        ds = p * (dp - (dout * (p @ values)).sum(-1, keepdims=True)) * scale
        if cap:
            ds = ds * (1 - np.tanh(raw / cap) ** 2)
        shape = (q.shape[0], k.shape[1], group)
        dk = (ds.swapaxes(-1, -2) @ q).reshape(*shape, *k.shape[2:]).sum(2)
        dv = (p.swapaxes(-1, -2) @ dout).reshape(*shape, *v.shape[2:]).sum(2)
        return ds @ keys, dk, dv

    return p @ values, lse, backward


def visible(queries: int, keys: int, causal: bool, offset: int, left: int, right: int) -> Array:
    i, j = np.arange(queries)[:, None] + offset, np.arange(keys)
    sees = np.ones((queries, keys), bool)
    if causal:
        sees &= j <= i
    if left >= 0:
        sees &= j >= i - left
    if right >= 0:
        sees &= j <= i + right
    return sees


# batch, heads, key heads, queries, keys, d, d_v, causal, offset, left, right, cap
PROBLEMS = {
    "causal": (2, 4, 2, 70, 70, 64, 64, True, 0, -1, -1, 0.0),
    "bottom right": (1, 4, 2, 5, 70, 64, 64, True, 65, -1, -1, 0.0),
    "decode": (1, 6, 2, 1, 700, 64, 64, True, 699, -1, -1, 0.0),
    "window": (1, 2, 1, 90, 90, 20, 36, True, 0, 13, -1, 0.0),
    "both sides": (1, 2, 2, 40, 130, 20, 36, False, 30, 9, 4, 0.0),
    "capped": (1, 2, 2, 33, 40, 20, 36, False, 0, -1, -1, 1.5),
    "nothing to see": (1, 2, 1, 9, 4, 20, 36, True, -5, -1, -1, 0.0),
}


def check(chip: Any, name: str, kind: str = "", dtype: Dtype = Dtype.F32) -> float:
    """Runs one problem forward and backward; the largest error, relative to the values' size."""
    batch, heads, kv, queries, keys, d, d_v, causal, offset, left, right, cap = PROBLEMS[name]
    rng = np.random.default_rng(len(name))
    number = np.float64 if dtype == Dtype.F64 else np.float16 if dtype == Dtype.F16 else np.float32
    q = rng.standard_normal((batch, heads, queries, d)).astype(number)
    k = rng.standard_normal((batch, kv, keys, d)).astype(number)
    v = rng.standard_normal((batch, kv, keys, d_v)).astype(number)
    full = (batch, heads, queries, keys)
    sees = np.broadcast_to(visible(queries, keys, causal, offset, left, right), full).copy()
    added = np.zeros(full)
    fields: dict[str, Any] = {}
    if kind == "bool":
        mask = rng.integers(0, 4, full) != 0
        mask[..., 3, :] = False
        sees &= mask
        fields["mask"] = chip.array(mask)
    elif kind == "added":
        added = rng.standard_normal(full).astype(number).astype(np.float64)
        fields["mask"] = chip.array(added.astype(number))
    elif kind.startswith("columns"):
        lines = heads if kind == "columns per head" else kv if kind == "columns per group" else 1
        start = rng.integers(0, queries + 1, (batch, lines, keys))
        end = np.minimum(queries, start + rng.integers(0, queries, start.shape))
        i = np.arange(queries)[:, None]
        hidden = (i >= start[:, :, None]) & (i < end[:, :, None])
        sees &= ~np.repeat(hidden, heads // lines, 1)
        # Not causal, two columns mean two open intervals; four say the same as the causal two.
        none = np.zeros_like(start)
        both = [start, end] if causal else [start, end, none, none]
        fields["startend_row_indices"] = chip.array(np.stack(both, -1).astype(np.int32))
    fields |= {
        "flags": int(causal), "scale": d**-0.5, "logit_softcap": cap, "causal_offset": offset,
        "window_left": left, "window_right": right,
        "q": chip.array(q), "k": chip.array(k), "v": chip.array(v),
    }  # fmt: skip
    wide = [x.astype(np.float64) for x in (q, k, v)]
    out, lse, backward = reference(*wide, sees, added, cap, d**-0.5)
    saved = np.float64 if dtype == Dtype.F64 else np.float32
    got_out = chip.array(np.full(out.shape, np.nan, number))
    got_lse = chip.array(np.full(lse.shape, np.nan, saved))
    chip.call("attention", out=got_out, lse=got_lse, **fields)
    pairs = [(got_out.numpy(), out), (got_lse.numpy(), lse)]

    dout = rng.standard_normal(out.shape).astype(number)
    gradients = {n: chip.array(np.full_like(x, np.nan)) for n, x in zip("qkv", (q, k, v))}
    for _ in range(2):  # the same bits twice
        before = [g.numpy() for g in gradients.values()]
        chip.call(
            "attention_backward", out=got_out, lse=got_lse, dout=chip.array(dout),
            **{f"d{n}": g for n, g in gradients.items()}, **fields,
        )  # fmt: skip
    after = [g.numpy() for g in gradients.values()]
    assert all(x.tobytes() == y.tobytes() for x, y in zip(before, after, strict=True)), name
    pairs += list(zip(after, backward(dout.astype(np.float64)), strict=True))
    worst = 0.0
    for got, wanted in pairs:
        same = got.astype(np.float64) == wanted  # infinities too
        size = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
        error = np.where(same, 0.0, np.abs(got.astype(np.float64) - np.where(same, 0, wanted)))
        assert np.all(np.isfinite(error)), f"{name} {kind}: NaN"
        worst = max(worst, float(error.max(initial=0.0)) / float(size))
    return worst


def check_paged(chip: Any, sequences: list[tuple[int, int]], window: int = -1) -> float:
    """New tokens and lengths of several sequences, over blocks in random order."""
    rng = np.random.default_rng(len(sequences))
    heads, kv, d, block = 6, 2, 64, 16
    starts = np.cumsum([0, *(n for n, _ in sequences)]).astype(np.int32)
    lengths = np.array([n for _, n in sequences], np.int32)
    needed = [-(-int(n) // block) for n in lengths]
    order = rng.permutation(sum(needed) + 2).astype(np.int32)
    table = np.full((len(sequences), max(needed) + 1), 10**6, np.int32)  # what is not to be read
    for s, count in enumerate(needed):
        table[s, :count], order = order[:count], order[count:]
    cache = (sum(needed) + 2, block, kv, d)
    q = rng.standard_normal((starts[-1] + 2, heads, d)).astype(np.float32)
    k, v = (rng.standard_normal(cache).astype(np.float32) for _ in range(2))
    out = chip.array(np.full(q.shape, 7.0, np.float32))
    chip.call(
        "attention_paged", max_query=max(n for n, _ in sequences), scale=d**-0.5,
        window_left=window, logit_softcap=0.0, q=chip.array(q), k_cache=chip.array(k),
        v_cache=chip.array(v), block_table=chip.array(table), query_start=chip.array(starts),
        kv_len=chip.array(lengths), out=out,
    )  # fmt: skip
    got, worst = out.numpy(), 0.0
    assert np.all(got[starts[-1] :] == 7), "tokens beyond query_start[B] were written"
    for s, (new, length) in enumerate(sequences):
        if new == 0:
            continue
        rows = table[s, : needed[s]]
        keys, values = (
            x[rows].reshape(-1, kv, d)[:length].swapaxes(0, 1)[None].astype(np.float64)
            for x in (k, v)
        )
        queries = q[starts[s] : starts[s + 1]].swapaxes(0, 1)[None].astype(np.float64)
        sees = visible(new, length, True, length - new, window, -1)
        wanted = reference(queries, keys, values, sees, np.zeros(()), 0.0, d**-0.5)[0]
        error = np.abs(got[starts[s] : starts[s + 1]].swapaxes(0, 1) - wanted[0])
        worst = max(worst, float(error.max()))
    return worst


PAGED = {
    "decode": [(1, 700), (1, 16), (1, 1), (1, 33)],
    "mixed": [(20, 64), (0, 9), (7, 7), (1, 15), (70, 200)],
}
BOUND = {Dtype.F32: 2e-6, Dtype.F64: 1e-14, Dtype.F16: 2e-3}
KINDS = [("causal", "bool"), ("causal", "added"), ("causal", "columns"),
         ("causal", "columns per head"), ("both sides", "columns per group")]  # fmt: skip


if __name__ == "__main__":
    device = chipset.select("opencl:0").driver
    for problem, which in [*((p, "") for p in PROBLEMS), *KINDS]:
        worst = check(device, problem, which)
        assert worst <= BOUND[Dtype.F32], (problem, which, worst)
        print(problem, which, worst)
    for problem, lengths in PAGED.items():
        worst = check_paged(device, lengths)
        assert worst <= BOUND[Dtype.F32], (problem, worst)
        print("paged", problem, worst)
