"""Performs: how fast memory is moved, and how fast calls are launched."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from chipset._interface import Dtype, PointwiseOp
from chipset.driver import DeviceArray
from chipset_conformance import roofline
from chipset_conformance.case import MANDATORY, Case, CaseFailure, cases
from chipset_conformance.context import Context
from chipset_conformance.speed import Prepared, upload

LONG_S = 300.0
LAUNCHES = (1, 8, 64, 512, 4096)  # calls before a synchronisation
LAUNCH_ROUNDS = 7


@cases(level="performs")
def memory_cases() -> Iterator[Case]:
    for name, kind in (("copy", roofline.Copy), ("triad", roofline.Triad)):
        function = "mem_copy" if name == "copy" else "pointwise"
        yield Case(
            id=f"performs/bandwidth/{name}",
            functions=(function,),
            tags=frozenset({MANDATORY}),
            dtype="f32",
            run=partial(check_bandwidth, name=name, kind=kind),
            timeout_s=LONG_S,
        )
    yield Case(
        id="performs/launch",
        functions=("pointwise",),
        tags=frozenset({MANDATORY}),
        dtype="i32",
        run=check_launch,
        timeout_s=LONG_S,
    )


def check_bandwidth(
    context: Context, name: str, kind: type[roofline.Copy] | type[roofline.Triad]
) -> None:
    """Bytes read and written in a second, by the size of the arrays."""
    line = roofline.of(context)
    moves = 2 if name == "copy" else 3
    points = [(moves * n, moves * n / s) for n, s in roofline.sweep_memory(context, kind)]
    line.bandwidth += points  # the best that the chip shows is its limit
    for size, rate in points:
        context.measure(
            f"{name} on the device",
            rate / 1e9,
            "GB/s",
            x=size,
            x_label="bytes moved",
            limit=line.bytes_per_second(size) / 1e9,
            limit_is="best of copy and triad from this size on",
        )
    size, rate = points[-1]
    context.measure(
        f"{name}, {size >> 20} MiB moved",
        rate / 1e9,
        "GB/s",
        limit=line.bytes_per_second(size) / 1e9,
        limit_is="best of copy and triad",
    )


def check_launch(context: Context) -> None:
    """Time of a call that has almost nothing to do.

    Each call adds one to the same element in place, so that one left out shows in the sum.
    """
    chip = context.chip
    value = chip.empty((1,), Dtype.I32)
    call = Prepared(
        chip, "pointwise", op=PointwiseOp.ADD, compute_dtype=Dtype.I32, num_inputs=2,
        output=value, input=[value, None], immediate=[0, 1], param=[1],
    )  # fmt: skip
    rates = []
    for count in LAUNCHES:
        seconds = statistics.median(
            _launch(context, call, value, count) for _ in range(LAUNCH_ROUNDS)
        )
        rates.append((count, seconds))
    floor = statistics.median(_nothing(context, max(LAUNCHES)) for _ in range(LAUNCH_ROUNDS))
    for count, seconds in rates:
        context.measure(
            "launches of one-element calls", count / seconds / 1e3, "thousand/s", x=count,
            x_label="calls before a synchronisation", limit=1e-3 / floor,
            limit_is="calls of device_count, which launches nothing",
        )  # fmt: skip
    context.measure("one call and its synchronisation", rates[0][1] * 1e6, "µs")
    count, seconds = rates[-1]
    context.measure(f"one of {count} calls", seconds / count * 1e6, "µs")


def _launch(context: Context, call: Prepared, value: DeviceArray, count: int) -> float:
    """Seconds for so many calls until the result is on the host; it must be the right one."""
    start = int(np.random.default_rng().integers(-(1 << 30), 1 << 30))
    upload(context.chip, value, np.array([start], np.int32))
    result = np.zeros(4, np.uint8)
    started = time.perf_counter()
    for _ in range(count):
        call()
    context.chip.copy_to_host(result, value.address)
    seconds = time.perf_counter() - started
    got = int(result.view(np.int32)[0])
    if got != start + count:
        raise CaseFailure(
            f"{count} calls that add 1 each brought {start} to {got}, not {start + count}: "
            f"{start + count - got} of them did not run"
        )
    return seconds


def _nothing(context: Context, count: int) -> float:
    """Seconds of a call through the same route that the device need not hear of."""
    from ctypes import addressof, c_int32

    number = c_int32()
    function, address = context.chip.function("device_count"), addressof(number)
    started = time.perf_counter()
    for _ in range(count):
        function(address)
    return (time.perf_counter() - started) / count
