"""Runs ``two_devices/cases.py`` in processes that show two devices."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "two_devices" / "cases.py"
CHOICES = {
    "one-plugin": ["--chip", "cpu", "--devices", "2"],
    "memory-that-the-host-may-not-read": ["--chip", "cpu", "--devices", "2", "--hide-unified",
                                          "--checked"],
}  # fmt: skip


@pytest.mark.parametrize("choice", CHOICES)
def test_two_devices(run_python, choice: str) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(CASES)]
    done = run_python(*command, *CHOICES[choice], timeout=280, cwd=CASES.parents[3])
    print(done.stdout, done.stderr, file=sys.stderr)
    assert done.returncode == 0
