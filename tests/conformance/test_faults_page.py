"""The page of kinds of fault names cases that exist."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

from chipset_conformance.case import load

PAGE = "docs/conformance-faults.md"


def test_every_pattern_of_the_page_names_cases(repository: Path) -> None:
    known = [case.id for case in load([0, 1, 2, 4, 5, "endures"])]
    rows = [line for line in (repository / PAGE).read_text().splitlines() if line.startswith("| ")]
    patterns = {text for row in rows for text in re.findall(r"`([^` ]+/[^` ]+)`", row)}
    assert len(patterns) > 40
    missing = sorted(p for p in patterns if not fnmatch.filter(known, p))
    assert not missing
