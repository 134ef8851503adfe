"""Gangs of ranks: what a step returns, what a failing, crashing or stuck rank comes to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

import chipset
from chipset_conformance import ranks
from chipset_conformance.case import Case, CaseFailure, Unsupported
from chipset_conformance.context import Context
from chipset_conformance.ranks import Processes, Rank


def double(rank: Rank, number: int) -> int:
    return 2 * number + rank.number


def fail_on_one(rank: Rank) -> None:
    if rank.number == 1:
        raise CaseFailure("one is wrong")
    time.sleep(60)


def crash_on_one(rank: Rank) -> None:
    if rank.number == 1:
        os.abort()


def decline(rank: Rank) -> None:
    raise Unsupported("no unit for it")


@pytest.fixture
def context() -> Iterator[Context]:
    case = Case("ranks", ("comm_create",), lambda context: None)
    with Context.opened(chipset.select("cpu"), case, 0) as opened:
        yield opened


@pytest.fixture
def pair(context: Context, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    with ranks.passing_gang(context, 2, {"PYTHONPATH": path}) as gang:
        yield gang


def test_every_rank_answers_in_its_place(pair: Processes) -> None:
    assert pair.run(double, 5) == [10, 11]
    assert pair.run_each(double, [(1,), None]) == [2, None]


def test_a_failing_rank_ends_the_gang(pair: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "GRACE_S", 0.2)
    with pytest.raises(CaseFailure, match=r"rank 1 of 2: one is wrong.*"):
        pair.run(fail_on_one)
    assert not pair.alive


def test_a_crashed_rank_is_named(pair: Processes) -> None:
    with pytest.raises(CaseFailure, match="rank 1 of 2: its process ended with SIGABRT"):
        pair.run(crash_on_one)


def test_a_rank_may_decline(pair: Processes) -> None:
    with pytest.raises(Unsupported, match="no unit"):
        pair.run(decline)
    assert pair.alive
