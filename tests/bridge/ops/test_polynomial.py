"""Orthogonal polynomials of the chip give what torch's own CPU kernels give."""

from __future__ import annotations

import pytest
import torch

NAMES = [
    *(f"chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *(f"shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"),
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
]


@pytest.mark.parametrize("name", NAMES)
def test_degrees(agree, name):
    function = getattr(torch.special, name)
    x = torch.linspace(-0.9, 0.9, 7, dtype=torch.float64)
    for degree in [-1, 0, 1, 2, 5, 9]:
        agree(lambda x, n=degree: function(x, n), x)
    agree(function, x, torch.tensor([0, 1, 2, 3, 4, 5, -2]))
    agree(function, x[:, None], torch.tensor([0.0, 3.7, 2.0], dtype=torch.float64))


def test_a_high_degree_runs_on_the_host(agree):
    x = torch.linspace(-0.9, 0.9, 7)
    agree(
        lambda x: torch.special.legendre_polynomial_p(x, 100),
        x,
        allow=("aten::special_legendre_polynomial_p.out",),
    )


def test_bessel(agree):
    agree(torch.special.modified_bessel_i0, torch.linspace(-3, 3, 7))
    agree(torch.special.modified_bessel_i1, torch.linspace(-3, 3, 7))
