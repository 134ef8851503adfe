"""What the tests of the bridge share: a chip (``--chip``) as torch's device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import chipset

sys.path.append(str(Path(__file__).parent / "helpers"))


@pytest.fixture(scope="session")
def chip(pytestconfig: pytest.Config) -> torch.device:
    """``torch.device("chip", 0)`` of the plugin under test."""
    return chipset.select(pytestconfig.getoption("--chip")).torch


@pytest.fixture
def no_fallback(chip: torch.device) -> Iterator[None]:
    """Within the test, an operator that would run on the host raises."""
    from chipset import _torch

    with _torch.fallback_mode("error"):
        yield
