"""Maximum pooling of the chip gives the values and the indices of torch's CPU kernels."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

SPATIAL = {1: (9,), 2: (7, 9), 3: (6, 7, 5)}
POOLS = [functional.max_pool1d, functional.max_pool2d, functional.max_pool3d]
ADAPTIVE = [
    functional.adaptive_max_pool1d,
    functional.adaptive_max_pool2d,
    functional.adaptive_max_pool3d,
]
OPTIONS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 1, "dilation": 2},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
]


def image(dims, batched=True):
    shape = (2, 3, *SPATIAL[dims]) if batched else (3, *SPATIAL[dims])
    return torch.randn(shape)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options))
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_fixed_windows(agree, agree_on_gradients, dims, options, batched):
    pool, x = POOLS[dims - 1], image(dims, batched)
    agree(lambda x: pool(x, return_indices=True, **options), x)
    agree_on_gradients(lambda x: pool(x, **options), x.requires_grad_())


@pytest.mark.parametrize("target", [1, 2, 4])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_adaptive_windows(agree, agree_on_gradients, dims, target):
    pool, x = ADAPTIVE[dims - 1], image(dims)
    agree(lambda x: pool(x, target, return_indices=True), x)
    agree_on_gradients(lambda x: pool(x, target), x.requires_grad_())


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling(agree, dims):
    unpool = [functional.max_unpool1d, functional.max_unpool2d, functional.max_unpool3d][dims - 1]
    x = image(dims)
    values, indices = POOLS[dims - 1](x, 2, return_indices=True)
    agree(lambda v, i: unpool(v, i, 2, output_size=x.shape), values, indices)


def test_equal_values_nan_and_infinity(agree):
    pool = functional.max_pool2d
    for value in [0.0, -math.inf, math.inf]:
        x = torch.full((1, 1, 4, 4), value)
        agree(lambda x: pool(x, 2, return_indices=True), x)
    x = image(2)
    x[0, 0, 3, 3] = math.nan
    agree(lambda x: pool(x, 3, 2, return_indices=True), x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: functional.max_pool2d(x, 20),
        lambda x: functional.max_pool2d(x, 2, padding=3),
        lambda x: functional.max_pool2d(x[0, 0], 2),
        lambda x: functional.adaptive_max_pool2d(x[0, 0], 2),
    ],
)
def test_errors_are_those_of_torch(chip, call):
    x = torch.ones(2, 3, 7, 9)
    with pytest.raises(RuntimeError) as theirs:
        call(x)
    with pytest.raises(RuntimeError) as ours:
        call(x.to(chip))
    assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]
