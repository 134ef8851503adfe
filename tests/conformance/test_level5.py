"""Level 5: what a rank does is judged, ranks that fail or hang are told apart, and what cannot be
judged yet is never counted as passed."""

from __future__ import annotations

import numpy as np
import pytest

import chipset
from chipset._interface import FUNCTIONS, CollectiveOp, Dtype
from chipset_conformance import runner
from chipset_conformance.case import load
from chipset_conformance.execution import execute
from chipset_conformance.numerics import FLOATS, judge, round_to
from chipset_conformance.oracles import collective
from chipset_conformance.results import Outcome


def test_every_collective_has_a_case() -> None:
    judged = {name for case in load([5]) for name in case.functions}
    wanted = {function.name for function in FUNCTIONS if function.group == "collective"}
    assert wanted <= judged


def test_every_rule_of_collectives_has_a_case() -> None:
    assert {"COL-001", "COL-002", "COL-003"} <= {case.rule for case in load([5])}


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_oracle_accepts_sums_in_any_order_and_no_others(dtype: Dtype) -> None:
    rng = np.random.default_rng(1)
    parts = [rng.standard_normal(500).astype(np.float16).astype(np.float32) for _ in range(4)]
    parts = [round_to(part, dtype) for part in parts]
    bounded = collective.floats(CollectiveOp.SUM, dtype, parts)
    wider = np.float64 if dtype == Dtype.F64 else np.float32
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        total = np.zeros(500, wider)
        for rank in order:
            total = total + parts[rank].astype(wider)
        assert not judge(round_to(total, dtype), bounded, dtype).wrong.any()
    average = round_to(total / 4, dtype)
    assert judge(average, bounded, dtype).wrong.any()


def test_the_oracle_of_whole_numbers_wraps_and_averages() -> None:
    parts = [np.array([100, -128], np.int8), np.array([100, -128], np.int8)]
    assert collective.whole(CollectiveOp.SUM, Dtype.I8, parts).tolist() == [-56, 0]
    assert collective.whole(CollectiveOp.AVG, Dtype.I8, parts).tolist() == [100, -128]


@pytest.mark.parametrize("name", ["all_reduce/sum/f32/ranks-2", "all_reduce/dead-peer"])
def test_the_cpu_chip_passes(name: str) -> None:
    (case,) = [case for case in load([5]) if case.id == name]
    record = execute(chipset.select("cpu"), case, 0)
    assert record.outcome == Outcome.PASSED, record.message


def test_what_cannot_be_judged_yet_keeps_the_level_from_being_reached() -> None:
    asked = [case for case in load([5]) if case.id.startswith("distributed/")]
    records = [execute(chipset.select("cpu"), case, 0) for case in asked]
    assert asked and {record.outcome for record in records} == {Outcome.NOT_RUN}
    assert all("no backend" in record.message for record in records)
    passed = records[0].model_copy(update={"outcome": Outcome.PASSED})
    assert runner._level(5, [passed]).reached
    assert not runner._level(5, [passed, *records]).reached
