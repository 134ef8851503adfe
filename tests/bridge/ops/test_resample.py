"""Padding, interpolation and average pooling of the chip give what torch's CPU kernels give."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

SPATIAL = {1: (7,), 2: (5, 7), 3: (4, 5, 6)}


def image(dims, dtype=torch.float32, batched=True):
    shape = (2, 3, *SPATIAL[dims]) if batched else (3, *SPATIAL[dims])
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_padding(agree_on_gradients, dims, mode, dtype):
    pads = [2, 1, 0, 3, 1, 1][: 2 * dims]
    x = image(dims, dtype)
    options = {"tolerance": (3e-2, 6e-2)} if dtype == torch.bfloat16 else {}
    agree_on_gradients(lambda x: functional.pad(x, pads, mode=mode), x, **options)


def test_negative_padding(agree):
    agree(lambda x: functional.pad(x, (2, -1), mode="reflect"), image(1).detach())
    agree(lambda x: functional.pad(x, (-2, 1, 3, -1), mode="replicate"), image(2).detach())


@pytest.mark.parametrize("size", ["smaller", "larger", "factor"])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "cubic", "area"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_interpolation(agree_on_gradients, dims, mode, size):
    if mode == "cubic" and dims != 2:
        pytest.skip("torch has it for images only")
    name = {"linear": ["linear", "bilinear", "trilinear"][dims - 1], "cubic": "bicubic"}.get(
        mode, mode
    )
    target = {"smaller": (3, 2, 4)[:dims], "larger": (8, 11, 9)[:dims]}.get(size)
    corners = [False, True] if mode in {"linear", "cubic"} else [None]
    for align in corners:
        agree_on_gradients(
            lambda x, a=align: functional.interpolate(
                x,
                size=target,
                scale_factor=None if target else 1.7,
                mode=name,
                align_corners=a,
            ),
            image(dims),
            tolerance=(2e-5, 2e-5),
        )


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
        {"kernel_size": 3, "stride": 2, "ceil_mode": True},
        {
            "kernel_size": 3,
            "stride": 2,
            "padding": 1,
            "ceil_mode": True,
            "count_include_pad": False,
        },
        {"kernel_size": 2, "stride": 1, "divisor_override": 3},
    ],
    ids=lambda options: "-".join(options),
)
@pytest.mark.parametrize("batched", [True, False])
def test_average_pooling(agree_on_gradients, dims, options, batched):
    if dims == 1 and "divisor_override" in options:
        pytest.skip("torch has it for images and volumes only")
    pool = [functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d][dims - 1]
    agree_on_gradients(lambda x: pool(x, **options), image(dims, batched=batched))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("target", [1, 2, 3, 9])
def test_adaptive_average_pooling(agree_on_gradients, dims, target):
    pool = [
        functional.adaptive_avg_pool1d,
        functional.adaptive_avg_pool2d,
        functional.adaptive_avg_pool3d,
    ][dims - 1]
    agree_on_gradients(lambda x: pool(x, target), image(dims))


def test_infinity_stays_where_it_is(agree):
    x = torch.arange(6.0).view(1, 1, 6)
    x[0, 0, 3] = math.inf
    agree(lambda x: functional.pad(x, (2, 2), mode="reflect"), x)
    agree(lambda x: functional.interpolate(x, scale_factor=2, mode="nearest"), x)


def test_channel_shuffle(agree):
    agree(lambda x: functional.channel_shuffle(x, 3), torch.randn(2, 6, 4, 5))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: functional.pad(x, (9, 0), mode="reflect"),
        lambda x: functional.interpolate(x, size=0),
        lambda x: functional.avg_pool1d(x, 9),
        lambda x: functional.adaptive_avg_pool1d(x[..., :0], 2),
    ],
)
def test_errors_are_those_of_torch(chip, call):
    x = torch.ones(2, 3, 7)
    with pytest.raises(RuntimeError) as theirs:
        call(x)
    with pytest.raises(RuntimeError) as ours:
        call(x.to(chip))
    assert str(ours.value).split(":")[0] == str(theirs.value).split(":")[0]
