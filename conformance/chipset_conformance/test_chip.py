"""Every case as a test; see ``pytest_plugin.py`` for the options."""

from __future__ import annotations

from collections.abc import Callable

from chipset_conformance.case import Case


def test_case(chip_case: Case, chip_judge: Callable[[Case], None]) -> None:
    chip_judge(chip_case)
