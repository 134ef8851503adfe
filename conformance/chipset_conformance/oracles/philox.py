"""The function random, bit by bit (RND-001): Philox4x32-10 of Salmon et al., SC11."""

from __future__ import annotations

import numpy as np

from chipset._interface import Dtype, RandomKind
from chipset_conformance.numerics import HOST, Array, Bounded, evaluated_in, is_float

_MULTIPLY = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def blocks(seed: int, counters: Array) -> Array:
    """Four words for each 64-bit counter: uint32 [..., 4]. The counter's high half is 0."""
    low, high = counters & _LOW, counters >> _SHIFT
    c = [low, high, np.zeros_like(low), np.zeros_like(low)]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        first, second = c[0] * np.uint64(_MULTIPLY[0]), c[2] * np.uint64(_MULTIPLY[1])
        c = [
            (second >> _SHIFT) ^ c[1] ^ key[0], second & _LOW,
            (first >> _SHIFT) ^ c[3] ^ key[1], first & _LOW,
        ]  # fmt: skip
        key = [(k + np.uint64(w)) & _LOW for k, w in zip(key, _WEYL, strict=True)]
    return np.stack(c, -1).astype(np.uint32)


def two_words(kind: RandomKind, dtype: Dtype) -> bool:
    """Whether an element takes two words."""
    return (
        kind == RandomKind.RANDINT
        or (kind == RandomKind.BITS and dtype == Dtype.I64)
        or (kind == RandomKind.UNIFORM and dtype == Dtype.F64)
    )


def words(count: int, seed: int, offset: int, double: bool) -> Array:
    """The words of elements 0 to count - 1: uint32 [count] or, two each, uint64 [count]."""
    per_block = 2 if double else 4
    needed = -(-count // per_block)
    with np.errstate(over="ignore"):
        counters = np.uint64(offset % 2**64) + np.arange(needed, dtype=np.uint64)
        four = blocks(seed, counters)
    if not double:
        return four.reshape(-1)[:count]
    pairs = four.reshape(-1, 2).astype(np.uint64)
    return (pairs[:, 0] | (pairs[:, 1] << _SHIFT))[:count]


def draw(
    kind: RandomKind,
    dtype: Dtype,
    count: int,
    seed: int,
    offset: int,
    params: tuple[float, float],
    p: Array | None = None,
) -> Array | Bounded:
    """Element by element in row-major order: exact bits, or floats with their bound."""
    double = two_words(kind, dtype)
    source = words(count, seed, offset, double)
    first, second = params
    if kind == RandomKind.BITS:
        mask = int(first)
        masked = source & source.dtype.type(mask) if mask else source
        return masked.astype(np.int64).astype(HOST[dtype])
    if kind == RandomKind.RANDINT:
        spread = np.uint64(int(second) - int(first))
        return ((source % spread).astype(np.int64) + int(first)).astype(HOST[dtype])
    evaluated = evaluated_in(dtype) if is_float(dtype) else Dtype.F32
    if kind == RandomKind.UNIFORM:
        fraction = (
            (source >> np.uint64(11)).astype(np.float64) * 2.0**-53
            if double
            else (source >> np.uint32(8)).astype(np.float64) * 2.0**-24
        )
        width = second - first
        scaled = Bounded(fraction, evaluated)
        return scaled if (first, width) == (0, 1) else scaled * width + first
    if kind == RandomKind.BERNOULLI:
        uniform = (source >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
        chance = np.float32(first) if p is None else p.astype(np.float32)
        return np.asarray(uniform < chance, np.uint8)
    whole = source.astype(np.float64)
    positive = Bounded(whole + 1, evaluated) * 1.0  # one rounding to the dtype
    positive = positive * 2.0**-32
    if kind == RandomKind.EXPONENTIAL:
        return (-positive.apply("log", np.log) / first).reordered()
    padded = words(-(-count // 2) * 2, seed, offset, False).astype(np.float64)
    radius = Bounded(padded[0::2] + 1, evaluated) * 1.0 * 2.0**-32
    radius = (-2.0 * radius.apply("log", np.log)).apply("sqrt", lambda x: np.sqrt(np.maximum(x, 0)))
    angle = Bounded(padded[1::2], evaluated) * 1.0 * 2.0**-32 * (2 * np.pi)
    sides = [radius * angle.apply(n, f) for n, f in (("cos", np.cos), ("sin", np.sin))]
    value = np.stack([s.value for s in sides], -1).reshape(-1)[:count]
    error = np.stack([s.error for s in sides], -1).reshape(-1)[:count]
    normal = Bounded(value, evaluated, error)
    return (normal * second + first).reordered()
