"""Questions to the running simulated chip, and faults for it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

LIBRARY = Path(__file__).with_name("libchipset_sim.so")


@dataclass(frozen=True)
class Finding:
    """Something that a caller did wrong.

    Attributes:
        severity: ``"fault"`` or ``"warning"``.
        rule: id of the interface's rule, or ``LEAK``.
        text: what, where, and the missing step.
        replay: the command that repeats the run, with its schedule and seed.
    """

    severity: str
    rule: str
    text: str
    replay: str


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    library.chipset_sim_control.restype = ctypes.c_char_p
    library.chipset_sim_control.argtypes = [ctypes.c_char_p]
    return library


def _ask(command: str) -> str:
    answer: bytes = _library().chipset_sim_control(command.encode())
    text = answer.decode(errors="replace")
    if text == "not launched":
        raise RuntimeError("the simulated chip is not launched; call chipset.select('sim') first")
    return text


def findings() -> list[Finding]:
    """Everything found since the launch or the last :func:`clear_findings`."""
    return [Finding(**item) for item in json.loads(_ask("findings"))]


def clear_findings() -> None:
    """Forgets what was found."""
    _ask("clear")


def inject(rules: str) -> None:
    """Adds rules of fault injection, ``"FUNCTION[@DEVICE]:WHEN=KIND;…"`` (``docs/sim.md``).

    Raises:
        ValueError: a rule cannot be read; the text says why.
    """
    fault = _ask(f"inject {rules}")
    if fault:
        raise ValueError(fault)


def clear_injections() -> None:
    """Removes all rules."""
    _ask("inject_clear")


def injections() -> int:
    """How often rules have fired."""
    return int(_ask("injections"))


def calls() -> int:
    """Calls of the interface so far."""
    return int(_ask("calls"))


def live() -> dict[str, int]:
    """What has been made and not ended: allocations, device_bytes, host_bytes, streams, events."""
    result: dict[str, int] = json.loads(_ask("live"))
    return result


def predicted_time() -> float:
    """Seconds that the described chip would have taken since the last reset."""
    return float(_ask("time"))


def reset_predicted_time() -> None:
    """Starts :func:`predicted_time` at zero."""
    _ask("time_reset")


def predict(step: Callable[[], object], *, warm_up: int = 1) -> float:
    """Seconds that one call of ``step`` would take on the described chip (``chip=h100``, say).

    The step runs for real, ``warm_up`` times before it is measured, so that what only the first
    call does (allocations, an optimizer's state) stays out. The virtual clock advances when work is
    enqueued, so that the step need not wait for it.

    Raises:
        RuntimeError: the simulated chip is not launched.
    """
    for _ in range(warm_up):
        step()
    reset_predicted_time()
    step()
    return predicted_time()


def replay() -> str:
    """``CHIPSET_SIM`` for a run that repeats this one: ``"devices=2,mode=random,seed=7"``."""
    return _ask("replay")


@contextlib.contextmanager
def tag(text: str) -> Iterator[None]:
    """Allocations made inside, by this thread, carry the text in every report."""
    _ask(f"tag {text}")
    try:
        yield
    finally:
        _ask("tag ")
