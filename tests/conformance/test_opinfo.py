"""The script over PyTorch's operator database: it tells right from wrong, and its bars bind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chipset_conformance import mutants, opinfo


def report(**changes: Any) -> dict[str, Any]:
    records = [
        {"name": "add", "status": "native", "samples": 2, "right": 2},
        {"name": "softmax", "status": "composed", "samples": 1, "right": 1},
        {"name": "svd", "status": "fallback", "samples": 3, "right": 3, "fallbacks": ["svd_out"]},
    ]
    return opinfo.summary([*records, *changes.pop("more", [])], "toy") | changes


def test_bars():
    assert opinfo.bars_missed(report(), least=2) == []
    assert "2 operators do without the host" in opinfo.bars_missed(report(), least=3)[0]
    crash = {"name": "mul", "status": "crashed", "samples": 0, "right": 0}
    assert opinfo.bars_missed(report(more=[crash]), least=0) == ["crashed: mul"]
    wrong = {"name": "mul", "status": "wrong", "samples": 2, "right": 1, "detail": "output: 1 ≠ 2"}
    assert "87.5 % of the samples" in opinfo.bars_missed(report(more=[wrong]), least=0)[0]


def test_the_list_has_every_operator_once_under_its_status():
    text = opinfo.listing(report())
    sections = {
        section.split(":")[0]: section for section in text.split("\n## ")[1:]
    }  # fmt: skip
    assert "`add`" in sections["native"] and "`softmax`" in sections["composed"]
    assert "- `svd` (3 of 3 right): `svd_out`" in sections["fallback"]
    assert all(text.count(f"`{name}`") == 1 for name in ("add", "softmax", "svd"))


@pytest.mark.parametrize("fault", ["", "gemm-skips-last-column"])
def test_a_faulty_chip_is_found_out(tmp_path: Path, fault: str):
    environment = dict(os.environ)
    if fault:
        environment |= mutants.environment(fault)
    options = ["--filter", "baddbmm", "--samples", "3", "--least", "1", "--shards", "1"]
    options += ["--device", mutants.DEVICE if fault else "cpu"]
    options += ["--json", str(tmp_path / "report.json"), "--list", str(tmp_path / "list.md")]
    done = subprocess.run(
        [sys.executable, "-m", "chipset_conformance.opinfo", *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads((tmp_path / "report.json").read_text())
    assert done.returncode == (1 if fault else 0), done.stderr
    assert (found["status"]["wrong"] > 0) == bool(fault), found
    assert found["samples"] >= 3 and "`baddbmm`" in (tmp_path / "list.md").read_text()
