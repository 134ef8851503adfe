"""Timing that a cached, skipped or unfinished result cannot shorten unseen.

After MLPerf's audits (accuracy sampled inside the performance run, no result cached):

- Inputs are slices, at random places, of numbers drawn from the operating system for this run; they
  are replaced before every round, at the same addresses. Outputs are overwritten with NaN.
- A round calls every piece of work once, in random order, so that no call repeats another.
- The clock stops when bytes of the last result have arrived in host memory, not when a
  synchronisation says that it has passed; those bytes must be the result's.
- After every round the results of the last piece and of one drawn at random are held against the
  exact ones, within the bound that level 2 grants.
"""

from __future__ import annotations

import ctypes
import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from chipset._interface import CopyKind, Dtype, Status
from chipset.driver import DeviceArray, Driver
from chipset_conformance.case import CaseFailure, Unsupported
from chipset_conformance.context import Context
from chipset_conformance.numerics import HOST, Array, Bounded, judge, name_of, round_to

ROUNDS = 5
ROUND_S = 0.03  # what a round of calls aims at
MOST_PIECES = 32
MEMORY_SHARE = 16  # a case takes at most one part in so many of the free memory
TAIL_BYTES = 64
POISON = 0xFF  # a byte of NaN in every float format


class Work(Protocol):
    """A call with operands of its own."""

    output: DeviceArray

    def refresh(self) -> None:
        """Gives the inputs new values and poisons the output."""

    def call(self) -> None:
        """Enqueues the call."""

    def check(self) -> None:
        """Raises CaseFailure unless a random sample of the result is right for these inputs."""


class Numbers:
    """Random numbers of one dtype, drawn anew in every run; inputs are slices of them."""

    def __init__(self, context: Context, dtype: Dtype, count: int) -> None:
        self.seed = secrets.randbits(63)
        self.rng = np.random.default_rng(self.seed)
        self.context = context
        self.dtype = dtype
        values = self.rng.uniform(-1, 1, count + 4096)
        self.values: Array = round_to(values, dtype)
        context.note(f"{name_of(dtype)} inputs of this run: seed {self.seed}")

    def slice(self, shape: tuple[int, ...]) -> Array:
        """Values that no earlier slice of this shape is likely to have begun with."""
        count = int(np.prod(shape))
        start = int(self.rng.integers(0, len(self.values) - count))
        return self.values[start : start + count].reshape(shape)


class Prepared:
    """A call with its arguments filled in, so that a loop measures the chip and not Python."""

    def __init__(self, chip: Driver, function: str, **fields: Any) -> None:
        self._arguments = chip.arguments(function, **fields)
        self._address = ctypes.addressof(self._arguments)
        self._stream = chip.stream
        self._function = chip.function(function)
        self._chip = chip
        self._name = function

    def __call__(self) -> None:
        if self._function(self._stream, self._address) != Status.OK:
            self._chip.invoke(self._name, self._stream, self._address)  # raises with the text


def upload(chip: Driver, array: DeviceArray, values: Array) -> None:
    """Writes host values to a contiguous device array and waits."""
    bits = np.ascontiguousarray(values).view(np.uint8)
    kind = int(CopyKind.HOST_TO_DEVICE)
    chip.invoke("mem_copy", chip.stream, array.address, bits.ctypes.data, bits.nbytes, kind)
    chip.synchronize()


def poison(chip: Driver, array: DeviceArray) -> None:
    chip.invoke("mem_fill", chip.stream, array.address, POISON, array.memory.bytes)


def download(chip: Driver, array: DeviceArray, start: int, count: int) -> Array:
    """Elements of a contiguous device array, as the host has them."""
    dtype = HOST[array.dtype]
    raw = np.empty(count * dtype.itemsize, np.uint8)
    chip.copy_to_host(raw, array.address + start * dtype.itemsize)
    return raw.view(dtype)


def seconds_per_call(context: Context, make: Callable[[], Work], bytes_each: int) -> float:
    """Median over the rounds of a round's time divided by its calls.

    Args:
        make: a piece of work with memory of its own.
        bytes_each: of that memory.

    Raises:
        CaseFailure: a sampled result is wrong, or the chip said to be done before it was.
        Unsupported: the device has too little memory.
    """
    most = min(MOST_PIECES, pieces_that_fit(context, bytes_each))
    if most < 2:
        raise Unsupported(f"two pieces of {bytes_each} bytes in a part of the free memory")
    works = [make(), make()]
    rough = _round(context, works)  # warms up, too
    wanted = int(ROUND_S / max(rough, 1e-9)) + 1
    works += [make() for _ in range(min(most, wanted) - 2)]
    return statistics.median(_round(context, works) for _ in range(ROUNDS))


def pieces_that_fit(context: Context, bytes_each: int) -> int:
    """How often ``bytes_each`` goes into the share of the free memory that a case may take."""
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    chip = context.chip
    chip.invoke("device_memory", chip.local, ctypes.addressof(free), ctypes.addressof(total))
    return int(free.value // MEMORY_SHARE // max(1, bytes_each))


def _round(context: Context, works: list[Any]) -> float:
    """Seconds for each call of a round over all pieces."""
    chip = context.chip
    for work in works:
        work.refresh()
    order = [works[i] for i in np.random.default_rng().permutation(len(works))]
    last = order[-1].output
    size = min(TAIL_BYTES, last.memory.bytes)
    at = last.memory.address + last.memory.bytes - size
    tail = np.full(size, POISON, np.uint8)
    chip.synchronize()
    started = time.perf_counter()
    for work in order:
        work.call()
    chip.copy_to_host(tail, at)
    seconds = time.perf_counter() - started
    after = np.empty(size, np.uint8)
    chip.invoke("device_sync", chip.local)
    chip.copy_to_host(after, at)
    if not np.array_equal(tail, after):
        raise CaseFailure(
            "the device said that a copy had passed before the calls ahead of it had: the last "
            f"bytes of the result were {tail.tobytes().hex()} when the clock stopped and are "
            f"{after.tobytes().hex()}"
        )
    for work in (order[-1], secrets.choice(works)):
        work.check()
    return seconds / len(works)


def expect_near(actual: Array, exact: Bounded, dtype: Dtype, what: str) -> None:
    """Fails unless a sampled result lies within its bound."""
    verdict = judge(actual, exact, dtype)
    if not verdict.wrong.any():
        return
    place = tuple(int(i) for i in np.argwhere(verdict.wrong)[0])
    raise CaseFailure(
        f"{what}, sampled inside the performance run: {int(verdict.wrong.sum())} of "
        f"{verdict.wrong.size} elements are wrong; element {list(place)} is {actual[place]!s}, not "
        f"{exact.value[place]!s} (accepted: {verdict.low[place]!s} to {verdict.high[place]!s}): a "
        "result that was cached, skipped, or computed less exactly than at level 2"
    )
