"""Special functions and pairwise distances of the chip give what torch's own CPU kernels give."""

from __future__ import annotations

import math

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("order", [0, 1, 2, 3, 5])
def test_polygamma(agree, order, dtype):
    x = torch.tensor([0.1, 0.5, 1.0, 2.5, 7.0, 30.0, -0.5, -3.7], dtype=dtype)
    agree(lambda x: torch.special.polygamma(order, x), x, tolerance=(2e-5, 1e-5))


def test_zeta(agree):
    s = torch.tensor([1.5, 2.0, 3.0, 10.0, 1.0, 0.5], dtype=torch.float64)
    q = torch.tensor([0.5, 1.0, 2.5, 20.0, -2.0, -0.5], dtype=torch.float64)
    agree(torch.special.zeta, s[:, None], q)
    agree(lambda q: torch.special.zeta(2.0, q), q)
    agree(
        torch.special.zeta,
        torch.tensor([2.0]),
        torch.tensor([-500.5]),
        allow=("aten::special_zeta.out",),
        tolerance=(1e-3, 1e-3),
    )


@pytest.mark.parametrize("name", ["i0", "i0e", "i1", "i1e"])
def test_bessel_functions(agree, agree_on_gradients, name):
    x = torch.linspace(-12, 12, 25)
    agree(getattr(torch.special, name), x, tolerance=(2e-5, 1e-6))
    x = torch.linspace(0.5, 5, 6, dtype=torch.float64).requires_grad_()
    agree_on_gradients(getattr(torch.special, name), x)


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("shape", [((3, 4), (5, 4)), ((2, 3, 4), (2, 5, 4))], ids=str)
def test_pairwise_distances(agree_on_gradients, p, shape):
    x, y = (torch.randn(s, dtype=torch.float64).requires_grad_() for s in shape)
    agree_on_gradients(lambda x, y: torch.cdist(x, y, p=p), x, y)


def test_distance_of_equal_rows_has_no_gradient(agree_on_gradients):
    x = torch.ones(2, 3).requires_grad_()
    agree_on_gradients(lambda x, y: torch.cdist(x, y), x, torch.ones(2, 3))


@pytest.mark.parametrize("window", [(3, 1), (2, 3), (7, 2), (9, 1)], ids=str)
def test_gradient_of_overlapping_windows(agree_on_gradients, window):
    x = torch.randn(2, 9, 3).requires_grad_()
    agree_on_gradients(lambda x: x.unfold(1, *window) * 2, x)


def test_assertions_on_the_chip(chip):
    torch._assert_async(torch.ones(1, device=chip))
    with pytest.raises(RuntimeError, match="not normalised"):
        torch._assert_async(torch.zeros(1, device=chip), "not normalised")
