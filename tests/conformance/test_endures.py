"""Endures: faults on demand, fork and leaks are seen where they are, and only there."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import chipset
from chipset_conformance.case import Case, CaseFailure, Unsupported
from chipset_conformance.context import Context
from chipset_conformance.levels import endures_memory, endures_process


@pytest.fixture
def context() -> Iterator[Context]:
    case = Case("endures", ("mem_alloc",), lambda context: None)
    with Context.opened(chipset.select("cpu"), case, 0) as opened:
        yield opened


def test_a_leak_of_handles_is_seen(context: Context) -> None:
    leaked: list[Any] = []

    def one_round() -> None:
        leaked.append(open("/dev/null"))  # noqa: SIM115 (that is the leak)

    with pytest.raises(CaseFailure, match="open files more"):
        endures_memory.no_growth(context, one_round)
    for file in leaked:
        file.close()


def test_a_leak_of_memory_is_seen(context: Context) -> None:
    leaked: list[Any] = []

    def one_round() -> None:
        leaked.append(ctypes.create_string_buffer(b"x" * (1 << 20)))

    with pytest.raises(CaseFailure, match="bytes in memory more"):
        endures_memory.no_growth(context, one_round)


def test_no_leak_is_no_alarm(context: Context) -> None:
    endures_memory.no_growth(context, lambda: context.chip.array([1.0]).numpy())


def test_a_plugin_without_faults_on_demand_says_so() -> None:
    with pytest.raises(Unsupported, match="offers no faults on demand"):
        endures_process.injector("cpu")


def test_a_child_that_hangs_or_crashes_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert endures_process._in_fork(lambda: "said") == "said"
    with pytest.raises(CaseFailure, match="died by SIGKILL"):
        endures_process._in_fork(lambda: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setattr(endures_process, "FORK_LIMIT_S", 0.2)
    with pytest.raises(CaseFailure, match="hung"):
        endures_process._in_fork(lambda: time.sleep(30))


def test_the_soak_lasts_as_long_as_asked(
    certify: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = certify("--level", "endures", "--only", "soak/*", "--soak", "1", device="cpu")
    assert run.status == 0, run.text
    case = run.cases["soak/random-programs"]
    assert case["counts"]["random programs"] >= 4 and case["seconds"] >= 1
