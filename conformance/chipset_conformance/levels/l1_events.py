"""Streams: events mark points, whatever became of their stream or of an earlier event."""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Iterator

from chipset._interface import WAIT_FOREVER, EventFlag, Status
from chipset_conformance.case import NEEDS_TWO_DEVICES, OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.probes import Buffer, Delay, status_of

_COUNT = 10_000
_POLLED_DELAYS = 3
_ROUNDS = 8
_MILLISECOND = 1_000_000  # ns


@cases(level=1)
def event_cases() -> Iterator[Case]:
    make, query = ("event_create", "event_destroy"), ("event_query",)
    wait, record = ("stream_wait",), ("event_record", "event_query")
    table: tuple[tuple[str, tuple[str, ...], Callable[[Context], None], str | None], ...] = (
        ("unrecorded-has-passed", query, unrecorded, "EVT-001"),
        ("waiting-for-an-unrecorded-one-is-nothing", wait, wait_unrecorded, "EVT-001"),
        ("destroy-null", ("event_destroy",), destroy_null, "EVT-001"),
        ("a-new-one-is-new", make, new_is_new, "EVT-001"),
        ("passed-means-done", query, passed_means_done, None),
        ("blocking-query-waits", query, blocking_query, None),
        ("timed-query-ends", query, timed_query, None),
        ("a-poll-does-not-block", query, poll_returns, None),
        ("passed-stays-passed", query, stays_passed, None),
        ("recording-again-replaces", record, replaces, "EVT-001"),
        ("a-wait-keeps-its-point", wait, wait_keeps_its_point, "EVT-001"),
        ("destroyed-while-awaited", ("event_destroy", "stream_wait"), destroyed, "EVT-001"),
        ("outlives-its-stream", ("stream_destroy", "event_query"), outlives, "EVT-001"),
        ("reused-over-many-streams", ("event_record", "stream_destroy"), reused, "EVT-001"),
        ("a-thousand-at-once", make, thousand, None),
    )
    for name, functions, run, rule in table:
        yield Case(f"event/{name}", functions, run, rule=rule)
    optional = frozenset({OPTIONAL})
    elapsed = ("event_elapsed",)
    yield Case("event/elapsed-adds-up", elapsed, elapsed_adds_up, tags=optional)
    yield Case("event/elapsed-refuses", elapsed, elapsed_refuses, tags=optional, rule="ERR-001")
    yield Case(
        "event/orders-two-devices",
        ("stream_wait", "event_record"),
        two_devices,
        tags=frozenset({OPTIONAL, NEEDS_TWO_DEVICES}),
    )


# ---- states --------------------------------------------------------------------------------------


def unrecorded(ctx: Context) -> None:
    event = ctx.event()
    for timeout in (0, _MILLISECOND, WAIT_FOREVER):
        ctx.expect(Status.OK, "event_query", event, timeout)


def wait_unrecorded(ctx: Context) -> None:
    stream, event, buffer = ctx.stream(), ctx.event(), Buffer(ctx, _COUNT)
    ctx.expect(Status.OK, "stream_wait", stream, event)
    buffer.fill(stream, 3)
    buffer.expect(stream, 3, "behind a wait for an event that was never recorded")


def destroy_null(ctx: Context) -> None:
    ctx.expect(Status.OK, "event_destroy", None)


def new_is_new(ctx: Context) -> None:
    """A new event has passed although the destroyed one, whose place it may take, had not."""
    stream, delay = ctx.stream(), Delay(ctx)
    for number in range(50):
        old = ctx.out("event_create", ctx.chip.local, 0)
        if number % 10 == 0:
            delay.put(stream)
        ctx.chip.invoke("event_record", old, stream)
        ctx.expect(Status.OK, "event_destroy", old)
        new = ctx.out("event_create", ctx.chip.local, 0)
        ctx.expect(Status.OK, "event_query", new, 0)
        ctx.expect(Status.OK, "event_destroy", new)


def passed_means_done(ctx: Context) -> None:
    """Once a poll answers OK, every stream sees the work before the point."""
    stream, reader, delay, event = ctx.stream(), ctx.stream(), Delay(ctx), ctx.event()
    for value in range(1, 4):
        buffer = Buffer(ctx, _COUNT)
        buffer.fill(stream, 0)
        delay.put(stream)
        buffer.fill(stream, value)
        ctx.chip.invoke("event_record", event, stream)
        while (answer := status_of(ctx, "event_query", event, 0)) == Status.NOT_READY:
            time.sleep(0.0005)
        ctx.check(answer == Status.OK, f"event_query with timeout 0 answered {answer.name}")
        buffer.expect(reader, value, "after a poll that answered OK")


def blocking_query(ctx: Context) -> None:
    """A query without end returns OK, and then the work is seen."""
    stream, reader, delay, event = ctx.stream(), ctx.stream(), Delay(ctx), ctx.event()
    buffer = Buffer(ctx, _COUNT)
    for value in range(1, 5):
        buffer.fill(stream, 0)
        delay.put(stream)
        buffer.fill(stream, value)
        ctx.chip.invoke("event_record", event, stream)
        ctx.expect(Status.OK, "event_query", event, WAIT_FOREVER)
        buffer.expect(reader, value, "after a blocking event_query")


def timed_query(ctx: Context) -> None:
    """OK or TIMEOUT, never NOT_READY; what it waited for goes on."""
    stream, delay, event = ctx.stream(), Delay(ctx), ctx.event()
    buffer = Buffer(ctx, _COUNT)
    buffer.fill(stream, 0)
    for _ in range(3):
        delay.put(stream)
    buffer.fill(stream, 6)
    ctx.chip.invoke("event_record", event, stream)
    answer = status_of(ctx, "event_query", event, _MILLISECOND)
    ctx.check(
        answer in (Status.OK, Status.TIMEOUT),
        f"event_query with a timeout of 1 ms answered {answer.name}",
    )
    ctx.expect(Status.OK, "event_query", event, 600_000 * _MILLISECOND)
    buffer.expect(stream, 6, "after a timed event_query")


def stays_passed(ctx: Context) -> None:
    """Later work of the stream does not take a point back."""
    stream, delay, event = ctx.stream(), Delay(ctx), ctx.event()
    ctx.chip.invoke("event_record", event, stream)
    ctx.expect(Status.OK, "event_query", event, WAIT_FOREVER)
    for _ in range(3):
        delay.put(stream)
        ctx.expect(Status.OK, "event_query", event, 0)


def replaces(ctx: Context) -> None:
    """A wait after the second record is for the second point, and so is a query."""
    stream, other, delay, event = ctx.stream(), ctx.stream(), Delay(ctx), ctx.event()
    a, b = Buffer(ctx, _COUNT), Buffer(ctx, _COUNT)
    for value in range(1, _ROUNDS):
        a.fill(stream, 0)
        ctx.chip.invoke("event_record", event, stream)
        delay.put(stream)
        a.fill(stream, value)
        ctx.chip.invoke("event_record", event, stream)
        ctx.chip.invoke("stream_wait", other, event)
        b.copy_from(other, a)
        b.expect(other, value, "after a wait for an event that was recorded twice")
        ctx.expect(Status.OK, "event_query", event, WAIT_FOREVER)


def wait_keeps_its_point(ctx: Context) -> None:
    """A wait is for the point at its call: recording the event behind it changes nothing."""
    first, second, delay, event = ctx.stream(), ctx.stream(), Delay(ctx), ctx.event()
    a, b = Buffer(ctx, _COUNT), Buffer(ctx, _COUNT)
    for value in range(1, _ROUNDS):
        delay.put(first)
        a.fill(first, value)
        ctx.chip.invoke("event_record", event, first)
        ctx.chip.invoke("stream_wait", second, event)
        # A wait that looks at the event when it runs would now be for itself, for ever.
        ctx.chip.invoke("event_record", event, second)
        b.copy_from(second, a)
        b.expect(second, value, "after a wait whose event was recorded again behind it")
        ctx.chip.invoke("stream_sync", second)


def destroyed(ctx: Context) -> None:
    """An awaited event is destroyed, and a new one, which may take its place, is recorded."""
    first, second, third = ctx.stream(), ctx.stream(), ctx.stream()
    delay = Delay(ctx)
    a, b = Buffer(ctx, _COUNT), Buffer(ctx, _COUNT)
    b.fill(second, 0)
    for value in range(1, 20):
        a.fill(first, 0)
        delay.put(first)
        a.fill(first, value)
        event = ctx.out("event_create", ctx.chip.local, 0)
        ctx.chip.invoke("event_record", event, first)
        ctx.chip.invoke("stream_wait", second, event)
        ctx.expect(Status.OK, "event_destroy", event)
        again = ctx.event()
        ctx.chip.invoke("event_record", again, third)
        b.copy_from(second, a)
        b.expect(second, value, "after a wait for an event that was destroyed at once")


def outlives(ctx: Context) -> None:
    """The stream is destroyed; its point stays passed, and waiting for it is legal."""
    other, delay = ctx.stream(), Delay(ctx)
    a, b, event = Buffer(ctx, _COUNT), Buffer(ctx, _COUNT), ctx.event()
    for value in range(1, 10):
        stream = ctx.out("stream_create", ctx.chip.local, 0)
        a.fill(stream, 0)
        delay.put(stream)
        a.fill(stream, value)
        ctx.chip.invoke("event_record", event, stream)
        ctx.expect(Status.OK, "stream_destroy", stream)
        ctx.expect(Status.OK, "event_query", event, 0)
        ctx.expect(Status.OK, "stream_wait", other, event)
        b.copy_from(other, a)
        b.expect(other, value, "behind an event whose stream was destroyed")


def reused(ctx: Context) -> None:
    """A few events go round over a thousand short-lived streams."""
    events = [ctx.event() for _ in range(5)]
    buffer, reader = Buffer(ctx, 1000), ctx.stream()
    buffer.fill(reader, 0)
    ctx.chip.invoke("stream_sync", reader)
    for number in range(1000):
        event = events[number % len(events)]
        stream = ctx.out("stream_create", ctx.chip.local, 0)
        buffer.add(stream, buffer, 1)
        ctx.chip.invoke("event_record", event, stream)
        ctx.expect(Status.OK, "stream_destroy", stream)
        ctx.expect(Status.OK, "event_query", event, 0)
    buffer.expect(reader, 1000, "after a thousand streams that added one each")


def thousand(ctx: Context) -> None:
    events = [ctx.event() for _ in range(1000)]
    ctx.check(len(set(events)) == 1000, "two live events have one handle")
    for event in events:
        ctx.chip.invoke("event_record", event, ctx.chip.stream)
    for event in events:
        ctx.expect(Status.OK, "event_query", event, WAIT_FOREVER)


# ---- time ----------------------------------------------------------------------------------------


def elapsed(ctx: Context, start: int, end: int) -> float:
    milliseconds = ctypes.c_double(-1.0)
    ctx.expect(Status.OK, "event_elapsed", start, end, ctypes.addressof(milliseconds))
    return milliseconds.value


def poll_returns(ctx: Context) -> None:
    """A poll of work that takes a while answers NOT_READY, or the work was done when enqueued."""
    stream, delay = ctx.stream(), Delay(ctx)
    blocked = 0
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        for _ in range(_POLLED_DELAYS):
            delay.put(stream)
        event = ctx.event()
        ctx.chip.invoke("event_record", event, stream)
        polled = time.perf_counter()
        status = ctx.chip.status("event_query", event, 0)
        ended = time.perf_counter()
        ctx.chip.invoke("stream_sync", stream)
        if status == Status.NOT_READY:
            return
        # In the poll for longer than the enqueuing took: the work ran meanwhile.
        blocked += ended - polled > 0.005 + 2 * (polled - begun)
    # On a busy machine the work of a round may be done before the poll begins.
    ctx.check(
        2 * blocked <= _ROUNDS,
        f"no poll of {_ROUNDS} answered NOT_READY, and {blocked} waited for the event instead",
    )


def elapsed_adds_up(ctx: Context) -> None:
    """Parts are not negative and sum up to the whole, which is no longer than the host's clock."""
    stream, delay = ctx.stream(), Delay(ctx)
    events = [ctx.event(int(EventFlag.TIMING)) for _ in range(4)]
    ctx.chip.invoke("stream_sync", stream)
    begun = time.perf_counter()
    for event in events:
        ctx.chip.invoke("event_record", event, stream)
        delay.put(stream)
    ctx.chip.invoke("stream_sync", stream)
    wall = (time.perf_counter() - begun) * 1000
    parts = [elapsed(ctx, a, b) for a, b in itertools.pairwise(events)]
    whole = elapsed(ctx, events[0], events[-1])
    ctx.check(min(parts) >= 0, f"event_elapsed is negative: {parts} ms")
    ctx.check(
        abs(sum(parts) - whole) <= 0.01 * whole + 0.01,
        f"event_elapsed of the parts, {parts} ms, does not add up to the whole, {whole} ms",
    )
    if not ctx.device.info.capabilities & 2:  # an emulated chip may keep a clock of its own
        ctx.check(whole <= 1.1 * wall + 1, f"event_elapsed gave {whole} ms in {wall:.3f} ms")


def elapsed_refuses(ctx: Context) -> None:
    """INVALID without flag TIMING and for a point that does not exist."""
    plain, other = ctx.event(), ctx.event()
    timing, unrecorded_one = (ctx.event(int(EventFlag.TIMING)) for _ in range(2))
    for event in (plain, other, timing):
        ctx.chip.invoke("event_record", event, ctx.chip.stream)
    ctx.chip.synchronize()
    out = ctypes.c_double()
    for a, b in ((plain, other), (plain, timing), (timing, plain), (timing, unrecorded_one)):
        ctx.expect(Status.INVALID, "event_elapsed", a, b, ctypes.addressof(out))


def two_devices(ctx: Context) -> None:
    """A stream waits for an event of another device of the plugin."""
    other = Context(ctx.other_device(), ctx.case, ctx.seed)
    try:
        here, there, event = ctx.stream(), other.stream(), other.event()
        far = Buffer(other, _COUNT)
        near = Buffer(ctx, _COUNT)
        far.fill(there, 0)
        Delay(other).put(there)
        far.fill(there, 4)
        other.chip.invoke("event_record", event, there)
        ctx.expect(Status.OK, "stream_wait", here, event)
        near.fill(here, 1)
        ctx.chip.invoke("stream_sync", here)
        ctx.expect(Status.OK, "event_query", event, 0)
        far.expect(there, 4, "work before an event that another device waited for")
        other.close()
    finally:
        other.abandon()
