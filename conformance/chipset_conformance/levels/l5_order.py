"""Level 5, order and faults: collectives in their streams, several communicators at once, groups,
calls that must be refused, ranks that never come or die.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from chipset import _runtime
from chipset._interface import CollectiveOp, CopyKind, Dtype, Status
from chipset_conformance import ranks
from chipset_conformance.case import OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.levels.l5_collectives import (
    LIMIT_S,
    MOVING,
    REDUCING,
    Call,
    Place,
    drawn,
    judge_result,
    launch,
)
from chipset_conformance.probes import Delay, copy, read_bytes
from chipset_conformance.ranks import Processes, Rank

COUNT = 5003
TIMEOUT_MS = 1500
REFUSED = (Status.INVALID, Status.UNSUPPORTED)
DEFAULT = frozenset({OPTIONAL})


@cases(level=5)
def order_cases() -> Iterator[Case]:
    for function in (*REDUCING, *MOVING):
        for name, side in (("in-its-stream", False), ("after-a-side-stream", True)):
            run = partial(check_order, function=function, side=side)
            yield _case(f"{function}/{name}", (function, "comm_create"), run, DEFAULT, "ORD-001")


@cases(level=5)
def communicator_cases() -> Iterator[Case]:
    both = ("comm_create", "all_reduce", "all_gather")
    yield _case("comm/two-at-once", both, check_two_at_once, DEFAULT)
    yield _case("comm/subgroups", both, check_subgroups, DEFAULT)
    yield _case("comm/made-and-ended", ("comm_create", "comm_destroy"), check_remade, DEFAULT)
    yield _case("comm/one-rank", ("comm_create", "all_reduce"), check_one_rank, DEFAULT)
    yield _case("comm/ended-null", ("comm_destroy",), check_null, DEFAULT)
    groups = ("group_begin", "group_end", "send", "recv")
    yield _case("group/opposite-and-nested", groups, check_group, DEFAULT)
    yield _case("group/several-collectives", (*groups, "all_reduce"), check_grouped, DEFAULT)
    yield _case("send/in-order-per-pair", ("send", "recv"), check_pairs, DEFAULT)


@cases(level=5)
def fault_cases() -> Iterator[Case]:
    every = ("comm_create", "all_reduce", "broadcast", "send", "recv")
    yield _case("comm/refuses", every, check_refusals, DEFAULT, "ERR-001")
    yield _case("comm/sizes-differ", ("comm_create",), check_sizes, DEFAULT, "COL-001")
    yield _case("comm/absent-rank", ("comm_create",), check_absent, DEFAULT, "COL-003")
    for function in ("all_reduce", "broadcast", "recv"):
        run = partial(check_dead_peer, function=function)
        yield _case(f"{function}/dead-peer", (function, "comm_create"), run, DEFAULT, "COL-003")


def _case(
    identity: str, functions: tuple[str, ...], run: Any, tags: frozenset[str], rule: str = ""
) -> Case:
    return Case(identity, functions, run, tags, rule or None, timeout_s=LIMIT_S)


def each(gang: ranks.Gang, step: ranks.Step, *common: Any, own: Sequence[Any]) -> list[Any]:
    """A step with the common arguments and one of its own for each rank."""
    return gang.run_each(step, [(*common, item) for item in own])


# ---- order ---------------------------------------------------------------------------------------


def check_order(ctx: Context, function: str, side: bool) -> None:
    """What a slow stream produces is what is sent, and what follows sees what was received."""
    root = 1 if function == "broadcast" else 0
    call = Call(function, Dtype.I32, COUNT, root=root)
    gang = ranks.gang(ctx, Processes, 2)
    parts = [drawn(ctx, call, number, gang.size) for number in range(gang.size)]
    results = each(gang, in_order, call, side, own=[part.tobytes() for part in parts])
    for number, result in enumerate(results):
        judge_result(ctx, call, parts, number, result)


def in_order(rank: Rank, call: Call, side: bool, given: bytes) -> bytes:
    """Step: produces behind a delay, collects, consumes; across streams if ``side``."""
    ctx = rank.context
    stream = ctx.stream()
    producer, consumer = (ctx.stream(), ctx.stream()) if side else (stream, stream)
    delay = Delay(ctx)
    place = Place(ctx, call, bytes(len(given)), rank.number, rank.size)
    place.fill(stream)
    ctx.chip.invoke("stream_sync", stream)
    staged = ctx.chip.array(np.frombuffer(given, np.uint8))
    seen = ctx.chip.array(np.zeros(place.memory.size, np.uint8))

    delay.put(producer)
    copy(ctx, producer, place.send, staged.address, len(given), CopyKind.DEVICE_TO_DEVICE)
    follow(ctx, stream, producer)
    launch(ctx, stream, rank.comm, call, place, rank.number, rank.size)
    follow(ctx, consumer, stream)
    whole = place.memory
    copy(ctx, consumer, seen.address, whole.address, whole.size, CopyKind.DEVICE_TO_DEVICE)

    out = np.empty(whole.size, np.uint8)
    read_bytes(ctx, consumer, out, seen.address)
    start = place.receive - whole.address
    return out[start : start + place.bytes].tobytes()


def follow(ctx: Context, later: int, earlier: int) -> None:
    """The later stream waits for what the earlier one has enqueued."""
    if later != earlier:
        event = ctx.event()
        ctx.chip.invoke("event_record", event, earlier)
        ctx.chip.invoke("stream_wait", later, event)


# ---- communicators -------------------------------------------------------------------------------


def total(ctx: Context, comm: int, value: int, stream: int) -> int:
    """The sum over a communicator of one number per rank."""
    memory = ctx.chip.array(np.full(COUNT, value, np.int32))
    address = memory.address
    op, dtype = int(CollectiveOp.SUM), int(Dtype.I32)
    ctx.chip.invoke("all_reduce", stream, comm, address, address, COUNT, dtype, op)
    out = np.empty(COUNT * 4, np.uint8)
    read_bytes(ctx, stream, out, address)
    numbers = out.view(np.int32)
    ctx.check(bool((numbers == numbers[0]).all()), f"an all_reduce of {value}s gave {set(numbers)}")
    return int(numbers[0])


def gathered(ctx: Context, comm: int, value: int, size: int) -> list[int]:
    """One number of every rank, in the order of ranks."""
    chip = ctx.chip
    own, all_ = chip.array(np.full(1, value, np.int32)), chip.array(np.zeros(size, np.int32))
    chip.invoke("all_gather", chip.stream, comm, own.address, all_.address, 1, int(Dtype.I32))
    return [int(number) for number in all_.numpy()]


def check_two_at_once(ctx: Context) -> None:
    """Calls on two communicators of the same ranks, in two streams, do not mix."""
    gang = ranks.gang(ctx, Processes, 2)
    for sums in gang.run(two_at_once, gang.ids(2)):
        wanted = [2 * turn + 1 for turn in range(8)]
        ctx.check(sums == wanted, f"sums over two communicators in turn are {sums}, not {wanted}")


def two_at_once(rank: Rank, ids: list[bytes]) -> list[int]:
    """Step: sums on two communicators in turn, each enqueued before the other is awaited."""
    ctx = rank.context
    comms = [rank.join(identity, rank.number, rank.size) for identity in ids]
    streams = [ctx.stream() for _ in comms]
    memory = []
    for turn in range(8):
        own = ctx.chip.array(np.full(COUNT, turn + rank.number, np.int32))
        memory.append(own)
        stream, comm = streams[turn % 2], comms[turn % 2]
        arguments = (own.address, own.address, COUNT, int(Dtype.I32), int(CollectiveOp.SUM))
        ctx.chip.invoke("all_reduce", stream, comm, *arguments)
    for stream in streams:
        ctx.chip.invoke("stream_sync", stream)
    sums = []
    for own in memory:
        numbers = own.numpy()
        ctx.check(bool((numbers == numbers[0]).all()), f"the elements of a sum differ: {numbers}")
        sums.append(int(numbers[0]))
    for comm in comms:
        rank.leave(comm)
    return sums


def check_subgroups(ctx: Context) -> None:
    """Even and odd ranks apart; then all in reverse: ranks are those of the communicator."""
    gang = ranks.gang(ctx, Processes, 4)
    for number, (inside, total_, reverse) in enumerate(gang.run(subgroups, gang.ids(3))):
        own = [10 + n for n in range(number % 2, 4, 2)]
        ctx.check(inside == own, f"rank {number} gathered {inside} in its group, not {own}")
        ctx.check(total_ == sum(own), f"rank {number} has the sum {total_}, not {sum(own)}")
        ctx.check(reverse == [13, 12, 11, 10], f"gathered by ranks in reverse: {reverse}")


def subgroups(rank: Rank, ids: list[bytes]) -> tuple[list[int], int, list[int]]:
    """Step: see :func:`check_subgroups`."""
    ctx, value = rank.context, 10 + rank.number
    comm = rank.join(ids[rank.number % 2], rank.number // 2, 2)
    inside = gathered(ctx, comm, value, 2)
    sum_ = total(ctx, comm, value, ctx.stream())
    rank.leave(comm)
    comm = rank.join(ids[2], rank.size - 1 - rank.number, rank.size)
    reverse = gathered(ctx, comm, value, rank.size)
    rank.leave(comm)
    return inside, sum_, reverse


def check_remade(ctx: Context) -> None:
    """Communicators that were ended leave nothing behind: no open file, no growing memory."""
    gang = ranks.gang(ctx, Processes, 2)
    for number, (sums, before, after) in enumerate(gang.run(remade, gang.ids(20))):
        ctx.check(set(sums) == {3}, f"sums of 1 and 2 on fresh communicators are {sums}")
        ctx.check(
            after <= before,
            f"rank {number} has {after} open files after 20 communicators, {before} after 2",
        )


def remade(rank: Rank, ids: list[bytes]) -> tuple[list[int], int, int]:
    """Step: joins, sums, leaves; open files after the second and after the last time."""
    sums, files = [], []
    stream = rank.context.stream()
    for identity in ids:
        comm = rank.join(identity, rank.number, rank.size)
        sums.append(total(rank.context, comm, rank.number + 1, stream))
        rank.leave(comm)
        files.append(len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0)
    return sums, files[1], files[-1]


def check_one_rank(ctx: Context) -> None:
    """A communicator of one rank moves to itself and reduces nothing away."""
    identity = ranks.identity(ctx)
    comm = ctx.out("comm_create", ctx.chip.local, identity, 0, 1)
    ctx.check(total(ctx, comm, 7, ctx.chip.stream) == 7, "the sum over one rank is not its number")
    ctx.check(gathered(ctx, comm, 7, 1) == [7], "what one rank gathers is not its number")
    ctx.expect(Status.OK, "comm_destroy", comm)


def check_null(ctx: Context) -> None:
    """Destroying no communicator is legal and does nothing."""
    ctx.expect(Status.OK, "comm_destroy", None)


# ---- groups and pairs ----------------------------------------------------------------------------


def check_group(ctx: Context) -> None:
    """Opposite sends and receives of all pairs at once, in a group within a group."""
    gang = ranks.gang(ctx, Processes, 4)
    gang.run(exchange_all)


def exchange_all(rank: Rank) -> None:
    """Step: every rank sends to every other; sends first, receives in the opposite order."""
    ctx, chip, dtype = rank.context, rank.context.chip, int(Dtype.I32)
    peers = [n for n in range(rank.size) if n != rank.number]
    count = {n: 1000 * (n + 1) + 1 for n in range(rank.size)}  # elements that rank n sends
    own = count[rank.number]
    sent = {n: chip.array(np.full(own, 100 * rank.number + n, np.int32)) for n in peers}
    got = {n: chip.array(np.zeros(count[n], np.int32)) for n in peers}
    chip.invoke("group_begin", rank.comm)
    chip.invoke("group_begin", rank.comm)
    for n in peers:
        chip.invoke("send", chip.stream, rank.comm, sent[n].address, own, dtype, n)
    chip.invoke("group_end", rank.comm)
    for n in reversed(peers):
        chip.invoke("recv", chip.stream, rank.comm, got[n].address, count[n], dtype, n)
    chip.invoke("group_end", rank.comm)
    for n in peers:
        wanted = 100 * n + rank.number
        ctx.check(bool((got[n].numpy() == wanted).all()), f"rank {n} sent {wanted}, got another")


def check_grouped(ctx: Context) -> None:
    """Collectives and transfers held in one group all run."""
    gang = ranks.gang(ctx, Processes, 2)
    call = Call("send", Dtype.I32, COUNT)
    parts = [drawn(ctx, call, number, 2) for number in range(2)]
    answers = each(gang, grouped, call, own=[part.tobytes() for part in parts])
    for number, (sums, moved) in enumerate(answers):
        ctx.check(sums == [3, 30], f"rank {number}: sums in a group are {sums}, not [3, 30]")
        judge_result(ctx, call, parts, number, moved)


def grouped(rank: Rank, call: Call, given: bytes) -> tuple[list[int], bytes]:
    """Step: two sums in place and an exchange between group_begin and group_end."""
    chip, comm = rank.context.chip, rank.comm
    place = Place(rank.context, call, given, rank.number, rank.size)
    place.fill(chip.stream)
    sums = [chip.array(np.full(9, unit * (rank.number + 1), np.int32)) for unit in (1, 10)]
    chip.invoke("group_begin", comm)
    for own in sums:
        arguments = (own.address, own.address, 9, int(Dtype.I32), int(CollectiveOp.SUM))
        chip.invoke("all_reduce", chip.stream, comm, *arguments)
    launch(rank.context, chip.stream, comm, call, place, rank.number, rank.size)
    chip.invoke("group_end", comm)
    return [int(own.numpy()[-1]) for own in sums], place.result(chip.stream)


def check_pairs(ctx: Context) -> None:
    """Messages between two ranks arrive in the order in which they were sent."""
    ranks.gang(ctx, Processes, 2).run(in_turn)


def in_turn(rank: Rank) -> None:
    """Step: five messages of different sizes from 0 to 1, without a group."""
    ctx, chip, dtype = rank.context, rank.context.chip, int(Dtype.I32)
    for turn, count in enumerate((1, 70_001, 0, 17, 300_000)):
        value = turn if rank.number == 0 else -1
        memory = chip.array(np.full(max(1, count), value, np.int32))
        function = "send" if rank.number == 0 else "recv"
        chip.invoke(function, chip.stream, rank.comm, memory.address, count, dtype, 1 - rank.number)
        numbers = memory.numpy()[:count]
        ctx.check(bool((numbers == turn).all()), f"message {turn} has {set(numbers.tolist())}")


# ---- faults --------------------------------------------------------------------------------------


def refusal(ctx: Context, function: str, *arguments: Any) -> None:
    """Fails unless the call is refused, with a text."""
    _runtime.take_error()
    status = Status(ctx.chip.status(function, *arguments))
    text = _runtime.take_error()
    wanted = " or ".join(known.name for known in REFUSED)
    ctx.check(status in REFUSED, f"{function}{arguments} answered {status.name}, not {wanted}")
    ctx.check(bool(text), f"{function}{arguments} answered {status.name} without a text (ERR-001)")


def check_refusals(ctx: Context) -> None:
    """What cannot be is refused on every rank, and the communicator works on."""
    gang = ranks.gang(ctx, Processes, 2)
    for sum_ in gang.run(refused, gang.ids(1)[0]):
        ctx.check(sum_ == 3, f"after refused calls 1 + 2 is {sum_}")


def refused(rank: Rank, identity: bytes) -> int:
    """Step: wrong ranks, sizes, ids, peers, roots, dtypes and operations; then a sum."""
    ctx, chip, comm = rank.context, rank.context.chip, rank.comm
    out, local = ctypes.c_void_p(), chip.local
    for number, size in ((-1, 2), (2, 2), (0, 0), (0, -1)):
        refusal(ctx, "comm_create", local, identity, number, size, ctypes.addressof(out))
        ctx.check(not out.value, "a communicator that was refused has a handle (ERR-002)")
    refusal(ctx, "comm_create", local, b"\x5a" * len(identity), 0, 1, ctypes.addressof(out))
    refusal(ctx, "comm_create", -1, identity, 0, 1, ctypes.addressof(out))
    memory = chip.array(np.full(8, 5, np.int32))
    at, dtype, stream = memory.address, int(Dtype.I32), chip.stream
    for wrong in (-1, rank.size):
        refusal(ctx, "broadcast", stream, comm, at, 8, dtype, wrong)
        refusal(ctx, "send", stream, comm, at, 8, dtype, wrong)
        refusal(ctx, "recv", stream, comm, at, 8, dtype, wrong)
    refusal(ctx, "all_reduce", stream, comm, at, at, 8, 99, int(CollectiveOp.SUM))
    refusal(ctx, "all_reduce", stream, comm, at, at, 8, dtype, 99)
    refusal(ctx, "all_reduce", stream, comm, at, at, 2, int(Dtype.F32), int(CollectiveOp.BXOR))
    ctx.check(bool((memory.numpy() == 5).all()), "a refused call has written (ERR-002)")
    return total(ctx, comm, rank.number + 1, stream)


def hasty(ctx: Context) -> dict[str, str]:
    """The environment of ranks that soon give up waiting for a peer."""
    return {f"CHIPSET_{ctx.device.name.upper()}_COMM_TIMEOUT_MS": str(TIMEOUT_MS)}


def status_of_joining(rank: Rank, identity: bytes, place: tuple[int, int]) -> tuple[str, str]:
    """Step: the status and the text with which comm_create ends."""
    out = ctypes.c_void_p()
    chip = rank.context.chip
    _runtime.take_error()
    arguments = (chip.local, identity, *place, ctypes.addressof(out))
    status = Status(chip.status("comm_create", *arguments))
    return status.name, _runtime.take_error()


def check_absent(ctx: Context) -> None:
    """A rank that never comes is an error, not a hang."""
    with ranks.passing_gang(ctx, 2, hasty(ctx)) as gang:
        identity = gang.ids(1)[0]
        status, text = gang.run_each(status_of_joining, [(identity, (0, 2)), None])[0]
        expect_timeout(ctx, "comm_create without the other rank", status, text)


def check_sizes(ctx: Context) -> None:
    """Ranks that disagree about the size get an error, not a hang."""
    with ranks.passing_gang(ctx, 2, hasty(ctx)) as gang:
        identity = gang.ids(1)[0]
        answers = gang.run_each(status_of_joining, [(identity, (0, 2)), (identity, (1, 3))])
        for number, (status, text) in enumerate(answers):
            ctx.check(
                status not in ("OK", "UNSUPPORTED") and bool(text),
                f"rank {number}: joining as rank 0 of 2 and 1 of 3 answered {status} ({text!r})",
            )


def check_dead_peer(ctx: Context, function: str) -> None:
    """A peer that has died is an error at the call or the next synchronisation, not a hang."""
    with ranks.passing_gang(ctx, 2, hasty(ctx)) as gang:
        gang.join()
        gang.kill(1)
        status, text = gang.run_each(status_without_peer, [(function,), None])[0]
        expect_timeout(ctx, f"{function} with a peer that has died", status, text)


def status_without_peer(rank: Rank, function: str) -> tuple[str, str]:
    """Step: how a call ends whose peer is gone."""
    chip, comm = rank.context.chip, rank.comm
    memory = chip.array(np.zeros(8, np.int32))
    at, dtype, peer = memory.address, int(Dtype.I32), 1 - rank.number
    arguments: dict[str, tuple[int, ...]] = {
        "all_reduce": (at, at, 8, dtype, int(CollectiveOp.SUM)),
        "broadcast": (at, 8, dtype, peer),
        "recv": (at, 8, dtype, peer),
    }
    _runtime.take_error()
    status = Status(chip.status(function, chip.stream, comm, *arguments[function]))
    if status == Status.OK:
        status = Status(chip.status("stream_sync", chip.stream))
    return status.name, _runtime.take_error()


def expect_timeout(ctx: Context, what: str, status: str, text: str) -> None:
    ctx.check(status == "TIMEOUT", f"{what} answered {status} ({text!r}), not TIMEOUT (COL-003)")
    ctx.check(bool(text), f"{what} answered TIMEOUT without a text (ERR-001)")
