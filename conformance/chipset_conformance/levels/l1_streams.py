"""Streams: work of one stream is in order, work of others waits where it is told to.

Every case enqueues a delay before the work that the rest depends on: what ignores the stream, the
event or the wait comes too early and is seen.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import partial

from chipset._interface import Dtype, PointwiseOp, Status
from chipset_conformance.case import Case, cases
from chipset_conformance.context import Context
from chipset_conformance.probes import Buffer, Delay, enqueue

_LEAST_STREAMS = 32
_COUNT = 10_000  # elements of a buffer
_ROUNDS = 8


@cases(level=1)
def stream_cases() -> Iterator[Case]:
    sync, wait = ("stream_sync",), ("stream_wait", "event_record")
    make = ("stream_create", "stream_destroy")
    table: tuple[tuple[str, tuple[str, ...], Callable[[Context], None], str | None], ...] = (
        ("at-least-32", make, thirty_two, None),
        ("any-priority-is-a-hint", make, any_priority, None),
        ("destroy-null", ("stream_destroy",), destroy_null, None),
        ("destroy-waits-for-the-work", ("stream_destroy",), destroy_waits, None),
        ("made-and-destroyed-often", make, made_often, None),
        ("work-is-in-order", ("mem_copy", "pointwise"), in_order, "ASY-001"),
        ("reductions-and-products-are-in-order", ("reduce", "gemm"), mixed_order, "ASY-001"),
        ("sync-waits", sync, sync_waits, "ASY-001"),
        ("sync-of-an-idle-stream", sync, idle_sync, None),
        ("device-sync-waits-for-all", ("device_sync",), device_sync_waits, "ASY-001"),
        ("wait-orders-two", wait, wait_orders, "ASY-001"),
        ("wait-orders-a-chain", wait, wait_chain, "ASY-001"),
        ("wait-orders-a-diamond", wait, wait_diamond, "ASY-001"),
        ("wait-does-not-block-the-host", ("stream_wait",), wait_returns, None),
        ("reader-before-writer", wait, reader_before_writer, "ORD-001"),
        ("reduction-waits-for-its-producer", wait, reduction_waits, "STA-001"),
        ("fill-and-copy-follow-compute", ("mem_fill", "mem_copy"), fill_follows, "ASY-001"),
    )
    for name, functions, run, rule in table:
        yield Case(f"stream/{name}", functions, run, rule=rule)
    for function in ("pointwise", "reduce", "gemm", "gather", "scatter"):
        yield Case(
            f"stream/arguments-are-read-before-the-return/{function}",
            (function,),
            partial(arguments_are_read, function=function),
            rule="ASY-002",
        )


# ---- handles -------------------------------------------------------------------------------------


def thirty_two(ctx: Context) -> None:
    """At least 32 at a time, every one usable."""
    streams = [ctx.stream() for _ in range(_LEAST_STREAMS)]
    ctx.check(len(set(streams)) == _LEAST_STREAMS, "two live streams have one handle")
    buffers = [Buffer(ctx, 100) for _ in streams]
    for number, (stream, buffer) in enumerate(zip(streams, buffers, strict=True)):
        buffer.fill(stream, number)
    for number, (stream, buffer) in enumerate(zip(streams, buffers, strict=True)):
        buffer.expect(stream, number, f"stream {number} of {_LEAST_STREAMS}")


def any_priority(ctx: Context) -> None:
    buffer = Buffer(ctx, 100)
    for priority in (0, -1, -5, 3, -(2**31), 2**31 - 1):
        stream = ctx.stream(priority)
        buffer.fill(stream, 9)
        buffer.expect(stream, 9, f"in a stream of priority {priority}")


def destroy_null(ctx: Context) -> None:
    ctx.expect(Status.OK, "stream_destroy", None)


def destroy_waits(ctx: Context) -> None:
    """After the return work of every kind has run: another stream sees it without any wait."""
    reader, delay = ctx.stream(), Delay(ctx)
    for value in range(1, 5):
        stream = ctx.out("stream_create", ctx.chip.local, 0)
        computed, copied = Buffer(ctx, _COUNT), Buffer(ctx, _COUNT)
        filled = Buffer(ctx, _COUNT, Dtype.U8)
        for buffer in (computed, copied, filled):
            buffer.fill(stream, 0)
        delay.put(stream)
        computed.fill(stream, value)
        copied.copy_from(stream, computed)
        ctx.chip.invoke("mem_fill", stream, filled.array.address, value, _COUNT)
        ctx.expect(Status.OK, "stream_destroy", stream)
        for name, buffer in (("compute", computed), ("mem_copy", copied), ("mem_fill", filled)):
            buffer.expect(reader, value, f"{name} before stream_destroy")


def made_often(ctx: Context) -> None:
    """A stream that was destroyed leaves nothing to the next one."""
    buffer = Buffer(ctx, 100)
    for number in range(1000):
        stream = ctx.out("stream_create", ctx.chip.local, 0)
        if number % 50 == 0:
            buffer.fill(stream, number)
            buffer.expect(stream, number, f"in stream {number} made and destroyed")
        ctx.expect(Status.OK, "stream_destroy", stream)


# ---- order within a stream -----------------------------------------------------------------------


def in_order(ctx: Context) -> None:
    """Values written one after the other, each copied away before the next."""
    stream, delay = ctx.stream(), Delay(ctx)
    work, copies = Buffer(ctx, _COUNT), [Buffer(ctx, _COUNT) for _ in range(_ROUNDS)]
    for number, kept in enumerate(copies):
        if number % 3 == 0:
            delay.put(stream)
        work.fill(stream, number)
        work.add(stream, work, 100)
        kept.copy_from(stream, work)
    for number, kept in enumerate(copies):
        kept.expect(stream, number + 100, f"copy {number} of a value that changed later")


def mixed_order(ctx: Context) -> None:
    """Functions of different kinds hand their results on within one stream."""
    stream, delay, rows = ctx.stream(), Delay(ctx), 64
    a, b, total = (Buffer(ctx, n, Dtype.F32) for n in (rows * rows, rows * rows, 1))
    square = (rows, rows)
    b.fill(stream, 0)
    total.fill(stream, 0)
    delay.put(stream)
    a.fill(stream, 2)
    left = a.array.view(square)
    enqueue(ctx, stream, "gemm", a=left, b=left, d=b.array.view(square), alpha=1.0)
    enqueue(
        ctx,
        stream,
        "reduce",
        op=0,
        compute_dtype=Dtype.F32,
        dims=1,
        input=b.array,
        output=total.array,
    )
    a.fill(stream, 0)
    total.add(stream, total, 1)
    total.expect(stream, 4 * rows**3 + 1, "product, sum and addition in one stream")


def fill_follows(ctx: Context) -> None:
    """mem_fill and mem_copy take their place in the stream like compute functions."""
    stream, delay = ctx.stream(), Delay(ctx)
    a, b = Buffer(ctx, _COUNT, Dtype.U8), Buffer(ctx, _COUNT, Dtype.U8)
    a.fill(stream, 1)
    b.fill(stream, 0)
    delay.put(stream)
    a.add(stream, a, 1)
    b.copy_from(stream, a)
    ctx.chip.invoke("mem_fill", stream, a.address, 9, a.bytes)
    a.add(stream, a, 1)
    b.expect(stream, 2, "a copy behind compute work")
    a.expect(stream, 10, "compute work behind mem_fill")


def arguments_are_read(ctx: Context, function: str) -> None:
    """The caller's structs are overwritten as soon as the call returns."""
    stream, delay = ctx.stream(), Delay(ctx)
    rows = 8
    count = rows * rows
    x, out = Buffer(ctx, count, Dtype.F32), Buffer(ctx, count, Dtype.F32)
    index = Buffer(ctx, count, Dtype.I64)
    x.fill(stream, 3)
    out.fill(stream, 0)
    index.fill(stream, 5)
    delay.put(stream)
    one = (count,)
    square = (rows, rows)
    # Per function: its fields, and what every element (or the one named) becomes.
    table: dict[str, tuple[dict[str, object], dict[int, float]]] = {
        "pointwise": (
            {
                "op": PointwiseOp.ADD,
                "compute_dtype": Dtype.F32,
                "num_inputs": 2,
                "output": out.array,
                "input": [x.array, x.array],
                "param": [1],
            },
            dict.fromkeys(range(count), 6.0),
        ),
        "reduce": (
            {
                "op": 0,
                "compute_dtype": Dtype.F32,
                "dims": 1,
                "input": x.array,
                "output": out.array.view((1,)),
            },
            {0: 3.0 * count, 1: 0.0},
        ),
        "gemm": (
            {
                "a": x.array.view(square),
                "b": x.array.view(square),
                "d": out.array.view(square),
                "alpha": 1.0,
            },
            dict.fromkeys(range(count), 9.0 * rows),
        ),
        "gather": (
            {
                "num_indices": 1,
                "output": out.array,
                "input": x.array.view(one, (0,)),
                "index": [index.array],
                "indexed_size": [count],
                "indexed_stride": [1],
            },
            dict.fromkeys(range(count), 3.0),
        ),
        "scatter": (
            {
                "op": 1,
                "num_indices": 1,
                "destination": out.array.view(one, (0,)),
                "source": x.array,
                "index": [index.array],
                "indexed_size": [count],
                "indexed_stride": [1],
            },
            {5: 3.0 * count, 4: 0.0, 6: 0.0},
        ),
    }
    fields, wanted = table[function]
    arguments = ctx.chip.arguments(function, **fields)
    ctx.chip.invoke(function, stream, ctypes.addressof(arguments))
    for kept in arguments.alive:
        if isinstance(kept, ctypes.Structure):
            ctypes.memset(ctypes.addressof(kept), 0xFF, ctypes.sizeof(kept))
    ctypes.memset(ctypes.addressof(arguments), 0xFF, ctypes.sizeof(arguments))
    got = out.read(stream)
    for place, value in wanted.items():
        ctx.check(
            got[place] == value,
            f"{function}: element {place} is {got[place]}, not {value}, after the caller reused "
            "its argument structs (ASY-002)",
        )


# ---- synchronisation -----------------------------------------------------------------------------


def sync_waits(ctx: Context) -> None:
    """After stream_sync any other stream sees the work."""
    stream, reader, delay = ctx.stream(), ctx.stream(), Delay(ctx)
    buffer = Buffer(ctx, _COUNT)
    for value in range(1, _ROUNDS):
        buffer.fill(stream, 0)
        delay.put(stream)
        buffer.fill(stream, value)
        ctx.expect(Status.OK, "stream_sync", stream)
        buffer.expect(reader, value, "after stream_sync, seen from another stream")


def idle_sync(ctx: Context) -> None:
    stream = ctx.stream()
    for _ in range(3):
        ctx.expect(Status.OK, "stream_sync", stream)


def device_sync_waits(ctx: Context) -> None:
    """After device_sync the work of every stream is seen."""
    streams, reader, delay = [ctx.stream() for _ in range(4)], ctx.stream(), Delay(ctx)
    buffers = [Buffer(ctx, _COUNT) for _ in streams]
    for stream, buffer in zip(streams, buffers, strict=True):
        buffer.fill(stream, 0)
        delay.put(stream)
        buffer.fill(stream, 8)
    ctx.expect(Status.OK, "device_sync", ctx.chip.local)
    for buffer in buffers:
        buffer.expect(reader, 8, "after device_sync")


# ---- order between streams -----------------------------------------------------------------------


def hand_over(ctx: Context, event: int, source: int, target: int) -> None:
    """What follows in target runs after what is in source now."""
    ctx.chip.invoke("event_record", event, source)
    ctx.chip.invoke("stream_wait", target, event)


def wait_orders(ctx: Context) -> None:
    """A consumer stream sees what the producer wrote before the event, roles changing."""
    streams, delay, event = [ctx.stream(), ctx.stream()], Delay(ctx), ctx.event()
    a, b = Buffer(ctx, _COUNT), Buffer(ctx, _COUNT)
    a.fill(streams[0], 0)
    b.fill(streams[0], 0)
    ctx.chip.invoke("stream_sync", streams[0])
    for number in range(1, _ROUNDS):
        producer, consumer = streams[number % 2], streams[1 - number % 2]
        delay.put(producer)
        a.fill(producer, number)
        hand_over(ctx, event, producer, consumer)
        b.copy_from(consumer, a)
        b.expect(consumer, number, f"round {number}: a copy that waited for its producer")


def wait_chain(ctx: Context) -> None:
    """Each of eight streams adds one to what the one before left."""
    streams, delay = [ctx.stream() for _ in range(8)], Delay(ctx)
    events = [ctx.event() for _ in streams]
    buffer = Buffer(ctx, _COUNT)
    buffer.fill(streams[0], 0)
    delay.put(streams[0])
    for number, stream in enumerate(streams):
        if number:
            hand_over(ctx, events[number], streams[number - 1], stream)
        if number == 4:
            delay.put(stream)
        buffer.add(stream, buffer, 1)
    buffer.expect(streams[-1], 8, "at the end of a chain of eight streams")


def wait_diamond(ctx: Context) -> None:
    """One producer, two that work on its result, one that waits for both."""
    top, left, right, bottom = (ctx.stream() for _ in range(4))
    delay, events = Delay(ctx), [ctx.event() for _ in range(3)]
    a, b, c, d = (Buffer(ctx, _COUNT) for _ in range(4))
    delay.put(top)
    a.fill(top, 5)
    ctx.chip.invoke("event_record", events[0], top)
    for stream, out, factor, event in ((left, b, 2, events[1]), (right, c, 3, events[2])):
        ctx.chip.invoke("stream_wait", stream, events[0])
        delay.put(stream)
        out.combine(stream, PointwiseOp.MUL, a, factor)
        ctx.chip.invoke("event_record", event, stream)
        ctx.chip.invoke("stream_wait", bottom, event)
    d.add(bottom, b, c)
    d.expect(bottom, 25, "at the end of a diamond of four streams")


def wait_returns(ctx: Context) -> None:
    """A wait for work that nobody synchronises with returns; the host goes on enqueuing."""
    first, second, delay, event = ctx.stream(), ctx.stream(), Delay(ctx), ctx.event()
    a, b = Buffer(ctx, _COUNT), Buffer(ctx, _COUNT)
    delay.put(first)
    a.fill(first, 1)
    ctx.chip.invoke("event_record", event, first)
    for _ in range(100):
        ctx.expect(Status.OK, "stream_wait", second, event)
    b.copy_from(second, a)
    b.expect(second, 1, "after a hundred waits for one event")


def reader_before_writer(ctx: Context) -> None:
    """A buffer is overwritten only after the stream that still reads it."""
    reader, writer, delay, event = ctx.stream(), ctx.stream(), Delay(ctx), ctx.event()
    a, b = Buffer(ctx, _COUNT), Buffer(ctx, _COUNT)
    for number in range(_ROUNDS):
        a.fill(reader, number)
        delay.put(reader)
        b.copy_from(reader, a)
        hand_over(ctx, event, reader, writer)
        a.fill(writer, -1)
        b.expect(reader, number, f"round {number}: a value read before another stream replaced it")
        ctx.chip.invoke("stream_sync", writer)


def reduction_waits(ctx: Context) -> None:
    """What was produced in a side stream is reduced in the main one, which waits for the event."""
    main, side, delay, event = ctx.chip.stream, ctx.stream(), Delay(ctx), ctx.event()
    gradient, total = Buffer(ctx, _COUNT, Dtype.F32), Buffer(ctx, 1, Dtype.F32)
    for number in range(1, 5):
        gradient.fill(side, 0)
        delay.put(side)
        gradient.fill(side, number)
        hand_over(ctx, event, side, main)
        enqueue(
            ctx,
            main,
            "reduce",
            op=0,
            compute_dtype=Dtype.F32,
            dims=1,
            input=gradient.array,
            output=total.array,
        )
        total.expect(main, number * _COUNT, "a sum over what a side stream produced")
