"""Runs one function on the host and on the chip and compares what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map

import chipset

# Per dtype: relative and absolute tolerance. The half formats are computed in f32 and rounded
# once; torch's own kernels sometimes round in between, so one step of the format is allowed.
TOLERANCE = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1.3e-5, 1e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
}


def move(value: Any, device: torch.device) -> Any:
    """Tensors to the device (strides kept, sharing no memory with the original), the rest as is."""

    def one(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        once = item.detach()
        for dim, stride in enumerate(item.stride()):
            if stride == 0:
                once = once.narrow(dim, 0, min(1, item.shape[dim]))
        moved = torch.empty_strided(once.shape, once.stride(), dtype=item.dtype, device=device)
        moved = moved.copy_(once).expand(item.shape)
        return moved.requires_grad_(item.requires_grad)

    return tree_map(one, value)


def compare(got: Any, want: Any, tolerance: tuple[float, float] | None = None) -> None:
    """Assert the same structure, dtypes, shapes and values."""
    got_leaves, got_spec = tree_flatten(got)
    want_leaves, want_spec = tree_flatten(want)
    assert got_spec == want_spec
    for ours, theirs in zip(got_leaves, want_leaves, strict=True):
        if not isinstance(theirs, torch.Tensor):
            assert ours == theirs
            continue
        rtol, atol = tolerance or TOLERANCE.get(theirs.dtype, (0.0, 0.0))
        torch.testing.assert_close(
            ours.detach().cpu(), theirs.detach(), rtol=rtol, atol=atol, equal_nan=True
        )


Agree = Callable[..., None]


@pytest.fixture
def agree(chip: torch.device) -> Agree:
    """``agree(function, *arguments)``: same result on host and chip, and no host fallback.

    ``tolerance`` replaces the dtype's own; ``allow`` names operators that may fall back.
    """

    def check(
        function: Callable[..., Any],
        *arguments: Any,
        tolerance: tuple[float, float] | None = None,
        allow: tuple[str, ...] = (),
    ) -> None:
        want = function(*move(arguments, torch.device("cpu")))
        theirs = move(arguments, chip)
        chipset.reset_fallbacks()
        got = function(*theirs)
        fell_back = set(chipset.fallbacks()) - set(allow)
        compare(got, want, tolerance)
        for leaf in tree_flatten(got)[0]:
            assert not isinstance(leaf, torch.Tensor) or leaf.device.type == chip.type
        assert not fell_back, f"ran on the host: {sorted(fell_back)}"

    return check


@pytest.fixture
def agree_on_gradients(chip: torch.device) -> Agree:
    """``agree_on_gradients(function, *arguments)``: results and gradients agree, no fallback.

    Gradients are taken of every argument that requires one, for a random cotangent.
    """

    def run(function: Callable[..., Any], arguments: Any, cotangent: torch.Tensor | None) -> Any:
        inputs = [leaf for leaf in tree_flatten(arguments)[0] if getattr(leaf, "requires_grad", 0)]
        result = function(*arguments)
        seed = torch.ones_like(result) if cotangent is None else cotangent
        return result, torch.autograd.grad(result, inputs, seed)

    def check(
        function: Callable[..., Any],
        *arguments: Any,
        tolerance: tuple[float, float] | None = None,
        allow: tuple[str, ...] = (),
    ) -> None:
        host = move(arguments, torch.device("cpu"))
        shape = function(*host).shape
        cotangent = torch.randn(shape, generator=torch.Generator().manual_seed(5))
        cotangent = cotangent.to(next(a.dtype for a in arguments if isinstance(a, torch.Tensor)))
        want = run(function, host, cotangent)
        theirs, seed = move(arguments, chip), cotangent.to(chip)
        chipset.reset_fallbacks()
        got = run(function, theirs, seed)
        fell_back = set(chipset.fallbacks()) - set(allow)
        compare(got, want, tolerance)
        assert not fell_back, f"ran on the host: {sorted(fell_back)}"

    return check


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
