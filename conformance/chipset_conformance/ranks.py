"""Ranks of a communicator: child processes with a device each, or threads with a device each.

A case sends a *step*, a function of a module, to every rank; each rank answers with what the step
returns, or with its fault. Ranks live on from case to case, since starting one takes longer than
most cases; a gang in which a rank failed is ended, and the next case gets a new one. Nothing here
waits with a limit of its own: a gang that hangs is one hung case, whose process group is killed.

    python -m chipset_conformance.ranks DEVICE NUMBER SIZE SEED PIPE_FD
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import chipset
from chipset import _runtime
from chipset._interface import COMM_ID_SIZE, Status
from chipset.device import Device
from chipset_conformance.case import Case, CaseFailure, Unsupported
from chipset_conformance.context import Context

Step = Callable[..., Any]  # step(rank, *arguments), of a module, so that it can be sent by name
GRACE_S = 5.0  # that the other ranks have once one has failed
_TAIL_BYTES = 1500
_PR_SET_PDEATHSIG = 1


class Rank:
    """What a step works with.

    Attributes:
        number, size: of the rank in the gang's communicator.
        context: of this step: the device, streams, memory; closed after the step.
        comm: handle of the communicator of all ranks; 0 in a gang that was told not to join.
        lost: set by a step that has lost the device for good: it is not synchronised any more.
    """

    def __init__(self, device: Device, number: int, size: int, seed: int) -> None:
        self.device = device
        self.number = number
        self.size = size
        self.comm = 0
        self.lost = False
        self._seed = seed
        self.context = self._new_context()

    def _new_context(self) -> Context:
        case = Case(id=f"rank-{self.number}", functions=("comm_create",), run=lambda context: None)
        return Context(self.device, case, self._seed)

    def perform(self, step: Step, arguments: Sequence[Any]) -> tuple[str, Any]:
        """Runs a step: ("done", result), ("unsupported", text) or ("failed", text)."""
        self.context = self._new_context()
        try:
            result = step(self, *arguments)
            if not self.lost:
                self.context.close()
            return "done", result
        except Unsupported as answer:
            return "unsupported", str(answer)
        except CaseFailure as failure:
            return "failed", str(failure)
        except _runtime.Error as error:
            return "unsupported" if error.status == Status.UNSUPPORTED else "failed", str(error)
        except Exception as error:
            return "failed", "".join(traceback.format_exception(error)[-6:])
        finally:
            self.context.abandon()

    # ---- communicators -------------------------------------------------------------------------

    def join(self, identity: bytes, number: int, size: int) -> int:
        """A communicator, which the caller ends with :meth:`leave`."""
        return self.context.out("comm_create", self.context.chip.local, identity, number, size)

    def leave(self, comm: int) -> None:
        self.context.chip.invoke("comm_destroy", comm)


def identity(context: Context) -> bytes:
    """An id of a new communicator."""
    buffer = ctypes.create_string_buffer(COMM_ID_SIZE)
    context.chip.invoke("comm_id", ctypes.addressof(buffer))
    return buffer.raw


def identify(rank: Rank, count: int) -> list[bytes]:
    """Step: ids of new communicators."""
    return [identity(rank.context) for _ in range(count)]


def join_all(rank: Rank, identity: bytes) -> None:
    """Step: makes the gang's communicator."""
    rank.comm = rank.join(identity, rank.number, rank.size)


def leave_all(rank: Rank) -> None:
    """Step: ends it."""
    rank.leave(rank.comm)
    rank.comm = 0


# ---- gangs ---------------------------------------------------------------------------------------


class Gang:
    """Ranks that perform steps together."""

    size: int

    def run(self, step: Step, *arguments: Any) -> list[Any]:
        """The step's result on every rank, called with the same arguments.

        Raises:
            CaseFailure: a rank failed or died; the gang is ended.
            Unsupported: no rank failed, and some said that the chip does not do this.
        """
        return self.run_each(step, [arguments] * self.size)

    def run_each(self, step: Step, arguments: Sequence[Sequence[Any] | None]) -> list[Any]:
        """The same with arguments for each rank; a rank with None takes no part."""
        answers = self._perform(step, arguments)
        failed = {n: text for n, (how, text) in answers.items() if how == "failed"}
        if failed:
            self.end()
            whose = "; ".join(f"rank {n} of {self.size}: {text}" for n, text in failed.items())
            raise CaseFailure(whose)
        for how, text in answers.values():
            if how == "unsupported":
                raise Unsupported(text)
        return [answers[n][1] if n in answers else None for n in range(self.size)]

    def ids(self, count: int) -> list[bytes]:
        """Ids of new communicators, made by rank 0."""
        only_first: list[Sequence[Any] | None] = [None] * self.size
        only_first[0] = (count,)
        made: list[bytes] = self.run_each(identify, only_first)[0]
        return made

    def join(self) -> None:
        """Makes the communicator of all."""
        self.run(join_all, self.ids(1)[0])

    @property
    def alive(self) -> bool:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def _perform(
        self, step: Step, arguments: Sequence[Sequence[Any] | None]
    ) -> dict[int, tuple[str, Any]]:
        raise NotImplementedError


class Processes(Gang):
    """A child process per rank. Rank r has the device r modulo the number of devices."""

    def __init__(
        self, device: str, size: int, seed: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self.size = size
        self._children: list[_Child] = []
        name, _, first = device.partition(":")
        for number in range(size):
            own = (
                device if size == 1 else f"{name}:{(int(first or 0) + number) % _devices_of(name)}"
            )
            self._children.append(_Child(own, number, size, seed, environment))
        self._alive = True

    @property
    def alive(self) -> bool:
        return self._alive and all(child.running for child in self._children)

    def kill(self, number: int) -> None:
        """Ends one rank at once, as a crash would."""
        self._children[number].kill()

    def end(self) -> None:
        self._alive = False
        for child in self._children:
            child.kill()

    def _perform(
        self, step: Step, arguments: Sequence[Sequence[Any] | None]
    ) -> dict[int, tuple[str, Any]]:
        waiting: dict[Connection, int] = {}
        for number, (child, given) in enumerate(zip(self._children, arguments, strict=True)):
            if given is None:
                continue
            with contextlib.suppress(BrokenPipeError):  # it has died; its answer says so
                child.pipe.send((step, tuple(given)))
            waiting[child.pipe] = number
        answers: dict[int, tuple[str, Any]] = {}
        while waiting:
            failed = any(how == "failed" for how, _ in answers.values())
            ready = wait(list(waiting), GRACE_S if failed else None)
            if not ready:
                for number in waiting.values():
                    answers[number] = "failed", f"still in the call {GRACE_S:g} s later"
                break
            for pipe in ready:
                assert isinstance(pipe, Connection)
                number = waiting.pop(pipe)
                try:
                    answers[number] = pipe.recv()
                except (EOFError, OSError):
                    answers[number] = "failed", self._children[number].death()
        return answers


class Threads(Gang):
    """A thread of this process per rank, each with another device of the plugin.

    Raises:
        Unsupported: the plugin has fewer devices.
    """

    def __init__(self, device: str, size: int, seed: int) -> None:
        self.size = size
        name = device.partition(":")[0]
        count = _devices_of(name)
        if count < size:
            raise Unsupported(f"plugin '{name}' has {count} devices, {size} ranks need {size}")
        self._ranks = [Rank(chipset.select(f"{name}:{n}"), n, size, seed) for n in range(size)]
        self._alive = True

    @property
    def alive(self) -> bool:
        return self._alive

    def end(self) -> None:
        self._alive = False

    def _perform(
        self, step: Step, arguments: Sequence[Sequence[Any] | None]
    ) -> dict[int, tuple[str, Any]]:
        answers: dict[int, tuple[str, Any]] = {}

        def work(rank: Rank, given: Sequence[Any]) -> None:
            answers[rank.number] = rank.perform(step, given)

        threads = [
            threading.Thread(target=work, args=(rank, given), daemon=True)
            for rank, given in zip(self._ranks, arguments, strict=True)
            if given is not None
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not any(how == "failed" for how, _ in answers.values()):
                thread.join(0.05)
            thread.join(GRACE_S)
        return dict(answers)


def _devices_of(plugin: str) -> int:
    chipset.select(plugin)
    entries = (_runtime.device(number) for number in range(_runtime.device_count()))
    return sum(entry["plugin"] == plugin for entry in entries)


_gangs: dict[tuple[str, str, int], Gang] = {}


def gang(context: Context, kind: type[Processes] | type[Threads], size: int) -> Gang:
    """A gang that has joined, kept from case to case."""
    key = (str(context.device), kind.__name__, size)
    known = _gangs.get(key)
    if known is None or not known.alive:
        known = kind(str(context.device), size, context.seed)
        known.join()
        _gangs[key] = known
    return known


@contextlib.contextmanager
def passing_gang(
    context: Context,
    size: int,
    environment: Mapping[str, str] | None = None,
    device: str | None = None,
) -> Iterator[Processes]:
    """Processes for one case, not joined, in an environment of their own.

    Args:
        device: of another plugin; default the context's.
    """
    made = Processes(device or str(context.device), size, context.seed, environment)
    try:
        yield made
    finally:
        made.end()


# ---- a child -------------------------------------------------------------------------------------


class _Child:
    """The parent's side of a rank's process."""

    def __init__(
        self,
        device: str,
        number: int,
        size: int,
        seed: int,
        environment: Mapping[str, str] | None,
    ) -> None:
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        self.pipe, theirs = Pipe()
        command = [sys.executable, "-m", "chipset_conformance.ranks", device]
        command += [str(number), str(size), str(seed), str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        if self.running:
            self._process.kill()
        self._process.wait()

    def death(self) -> str:
        """How it ended, with the end of what it printed."""
        status = self._process.wait()
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, self._printed.tell() - _TAIL_BYTES))
        tail = self._printed.read().decode(errors="replace").strip()
        return f"its process ended with {how}" + (f"; it printed: {tail}" if tail else "")


def main(arguments: list[str]) -> None:
    """Performs the steps that the pipe brings until it closes."""
    # A rank that is stuck in a call does not see its pipe close.
    with contextlib.suppress(AttributeError):  # Linux has it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    name, (number, size, seed, pipe_fd) = arguments[0], map(int, arguments[1:])
    pipe = Connection(pipe_fd)
    rank = Rank(chipset.select(name), number, size, seed)
    with contextlib.suppress(EOFError):
        while True:
            step, given = pipe.recv()
            pipe.send(rank.perform(step, given))
    if rank.comm:
        rank.context.chip.status("comm_destroy", rank.comm)


if __name__ == "__main__":
    from chipset_conformance import ranks

    ranks.main(sys.argv[1:])  # as a module, so that steps find the same classes
