"""Reductions of the chip give what torch's own CPU kernels give, on the chip."""

from __future__ import annotations

import math

import pytest
import torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
OVER_DIMS = {
    "sum": lambda x, **k: torch.sum(x, **k),
    "mean": lambda x, **k: torch.mean(x, **k),
    "amax": lambda x, **k: torch.amax(x, **k),
    "amin": lambda x, **k: torch.amin(x, **k),
    "nansum": lambda x, **k: torch.nansum(x, **k),
    "any": lambda x, **k: torch.any(x > 1, **k),
    "all": lambda x, **k: torch.all(x > -1, **k),
    "logsumexp": lambda x, **k: torch.logsumexp(x, **k),
    "var": lambda x, **k: torch.var(x, **k),
    "std": lambda x, **k: torch.std(x, **k),
    "var_mean": lambda x, **k: torch.var_mean(x, **k),
    "std_mean": lambda x, **k: torch.std_mean(x, **k),
    "vector_norm": lambda x, **k: torch.linalg.vector_norm(x, **k),
}
OVER_DIM = {
    "prod": torch.prod,
    "max": torch.max,
    "min": torch.min,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "median_of_halves": lambda x, d, k: torch.max(x.float(), d, k),
}
WHOLE = ["sum", "mean", "prod", "max", "min", "argmax", "argmin", "var", "std", "norm", "nansum",
         "count_nonzero", "aminmax"]  # fmt: skip


def distinct(shape, dtype=torch.float32):
    """A permutation of distinct numbers around zero, so that extrema are unique."""
    count = math.prod(shape)
    return ((torch.randperm(count).double() - count / 2) / 8).to(dtype).view(shape)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1, (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("name", OVER_DIMS)
def test_over_dims(agree, name, dim, keepdim):
    agree(lambda x: OVER_DIMS[name](x, dim=dim, keepdim=keepdim), distinct((3, 4, 5)))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", OVER_DIM)
def test_over_dim(agree, name, dim, keepdim):
    agree(lambda x: OVER_DIM[name](x, dim, keepdim), distinct((3, 4, 5)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", WHOLE)
def test_whole(agree, name, dtype):
    # Half-precision products and sums of squares are the host's least accurate: fewer elements.
    agree(getattr(torch, name), distinct((2, 5), dtype))


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "var", "vector_norm", "logsumexp"])
def test_layouts(agree, name):
    for x in [
        distinct((5, 4)).t(),
        distinct((6, 10))[::2, ::2],
        distinct((3, 1)).expand(3, 4),
        distinct((1,)).view(()),
        distinct((2, 3, 4, 5)).to(memory_format=torch.channels_last),
        distinct((2,) * 8),
    ]:
        dims = [(-1,)] if x.dim() < 2 else [(-1,), (0,), tuple(range(x.dim()))]
        for dim in dims:
            correction = {"correction": 0} if name == "var" else {}
            agree(lambda x, d=dim, c=correction: OVER_DIMS[name](x, dim=d, **c), x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "any", "all", "count_nonzero", "max", "min"])
def test_integers(agree, name, dtype):
    x = torch.tensor([[1, 2, 3], [4, 0, 6]]).to(dtype)
    agree(getattr(torch, name), x)
    agree(lambda x: getattr(torch, name)(x, 1), x)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(agree, name):
    agree(getattr(torch, name), torch.tensor([[3, 1, 3], [1, 2, 3]]))
    agree(lambda x: getattr(torch, name)(x, 0), torch.tensor([[3.0, 1.0], [3.0, 1.0]]))


def test_nan_wins(agree):
    x = torch.tensor([[1.0, math.nan, 3.0], [2.0, 5.0, -math.inf]])
    agree(lambda x: (x.max(), x.min(), x.amax(1), x.max(1), x.argmax(1), x.argmin(1)), x)
    agree(lambda x: (x.sum(1), x.nansum(1), x.mean(1), x.norm(dim=1), x.logsumexp(1)), x)


def test_nothing_to_reduce(agree, chip):
    x = torch.empty(0, 3)
    agree(lambda x: (x.sum(0), x.prod(0), x.any(), x.all(), x.sum(), x.norm(), x.sum(1)), x)
    agree(lambda x: (x.mean(0), x.amax(1), x.count_nonzero()), x)
    for call in [torch.max, torch.argmax, lambda x: x.amax(0), lambda x: x.max(0)]:
        with pytest.raises((RuntimeError, IndexError)) as theirs:
            call(x)
        with pytest.raises(type(theirs.value)) as ours:
            call(x.to(chip))
        assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, math.inf, -math.inf])
def test_norms(agree, order):
    x = distinct((3, 4))
    agree(lambda x: torch.linalg.vector_norm(x, order), x)
    agree(lambda x: torch.linalg.vector_norm(x, order, dim=1, keepdim=True), x)
    agree(lambda x: torch.norm(x, order, dim=0), x)


def test_dtypes(agree):
    x = distinct((3, 4), torch.bfloat16)
    agree(lambda x: (x.sum(dtype=torch.float32), x.mean(1, dtype=torch.float64)), x)
    agree(lambda x: (x.prod(1, dtype=torch.float64), torch.nansum(x, dtype=torch.float32)), x)
    agree(lambda x: torch.linalg.vector_norm(x, dtype=torch.float32), x)
    agree(lambda x: (x.sum(dtype=torch.float32), x.to(torch.int32).sum(0)), torch.arange(6))


def test_half_sums_accumulate_in_single(agree):
    x = torch.full((4096,), 1.0, dtype=torch.bfloat16)
    agree(lambda x: (x.sum(), x.mean()), x)


@pytest.mark.parametrize("correction", [0, 1, 2])
def test_correction(agree, correction):
    agree(lambda x: torch.var(x, 1, correction=correction), distinct((3, 5)))
    agree(lambda x: torch.std(x, correction=correction), distinct((3, 5)))


def test_out(agree):
    x = distinct((3, 4))
    agree(lambda x: torch.sum(x, 1, out=torch.empty(3, device=x.device)), x)
    agree(lambda x: torch.mean(x, 0, out=torch.empty(0, device=x.device)), x)
    agree(lambda x: torch.amax(x, 1, out=torch.empty(6, device=x.device)[::2]), x)
    agree(lambda x: torch.var(x, 1, out=torch.empty(3, device=x.device)), x)


def test_trace(agree):
    agree(torch.trace, distinct((4, 6)))


@pytest.mark.parametrize(
    "name", ["sum", "mean", "amax", "logsumexp", "var", "std", "vector_norm", "nansum"]
)
def test_gradients(agree_on_gradients, name):
    x = distinct((3, 5)).requires_grad_()
    agree_on_gradients(lambda x: OVER_DIMS[name](x, dim=(1,)), x)


def test_gradients_of_extrema_and_products(agree_on_gradients):
    agree_on_gradients(lambda x: x.max(1)[0], distinct((3, 5)).requires_grad_())
    agree_on_gradients(lambda x: x.max(), distinct((3, 5)).requires_grad_())
    agree_on_gradients(lambda x: x.prod(1), (distinct((3, 5)) + 0.01).requires_grad_())


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(5),
        lambda x: x.sum((0, 0)),
        lambda x: x.long().mean(),
        lambda x: x.max(7),
        lambda x: x.sum(dtype=torch.int64).mean(),
        lambda x: torch.mean(x, 0, out=torch.empty(4, device=x.device, dtype=torch.int32)),
    ],
)
def test_errors_are_those_of_torch(chip, call):
    x = torch.ones(3, 4)
    with pytest.raises(Exception) as theirs:
        call(x)
    with pytest.raises(type(theirs.value)) as ours:
        call(x.to(chip))
    assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]
