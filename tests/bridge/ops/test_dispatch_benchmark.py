"""The dispatch benchmark runs, reports both sides, and measures the chip, not the host."""

from __future__ import annotations

import json
from pathlib import Path


def test_it_reports_both_sides(run_python, repository: Path):
    script = str(repository / "benchmarks" / "dispatch.py")
    done = run_python(script, "--json", "--only", "add", "mm", "linear", timeout=200)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["operators"]
    assert [row["operator"] for row in rows] == ["add", "mm", "linear"]
    for row in rows:
        assert row["cpu_us"] > 0
        assert row["chip_us"] > 0
        assert row["fallbacks"] == 0
