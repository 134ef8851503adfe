"""The list of cases follows from the interface table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chipset._interface import FUNCTIONS, RULES
from chipset_conformance.case import load
from chipset_conformance.results import Certificate, schema

# Judged by levels that start several processes; without a case there they count as not run.
COLLECTIVES = {function.name for function in FUNCTIONS if function.group == "collective"}
# Rules that bind the caller or the loader; the tests of the runtime hold them.
NOT_THE_CHIPS = {"VER-001", "VER-003", "MEM-003", "MEM-004", "HND-001"}


def test_every_function_has_a_case() -> None:
    judged = {name for case in load([0, 1, 2]) for name in case.functions}
    assert {function.name for function in FUNCTIONS} - judged <= COLLECTIVES


def test_rules_of_devices_memory_and_streams_have_a_case() -> None:
    named = {case.rule for case in load([0, 1, 2])}
    kinds = ("VER", "STA", "ASY", "ERR", "THR", "MEM", "EVT", "ORD", "SHP", "HND")
    wanted = {rule for rule in RULES if rule.startswith(kinds)} - NOT_THE_CHIPS
    assert wanted - named <= {"SHP-002", "SHP-003"}, "a rule has lost its case"


def test_ids_are_stable_and_levels_are_as_their_modules() -> None:
    first = [case.id for case in load([0, 1])]
    assert first == [case.id for case in load([1, 0])]
    assert len(first) == len(set(first))
    assert {case.level for case in load([0])} == {0}


def test_the_published_schema_is_the_models(repository: Path) -> None:
    path = repository / "conformance" / "chipset_conformance" / "certificate.schema.json"
    assert json.loads(path.read_text()) == schema(), (
        "run 'python -m chipset_conformance schema' and write its output to the file"
    )
    assert Certificate.model_fields["schema_version"].default


@pytest.mark.parametrize("device", ["cpu", None])
def test_the_suite_runs_under_pytest(
    run_python: Callable[..., Any], device: str | None, tmp_path: Path
) -> None:
    chip = ["--chip", device, "--chip-level", "0", "--chip-only", "mem_fill"] if device else []
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "chipset_conformance"]
    plugin = ["-p", "chipset_conformance.pytest_plugin"]
    done = run_python(*arguments, *plugin, *chip, cwd=tmp_path)
    if device:
        assert done.returncode == 0 and "passed" in done.stdout, done.stdout
    else:
        assert done.returncode != 0 and "--chip NAME" in done.stdout + done.stderr


def test_under_pytest_a_case_that_is_not_run_does_not_pass(
    run_python: Callable[..., Any], tmp_path: Path
) -> None:
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "chipset_conformance"]
    arguments += ["-p", "chipset_conformance.pytest_plugin", "--chip", "cpu", "--chip-level", "5"]
    done = run_python(*arguments, "--chip-only", "distributed/pipeline", cwd=tmp_path)
    assert done.returncode == 1 and "not_run: stages on" in done.stdout, done.stdout
