"""Boots: devices describe themselves and answer wrong indices."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from chipset._interface import Status
from chipset_conformance.case import Case, cases
from chipset_conformance.context import Context


def count_is_stable(ctx: Context) -> None:
    first = ctypes.c_int32(-1)
    for _ in range(3):
        count = ctypes.c_int32(-1)
        ctx.expect(Status.OK, "device_count", ctypes.addressof(count))
        ctx.check(count.value >= 1, f"device_count gave {count.value}, but a device is launched")
        ctx.check(
            first.value in (-1, count.value), f"device_count gave {first.value}, then {count.value}"
        )
        first = count


@cases(level=0)
def device_cases() -> Iterator[Case]:
    yield Case("device/count-is-stable", ("device_count",), count_is_stable)
