"""The judge is judged: the page of mutants is the list's, and chips that cheat are caught."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chipset_conformance import mutants
from chipset_conformance.case import load
from chipset_conformance.results import Outcome
from chipset_conformance.worker import StartError

FEWEST = 120
CHEATS = [m.name for m in mutants.mutants() if m.level == "performs"]
QUICK = "cheat-pointwise-thinned"


def named(name: str) -> mutants.Mutant:
    return next(mutant for mutant in mutants.mutants() if mutant.name == name)


def test_there_are_enough_and_each_has_cases_that_judge_its_functions() -> None:
    everything = mutants.mutants()
    assert len(everything) >= FEWEST
    assert len({m.name for m in everything}) == len(everything)
    for mutant in everything:
        functions = {name for case in load([mutant.level]) for name in case.functions}
        assert functions & set(mutant.functions), f"no case of its level judges {mutant.name}"


def test_the_page_lists_exactly_the_mutants_that_exist(repository: Path) -> None:
    text = (repository / "docs" / "mutants.md").read_text()
    listed = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(m.name for m in mutants.mutants()), (
        "run 'chipset certify --self-test --seeds 20 --write docs/mutants.md'"
    )


def test_each_mutant_of_the_page_is_caught_by_a_case_about_its_fault(repository: Path) -> None:
    """A case that refuses or looks at everything is about a fault only if the fault is that."""
    text = (repository / "docs" / "mutants.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` .*\| ([^|]+) \| `([^`]+)` \|$", text, re.MULTILINE)
    assert len(rows) == len(mutants.mutants())
    aside = {name: fault for name, fault, case in rows if case.startswith(mutants.BROAD)}
    assert all("index out of range" in fault for fault in aside.values()), aside


def test_cases_about_many_things_come_last() -> None:
    for name in ("pointwise-refuses-rank-0", "alloc-leaves-the-pointer"):
        chosen = [case.id.startswith(mutants.BROAD) for case in mutants.cases_for(named(name))]
        assert any(chosen) and chosen == sorted(chosen), "the others first"


def test_a_failed_allocation_that_leaves_the_pointer_is_caught_by_the_case_of_failing() -> None:
    verdict = mutants.judge(named("alloc-leaves-the-pointer"), seed=0)
    assert verdict.case == "memory/device/too-much-is-refused"


def test_a_stream_that_drops_a_fill_is_caught_by_the_case_of_destroying() -> None:
    verdict = mutants.judge(named("stream-destroy-drops-work"), seed=0)
    assert verdict.case == "stream/destroy-waits-for-the-work"


def test_a_chip_that_leaves_out_calls_is_caught() -> None:
    verdict = mutants.judge(named(QUICK), seed=0)
    assert verdict.case == "performs/launch" and verdict.how == Outcome.FAILED


def test_where_the_good_chip_does_not_launch_no_mutant_counts_as_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoilt = {**mutants.environment(mutants.GOOD), "CHIPSET_MUTANT_GOOD": "/no/such/library.so"}
    monkeypatch.setattr(mutants, "environment", lambda fault: spoilt)
    with pytest.raises(StartError, match="/no/such/library.so"):
        mutants.self_test(only=QUICK)


def test_the_good_chip_launches_every_call() -> None:
    from chipset_conformance.worker import Worker

    worker = Worker("mutant", 0, ["performs"], mutants.environment(mutants.GOOD))
    try:
        case = next(c for c in load(["performs"]) if c.id == "performs/launch")
        record, _ = worker.run(case)
    finally:
        worker.close()
    assert record.outcome == Outcome.PASSED, record.message
    named_figures = {m.name for m in record.measurements}
    assert "one call and its synchronisation" in named_figures
    assert all(m.value > 0 for m in record.measurements)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CHEATS if name != QUICK])
def test_a_chip_that_cheats_is_caught(name: str) -> None:
    verdict = mutants.judge(named(name), seed=0)
    assert verdict.case is not None, f"{name} got past {verdict.cases_run} cases"
    assert verdict.how == Outcome.FAILED
