"""Level 5, collectives: every function, dtype, operation and size, in place and not, on 2 and 4
ranks in processes of their own, and on the devices of one process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chipset._interface import CollectiveOp, CopyKind, Dtype
from chipset_conformance import ranks
from chipset_conformance import values as draw
from chipset_conformance.case import NEEDS_TWO_DEVICES, OPTIONAL, Case, CaseFailure, cases
from chipset_conformance.context import Context
from chipset_conformance.numerics import (
    EIGHT_BIT_FLOATS,
    FLOATS,
    HOST,
    INTEGERS,
    OPAQUES,
    Array,
    is_float,
    judge,
    name_of,
    round_to,
)
from chipset_conformance.oracles import collective as oracle
from chipset_conformance.ranks import Processes, Rank, Threads

SIZES = (2, 4)
COUNTS = (0, 1, 3, 1023, 100_003)  # nothing, one, fewer than ranks, odd, beyond any staging buffer
LARGE = 1_500_007
MOVED = (*FLOATS, *INTEGERS, Dtype.BOOL, *EIGHT_BIT_FLOATS, *OPAQUES)
REDUCED = (*FLOATS, *INTEGERS, Dtype.BOOL, *EIGHT_BIT_FLOATS)
REDUCING = ("all_reduce", "reduce_scatter")
MOVING = ("all_gather", "broadcast", "all_to_all", "send")
LIMIT_S = 150.0  # most of it to start the ranks' processes on a busy machine
GUARD = 64  # bytes on both sides of a result that must stay as they are
POISON = 0xA5


@dataclass(frozen=True)
class Call:
    """One collective as every rank makes it; ``count`` as the function takes it.

    ``send`` goes to the next rank, in a group with the ``recv`` from the one before; ``all_to_all``
    divides about ``count`` elements unevenly among the ranks.
    """

    function: str
    dtype: Dtype
    count: int
    op: CollectiveOp = CollectiveOp.SUM
    root: int = 0
    in_place: bool = False

    def __str__(self) -> str:
        where = "in place" if self.in_place else "out of place"
        name = f"{self.function} of {self.count} {name_of(self.dtype)}"
        if self.function in REDUCING:
            name += f", {self.op.name}"
        return f"{name}, root {self.root}" if self.function == "broadcast" else f"{name}, {where}"


@cases(level=5)
def reducing_cases() -> Iterator[Case]:
    for function in REDUCING:
        for op in CollectiveOp:
            for dtype in REDUCED:
                if not oracle.supported(op, dtype):
                    continue
                for size in SIZES:
                    yield _case(
                        f"{function}/{op.name.lower()}/{name_of(dtype)}/ranks-{size}", function,
                        dtype, partial(check_reducing, function=function, dtype=dtype, op=op,
                                       size=size),
                    )  # fmt: skip
        for dtype in FLOATS:
            for name, check in (("special-values", check_special), ("same-bits", check_same_bits)):
                run = partial(check, function=function, dtype=dtype)
                rule = "COL-002" if check is check_same_bits else None
                yield _case(f"{function}/{name}/{name_of(dtype)}", function, dtype, run, rule)


@cases(level=5)
def moving_cases() -> Iterator[Case]:
    for function in MOVING:
        for dtype in MOVED:
            for size in SIZES:
                run = partial(check_moving, function=function, dtype=dtype, size=size)
                yield _case(f"{function}/{name_of(dtype)}/ranks-{size}", function, dtype, run)


@cases(level=5)
def large_cases() -> Iterator[Case]:
    for function in (*REDUCING, *MOVING):
        yield _case(
            f"{function}/large", function, Dtype.F32, partial(check_large, function=function)
        )


@cases(level=5)
def one_process_cases() -> Iterator[Case]:
    """Ranks that are devices of one process, driven by a thread each."""
    for function in (*REDUCING, *MOVING):
        for dtype in (Dtype.F32, Dtype.BF16, Dtype.I64):
            yield Case(
                f"one-process/{function}/{name_of(dtype)}", _functions(function),
                partial(check_one_process, function=function, dtype=dtype),
                tags=frozenset({OPTIONAL, NEEDS_TWO_DEVICES}), dtype=name_of(dtype),
            )  # fmt: skip


def _functions(function: str) -> tuple[str, ...]:
    extra = ("recv", "group_begin", "group_end") if function == "send" else ()
    return (function, *extra, "comm_id", "comm_create")


def _case(identity: str, function: str, dtype: Dtype, run: Any, rule: str | None = None) -> Case:
    return Case(
        identity,
        _functions(function),
        run,
        frozenset({OPTIONAL}),
        rule,
        name_of(dtype),
        timeout_s=LIMIT_S,
    )


# ---- on a rank -----------------------------------------------------------------------------------


def perform(
    rank: Rank, calls: Sequence[Call], parts: Sequence[bytes], stream: int = 0
) -> list[bytes]:
    """Step: makes the calls one after the other; the results, each with its guards."""
    return [make(rank, call, part, rank.comm, rank.number, rank.size, stream)
            for call, part in zip(calls, parts, strict=True)]  # fmt: skip


def make(
    rank: Rank, call: Call, given: bytes, comm: int, number: int, size: int, stream: int = 0
) -> bytes:
    """Makes one call in fresh memory; the bytes of its result."""
    place = Place(rank.context, call, given, number, size)
    stream = stream or rank.context.chip.stream
    place.fill(stream)
    launch(rank.context, stream, comm, call, place, number, size)
    return place.result(stream)


class Place:
    """Device memory of a call: what it sends, and what it receives between guards."""

    def __init__(self, ctx: Context, call: Call, given: bytes, number: int, size: int) -> None:
        self.ctx = ctx
        self.given = np.frombuffer(given, np.uint8)
        item = HOST[call.dtype].itemsize
        unit = call.count * item
        self.bytes = received(call, size) * item
        inside = 0  # of what is sent within the memory that is received to, or the other way round
        if call.function == "all_gather":
            inside = number * unit
        elif call.function == "reduce_scatter":
            inside = -number * unit
        self.shared = call.in_place or call.function == "broadcast"
        both = max(self.bytes, len(given)) if self.shared else self.bytes
        self.memory = ctx.chip.empty((both + 2 * GUARD,), Dtype.U8)
        base = self.memory.address + GUARD
        self.receive = base + (max(0, -inside) if self.shared else 0)
        self.separate = ctx.chip.empty((max(1, len(given)),), Dtype.U8)
        self.send = base + max(0, inside) if self.shared else self.separate.address

    def fill(self, stream: int) -> None:
        """Poison everywhere, then what is sent."""
        whole = np.full(self.memory.size, POISON, np.uint8)
        self._copy(stream, self.memory.address, whole)
        self._copy(stream, self.send, self.given)

    def _copy(self, stream: int, to: int, source: NDArray[np.uint8]) -> None:
        if source.size:
            chip = self.ctx.chip
            kind = int(CopyKind.HOST_TO_DEVICE)
            chip.invoke("mem_copy", stream, to, source.ctypes.data, source.nbytes, kind)

    def _read(self, stream: int, address: int, size: int) -> NDArray[np.uint8]:
        out = np.empty(size, np.uint8)
        chip = self.ctx.chip
        kind = int(CopyKind.DEVICE_TO_HOST)
        if size:
            chip.invoke("mem_copy", stream, out.ctypes.data, address, size, kind)
        chip.invoke("stream_sync", stream)
        return out

    def result(self, stream: int) -> bytes:
        """What was received; fails if a guard, or what was only sent, has changed."""
        if not self.shared:
            now = self._read(stream, self.send, len(self.given))
            if not np.array_equal(now, self.given):
                raise CaseFailure("the buffer that is only sent was written to")
        whole = self._read(stream, self.memory.address, self.memory.size)
        if (whole[:GUARD] != POISON).any() or (whole[-GUARD:] != POISON).any():
            raise CaseFailure("bytes before or after the buffer were written")
        start = self.receive - self.memory.address
        return whole[start : start + self.bytes].tobytes()


def launch(
    ctx: Context, stream: int, comm: int, call: Call, place: Place, number: int, size: int
) -> None:
    """Enqueues the call."""
    chip, dtype, count = ctx.chip, int(call.dtype), call.count
    send, receive = place.send, place.receive
    if call.function in REDUCING:
        op = int(call.op)
        chip.invoke(call.function, stream, comm, send, receive, count, dtype, op)
    elif call.function == "all_gather":
        chip.invoke("all_gather", stream, comm, send, receive, count, dtype)
    elif call.function == "broadcast":
        chip.invoke("broadcast", stream, comm, receive, count, dtype, call.root)
    elif call.function == "all_to_all":
        out, into = ((ctypes.c_uint64 * size)(*c) for c in exchanged(count, number, size))
        arrays = ctypes.addressof(out), ctypes.addressof(into)
        chip.invoke("all_to_all", stream, comm, send, arrays[0], receive, arrays[1], dtype)
    else:  # to the right, from the left, opposite calls in a group
        chip.invoke("group_begin", comm)
        chip.invoke("send", stream, comm, send, count, dtype, (number + 1) % size)
        chip.invoke("recv", stream, comm, receive, count, dtype, (number - 1) % size)
        chip.invoke("group_end", comm)


def exchanged(count: int, number: int, size: int) -> tuple[list[int], list[int]]:
    """Elements that a rank sends to each, and gets from each: all differ, some are none."""

    def from_to(sender: int, receiver: int) -> int:
        return (
            0
            if count == 0
            else (count * (1 + sender) + 3 * receiver)
            // (size + 1)
            * ((sender + receiver) % 3 != 1 or size == 2)
        )

    return (
        [from_to(number, other) for other in range(size)],
        [from_to(other, number) for other in range(size)],
    )


def sent(call: Call, number: int, size: int) -> int:
    """Elements that a rank gives."""
    if call.function == "all_to_all":
        return sum(exchanged(call.count, number, size)[0])
    return call.count * (size if call.function == "reduce_scatter" else 1)


def received(call: Call, size: int, number: int | None = None) -> int:
    """Elements that a rank gets; for all_to_all the most that any gets."""
    if call.function == "all_to_all":
        totals = [sum(exchanged(call.count, n, size)[1]) for n in range(size)]
        return max(totals) if number is None else totals[number]
    return call.count * (size if call.function == "all_gather" else 1)


# ---- judging -------------------------------------------------------------------------------------


def drawn(ctx: Context, call: Call, number: int, size: int) -> Array:
    """What a rank gives: sums and averages of it are exact for integers."""
    shape = (sent(call, number, size),)
    if call.function not in REDUCING:
        return draw.bits(ctx.rng, shape, call.dtype)
    if is_float(call.dtype):
        if call.op == CollectiveOp.PROD:
            return round_to(ctx.rng.uniform(0.5, 1.5, shape), call.dtype)
        return draw.ordinary(ctx.rng, shape, call.dtype)
    if call.op == CollectiveOp.AVG:  # numbers of one sign whose sum every number of ranks divides
        return (ctx.rng.integers(0, 9, shape) * 12).astype(HOST[call.dtype])
    if call.op == CollectiveOp.PROD and call.dtype != Dtype.BOOL:
        return ctx.rng.integers(1, 4, shape).astype(HOST[call.dtype])
    return draw.spread(ctx.rng, shape[0], call.dtype)


def run_calls(ctx: Context, gang: ranks.Gang, calls: Sequence[Call]) -> None:
    """Makes the calls on the gang and holds every rank's result against the oracle."""
    given = [[drawn(ctx, call, n, gang.size) for n in range(gang.size)] for call in calls]
    judge_calls(ctx, gang, calls, given)


def judge_calls(
    ctx: Context, gang: ranks.Gang, calls: Sequence[Call], given: Sequence[Sequence[Array]]
) -> list[list[bytes]]:
    arguments = [
        (tuple(calls), tuple(parts[n].tobytes() for parts in given)) for n in range(gang.size)
    ]
    results: list[list[bytes]] = gang.run_each(perform, arguments)
    for place, (call, parts) in enumerate(zip(calls, given, strict=True)):
        for number in range(gang.size):
            judge_result(ctx, call, parts, number, results[number][place])
    return results


def judge_result(
    ctx: Context, call: Call, parts: Sequence[Array], number: int, result: bytes
) -> None:
    """Fails unless a rank got what the parts of all ranks come to."""
    size = len(parts)
    wanted = expected(call, parts, number)
    length = received(call, size, number)
    got = np.frombuffer(result, HOST[call.dtype])[:length]
    where = f"{call}: rank {number} of {size}"
    if isinstance(wanted, np.ndarray):
        wrong = np.frombuffer(got.tobytes(), np.uint8) != np.frombuffer(wanted.tobytes(), np.uint8)
        places = np.flatnonzero(wrong) // max(1, HOST[call.dtype].itemsize)
        if places.size:
            at = int(places[0])
            raise CaseFailure(
                f"{where}: element {at} of {length} is {got[at]!s}, not {wanted[at]!s}"
                f"; {len(set(places.tolist()))} differ; the ranks gave {given_at(call, parts, at)}"
            )
        return
    verdict = judge(got, wanted, call.dtype)
    ctx.record_ulp(verdict.worst_ulp, call.function, name_of(call.dtype))
    found = np.flatnonzero(verdict.wrong)
    if found.size:
        at = int(found[0])
        raise CaseFailure(
            f"{where}: element {at} of {length} is {got[at]!s}, exactly {wanted.value[at]!s} "
            f"(accepted: {verdict.low[at]!s} to {verdict.high[at]!s}); {found.size} differ; the "
            f"ranks gave {given_at(call, parts, at)}"
        )


def given_at(call: Call, parts: Sequence[Array], at: int) -> str:
    return ", ".join(str(part[at]) if at < len(part) else "nothing" for part in parts)


def expected(call: Call, parts: Sequence[Array], number: int) -> Any:
    """Exact elements, or :class:`Bounded` ones of a float reduction."""
    size = len(parts)
    if call.function in REDUCING:
        own = parts
        if call.function == "reduce_scatter":
            own = [part[number * call.count : (number + 1) * call.count] for part in parts]
        if is_float(call.dtype):
            return oracle.floats(call.op, call.dtype, own)
        return oracle.whole(call.op, call.dtype, own)
    if call.function == "all_gather":
        return np.concatenate(parts)
    if call.function == "broadcast":
        return parts[call.root]
    if call.function == "send":
        return parts[(number - 1) % size]
    pieces = []
    for sender, part in enumerate(parts):
        counts = exchanged(call.count, sender, size)[0]
        start = sum(counts[:number])
        pieces.append(part[start : start + counts[number]])
    return np.concatenate(pieces)


# ---- checks --------------------------------------------------------------------------------------


def placements(function: str) -> tuple[bool, ...]:
    """In place where the rule allows it (COL-001)."""
    return (False, True) if function in (*REDUCING, "all_gather") else (False,)


def check_reducing(ctx: Context, function: str, dtype: Dtype, op: CollectiveOp, size: int) -> None:
    calls = [
        Call(function, dtype, count, op, in_place=in_place)
        for count in COUNTS
        for in_place in placements(function)
    ]
    run_calls(ctx, ranks.gang(ctx, Processes, size), calls)


def check_moving(ctx: Context, function: str, dtype: Dtype, size: int) -> None:
    roots = range(size) if function == "broadcast" else (0,)
    calls = [
        Call(function, dtype, count, root=root, in_place=in_place)
        for count in COUNTS
        for in_place in placements(function)
        for root in roots
    ]
    run_calls(ctx, ranks.gang(ctx, Processes, size), calls)


def check_large(ctx: Context, function: str) -> None:
    root = 1 if function == "broadcast" else 0
    run_calls(ctx, ranks.gang(ctx, Processes, 2), [Call(function, Dtype.F32, LARGE, root=root)])


def check_one_process(ctx: Context, function: str, dtype: Dtype) -> None:
    root = 1 if function == "broadcast" else 0
    calls = [Call(function, dtype, count, root=root) for count in COUNTS]
    run_calls(ctx, ranks.gang(ctx, Threads, 2), calls)


def check_special(ctx: Context, function: str, dtype: Dtype) -> None:
    """Zeros, infinities and NaN on each side: NaN and infinities come out where they must."""
    numbers = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan])
    left, right = (round_to(x, dtype) for x in map(np.ravel, np.meshgrid(numbers, numbers)))
    count = len(left)
    gang = ranks.gang(ctx, Processes, 2)
    both = (np.tile(left, 2), np.tile(right, 2)) if function == "reduce_scatter" else (left, right)
    calls = [Call(function, dtype, count, op) for op in CollectiveOp if oracle.supported(op, dtype)]
    judge_calls(ctx, gang, calls, [both] * len(calls))


def check_same_bits(ctx: Context, function: str, dtype: Dtype) -> None:
    """Every rank has the same bits, in every run, where the order of a sum shows (COL-002)."""
    gang = ranks.gang(ctx, Processes, 4)
    count = 4099
    call = Call(function, dtype, count, CollectiveOp.SUM)
    length = sent(call, 0, gang.size)
    numbers = ctx.rng.standard_normal((gang.size, length)) * 10.0 ** ctx.rng.integers(
        -3, 4, (gang.size, length)
    )
    parts = [round_to(row, dtype) for row in numbers]
    if function == "reduce_scatter":  # each rank's part is another rank's: all must add alike
        parts = [np.tile(part[:count], gang.size) for part in parts]
    results = judge_calls(ctx, gang, [call] * 3, [parts] * 3)
    for number, own in enumerate(results):
        for turn, bits in enumerate(own):
            differ = np.flatnonzero(
                np.frombuffer(bits, HOST[dtype]).view(np.uint8)
                != np.frombuffer(results[0][0], HOST[dtype]).view(np.uint8)
            )
            ctx.check(
                differ.size == 0,
                f"{call}: rank {number}, run {turn} differs from rank 0, run 0 in {differ.size} "
                "bytes: the ranks add in different orders (COL-002)",
            )
