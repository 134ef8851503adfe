"""Indexing, gathering, scattering and joining on the chip agree with torch's CPU."""

from __future__ import annotations

import pytest
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool]


def values(*shape, dtype=torch.float32):
    return torch.randn(shape).mul(5).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reading(agree, dtype):
    x, i = values(4, 5, 6, dtype=dtype), torch.tensor([3, -1, 0, 0])
    agree(lambda x, i: x[i], x, i)
    agree(lambda x, i: x[:, i], x, i)
    agree(lambda x, i: x[i, :, i], x, i)
    agree(lambda x, i: x[i[:, None], i[:2]], x, i)
    agree(lambda x, i: x.index_select(2, i.clamp(0)), x, i)
    agree(lambda x, i: x.gather(1, i.clamp(0).view(1, 4, 1).expand(4, 4, 6)), x, i)
    agree(lambda x, i: x.take(i), x, i)
    agree(lambda x: x.flip(0, 2), x)
    agree(lambda x: x.transpose(0, 2).roll((1, -2), (0, 1)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_writing(agree, dtype):
    x, y, i = values(4, 6, dtype=dtype), values(3, 6, dtype=dtype), torch.tensor([2, 0, 2])
    wide = i[:, None].expand(3, 6)
    agree(lambda x, y, i: x.index_put((i,), y, accumulate=True), x, y, i)
    agree(lambda x, y, i: x.index_put((i[:2], i[:2]), y[0, 0]), x, y, i)
    agree(lambda x, y, i: x.index_add(0, i, y, alpha=3), x, y, i)
    agree(lambda x, y, i: x.index_copy(0, i, y), x, y, i)
    agree(lambda x, i: x.index_fill(1, i, 7), x, i)
    agree(lambda x, y, w: x.scatter(0, w, y), x, y, wide)
    agree(lambda x, y, w: x.scatter_add(0, w, y), x, y, wide)
    agree(lambda x, w: x.scatter(0, w, 3), x, wide)
    for reduce in ("sum", "amax", "amin", "prod"):
        for own in (True, False):
            agree(
                lambda x, y, w, r=reduce, o=own: x.scatter_reduce(0, w, y, r, include_self=o),
                x, y, wide,
            )  # fmt: skip


def test_mean_of_scattered(agree):
    x, y, i = values(4, 6), values(3, 6), torch.tensor([2, 0, 2])[:, None].expand(3, 6)
    agree(lambda x, y, i: x.scatter_reduce(0, i, y, "mean"), x, y, i)
    agree(lambda x, y, i: x.scatter_reduce(0, i, y, "mean", include_self=False), x, y, i)


@pytest.mark.parametrize("freq", [False, True])
def test_embedding(agree_on_gradients, freq):
    weight, i = values(7, 5).requires_grad_(), torch.tensor([[1, 3, 3], [6, 0, 1]])
    agree_on_gradients(
        lambda w, i: torch.nn.functional.embedding(i, w, 3, scale_grad_by_freq=freq), weight, i
    )


def test_masks(agree):
    x = values(4, 5)
    agree(lambda x: x[x > 0], x)
    agree(lambda x: (x > 0).nonzero(), x)
    agree(lambda x: x.masked_scatter(x > 0, x.flatten()), x)
    agree(lambda x: torch.where(x > 0, x, 0).tril(1), x)

    def assign(x):
        x = x.clone()
        x[x > 1] = 0.5  # needs no positions: nothing is read on the host
        return x

    agree(assign, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_joining(agree, dtype):
    x, y = values(3, 4, dtype=dtype), values(2, 4, dtype=dtype)
    agree(lambda x, y: torch.cat([x, y.flip(1), x[:0]]), x, y)
    agree(lambda x: torch.stack([x, x], 1), x)
    agree(lambda x: torch.cat([x, x.float()], 1), x)
    agree(lambda x: torch.nn.functional.pad(x, (1, 2)), x)
    agree(torch.triu, x)


def test_searching(agree):
    x, edges = values(3, 7), torch.linspace(-9, 9, 8)
    for right in (False, True):
        agree(lambda e, x, r=right: torch.searchsorted(e, x, right=r), edges, x)
        agree(lambda e, x, r=right: torch.bucketize(x, e, right=r), edges, x)
    agree(lambda x: torch.histc(x, 6, -3, 3), x)
    agree(torch.bincount, torch.tensor([3, 1, 1, 0]))
    agree(torch.isin, torch.tensor([[1, 2], [3, 4]]), torch.tensor([2, 4, 9]))


@pytest.mark.parametrize(
    "read",
    [
        lambda x, i: x[i],
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.gather(0, i),
        lambda x, i: torch.zeros_like(x).scatter_add(0, i, x),
    ],
)
def test_out_of_range_is_an_index_error(chip, read):
    with pytest.raises((IndexError, RuntimeError), match=r"range|bounds"):
        read(torch.zeros(3, device=chip), torch.tensor([0, 9, 1], device=chip)).cpu()
