"""Streams: any function from any thread, and random programs over many streams."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from chipset import _runtime
from chipset._interface import Dtype, EventFlag, MemoryKind, PointwiseOp, Status
from chipset_conformance.case import NEEDS_TWO_DEVICES, OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.probes import Buffer, Delay, enqueue, in_threads

_THREADS = 8
_COUNT = 2000
_PROGRAMS = 6  # random ones, each a case with its own seed
_STEPS = 150
_STREAMS = 4
_BUFFERS = 5


@cases(level=1)
def thread_cases() -> Iterator[Case]:
    compute = ("pointwise", "reduce", "gemm")
    yield Case("thread/each-its-own-stream", compute, own_streams, rule="THR-001")
    yield Case("thread/handles-travel", ("event_record", "stream_wait"), travel, rule="THR-001")
    yield Case(
        "thread/many-make-and-end-handles",
        ("stream_create", "event_create", "mem_alloc"),
        many_handles,
        rule="THR-001",
    )
    yield Case("thread/texts-do-not-mix", ("mem_alloc",), texts, rule="ERR-001")
    yield Case("thread/one-waits-one-works", ("stream_sync",), waits_and_works, rule="THR-001")
    for number in range(_PROGRAMS):
        yield Case(
            f"order/random-program-{number}",
            ("stream_wait", "event_record", "mem_copy", "mem_fill", "pointwise"),
            partial(random_program, number=number),
            rule="ORD-001",
        )


def own_streams(ctx: Context) -> None:
    """Eight threads compute at once, each in its stream; nobody sees another's numbers."""

    def work(number: int) -> None:
        stream, rows = ctx.stream(), 32
        x, y = (Buffer(ctx, rows * rows, Dtype.F32) for _ in range(2))
        total = Buffer(ctx, 1, Dtype.F32)
        square = (rows, rows)
        for turn in range(10):
            value = number + turn
            x.fill(stream, value)
            a, d = x.array.view(square), y.array.view(square)
            enqueue(ctx, stream, "gemm", a=a, b=a, d=d, alpha=1.0)
            y.add(stream, y, x)
            enqueue(
                ctx,
                stream,
                "reduce",
                op=3,
                compute_dtype=Dtype.F32,
                dims=1,
                input=y.array,
                output=total.array,
            )
            total.expect(stream, rows * value**2 + value, f"thread {number}, turn {turn}")

    in_threads([partial(work, number) for number in range(_THREADS)])


def travel(ctx: Context) -> None:
    """What one thread made and recorded, a second waits for, and a third ends."""
    delay = Delay(ctx)
    producer, consumer = ctx.stream(), ctx.stream()
    a, b = Buffer(ctx, _COUNT), Buffer(ctx, _COUNT)
    event = 0

    def make() -> None:
        nonlocal event
        event = ctx.out("event_create", ctx.chip.local, 0)
        delay.put(producer)
        a.fill(producer, 12)
        ctx.chip.invoke("event_record", event, producer)

    def wait() -> None:
        ctx.chip.invoke("stream_wait", consumer, event)
        b.copy_from(consumer, a)

    def end() -> None:
        ctx.expect(Status.OK, "event_destroy", event)
        b.expect(consumer, 12, "made in one thread, awaited in a second, read in a third")

    for step in (make, wait, end):
        in_threads([step])


def many_handles(ctx: Context) -> None:
    """Eight threads make and end streams, events and memory at the same time."""

    def work(number: int) -> None:
        for turn in range(60):
            stream = ctx.out("stream_create", ctx.chip.local, 0)
            event = ctx.out("event_create", ctx.chip.local, int(EventFlag.TIMING))
            address = ctx.out("mem_alloc", ctx.chip.local, 0, 4096)
            ctx.chip.invoke("mem_fill", stream, address, number, 4096)
            ctx.chip.invoke("event_record", event, stream)
            ctx.chip.invoke("event_query", event, -1)
            if turn % 20 == 0:
                memory = Buffer.at(ctx, address, 1024)
                memory.expect(stream, number * 0x01010101, f"thread {number}, turn {turn}")
            ctx.chip.invoke("event_destroy", event)
            ctx.chip.invoke("stream_destroy", stream)
            ctx.chip.invoke("mem_free", ctx.chip.local, address)

    in_threads([partial(work, number) for number in range(_THREADS)])


def texts(ctx: Context) -> None:
    """The text of a fault reaches the thread that made the call, and no other."""

    def faulty() -> None:
        out = ctypes.c_void_p()
        for _ in range(100):
            ctx.expect(Status.INVALID, "stream_create", -1, 0, ctypes.addressof(out))

    def faultless() -> None:
        stream, buffer = ctx.stream(), Buffer(ctx, 100)
        _runtime.take_error()
        for turn in range(100):
            buffer.fill(stream, turn)
            text = _runtime.take_error()
            ctx.check(not text, f"a call that went well came with the text {text!r} of another")

    in_threads([faulty, faultless, faulty, faultless])


def waits_and_works(ctx: Context) -> None:
    """Threads that wait for their stream do not keep others from enqueuing or being right."""
    delay = Delay(ctx)
    streams = [ctx.stream() for _ in range(2)]
    for stream in streams:
        delay.put(stream)  # both results exist before threads share the delay

    def work(stream: int) -> None:
        buffer = Buffer(ctx, _COUNT)
        for turn in range(6):
            buffer.fill(stream, 0)
            delay.put(stream)
            buffer.fill(stream, turn)
            buffer.expect(stream, turn, f"turn {turn}, while another thread waits")

    in_threads([partial(work, stream) for stream in streams])


# ---- random programs -----------------------------------------------------------------------------


class Program:
    """Random steps over several streams and buffers, ordered by events only where they must be.

    The host runs the same steps one after the other. Before a step its stream waits for the last
    writer of what it reads, and for all readers of what it writes, if they are other streams.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.streams = [ctx.stream() for _ in range(_STREAMS)]
        self.buffers = [Buffer(ctx, _COUNT) for _ in range(_BUFFERS)]
        self.expected: list[NDArray[np.int32]] = [np.zeros(_COUNT, np.int32) for _ in self.buffers]
        self.events = itertools.cycle([ctx.event() for _ in range(7)])
        self.writer: dict[int, int] = {}  # buffer: stream that wrote it last
        self.readers: dict[int, set[int]] = {place: set() for place in range(_BUFFERS)}
        self.delay = Delay(ctx)

    def order(self, stream: int, reads: set[int], writes: int) -> None:
        """Waits for whatever the step depends on, and notes the step."""
        before = {self.writer[place] for place in reads | {writes} if place in self.writer}
        before |= self.readers[writes]
        for other in before - {stream}:
            event = next(self.events)
            self.ctx.chip.invoke("event_record", event, self.streams[other])
            self.ctx.chip.invoke("stream_wait", self.streams[stream], event)
        for place in reads:
            self.readers[place].add(stream)
        self.readers[writes] = {stream}
        self.writer[writes] = stream

    def step(self) -> None:
        rng = self.ctx.rng
        stream = int(rng.integers(_STREAMS))
        kind = str(
            rng.choice(["fill", "set", "copy", "add", "delay"], p=[0.1, 0.1, 0.3, 0.45, 0.05])
        )
        x, y, out = (int(place) for place in rng.integers(_BUFFERS, size=3))
        value = int(rng.integers(100))
        handle, expected = self.streams[stream], self.expected
        if kind == "delay":
            self.delay.put(handle)
        elif kind == "fill":
            self.order(stream, set(), out)
            self.buffers[out].fill(handle, value)
            expected[out] = np.full(_COUNT, value, np.int32)
        elif kind == "set":
            self.order(stream, set(), out)
            memory = self.buffers[out]
            self.ctx.chip.invoke("mem_fill", handle, memory.address, value, memory.bytes)
            expected[out] = np.full(_COUNT, value * 0x01010101, np.int32)
        elif kind == "copy" and x != out:
            self.order(stream, {x}, out)
            self.buffers[out].copy_from(handle, self.buffers[x])
            expected[out] = expected[x].copy()
        elif kind == "add":
            self.order(stream, {x, y}, out)
            left, right = self.buffers[x], self.buffers[y]
            self.buffers[out].combine(handle, PointwiseOp.ADD, left, right)
            expected[out] = expected[x] + expected[y]


def random_program(ctx: Context, number: int) -> None:
    """The result of a random program is that of its steps one after the other."""
    program = Program(ctx)
    for place, buffer in enumerate(program.buffers):
        program.order(place % _STREAMS, set(), place)
        buffer.fill(program.streams[place % _STREAMS], 0)
    for _ in range(_STEPS):
        program.step()
    ctx.expect(Status.OK, "device_sync", ctx.chip.local)
    for place, (buffer, wanted) in enumerate(zip(program.buffers, program.expected, strict=True)):
        got = buffer.read(program.streams[0])
        wrong = np.flatnonzero(got != wanted)
        ctx.check(
            wrong.size == 0,
            f"random program {number}: {wrong.size} elements of buffer {place} differ from the "
            "steps in order; a wait was not honoured, or a stream ran out of order",
        )


# ---- devices -------------------------------------------------------------------------------------


@cases(level=1)
def device_cases() -> Iterator[Case]:
    yield Case(
        "thread/memory-comes-from-the-device-named",
        ("mem_alloc", "device_memory"),
        from_the_device_named,
        tags=frozenset({OPTIONAL, NEEDS_TWO_DEVICES}),
        rule="STA-001",
    )


def from_the_device_named(ctx: Context) -> None:
    """Whatever device a thread used last, an allocation shows on the one that it names."""
    other = ctx.other_device()

    def free_of(device: int) -> int:
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        outs = (ctypes.addressof(free), ctypes.addressof(total))
        ctx.chip.invoke("device_memory", device, *outs)
        return free.value

    here, there = ctx.chip.local, other.driver.local
    size = (free_of(here) // 8) & ~0xFFF
    for last, named in ((there, here), (here, there)):
        stream = ctx.out("stream_create", last, 0)
        ctx.chip.invoke("stream_sync", stream)
        before = free_of(named)
        address = ctx.out("mem_alloc", named, int(MemoryKind.DEVICE), size)
        taken = before - free_of(named)
        ctx.chip.invoke("mem_free", named, address)
        ctx.chip.invoke("stream_destroy", stream)
        ctx.check(
            taken >= size // 2,
            f"after a stream of device {last}, an allocation of {size} bytes on device {named} "
            f"took {taken} bytes there",
        )
