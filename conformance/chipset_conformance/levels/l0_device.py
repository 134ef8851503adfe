"""Boots: devices describe themselves, and wrong indices are refused."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial

from chipset._interface import DeviceInfo, Dtype, Status
from chipset_conformance.case import NEEDS_TWO_DEVICES, OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.probes import Buffer, in_threads

_FIELDS = {name: getattr(DeviceInfo, name) for name, *_ in DeviceInfo._fields_}
_SIZE = ctypes.sizeof(DeviceInfo)
_GUARD = 0xA5
_TEXTS = ("name", "vendor", "architecture", "driver")
# What level 2 cannot be judged without.
_BASIC = (Dtype.BOOL, Dtype.I32, Dtype.I64, Dtype.F32)


@cases(level=0)
def device_cases() -> Iterator[Case]:
    yield Case("device/count-is-stable", ("device_count",), count_is_stable)
    yield Case("device/info-makes-sense", ("device_info",), info_makes_sense)
    for size, name in ((8, "8-bytes"), (_SIZE - 8, "8-bytes-less"), (_SIZE + 64, "64-more")):
        run = partial(info_keeps_within, size=size)
        yield Case(f"device/info-of-{name}", ("device_info",), run, rule="VER-002")
    yield Case("device/memory-makes-sense", ("device_memory",), memory_makes_sense)
    yield Case("device/sync-of-an-idle-device", ("device_sync",), idle_sync)
    functions = ("device_info", "device_memory", "device_sync", "mem_alloc", "stream_create")
    for function in (*functions, "event_create"):
        run = partial(wrong_index, function=function)
        yield Case(f"device/wrong-index/{function}", (function,), run, rule="ERR-001")
    yield Case(
        "device/fresh-thread-names-its-device",
        ("mem_alloc", "pointwise", "stream_sync"),
        fresh_thread,
        rule="STA-001",
    )
    yield Case(
        "device/two-devices-in-one-thread",
        ("mem_alloc", "pointwise", "stream_sync"),
        two_devices,
        tags=frozenset({OPTIONAL, NEEDS_TWO_DEVICES}),
        rule="STA-001",
    )


def device_count(ctx: Context) -> int:
    count = ctypes.c_int32(-1)
    ctx.expect(Status.OK, "device_count", ctypes.addressof(count))
    return count.value


def count_is_stable(ctx: Context) -> None:
    counts = [device_count(ctx) for _ in range(3)]
    ctx.check(counts[0] >= 1, f"device_count gave {counts[0]}, but a device is launched")
    ctx.check(len(set(counts)) == 1, f"device_count gave {counts} in one process")


def info_makes_sense(ctx: Context) -> None:
    for device in range(device_count(ctx)):
        info, again = (DeviceInfo(struct_size=_SIZE) for _ in range(2))
        ctx.expect(Status.OK, "device_info", device, ctypes.addressof(info))
        ctx.expect(Status.OK, "device_info", device, ctypes.addressof(again))
        ctx.check(bytes(info) == bytes(again), f"device {device} describes itself in two ways")
        ctx.check(bool(info.name), f"device {device} has no name")
        for field in _TEXTS:
            _FIELDS[field].__get__(info).decode()  # UTF-8, or the case fails
            raw = bytes(info)[_FIELDS[field].offset :][: _FIELDS[field].size]
            ctx.check(b"\0" in raw, f"device {device}: {field} has no terminating zero")
        ctx.check(info.total_memory > 0, f"device {device}: total_memory is 0")
        ctx.check(
            0 < info.max_allocation <= info.total_memory,
            f"device {device}: max_allocation {info.max_allocation} is not within 1.."
            f"total_memory {info.total_memory}",
        )
        align = info.alignment
        ctx.check(
            align > 0 and align & (align - 1) == 0,
            f"device {device}: alignment {align} is not a power of two",
        )
        missing = [d.name for d in _BASIC if not info.dtypes & (1 << d)]
        ctx.check(not missing, f"device {device}: dtypes lacks {', '.join(missing)}")


def info_keeps_within(ctx: Context, size: int) -> None:
    """Callers with a shorter or longer struct: only known fields inside it are written."""
    whole = DeviceInfo(struct_size=_SIZE)
    ctx.expect(Status.OK, "device_info", ctx.chip.local, ctypes.addressof(whole))
    room = _SIZE + 128
    buffer = (ctypes.c_uint8 * room)(*[_GUARD] * room)
    ctypes.c_uint32.from_buffer(buffer).value = size
    ctx.expect(Status.OK, "device_info", ctx.chip.local, ctypes.addressof(buffer))
    got, end = bytes(buffer), min(size, _SIZE)
    touched = [i for i in range(end, room) if got[i] != _GUARD]
    ctx.check(
        not touched,
        f"device_info with struct_size {size} wrote byte {touched[0] if touched else ''} (VER-002)",
    )
    ctx.check(
        int.from_bytes(got[:4], "little") == size, "device_info changed the caller's struct_size"
    )
    for name, field in _FIELDS.items():
        inside = field.offset + field.size <= end
        if name != "struct_size" and inside:
            where = slice(field.offset, field.offset + field.size)
            same = got[where].split(b"\0")[0] == bytes(whole)[where].split(b"\0")[0]
            if name not in _TEXTS:
                same = got[where] == bytes(whole)[where]
            ctx.check(same, f"device_info with struct_size {size} did not fill {name}")


def memory_makes_sense(ctx: Context) -> None:
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    outs = (ctypes.addressof(free), ctypes.addressof(total))
    for device in range(device_count(ctx)):
        free.value = total.value = 0
        ctx.expect(Status.OK, "device_memory", device, *outs)
        ctx.check(total.value > 0, f"device {device}: total is 0")
        ctx.check(
            free.value <= total.value,
            f"device {device}: {free.value} bytes free of {total.value}",
        )


def idle_sync(ctx: Context) -> None:
    for device in range(device_count(ctx)):
        ctx.expect(Status.OK, "device_sync", device)
        ctx.expect(Status.OK, "device_sync", device)


def wrong_index(ctx: Context, function: str) -> None:
    """Refused with a text; the out parameters are as they were, or empty."""
    for device in (-1, device_count(ctx), 2**31 - 1):
        out = ctypes.c_uint64(0)
        address = ctypes.addressof(out)
        info = DeviceInfo(struct_size=_SIZE)
        arguments = {
            "device_info": (ctypes.addressof(info),),
            "device_memory": (address, address),
            "device_sync": (),
            "mem_alloc": (0, 64, address),
            "stream_create": (0, address),
            "event_create": (0, address),
        }[function]
        ctx.expect(Status.INVALID, function, device, *arguments)
        untouched = out.value == 0 and bytes(info)[4:] == bytes(_SIZE - 4)
        ctx.check(untouched, f"{function} refused device {device} but wrote its result (ERR-002)")


def fresh_thread(ctx: Context) -> None:
    """A thread that never selected anything makes, uses and frees what it needs."""

    def work() -> None:
        stream = ctx.stream()
        memory = Buffer(ctx, 1000)
        memory.fill(stream, 41)
        memory.add(stream, memory, 1)
        memory.expect(stream, 42, "in a fresh thread")

    in_threads([work])


def two_devices(ctx: Context) -> None:
    """Calls on two devices alternate in one fresh thread; each goes to the device it names."""
    other = Context(ctx.other_device(), ctx.case, ctx.seed)

    def work() -> None:
        sides = [(side, side.stream(), Buffer(side, 4096)) for side in (ctx, other)]
        for number, (_, stream, memory) in enumerate(sides):
            memory.fill(stream, 100 * number)
        for _ in range(5):
            for _, stream, memory in sides:
                memory.add(stream, memory, 1)
        for number, (_, stream, memory) in reversed(list(enumerate(sides))):
            memory.expect(stream, 100 * number + 5, f"device {number} of two in one thread")

    try:
        in_threads([work])
        other.close()
    finally:
        other.abandon()
