"""Tests of runtime, bridge and layers on four strict devices; any finding fails."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


WORKERS, RANDOM, LATEST = "workers=1,delay_us=200,seed=2", "mode=random,seed=2", "mode=latest"
# What is long runs on one schedule.
RUNS = [
    *(("bridge/device", schedule) for schedule in (WORKERS, RANDOM, LATEST)),
    *(("layers/test_on_chip.py", schedule) for schedule in (WORKERS, RANDOM, LATEST)),
    ("bridge/ops", RANDOM),
    ("bridge/families", RANDOM),
    ("bridge/families", WORKERS),
    ("runtime", RANDOM),
    ("runtime", WORKERS),
]


@pytest.mark.parametrize(("what", "schedule"), RUNS)
def test_runs_clean(run_python, what: str, schedule: str) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS / what)]
    device = "sim:1" if what.startswith("layers") else "sim"  # many of the others name chip:0
    options = ["--chip", device, "--devices", "4", "--sim", schedule]
    done = run_python(*command, *options, timeout=580, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout + done.stderr
