"""The bridge's and the layers' own tests on four strict devices; any finding fails."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


SCHEDULES = ["workers=1,delay_us=200,seed=2", "mode=random,seed=2", "mode=latest"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("what", ["bridge/device", "layers/test_on_chip.py"])
def test_runs_clean(run_python, what: str, schedule: str) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS / what)]
    options = ["--chip", "sim:1", "--devices", "4", "--sim", schedule]
    if what == "bridge/device":
        options[1] = "sim"  # many of these name chip:0
    done = run_python(*command, *options, timeout=580, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout + done.stderr
