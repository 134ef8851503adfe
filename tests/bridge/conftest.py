"""What the tests of the bridge share: the CPU chip as torch's device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import chipset


@pytest.fixture(scope="session")
def chip() -> torch.device:
    """``torch.device("chip", 0)`` of the reference plugin."""
    return chipset.select("cpu").torch


@pytest.fixture
def no_fallback(chip: torch.device) -> Iterator[None]:
    """Within the test, an operator that would run on the host raises."""
    from chipset import _torch

    with _torch.fallback_mode("error"):
        yield
