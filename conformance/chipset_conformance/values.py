"""What goes into the tensors: one class of values at a time, so that a failure names its class."""

from __future__ import annotations

import itertools

import numpy as np

from chipset._interface import Dtype
from chipset_conformance.numerics import FORMATS, HOST, Array, is_float, round_to

BYTE_DTYPES = (Dtype.BOOL, Dtype.U8, Dtype.OPAQUE8)


def ordinary(rng: np.random.Generator, shape: tuple[int, ...], dtype: Dtype) -> Array:
    """Numbers of everyday size: floats of both signs around 1, small integers."""
    if is_float(dtype):
        return round_to(rng.standard_normal(shape), dtype)
    if dtype == Dtype.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    low = 0 if HOST[dtype].kind == "u" else -12
    return rng.integers(low, 13, shape).astype(HOST[dtype])


def bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: Dtype) -> Array:
    """Any bits: what is only moved must arrive as it is, NaN payloads included."""
    host = HOST[dtype]
    if dtype == Dtype.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    count = int(np.prod(shape)) * host.itemsize
    return np.frombuffer(rng.bytes(count), host).reshape(shape)


def spread(rng: np.random.Generator, count: int, dtype: Dtype) -> Array:
    """Normal floats over the whole range of exponents, or integers over the whole range."""
    if not is_float(dtype):
        if dtype == Dtype.BOOL:
            return rng.integers(0, 2, count).astype(np.bool_)
        info = np.iinfo(HOST[dtype])
        return rng.integers(info.min, info.max, count, dtype=HOST[dtype], endpoint=True)
    form = FORMATS[dtype]
    top = int(np.frexp(form.largest)[1])
    exponent = rng.integers(form.emin, top, count)
    mantissa = rng.uniform(1, 2 - 4 * form.unit, count) * rng.choice([-1, 1], count)
    return round_to(np.ldexp(mantissa.astype(np.longdouble), exponent), dtype)


def special(dtype: Dtype) -> Array:
    """The corners of a dtype: zeros, ones, extremes, infinities, NaN; never a subnormal."""
    if dtype == Dtype.BOOL:
        return np.array([False, True])
    if not is_float(dtype):
        info = np.iinfo(HOST[dtype])
        corners = {0, 1, 2, 3, info.max, info.max - 1, info.min, info.min + 1}
        if info.min < 0:
            corners |= {-1, -2}
        return np.array(sorted(corners), HOST[dtype])
    form = FORMATS[dtype]
    numbers = [0.0, 1.0, 0.5, 2.0, 3.0, 1.5, 10.0, form.smallest_normal, form.largest]
    numbers += [1 + 2 * form.unit, 1 - form.unit, np.pi]
    signed = [s * x for x in numbers for s in (1.0, -1.0)]
    if form.infinities:
        signed += [np.inf, -np.inf]
    return round_to(np.array([*signed, np.nan], np.longdouble), dtype)


def subnormal(rng: np.random.Generator, count: int, dtype: Dtype) -> Array:
    """Numbers below the smallest normal one, the least of them first."""
    form = FORMATS[dtype]
    steps = 1 << (form.precision - 1)
    whole = np.concatenate([[1, 2, 3, steps - 1], rng.integers(1, steps, count - 4)])
    signs = rng.choice([-1.0, 1.0], count)
    return round_to((whole * signs).astype(np.longdouble) * form.smallest, dtype)


def every(dtype: Dtype) -> Array:
    """All numbers of a format of 8 or 16 bits."""
    host = HOST[dtype]
    unsigned = np.dtype(f"u{host.itemsize}")
    return np.arange(1 << (8 * host.itemsize), dtype=np.uint32).astype(unsigned).view(host)


def pairs(*columns: Array) -> list[Array]:
    """Every combination of the values of several operands."""
    combined = list(itertools.product(*(range(len(c)) for c in columns)))
    index = np.array(combined)
    return [column[index[:, k]] for k, column in enumerate(columns)]
