"""Streams: host memory given to copies is read and written when the rules say so."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from chipset import _runtime
from chipset._interface import CopyKind, Dtype, Status
from chipset_conformance.case import Case, cases
from chipset_conformance.context import Context
from chipset_conformance.probes import Buffer, Delay, PinnedBuffer, copy, pattern

_SIZE = 100_003
_ROUNDS = 6


@cases(level=1)
def host_cases() -> Iterator[Case]:
    move = ("mem_copy",)
    yield Case("host/pageable-source-is-read-at-once", move, pageable_source, rule="ASY-002")
    yield Case("host/pageable-target-is-written-at-once", move, pageable_target, rule="ASY-002")
    yield Case("host/pinned-source-in-stream-order", move, pinned_source, rule="ASY-002")
    yield Case("host/pinned-target-in-stream-order", move, pinned_target, rule="ASY-002")
    yield Case("host/view-of-pinned-memory-is-recycled", move, recycled_view, rule="ASY-002")
    yield Case(
        "memory/reused-across-streams", ("event_record", "event_query"), reused, rule="MEM-002"
    )
    yield Case(
        "memory/lists-reused-across-streams",
        ("event_record", "event_query"),
        reused_lists,
        rule="MEM-002",
    )


def pageable_source(ctx: Context) -> None:
    """The host overwrites pageable memory as soon as the call returns."""
    stream, delay, target = ctx.stream(), Delay(ctx), Buffer(ctx, _SIZE, Dtype.U8)
    for _ in range(_ROUNDS):
        host = pattern(ctx, _SIZE)
        given = host.copy()
        delay.put(stream)
        copy(ctx, stream, target.address, host.ctypes.data, _SIZE, CopyKind.HOST_TO_DEVICE)
        host[:] = 0
        got = target.read(stream)
        ctx.check(
            bool((got == given).all()),
            "a copy from pageable memory saw what the host wrote after the return (ASY-002)",
        )


def pageable_target(ctx: Context) -> None:
    """Pageable memory is written when the call returns, without any synchronisation."""
    stream, delay, source = ctx.stream(), Delay(ctx), Buffer(ctx, _SIZE, Dtype.U8)
    for value in range(1, _ROUNDS):
        source.fill(stream, 0)
        delay.put(stream)
        source.fill(stream, value)
        host = np.zeros(_SIZE, np.uint8)
        copy(ctx, stream, host.ctypes.data, source.address, _SIZE, CopyKind.DEVICE_TO_HOST)
        ctx.check(
            bool((host == value).all()),
            f"pageable memory holds {host[0]}, not {value}, when mem_copy returns (ASY-002)",
        )


def pinned_source(ctx: Context) -> None:
    """Copies from page-locked memory take their place behind what the stream still does."""
    stream, delay, target = ctx.stream(), Delay(ctx), Buffer(ctx, _SIZE, Dtype.U8)
    pinned = PinnedBuffer(ctx, _SIZE)
    for _ in range(_ROUNDS):
        given = pattern(ctx, _SIZE)
        pinned.array[:] = given
        delay.put(stream)
        target.fill(stream, 0)
        copy(ctx, stream, target.address, pinned.address, _SIZE, CopyKind.HOST_TO_DEVICE)
        got = target.read(stream)
        ctx.check(bool((got == given).all()), "a copy from page-locked memory is out of order")


def pinned_target(ctx: Context) -> None:
    """After the synchronisation page-locked memory holds what the stream wrote before the copy."""
    stream, delay, source = ctx.stream(), Delay(ctx), Buffer(ctx, _SIZE, Dtype.U8)
    pinned, event = PinnedBuffer(ctx, _SIZE), ctx.event()
    for value in range(1, _ROUNDS):
        pinned.array[:] = 0
        source.fill(stream, 0)
        delay.put(stream)
        source.fill(stream, value)
        copy(ctx, stream, pinned.address, source.address, _SIZE, CopyKind.DEVICE_TO_HOST)
        source.fill(stream, 0)  # behind the copy, which must not see it
        ctx.chip.invoke("event_record", event, stream)
        ctx.expect(Status.OK, "event_query", event, -1)
        ctx.check(
            bool((pinned.array == value).all()),
            f"page-locked memory holds {pinned.array[0]}, not {value}, once the stream passed",
        )


def recycled_view(ctx: Context) -> None:
    """The middle of page-locked memory is given to a copy behind a delay and recycled.

    The core tracks the copy under the view's address; the buffer that comes next from its cache is
    overwritten at once and must not be the one that the copy still reads.
    """
    stream, delay, number = ctx.stream(), Delay(ctx), ctx.device.number
    target = Buffer(ctx, _SIZE - 1, Dtype.U8)
    for _ in range(_ROUNDS):
        given = pattern(ctx, _SIZE)
        first = _runtime.allocate_host(number, _SIZE)
        view = _host_array(first, _SIZE)
        view[:] = given
        delay.put(stream)
        copy(ctx, stream, target.address, first + 1, _SIZE - 1, CopyKind.HOST_TO_DEVICE)
        _runtime.record_host(first + 1, stream)
        _runtime.deallocate_host(first)
        second = _runtime.allocate_host(number, _SIZE)
        _host_array(second, _SIZE)[:] = 0
        got = target.read(stream)
        _runtime.deallocate_host(second)
        ctx.check(
            bool((got == given[1:]).all()),
            "page-locked memory was recycled while a copy still read a view of it",
        )


def _host_array(address: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


# ---- memory that goes from stream to stream ------------------------------------------------------


def reused(ctx: Context) -> None:
    reuse_across(ctx, 1)


def reused_lists(ctx: Context) -> None:
    reuse_across(ctx, 3)


def reuse_across(ctx: Context, count: int) -> None:
    """Made on one stream, used on a second, freed, made again on the first and overwritten.

    Whether memory is handed out again while another stream uses it depends on the plugin's events,
    through which the core's allocator knows that the second stream has passed.
    """
    first, second, delay = ctx.stream(), ctx.stream(), Delay(ctx)
    size, number = 4 * 5000, ctx.device.number
    event = ctx.event()
    results = [Buffer(ctx, 5000) for _ in range(count)]
    for value in range(1, _ROUNDS):
        made = [_runtime.allocate(number, size, first) for _ in range(count)]
        for address in made:
            Buffer.at(ctx, address, 5000).fill(first, value)
        ctx.chip.invoke("event_record", event, first)
        ctx.chip.invoke("stream_wait", second, event)
        delay.put(second)
        for address, result in zip(made, results, strict=True):
            kind = CopyKind.DEVICE_TO_DEVICE
            copy(ctx, second, result.address, address, size, kind)
            _runtime.record_stream(address, second)
            _runtime.deallocate(address)
        again = [_runtime.allocate(number, size, first) for _ in range(count)]
        for address in again:
            Buffer.at(ctx, address, 5000).fill(first, -1)
        for place, result in enumerate(results):
            result.expect(second, value, f"tensor {place} of {count}, freed while in use")
        for address in again:
            _runtime.deallocate(address)
    ctx.chip.invoke("device_sync", ctx.chip.local)
