"""Endures, memory: exhaustion and what follows it, a million small allocations, nothing leaked."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from chipset import _runtime
from chipset._interface import MemoryKind, Status
from chipset_conformance.case import OPTIONAL, Case, CaseFailure, cases
from chipset_conformance.context import Context
from chipset_conformance.probes import Buffer, status_of

PARTS = 16  # of the device's memory that are asked for one by one
SMALL_ALLOCATIONS = 1_000_000
WINDOW = 512  # of them alive at once
EVENTS, STREAMS, BLOCKS = 3000, 40, 200  # made and ended in each round of the leak check
WARM_ROUNDS, ROUNDS = 3, 8
RSS_SLACK = 2 << 20  # bytes by which a process may grow for reasons of its own
LONG_S = 600.0  # a device that writes poison to new memory takes its time


@cases(level="endures")
def exhaustion_cases() -> Iterator[Case]:
    def case(name: str, functions: tuple[str, ...], run: Callable[[Context], None]) -> Case:
        return Case(f"memory/{name}", functions, run, timeout_s=LONG_S)

    yield case("exhausted-and-recovered", ("mem_alloc", "mem_free"), check_exhaustion)
    yield case("one-request-too-large", ("mem_alloc",), check_too_large)
    yield case("exhausted-says-who-has-it", ("mem_alloc",), check_message)
    yield case("cached-memory-is-given-back", ("mem_alloc", "mem_free"), check_given_back)
    yield case("fragmented", ("mem_alloc", "mem_free"), check_fragmented)
    yield Case(  # a device that reports every allocation takes its time
        "memory/million-small-allocations", ("mem_alloc",), check_small, timeout_s=2 * LONG_S
    )
    yield case("many-small-without-the-cache", ("mem_alloc", "mem_free"), check_raw_small)


@cases(level="endures")
def leak_cases() -> Iterator[Case]:
    def case(name: str, functions: tuple[str, ...], run: Callable[[Context], None]) -> Case:
        return Case(f"leak/{name}", functions, run, timeout_s=LONG_S)

    yield case("handles", ("event_create", "event_destroy", "stream_create"), check_handles)
    yield case("memory", ("mem_alloc", "mem_free"), check_memory)
    yield case("kernels", ("pointwise", "gemm", "mem_copy"), check_kernels)
    yield case("refused-calls", ("mem_alloc", "stream_create"), check_refused_calls)
    yield Case(
        "leak/communicators", ("comm_create", "comm_destroy"), check_communicators,
        tags=frozenset({OPTIONAL}), timeout_s=LONG_S,
    )  # fmt: skip


# ---- exhaustion ----------------------------------------------------------------------------------


def free_and_total(ctx: Context) -> tuple[int, int]:
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    outs = (ctypes.addressof(free), ctypes.addressof(total))
    ctx.chip.invoke("device_memory", ctx.chip.local, *outs)
    return free.value, total.value


def take(ctx: Context, size: int) -> tuple[Status, int]:
    """A ``mem_alloc`` that may fail: its status and the address."""
    out = ctypes.c_void_p()
    kind = int(MemoryKind.DEVICE)
    status = status_of(ctx, "mem_alloc", ctx.chip.local, kind, size, ctypes.addressof(out))
    return status, out.value or 0


def give(ctx: Context, addresses: list[int]) -> None:
    while addresses:
        ctx.expect(Status.OK, "mem_free", ctx.chip.local, addresses.pop())


def fill_up(ctx: Context, size: int) -> list[int]:
    """Allocates until there is no more; the refusal must be OUT_OF_MEMORY, with a text."""
    taken: list[int] = []
    _runtime.take_error()
    try:
        while len(taken) < 4 * PARTS:
            status, address = take(ctx, size)
            if status == Status.OK:
                taken.append(address)
                continue
            text = _runtime.take_error()
            ctx.check(
                status == Status.OUT_OF_MEMORY and bool(text),
                f"a full device answered {status.name} ({text!r}), not OUT_OF_MEMORY with a text",
            )
            ctx.check(address == 0, "memory that was refused has an address (ERR-002)")
            return taken
        raise CaseFailure(f"{len(taken)} blocks of {size} bytes were given, more than there is")
    except BaseException:
        give(ctx, taken)
        raise


def usable(ctx: Context, memory: Buffer, turn: int) -> None:
    memory.fill(ctx.chip.stream, turn)
    memory.expect(ctx.chip.stream, turn, f"computed while or after the device was full ({turn})")


def check_exhaustion(ctx: Context) -> None:
    """Three times: full, refused, works on in what it has, freed, and as good as before."""
    memory = Buffer(ctx, 4096)
    _, total = free_and_total(ctx)
    size = total // PARTS & ~0xFFFF
    counts = []
    for turn in range(3):
        taken = fill_up(ctx, size)
        counts.append(len(taken))
        usable(ctx, memory, turn)
        give(ctx, taken)
        usable(ctx, memory, turn + 10)
    ctx.check(counts[0] > 0, f"an empty device of {total} bytes has not even {size} bytes")
    # One block less may be what others on the machine took; one less each time is a leak.
    ctx.check(
        counts[-1] >= counts[0] - 1, f"the device held {counts} blocks: it lost some for good"
    )


def check_too_large(ctx: Context) -> None:
    """Sizes that no device has are refused, not wrapped around."""
    _, total = free_and_total(ctx)
    for size in (2 * total, 1 << 62, (1 << 64) - 1, (1 << 64) - 4096):
        status, address = take(ctx, size)
        if status == Status.OK:
            give(ctx, [address])
        ctx.check(
            status in (Status.OUT_OF_MEMORY, Status.INVALID),
            f"{size} bytes of a device with {total}: {status.name}, not OUT_OF_MEMORY",
        )
    usable(ctx, Buffer(ctx, 4096), 1)


def check_message(ctx: Context) -> None:
    """What the core says of a full device: how much was asked, and what there is."""
    _, total = free_and_total(ctx)
    asked = 2 * total
    try:
        address = _runtime.allocate(ctx.device.number, asked, ctx.chip.stream)
    except _runtime.Error as error:
        text = str(error)
        ctx.check(error.status == Status.OUT_OF_MEMORY, f"not OUT_OF_MEMORY: {text}")
        ctx.check(ctx.device.name in text, f"the text lacks {ctx.device.name!r}: {text}")
        ctx.check("MiB" in text or "GiB" in text, f"the text gives no sizes: {text}")
        layout = _runtime.memory_map(ctx.device.number)
        ctx.check(bool(layout), "there is no map of the memory of a device that is full")
        usable(ctx, Buffer(ctx, 4096), 2)
        return
    _runtime.deallocate(address)
    raise CaseFailure(f"{asked} bytes were given by a device that has {total}")


def check_given_back(ctx: Context) -> None:
    """Memory that the core keeps for reuse is given back before a request is refused."""
    number, stream = ctx.device.number, ctx.chip.stream
    _runtime.empty_cache(number)
    free, _ = free_and_total(ctx)
    for tenths in (6, 7, 5):  # none has room beside another, and each has a size of its own
        _runtime.deallocate(_runtime.allocate(number, free // 10 * tenths & ~0xFFFF, stream))
    _runtime.empty_cache(number)
    usable(ctx, Buffer(ctx, 4096), 4)


def check_fragmented(ctx: Context) -> None:
    """Every other block freed, then all: the whole is there again."""
    _, total = free_and_total(ctx)
    size = total // PARTS & ~0xFFFF
    taken = fill_up(ctx, size)
    count = len(taken)
    kept, freed = taken[::2], taken[1::2]
    give(ctx, freed)
    status, address = take(ctx, size // 2)
    if status == Status.OK:
        kept.append(address)
    give(ctx, kept)
    ctx.check(status == Status.OK, f"half a block of {size} bytes has no room in freed ones")
    again = fill_up(ctx, size)
    found = len(again)
    give(ctx, again)
    ctx.check(
        found >= count - 1, f"the device held {count} blocks, and {found} after fragmentation"
    )


# ---- small ones ----------------------------------------------------------------------------------


def check_small(ctx: Context) -> None:
    """A million small allocations through the core's cache, a few hundred alive at a time."""
    number, stream = ctx.device.number, ctx.chip.stream
    sizes = [int(size) for size in ctx.rng.integers(1, 4096, 997)]
    before = _runtime.memory_stats(number)
    window: list[int] = [0] * WINDOW
    for turn in range(SMALL_ALLOCATIONS):
        place = turn % WINDOW
        if window[place]:
            _runtime.deallocate(window[place])
        window[place] = _runtime.allocate(number, sizes[turn % 997], stream)
    if len(set(window)) != WINDOW:
        raise CaseFailure("two allocations that are alive have one address")
    for address in window:
        _runtime.deallocate(address)
    ctx.chip.synchronize()
    _runtime.empty_cache(number)  # also takes back what waited for the stream
    after = _runtime.memory_stats(number)
    changed = {
        key: (before[key], after[key])
        for key in before
        if key.endswith(".current") and key.startswith(("allocated", "active", "allocation"))
        and after[key] > before[key]
    }  # fmt: skip
    ctx.check(not changed, f"after a million allocations and as many ends: {changed}")
    usable(ctx, Buffer(ctx, 4096), 3)


def check_raw_small(ctx: Context) -> None:
    """Small blocks straight from the plugin are apart from each other; each is taken back once.

    Whether their memory comes back shows in ``leak/memory``: these are too few bytes to see.
    """
    for _ in range(10):
        taken = []
        for turn in range(1000):
            status, address = take(ctx, 1 + turn % 700)
            ctx.check(status == Status.OK, f"small allocation {turn} answered {status.name}")
            taken.append(address)
        ctx.check(len(set(taken)) == len(taken), "two blocks have one address")
        give(ctx, taken)


# ---- leaks ---------------------------------------------------------------------------------------


def resources(ctx: Context) -> dict[str, int]:
    """What this process holds: bytes in memory, open files, threads."""
    gc.collect()
    process = Path("/proc/self")
    if not process.exists():
        return {}
    pages = int((process / "statm").read_text().split()[1])
    return {
        "bytes in memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "open files": len(os.listdir(process / "fd")),
        "threads": len(os.listdir(process / "task")),
    }


def no_growth(ctx: Context, one_round: Callable[[], Any]) -> None:
    """Fails if rounds of what ends all that it makes leave the process larger."""
    for _ in range(WARM_ROUNDS):
        one_round()
    ctx.chip.synchronize()
    before = resources(ctx)
    for _ in range(ROUNDS):
        one_round()
    ctx.chip.synchronize()
    for what, count in resources(ctx).items():
        slack = RSS_SLACK if what == "bytes in memory" else 0
        ctx.check(
            count <= before[what] + slack,
            f"{count - before[what]} {what} more after {ROUNDS} rounds that end what they make",
        )


def check_handles(ctx: Context) -> None:
    def one_round() -> None:
        for _ in range(EVENTS):
            ctx.chip.invoke("event_destroy", ctx.out("event_create", ctx.chip.local, 1))
        for _ in range(STREAMS):
            stream = ctx.out("stream_create", ctx.chip.local, 0)
            event = ctx.out("event_create", ctx.chip.local, 0)
            ctx.chip.invoke("event_record", event, stream)
            ctx.chip.invoke("stream_sync", stream)
            ctx.chip.invoke("event_destroy", event)
            ctx.chip.invoke("stream_destroy", stream)

    no_growth(ctx, one_round)


def check_memory(ctx: Context) -> None:
    """Device and page-locked memory, written to, so that what leaks is really there."""

    def one_round() -> None:
        for kind in (MemoryKind.DEVICE, MemoryKind.HOST):
            for turn in range(BLOCKS):
                size = 64 << turn % 12
                address = ctx.out("mem_alloc", ctx.chip.local, int(kind), size)
                if kind == MemoryKind.HOST:
                    ctypes.memset(address, 1, size)
                else:
                    ctx.chip.invoke("mem_fill", ctx.chip.stream, address, 1, size)
                    ctx.chip.synchronize()
                ctx.chip.invoke("mem_free", ctx.chip.local, address)

    no_growth(ctx, one_round)


def check_kernels(ctx: Context) -> None:
    side = 32
    x = ctx.chip.array(np.ones((side, side), np.float32))
    y = ctx.chip.empty((side, side))

    def one_round() -> None:
        for _ in range(150):
            ctx.chip.pointwise("ADD", y, x, 1.0)
            ctx.chip.call("gemm", a=x, b=x, d=y, alpha=1.0)
            y.numpy()

    no_growth(ctx, one_round)


def check_refused_calls(ctx: Context) -> None:
    """A call that fails keeps nothing."""
    out = ctypes.c_void_p()

    def one_round() -> None:
        for _ in range(400):
            take(ctx, 1 << 62)
            status_of(ctx, "stream_create", -1, 0, ctypes.addressof(out))
        _runtime.take_error()

    no_growth(ctx, one_round)


def check_communicators(ctx: Context) -> None:
    from chipset_conformance.ranks import identity

    def one_round() -> None:
        for _ in range(5):
            comm = ctx.out("comm_create", ctx.chip.local, identity(ctx), 0, 1)
            ctx.chip.invoke("comm_destroy", comm)

    no_growth(ctx, one_round)
