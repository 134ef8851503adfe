"""Endures, the process: thread storms, fork, faults on demand, and a soak of chosen length."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import select
import signal
import time
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from chipset import _runtime
from chipset._interface import CopyKind, Status
from chipset_conformance.case import OPTIONAL, Case, CaseFailure, Unsupported, cases
from chipset_conformance.context import Context
from chipset_conformance.levels.endures_memory import RSS_SLACK, resources
from chipset_conformance.levels.l1_threads import random_program
from chipset_conformance.probes import Buffer, in_threads
from chipset_conformance.ranks import Rank, passing_gang

THREADS, TURNS = 48, 25
LONG_S = 300.0
SOAK = "CHIPSET_CONFORMANCE_SOAK_S"  # set by certify's --soak
SHORT_SOAK_S = 5.0
FORK_LIMIT_S = 20.0
MOST_CALLS = 200
RECOVERABLE = ("OUT_OF_MEMORY", "INTERNAL", "TIMEOUT", "UNSUPPORTED")
FATAL = ("DEVICE_LOST", "ASYNC_LOST")
FATAL_AT = (1, 4, 6, 9)  # which call of the work loses the device
NOT_LOST = "a call that enqueues no work, which lost nothing"
OFFERED = ("inject", "clear_injections", "injections", "live")


@cases(level="endures")
def process_cases() -> Iterator[Case]:
    memory = ("mem_alloc", "mem_free", "mem_copy", "pointwise", "stream_create")
    yield Case("storm/threads", memory, check_storm, rule="THR-001", timeout_s=LONG_S)
    yield Case("fork/child-is-told", ("mem_alloc",), check_fork, timeout_s=LONG_S)
    yield Case("fork/child-ends", ("mem_free",), check_fork_end, timeout_s=LONG_S)
    yield Case(
        "soak/random-programs",
        ("stream_wait", "event_record", "mem_copy", "mem_fill", "pointwise"),
        check_soak,
        timeout_s=LONG_S + 2 * soak_seconds(),
    )


@cases(level="endures")
def fault_cases() -> Iterator[Case]:
    functions = ("mem_alloc", "stream_create", "mem_copy", "pointwise", "event_record")
    for kind in (*RECOVERABLE, *FATAL):
        step = survive_every_call if kind in RECOVERABLE else lose_the_device
        run = partial(check_faults, kind=kind, step=step)
        name = kind.lower().replace("_", "-")
        yield Case(
            f"fault/{name}", functions, run, frozenset({OPTIONAL}), "ERR-003", timeout_s=LONG_S
        )


# ---- threads -------------------------------------------------------------------------------------


def check_storm(ctx: Context) -> None:
    """Many threads allocate, compute, copy and free at once; each sees its own numbers only."""

    def work(number: int) -> None:
        stream = ctx.stream()
        for turn in range(TURNS):
            count = 100 + 37 * ((number + turn) % 50)
            value = number * TURNS + turn
            memory = ctx.out("mem_alloc", ctx.chip.local, 0, 4 * count)
            cached = _runtime.allocate(ctx.device.number, 4 * count, stream)
            first, second = Buffer.at(ctx, memory, count), Buffer.at(ctx, cached, count)
            first.fill(stream, value)
            second.copy_from(stream, first)
            second.add(stream, second, first)
            second.expect(stream, 2 * value, f"thread {number} of {THREADS}, turn {turn}")
            _runtime.deallocate(cached)
            ctx.chip.invoke("mem_free", ctx.chip.local, memory)

    in_threads([partial(work, number) for number in range(THREADS)])


# ---- fork ----------------------------------------------------------------------------------------


def check_fork(ctx: Context) -> None:
    """A child of fork cannot use the device; it is told so, and the parent goes on."""
    with passing_gang(ctx, 1) as gang:
        text = gang.run(use_in_child)[0]
    ctx.check("fork" in text, f"a forked child that used the device was told: {text!r}")


def check_fork_end(ctx: Context) -> None:
    """A forked child that drops what it inherited ends by itself."""
    with passing_gang(ctx, 1) as gang:
        gang.run(drop_in_child)


def use_in_child(rank: Rank) -> str:
    """Step: what a forked child hears when it allocates; the parent computes afterwards."""
    chip = rank.context.chip
    array = chip.array(np.arange(8, dtype=np.float32))

    def child() -> str:
        try:
            chip.array(np.arange(8, dtype=np.float32))
        except Exception as error:
            return str(error)
        return "nothing"

    text = _in_fork(child)
    rank.context.check(bool((array.numpy() == np.arange(8)).all()), "the parent's memory changed")
    return text


def drop_in_child(rank: Rank) -> None:
    """Step: the child frees arrays of the parent, which must do nothing there."""
    kept = [rank.context.chip.array(np.arange(8, dtype=np.float32))]
    shared = kept[0].memory.address

    def child() -> str:
        kept.clear()
        gc.collect()
        return "ended"

    rank.context.check(_in_fork(child) == "ended", "a forked child could not drop its memory")
    rank.context.check(bool((kept[0].numpy() == np.arange(8)).all()), "the child freed it for all")
    rank.context.check(kept[0].memory.address == shared, "the parent's memory has moved")


def _in_fork(work: Any) -> str:
    """What the work says in a forked child; fails if it hangs or crashes."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, work().encode()[:4000] or b"?")
        finally:
            os._exit(0)
    os.close(theirs)
    ready = select.select([ours], [], [], FORK_LIMIT_S)[0]
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    text = os.read(ours, 4096).decode(errors="replace") if ready else ""
    os.close(ours)
    if not ready:
        raise CaseFailure(f"a forked child hung for {FORK_LIMIT_S:g} s")
    if os.WIFSIGNALED(status):
        raise CaseFailure(f"a forked child died by {signal.Signals(os.WTERMSIG(status)).name}")
    return text


# ---- faults on demand ----------------------------------------------------------------------------


def injector(plugin: str) -> ModuleType:
    """The plugin's package, if it offers faults on demand.

    It does so by functions ``inject(rules)``, ``clear_injections()``, ``injections()`` (how many
    fired) and ``live()`` (counts of what is alive) of the package ``chipset_<name>``; a rule is
    ``FUNCTION:WHEN=KIND``, such as ``*:3=OUT_OF_MEMORY``.

    Raises:
        Unsupported: it does not.
    """
    try:
        module = importlib.import_module(f"chipset_{plugin}")
    except ImportError:
        raise Unsupported(f"plugin '{plugin}' has no package chipset_{plugin}") from None
    if not all(hasattr(module, name) for name in OFFERED):
        raise Unsupported(f"chipset_{plugin} offers no faults on demand ({', '.join(OFFERED)})")
    return module


def check_faults(ctx: Context, kind: str, step: Any) -> None:
    injector(ctx.device.name)
    places = (0,) if kind in RECOVERABLE else FATAL_AT
    told = []
    for at in places:  # a lost device is lost for its process
        with passing_gang(ctx, 1) as gang:
            told.append(gang.run(step, kind, at)[0])
            ctx.note(told[-1])
    ctx.check(not all(NOT_LOST in text for text in told), f"no call lost the device: {told}")


def survive_every_call(rank: Rank, kind: str, _: int) -> str:
    """Step: fails the N-th call, N = 1, 2, … until a run of the work passes."""
    faults, check = injector(rank.device.name), rank.context.check
    work = Work(rank.context)
    clean = work.run()
    check(not clean, f"without any fault the work met {clean}")
    before = faults.live()
    for n in range(1, MOST_CALLS):
        faults.inject(f"*:{n}={kind}")
        met = work.run()
        fired = faults.injections()
        faults.clear_injections()
        check(faults.live() == before, f"call {n}: {met}; left {faults.live()}, had {before}")
        again = work.run()
        check(not again, f"after the fault of call {n} ({met}) the work met {again}")
        if not fired:
            check(not met, f"no fault was made, and the work met {met}")
            return f"{kind}: {n - 1} calls, each failed once"
        check(len(met) <= 1, f"one fault, of call {n}, surfaced {len(met)} times: {met}")
        for function, status, text in met:
            check(status == kind, f"{kind} of call {n} surfaced as {status} in {function}: {text}")
            check(bool(text), f"{kind} surfaced in {function} without a text (ERR-001)")
    raise CaseFailure(f"the work makes more than {MOST_CALLS} calls")


def lose_the_device(rank: Rank, kind: str, at: int) -> str:
    """Step: the device is lost at a call, or while its work runs; it says so from then on."""
    faults, check, chip = injector(rank.device.name), rank.context.check, rank.context.chip
    work = Work(rank.context)
    clean = work.run()
    check(not clean, f"without any fault the work met {clean}")
    faults.inject(f"*:{at}={kind}")
    met = work.run()
    check(faults.injections() > 0, f"the work makes fewer than {at} calls")
    faults.clear_injections()
    said = [Status(chip.status("device_sync", chip.local)) for _ in range(2)]
    if kind == "ASYNC_LOST" and not met and said == [Status.OK] * 2:
        return f"{kind} at call {at}: {NOT_LOST}"
    rank.lost = True
    names = [status.name for status in said]
    check(names == ["DEVICE_LOST"] * 2, f"after {kind} at call {at} device_sync answers {names}")
    told = all(status == "DEVICE_LOST" and text for _, status, text in met)
    check(bool(met) and told, f"{kind} at call {at} surfaced as {met}")
    return f"{kind} at call {at}: lost, and says so"


class Work:
    """Memory, a stream, an event, copies and a kernel; stops at the first error and tidies up."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.met: list[tuple[str, str, str]] = []

    def run(self) -> list[tuple[str, str, str]]:
        """The errors that surfaced: function, status, text."""
        self.met = []
        made: list[tuple[str, tuple[int, ...]]] = []
        try:
            self._work(made)
        except InterruptedError:
            pass
        for ending, arguments in reversed(made):
            if ending == "stream_destroy":
                self._end("stream_sync", arguments)
        for ending, arguments in reversed(made):
            self._end(ending, arguments)
        _runtime.take_error()
        return self.met

    def _work(self, made: list[tuple[str, tuple[int, ...]]]) -> None:
        chip, local = self.ctx.chip, self.ctx.chip.local
        given = np.arange(1, 17, dtype=np.int32)
        got = np.zeros(16, np.int32)
        stream = self._make("stream_create", local, 0)
        made.append(("stream_destroy", (stream,)))
        first = self._make("mem_alloc", local, 0, given.nbytes)
        made.append(("mem_free", (local, first)))
        second = self._make("mem_alloc", local, 0, given.nbytes)
        made.append(("mem_free", (local, second)))
        event = self._make("event_create", local, 0)
        made.append(("event_destroy", (event,)))
        into, out = int(CopyKind.HOST_TO_DEVICE), int(CopyKind.DEVICE_TO_HOST)
        self._do("mem_copy", stream, first, given.ctypes.data, given.nbytes, into)
        x, y = Buffer.at(self.ctx, first, 16), Buffer.at(self.ctx, second, 16)
        arguments = chip.arguments(
            "pointwise", op=3, compute_dtype=int(x.array.dtype), num_inputs=2, output=y.array,
            input=[x.array, x.array], param=[1],
        )  # fmt: skip
        self._do("pointwise", stream, ctypes.addressof(arguments))
        self._do("event_record", event, stream)
        self._do("event_query", event, -1)
        self._do("mem_copy", stream, got.ctypes.data, second, got.nbytes, out)
        self._do("stream_sync", stream)
        self.ctx.check(bool((got == 2 * given).all()), f"2 * {given} is {got}")

    def _do(self, function: str, *arguments: int) -> None:
        status = Status(self.ctx.chip.status(function, *arguments))
        if status not in (Status.OK, Status.NOT_READY):
            self.met.append((function, status.name, _runtime.take_error()))
            raise InterruptedError

    def _make(self, function: str, *arguments: int) -> int:
        out = ctypes.c_void_p()
        self._do(function, *arguments, ctypes.addressof(out))
        return out.value or 0

    def _end(self, function: str, arguments: tuple[int, ...]) -> None:
        """Ends or awaits; a refusal did nothing, so once more."""
        for _ in range(2):
            status = Status(self.ctx.chip.status(function, *arguments))
            if status == Status.OK:
                return
            self.met.append((function, status.name, _runtime.take_error()))
            if status == Status.DEVICE_LOST:
                return


# ---- soak ----------------------------------------------------------------------------------------


def soak_seconds() -> float:
    """How long the soak lasts: what ``--soak`` says, or a few seconds."""
    return float(os.environ.get(SOAK, "") or SHORT_SOAK_S)


def check_soak(ctx: Context) -> None:
    """Random programs over streams until the time is over; right to the end, and no larger."""
    end = time.monotonic() + soak_seconds()
    programs, before = 0, dict[str, int]()
    while time.monotonic() < end or programs < 4:
        inner = Context(ctx.device, ctx.case, ctx.seed + programs)
        try:
            random_program(inner, programs)
        finally:
            inner.abandon()
        programs += 1
        if programs == 3:
            before = resources(ctx)
    ctx.count("random programs", programs)
    for what, count in resources(ctx).items():
        slack = 8 * RSS_SLACK if what == "bytes in memory" else 0
        ctx.check(count <= before[what] + slack, f"{count - before[what]} {what} more at the end")
