"""Shapes and layouts that hypothesis invents; a failing one is shrunk to a small one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import hypothesis
from hypothesis import strategies as st

from chipset._interface import MAX_RANK
from chipset_conformance.context import Context

MOST_ELEMENTS = 2000


def shapes(
    min_rank: int = 0, max_rank: int = MAX_RANK, min_size: int = 0
) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of any rank with at most MOST_ELEMENTS elements, a size of 0 counted as 1.

    An empty tensor, too, gets strides and room around it, as its other sizes ask.
    """
    sizes = st.one_of(st.integers(min_size, 5), st.integers(max(1, min_size), 70))
    return (
        st.lists(sizes, min_size=min_rank, max_size=max_rank)
        .map(tuple)
        .filter(lambda shape: math.prod(max(1, size) for size in shape) <= MOST_ELEMENTS)
    )


def layouts_of(table: Iterable[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(table))


def examples(
    context: Context, check: Callable[..., None], count: int, *strategies: st.SearchStrategy[Any]
) -> None:
    """Runs a check on so many examples, the same ones for the same seed of the run.

    Raises:
        CaseFailure: of the smallest failing example.
    """
    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    seeded = hypothesis.seed(int(context.rng.integers(2**31)))
    seeded(settings(hypothesis.given(*strategies)(check)))()
