"""Attention of the kit on ``opencl:0`` against float64: every mask, layout of heads and depth."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import pytest

import chipset

sys.path.insert(0, str(Path(__file__).resolve().parent))
import attention_checks as checks
from attention_checks import BOUND, Dtype


@pytest.fixture(scope="module")
def chip() -> Any:
    try:
        ctypes.CDLL("libOpenCL.so.1")
        return chipset.select("opencl:0").driver
    except (OSError, chipset.ChipsetError) as error:
        pytest.skip(f"needs an OpenCL device (Debian: pocl-opencl-icd): {error}")


@pytest.mark.parametrize("problem", ["causal", "bottom right", "decode"])
def test_queries_and_keys(chip: Any, problem: str) -> None:
    assert checks.check(chip, problem) <= BOUND[Dtype.F32]


def test_paged(chip: Any) -> None:
    for sequences in checks.PAGED.values():
        assert checks.check_paged(chip, sequences) <= BOUND[Dtype.F32]


@pytest.mark.slow  # a program for each kind of mask and depth
@pytest.mark.parametrize(
    ("problem", "kind"),
    [(name, "") for name in list(checks.PROBLEMS)[3:]] + checks.KINDS,
)
def test_what_is_hidden(chip: Any, problem: str, kind: str) -> None:
    assert checks.check(chip, problem, kind) <= BOUND[Dtype.F32]
