"""Level 5: what a rank does is judged, ranks that fail or hang are told apart, and what cannot be
judged yet is never counted as passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from chipset._interface import FUNCTIONS, CollectiveOp, Dtype
from chipset_conformance.case import load
from chipset_conformance.numerics import FLOATS, judge
from chipset_conformance.oracles import collective


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
    from chipset_conformance.numerics import round_to

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


def test_collectives_of_the_cpu_chip(certify: Callable[..., Any]) -> None:
    run = certify("--level", "5", "--only", "all_reduce/sum/*/ranks-2", device="cpu")
    assert run.status == 0, run.text
    outcomes = {case["outcome"] for case in run.cases.values() if case["id"] in _sums(run.cases)}
    assert outcomes == {"passed"}


def test_a_dead_peer_is_an_error_and_not_a_hang(certify: Callable[..., Any]) -> None:
    run = certify("--level", "5", "--only", "*/dead-peer", device="cpu")
    assert run.status == 0, run.text


def test_what_cannot_be_judged_yet_keeps_the_level_from_being_reached(
    certify: Callable[..., Any],
) -> None:
    run = certify("--level", "5", "--only", "distributed/*", device="cpu")
    assert run.status != 0
    cases = [case for name, case in run.cases.items() if name.startswith("distributed/")]
    assert cases and {case["outcome"] for case in cases} == {"not_run"}
    assert all("no backend" in case["message"] for case in cases)


def _sums(cases: dict[str, Any]) -> set[str]:
    return {name for name in cases if name.startswith("all_reduce/sum/") and "ranks-2" in name}
