"""A process that runs cases: the child's side and the parent's.

A crash or a hang of a plugin costs the child, never the run. They talk in lines of JSON through
two pipes of their own, so that nothing that a plugin prints can disturb them.

    python -m chipset_conformance.worker DEVICE SEED COMMANDS_FD ANSWERS_FD
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO, Any

from chipset_conformance.case import Case, Level
from chipset_conformance.results import Outcome, Record

START_TIMEOUT_S = 120.0  # to load the plugin and list the cases
_TAIL_BYTES = 2000  # of what a dead child printed


class StartError(RuntimeError):
    """The child cannot launch the device; the text is its reason."""


class Worker:
    """A child with the device launched, for one case after another.

    Attributes:
        ready: what the child said of the device: name, info, plugin, versions.
    """

    def __init__(
        self,
        device: str,
        seed: int,
        levels: list[Level],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        commands_in, commands_out = os.pipe()
        answers_in, answers_out = os.pipe()
        command = [sys.executable, "-m", "chipset_conformance.worker", device, str(seed)]
        command += [json.dumps(levels), str(commands_in), str(answers_out)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            pass_fds=(commands_in, answers_out),
            start_new_session=True,  # one signal ends it with whatever it started
        )
        os.close(commands_in)
        os.close(answers_out)
        self._commands = os.fdopen(commands_out, "w")
        self._answers = answers_in
        self._rest = b""
        answer = self._answer(START_TIMEOUT_S)
        if not isinstance(answer, dict) or "error" in answer:
            self.kill()
            reason = answer["error"] if isinstance(answer, dict) else self._death(answer)
            raise StartError(reason)
        self.ready: dict[str, Any] = answer

    def run(self, case: Case, timeout_s: float | None = None) -> tuple[Record, bool]:
        """Runs a case. The second value: whether this worker can go on."""
        limit = case.timeout_s if timeout_s is None else timeout_s
        from chipset_conformance.execution import blank, script

        started = time.perf_counter()
        try:
            self._commands.write(case.id + "\n")
            self._commands.flush()
        except BrokenPipeError:
            pass  # it has died since; the answer says so
        answer = self._answer(limit)
        if isinstance(answer, dict):
            return Record.model_validate(answer["record"]), bool(answer["healthy"])
        self.kill()
        if answer is Outcome.HUNG:
            record = blank(case, Outcome.HUNG, f"still running after {limit:g} s")
        else:
            record = blank(case, Outcome.CRASHED, self._death(answer))
        record.seconds = round(time.perf_counter() - started, 4)
        record.reproducer = script(self.ready["device"], case, self.ready["seed"])
        return record, False

    def kill(self) -> None:
        """Ends the child and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Lets the child end; ends it if it does not."""
        with contextlib.suppress(OSError):
            self._commands.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
        os.close(self._answers)
        self._printed.close()

    def _answer(self, timeout: float) -> dict[str, Any] | Outcome:
        """The next line; CRASHED if the child ended, HUNG if none came in time."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                return Outcome.HUNG
            data = os.read(self._answers, 1 << 16)
            if not data:
                return Outcome.CRASHED
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _death(self, how: Outcome | dict[str, Any]) -> str:
        status = self._process.wait()
        if how is Outcome.HUNG:
            text = "did not answer in time"
        elif status < 0:
            text = f"killed by {signal.Signals(-status).name}"
        else:
            text = f"exited with status {status}"
        self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, self._printed.tell() - _TAIL_BYTES))
        tail = self._printed.read().decode(errors="replace").strip()
        return f"{text}; it printed: {tail}" if tail else text


# ---- the child -----------------------------------------------------------------------------------


def main(arguments: list[str]) -> None:
    """Runs the cases named on the commands pipe until it closes."""
    name, seed, levels = arguments[0], int(arguments[1]), json.loads(arguments[2])
    commands = os.fdopen(int(arguments[3]))
    answers = os.fdopen(int(arguments[4]), "w")

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    import chipset
    from chipset_conformance.case import load
    from chipset_conformance.environment import about
    from chipset_conformance.execution import execute, is_healthy

    try:
        device = chipset.select(name)
        _ = device.driver
    except chipset.ChipsetError as error:
        say({"error": str(error)})
        return
    known = {case.id: case for case in load(levels)}
    say({"device": str(device), "seed": seed, **about(device)})
    for line in commands:
        record = execute(device, known[line.strip()], seed)
        fine = record.outcome != Outcome.FAILED or is_healthy(device)
        say({"record": record.model_dump(mode="json"), "healthy": fine})


if __name__ == "__main__":
    main(sys.argv[1:])
