"""Boots: memory is aligned, separate, kept, copied and filled exactly, and refused politely."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np

from chipset._interface import CopyKind, MemoryKind, Status
from chipset_conformance.case import NEEDS_TWO_DEVICES, OPTIONAL, Case, Unsupported, cases
from chipset_conformance.context import Context
from chipset_conformance.probes import (
    Buffer,
    Delay,
    PinnedBuffer,
    copy,
    pattern,
    read_bytes,
    status_of,
    write_bytes,
)

_SIZES = (1, 2, 3, 7, 64, 255, 4095, 4096, 4097, 65537, 1 << 18)
_MARGIN = 64  # bytes before and behind a range that must stay as they are
_FAR = (1 << 32) + 4096  # an offset that 32 bits cannot hold
_KINDS = {"device": MemoryKind.DEVICE, "host": MemoryKind.HOST}


@cases(level=0)
def memory_cases() -> Iterator[Case]:
    alloc, free, move = ("mem_alloc",), ("mem_free",), ("mem_copy",)
    for name, kind in _KINDS.items():
        run = partial(aligned_and_separate, kind=kind)
        yield Case(f"memory/{name}/aligned-and-separate", alloc, run, rule="MEM-001")
        yield Case(f"memory/{name}/zero-bytes-give-null", alloc, partial(zero_bytes, kind=kind))
        run = partial(too_much, kind=kind)
        yield Case(f"memory/{name}/too-much-is-refused", alloc, run, rule="ERR-002")
    yield Case("memory/unknown-kind-is-refused", alloc, unknown_kind, rule="ERR-001")
    yield Case("memory/freed-memory-comes-back", free, comes_back, rule="MEM-002")
    yield Case(
        "memory/what-is-taken-is-not-free",
        ("device_memory", "mem_alloc", "mem_free"),
        shows_in_free,
    )
    yield Case("memory/free-null", free, free_null, rule="MEM-002")
    yield Case("memory/freeing-one-leaves-the-others", free, neighbours_survive, rule="MEM-001")
    yield Case("memory/host-memory-is-the-hosts", alloc, host_memory)
    yield Case(
        "memory/usable-from-every-stream", ("mem_alloc", "mem_copy"), every_stream, rule="MEM-001"
    )
    for pinned in (False, True):
        for direction in CopyKind:
            if direction == CopyKind.DEVICE_TO_DEVICE and pinned:
                continue
            name = direction.name.lower().replace("_", "-")
            host = "" if direction == CopyKind.DEVICE_TO_DEVICE else _host_name(pinned)
            run = partial(copies_exactly, direction=direction, pinned=pinned)
            yield Case(f"memory/copy/{name}{host}", move, run)
    yield Case("memory/copy/within-one-allocation", move, within_one)
    yield Case("memory/copy/unknown-kind-is-refused", move, unknown_copy, rule="ERR-002")
    yield Case("memory/copy/nothing", ("mem_copy", "mem_fill"), move_nothing, rule="SHP-001")
    yield Case("memory/fill/every-size-and-offset", ("mem_fill",), fills_exactly)
    yield Case(
        "memory/beyond-4-gib",
        ("mem_alloc", "mem_copy", "mem_fill"),
        beyond_32_bits,
        tags=frozenset({OPTIONAL}),
    )
    yield Case(
        "memory/copy-peer",
        ("mem_copy_peer",),
        copies_between_devices,
        tags=frozenset({OPTIONAL, NEEDS_TWO_DEVICES}),
    )


def _host_name(pinned: bool) -> str:
    return "/pinned" if pinned else "/pageable"


def aligned_and_separate(ctx: Context, kind: MemoryKind) -> None:
    """Many live allocations: aligned, no two overlap."""
    align = ctx.device.info.alignment
    made = [(ctx.memory(size, kind), size) for size in _SIZES for _ in range(3)]
    for address, size in made:
        ctx.check(address != 0, f"mem_alloc of {size} bytes answered OK with a NULL pointer")
        ctx.check(
            kind == MemoryKind.HOST or address % align == 0,
            f"mem_alloc of {size} bytes gave {address:#x}, not aligned to {align}",
        )
    made.sort()
    for (a, size), (b, _) in itertools.pairwise(made):
        ctx.check(a + size <= b, f"live allocations overlap: {a:#x} of {size} bytes and {b:#x}")


def zero_bytes(ctx: Context, kind: MemoryKind) -> None:
    out = ctypes.c_void_p(1)
    ctx.expect(Status.OK, "mem_alloc", ctx.chip.local, int(kind), 0, ctypes.addressof(out))
    ctx.check(out.value is None, f"mem_alloc of 0 bytes gave {out.value}, not NULL")


def too_much(ctx: Context, kind: MemoryKind) -> None:
    """OUT_OF_MEMORY with a text and a NULL pointer; the device goes on."""
    total = ctx.device.info.total_memory
    for size in (2**64 - 1, 2**63, max(2 * total, 1 << 47)):
        out = ctypes.c_void_p(1)  # what was there before must go
        ctx.expect(
            Status.OUT_OF_MEMORY,
            "mem_alloc",
            ctx.chip.local,
            int(kind),
            size,
            ctypes.addressof(out),
        )
        ctx.check(out.value is None, f"mem_alloc refused {size} bytes but gave a pointer")
    memory = Buffer(ctx, 100)
    memory.fill(ctx.chip.stream, 3)
    memory.expect(ctx.chip.stream, 3, "after OUT_OF_MEMORY")


def unknown_kind(ctx: Context) -> None:
    for kind in (-1, 99):
        out = ctypes.c_void_p(1)  # what was there before must go
        ctx.expect(Status.INVALID, "mem_alloc", ctx.chip.local, kind, 64, ctypes.addressof(out))
        ctx.check(out.value is None, f"mem_alloc refused kind {kind} but gave a pointer")


def free_bytes(ctx: Context) -> tuple[int, int]:
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    outs = (ctypes.addressof(free), ctypes.addressof(total))
    ctx.chip.invoke("device_memory", ctx.chip.local, *outs)
    return free.value, total.value


def comes_back(ctx: Context) -> None:
    """Twice the device's memory, a good part at a time, each given back before the next."""
    free, total = free_bytes(ctx)
    size = min(free // 4, ctx.device.info.max_allocation) & ~0xFFF
    for turn in range(2 * total // size + 2):
        out = ctypes.c_void_p()
        kind = int(MemoryKind.DEVICE)
        status = ctx.chip.status("mem_alloc", ctx.chip.local, kind, size, ctypes.addressof(out))
        ctx.check(
            status == Status.OK,
            f"allocation {turn} of {size} bytes, each freed before the next, answered "
            f"{Status(status).name}: what is freed does not come back",
        )
        ctx.expect(Status.OK, "mem_free", ctx.chip.local, out.value)


def shows_in_free(ctx: Context) -> None:
    """An allocation takes at least half of its size from what is free, and gives it back."""
    for _ in range(3):  # another process may take and give meanwhile
        before, _ = free_bytes(ctx)
        size = min(before // 8, ctx.device.info.max_allocation) & ~0xFFF
        address = ctx.out("mem_alloc", ctx.chip.local, int(MemoryKind.DEVICE), size)
        during, _ = free_bytes(ctx)
        ctx.chip.invoke("mem_free", ctx.chip.local, address)
        after, _ = free_bytes(ctx)
        if before - during >= size // 2 and after - during >= size // 2:
            return
    ctx.check(
        False,
        f"{before} bytes are free, {during} beside an allocation of {size}, {after} after it",
    )


def free_null(ctx: Context) -> None:
    for _ in range(2):
        ctx.expect(Status.OK, "mem_free", ctx.chip.local, None)


def neighbours_survive(ctx: Context) -> None:
    """Every second allocation is freed and made again; the others keep their bytes."""
    size, stream = 3000, ctx.chip.stream
    fixed, kept = [], []
    for number in range(24):
        if number % 2 == 0:
            memory = ctx.memory(size)
            written = pattern(ctx, size)
            write_bytes(ctx, stream, memory, written)
            kept.append((memory, written))
        else:
            fixed.append(ctx.out("mem_alloc", ctx.chip.local, int(MemoryKind.DEVICE), size))
    for address in fixed:
        ctx.expect(Status.OK, "mem_free", ctx.chip.local, address)
    for _ in range(len(fixed)):
        ctx.chip.invoke("mem_fill", stream, ctx.memory(size), 0, size)
    for address, written in kept:
        got = np.empty(size, np.uint8)
        read_bytes(ctx, stream, got, address)
        ctx.check(bool((got == written).all()), "freeing and allocating changed live memory")


def host_memory(ctx: Context) -> None:
    """Kind HOST: the host reads and writes it like any memory of its own."""
    memory = PinnedBuffer(ctx, 100_001)
    written = pattern(ctx, 100_001)
    memory.array[:] = written
    ctx.check(bool((memory.array == written).all()), "page-locked memory lost what was written")


def every_stream(ctx: Context) -> None:
    """Memory written in one stream is read in another after a synchronisation."""
    memory, written = ctx.memory(5000), pattern(ctx, 5000)
    streams = [ctx.stream() for _ in range(4)]
    for number, stream in enumerate(streams):
        now = np.roll(written, number)
        write_bytes(ctx, stream, memory, now)
        got = np.empty(5000, np.uint8)
        read_bytes(ctx, streams[number - 1], got, memory)
        ctx.check(bool((got == now).all()), f"stream {number - 1} does not see stream {number}")


def copies_exactly(ctx: Context, direction: CopyKind, pinned: bool) -> None:
    """Sizes and odd offsets on both sides: every byte of the range, and no other."""
    stream, room = ctx.chip.stream, _SIZES[-1] + 2 * _MARGIN + 8
    device, second = ctx.memory(room), ctx.memory(room)
    host = PinnedBuffer(ctx, room).array if pinned else np.empty(room, np.uint8)
    for size in _SIZES:
        for source_at, target_at in ((0, 0), (1, 0), (0, 3), (5, 6)):
            before, source = pattern(ctx, room), pattern(ctx, room)
            expected = before.copy()
            start = _MARGIN + target_at
            expected[start : start + size] = source[source_at : source_at + size]
            if direction == CopyKind.HOST_TO_DEVICE:
                write_bytes(ctx, stream, device, before)
                host[:] = source
                ends = (device + start, host.ctypes.data + source_at)
            elif direction == CopyKind.DEVICE_TO_HOST:
                write_bytes(ctx, stream, device, source)
                host[:] = before
                ends = (host.ctypes.data + start, device + source_at)
            else:
                write_bytes(ctx, stream, device, before)
                write_bytes(ctx, stream, second, source)
                ends = (device + start, second + source_at)
            copy(ctx, stream, *ends, size, direction)
            ctx.chip.synchronize()
            got = host.copy()
            if direction != CopyKind.DEVICE_TO_HOST:
                read_bytes(ctx, stream, got, device)
            wrong = np.flatnonzero(got != expected)
            ctx.check(
                wrong.size == 0,
                f"{direction.name} of {size} bytes from offset {source_at} to {start}: byte "
                f"{wrong[0] - start if wrong.size else 0} counted from the range's start is wrong",
            )


def within_one(ctx: Context) -> None:
    """Ranges of one allocation that touch but do not overlap."""
    memory, written, stream = ctx.memory(3000), pattern(ctx, 3000), ctx.chip.stream
    write_bytes(ctx, stream, memory, written)
    copy(ctx, stream, memory + 1000, memory, 1000, CopyKind.DEVICE_TO_DEVICE)
    copy(ctx, stream, memory + 2001, memory + 1002, 999, CopyKind.DEVICE_TO_DEVICE)
    written[1000:2000] = written[:1000]
    written[2001:3000] = written[1002:2001]
    got = np.empty(3000, np.uint8)
    read_bytes(ctx, stream, got, memory)
    ctx.check(bool((got == written).all()), "copies between neighbours in one allocation are wrong")


def unknown_copy(ctx: Context) -> None:
    a, b = Buffer(ctx, 64), Buffer(ctx, 64)
    a.fill(ctx.chip.stream, 1)
    b.fill(ctx.chip.stream, 2)
    ctx.expect(Status.INVALID, "mem_copy", ctx.chip.stream, a.address, b.address, 256, 17)
    a.expect(ctx.chip.stream, 1, "after a refused mem_copy (ERR-002)")


def move_nothing(ctx: Context) -> None:
    """Zero bytes: OK, and nothing is written."""
    a, b, stream = Buffer(ctx, 64), Buffer(ctx, 64), ctx.chip.stream
    a.fill(stream, 1)
    b.fill(stream, 2)
    host = np.full(64, 7, np.uint8).ctypes.data
    device_to_device = int(CopyKind.DEVICE_TO_DEVICE)
    ctx.expect(Status.OK, "mem_copy", stream, a.address, b.address, 0, device_to_device)
    ctx.expect(Status.OK, "mem_copy", stream, a.address, host, 0, int(CopyKind.HOST_TO_DEVICE))
    ctx.expect(Status.OK, "mem_fill", stream, a.address, 9, 0)
    a.expect(stream, 1, "after copies and fills of zero bytes")


def fills_exactly(ctx: Context) -> None:
    """The low 8 bits of the value, over the range and nothing else."""
    stream, room = ctx.chip.stream, _SIZES[-1] + 2 * _MARGIN
    memory = ctx.memory(room)
    for size in _SIZES:
        for offset, value in ((0, 0), (1, 0xAB), (2, 0x1FF), (7, -2)):
            expected = pattern(ctx, room)
            write_bytes(ctx, stream, memory, expected)
            start = _MARGIN - 8 + offset
            ctx.expect(Status.OK, "mem_fill", stream, memory + start, value, size)
            expected[start : start + size] = value & 0xFF
            got = np.empty(room, np.uint8)
            read_bytes(ctx, stream, got, memory)
            wrong = np.flatnonzero(got != expected)
            ctx.check(
                wrong.size == 0,
                f"mem_fill of {size} bytes with {value} at offset {start}: byte "
                f"{wrong[0] - start if wrong.size else 0} counted from the range's start is wrong",
            )


def beyond_32_bits(ctx: Context) -> None:
    """Offsets that 32 bits cannot hold are neither cut off nor taken as negative."""
    size = _FAR + 4096
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    ctx.chip.invoke(
        "device_memory", ctx.chip.local, ctypes.addressof(free), ctypes.addressof(total)
    )
    if free.value < 2 * size or ctx.device.info.max_allocation < size:
        raise Unsupported(f"{free.value >> 20} MiB are free, and the case wants twice 4 GiB")
    out = ctypes.c_void_p()
    where = (ctx.chip.local, int(MemoryKind.DEVICE), size, ctypes.addressof(out))
    if status_of(ctx, "mem_alloc", *where) != Status.OK or out.value is None:
        raise Unsupported("4 GiB in one piece were not to be had")
    stream, memory = ctx.chip.stream, out.value
    with contextlib.ExitStack() as closing:
        closing.callback(ctx.chip.status, "mem_free", ctx.chip.local, memory)
        near, far = pattern(ctx, 4096), pattern(ctx, 4096)
        write_bytes(ctx, stream, memory + 4096, near)  # where a cut-off offset would land
        write_bytes(ctx, stream, memory + _FAR, far)
        ctx.chip.invoke("mem_fill", stream, memory + _FAR, 5, 100)
        far[:100] = 5
        for offset, expected in ((4096, near), (_FAR, far)):
            got = np.empty(4096, np.uint8)
            read_bytes(ctx, stream, got, memory + offset)
            ctx.check(bool((got == expected).all()), f"bytes at offset {offset} are wrong")


def copies_between_devices(ctx: Context) -> None:
    """In the order of the destination's stream, with the source's writer ordered before."""
    other = Context(ctx.other_device(), ctx.case, ctx.seed)
    try:
        source, target = Buffer(other, 5000), Buffer(ctx, 5000)
        here, there = ctx.stream(), other.stream()
        ready = other.event()
        target.fill(here, 0)
        source.fill(there, 0)
        Delay(other).put(there)
        source.fill(there, 77)
        other.chip.invoke("event_record", ready, there)
        ctx.chip.invoke("stream_wait", here, ready)
        arguments = (target.address, source.address, other.chip.local, target.bytes)
        ctx.expect(Status.OK, "mem_copy_peer", here, *arguments)
        target.add(here, target, 1)
        target.expect(here, 78, "after mem_copy_peer")
        source.expect(there, 77, "the source of mem_copy_peer")
        other.close()
    finally:
        other.abandon()
