"""Reductions, gather, scatter, prefixes and sorting against float64 and against torch."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import chipset
from chipset._interface import Dtype, ReduceOp, ScanOp, ScatterOp, Status
from chipset._runtime import Error

TORCH = {
    Dtype.BOOL: torch.bool, Dtype.U8: torch.uint8, Dtype.I8: torch.int8, Dtype.I16: torch.int16,
    Dtype.I32: torch.int32, Dtype.I64: torch.int64, Dtype.F16: torch.float16,
    Dtype.BF16: torch.bfloat16, Dtype.F32: torch.float32, Dtype.F64: torch.float64,
}  # fmt: skip
FLOATS = [Dtype.F16, Dtype.BF16, Dtype.F32, Dtype.F64]


@pytest.fixture(scope="module")
def chip() -> Any:
    return chipset.select("cpu:0").driver


def upload(chip: Any, x: torch.Tensor) -> Any:
    x = x.contiguous()
    if x.dtype == torch.bfloat16:
        return chip.array(x.view(torch.int16).numpy(), Dtype.BF16)
    return chip.array(x.numpy())


def download(array: Any) -> torch.Tensor:
    if array.dtype == Dtype.BF16:
        return torch.from_numpy(array.numpy().view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array.numpy())


def values(shape: tuple[int, ...], dtype: Dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if TORCH[dtype].is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(TORCH[dtype])
    high = 2 if dtype == Dtype.BOOL else 5
    return torch.randint(0, high, shape, generator=generator).to(TORCH[dtype])


REDUCTIONS: dict[str, Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]] = {
    "SUM": lambda x, d: x.sum(d, keepdim=True),
    "MEAN": lambda x, d: x.mean(d, keepdim=True),
    "MAX": lambda x, d: x.amax(d, keepdim=True),
    "MIN": lambda x, d: x.amin(d, keepdim=True),
    "NORM": lambda x, d: torch.linalg.vector_norm(x, 2, d, keepdim=True),
    "VAR": lambda x, d: x.var(d, correction=1, keepdim=True),
    "LOGSUMEXP": lambda x, d: x.logsumexp(d, keepdim=True),
    "COUNT_NONZERO": lambda x, d: (x != 0).double().sum(d, keepdim=True),
    "ANY": lambda x, d: (x != 0).double().amax(d, keepdim=True),
    "ALL": lambda x, d: (x != 0).double().amin(d, keepdim=True),
    "NANSUM": lambda x, d: x.nansum(d, keepdim=True),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_every_set_of_dimensions(chip: Any, name: str, dtype: Dtype) -> None:
    x = values((5, 67, 33), dtype)
    if name in ("ANY", "ALL", "COUNT_NONZERO"):
        x = x * (x > 0)
    if name == "NANSUM":
        x[0, 3] = math.nan
    arrays = {"contiguous": upload(chip, x), "transposed": upload(chip, x.permute(2, 1, 0))}
    arrays["transposed"] = arrays["transposed"].transpose()
    for count in (1, 2, 3):
        for dims in itertools.combinations(range(3), count):
            want = REDUCTIONS[name](x.double(), dims)
            for layout, array in arrays.items():
                out = chip.empty(tuple(want.shape), dtype)
                chip.call(
                    "reduce",
                    op=ReduceOp[name],
                    compute_dtype=dtype,
                    dims=sum(1 << d for d in dims),
                    input=array,
                    output=out,
                    param=[1 if name == "VAR" else 2],
                )
                epsilon = torch.finfo(TORCH[dtype]).eps
                magnitude = x.double().nan_to_num().abs().sum(dims, keepdim=True)
                bound = epsilon * want.abs() + 4e-7 * (1e-7 if dtype == Dtype.F64 else 1) * (
                    magnitude + want.abs()
                )
                wrong = (download(out).double() - want).abs() > bound
                assert not wrong.any(), f"{layout} {dims}"


@pytest.mark.parametrize("dtype", [Dtype.U8, Dtype.I32, Dtype.I64, Dtype.BOOL])
def test_integer_reductions_are_exact(chip: Any, dtype: Dtype) -> None:
    x = values((9, 41, 6), dtype)
    for name in ("SUM", "PROD", "MAX", "MIN", "ANY", "ALL"):
        out = chip.empty((9, 1, 6), Dtype.I64)
        chip.call(
            "reduce", op=ReduceOp[name], compute_dtype=Dtype.I64, dims=2, input=upload(chip, x),
            output=out,
        )  # fmt: skip
        wide = x.to(torch.int64)
        want = {
            "SUM": wide.sum(1), "PROD": wide.prod(1), "MAX": wide.amax(1), "MIN": wide.amin(1),
            "ANY": wide.bool().any(1).long(), "ALL": wide.bool().all(1).long(),
        }[name]  # fmt: skip
        assert torch.equal(download(out).squeeze(1), want), name


@pytest.mark.parametrize("name", ["ARGMAX", "ARGMIN", "MAX", "MIN"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_indices_point_to_the_first_extreme_and_to_nan(chip: Any, name: str, dim: int) -> None:
    x = (values((7, 45, 19), Dtype.F32) * 2).round()  # many ties
    x[2, 5, 3] = math.nan
    array = x.numpy()
    shape = tuple(1 if d == dim else n for d, n in enumerate(x.shape))
    want = (np.argmax if name.endswith("MAX") else np.argmin)(array, dim, keepdims=True)
    index = chip.empty(shape, Dtype.I64)
    fields = {"op": ReduceOp[name], "compute_dtype": Dtype.F32, "dims": 1 << dim}
    if name.startswith("ARG"):
        chip.call("reduce", input=upload(chip, x), output=index, **fields)
    else:
        best = chip.empty(shape)
        chip.call("reduce", input=upload(chip, x), output=best, indices=index, **fields)
        np.testing.assert_array_equal(best.numpy(), np.take_along_axis(array, want, dim))
    np.testing.assert_array_equal(index.numpy(), want)


def test_a_reduction_over_nothing_gives_its_identity(chip: Any) -> None:
    empty = chip.empty((0, 3))
    identities = {
        "SUM": 0, "MEAN": math.nan, "PROD": 1, "ANY": 0, "ALL": 1, "NORM": 0, "VAR": math.nan,
        "COUNT_NONZERO": 0,
    }  # fmt: skip
    for name, identity in identities.items():
        out = chip.array(np.full((1, 3), 7, np.float32))
        chip.call(
            "reduce", op=ReduceOp[name], compute_dtype=Dtype.F32, dims=1, input=empty, output=out,
            param=[2],
        )  # fmt: skip
        np.testing.assert_array_equal(out.numpy(), np.full((1, 3), identity, np.float32), name)
    for name in ("MAX", "MIN", "ARGMAX", "ARGMIN"):
        out = chip.empty((1, 3), Dtype.I64 if name.startswith("ARG") else Dtype.F32)
        args = chip.arguments(
            "reduce", op=ReduceOp[name], compute_dtype=Dtype.F32, dims=1, input=empty, output=out
        )

        assert chip.status("reduce", chip.stream, ctypes.addressof(args)) == Status.INVALID


def test_a_long_sum_keeps_its_accuracy_and_its_bits(chip: Any) -> None:
    x = np.random.default_rng(0).random(3_000_001).astype(np.float32)
    results = set()
    for _ in range(3):
        out = chip.empty((1,))
        chip.call(
            "reduce", op=ReduceOp.SUM, compute_dtype=Dtype.F32, dims=1, input=chip.array(x),
            output=out,
        )  # fmt: skip
        results.add(float(out.numpy()[0]))
    assert len(results) == 1
    assert abs(results.pop() / x.sum(dtype=np.float64) - 1) < 3e-7


def gather(chip: Any, source: Any, index: Any, shape: tuple[int, ...], dim: int) -> Any:
    out = chip.empty(shape, source.dtype)
    strides = [0 if d == dim else s for d, s in enumerate(source.strides)]
    chip.call(
        "gather", num_indices=1, output=out, input=source.view(shape, strides), index=[index],
        indexed_size=[source.shape[dim]], indexed_stride=[source.strides[dim]],
    )  # fmt: skip
    return out


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_gather_picks_elements_and_rows(chip: Any, dtype: Dtype, kind: torch.dtype) -> None:
    x = values((50, 64), dtype)
    array = upload(chip, x)
    rows = torch.randint(-50, 50, (300,), generator=torch.Generator().manual_seed(1)).to(kind)
    index = upload(chip, rows).view((300, 64), (1, 0))
    out = gather(chip, array, index, (300, 64), 0)  # an embedding, negative indices wrap
    assert torch.equal(download(out), x[rows.long()])
    each = torch.randint(0, 50, (20, 64), generator=torch.Generator().manual_seed(2)).to(kind)
    out = gather(chip, array, upload(chip, each), (20, 64), 0)
    assert torch.equal(download(out), x.gather(0, each.long()))


def test_an_index_out_of_range_is_an_error_and_nothing_is_written(chip: Any) -> None:
    array = chip.array(np.arange(10, dtype=np.float32))
    for wrong in (10, -11):
        with pytest.raises(Error, match=str(wrong)):
            gather(chip, array, chip.array(np.array([0, wrong], np.int64)), (2,), 0)
        with pytest.raises(Error, match=str(wrong)):
            scatter(chip, array, np.array([0, wrong]), np.array([5, 6], np.float32), "SET")
    np.testing.assert_array_equal(array.numpy(), np.arange(10))


def scatter(chip: Any, target: Any, index: np.ndarray, source: np.ndarray, op: str) -> None:
    """target[index[i]] op= source[i] along dimension 0."""
    given = chip.array(source) if isinstance(source, np.ndarray) else source
    shape = given.shape
    strides = [0, *target.strides[1:]]
    index_strides = [1] + [0] * (len(shape) - 1)
    chip.call(
        "scatter", op=ScatterOp[op], num_indices=1, destination=target.view(shape, strides),
        source=given, index=[chip.array(index.astype(np.int64)).view(shape, index_strides)],
        indexed_size=[target.shape[0]], indexed_stride=[target.strides[0]],
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [Dtype.F32, Dtype.F64, Dtype.I32, Dtype.I64, Dtype.BF16])
@pytest.mark.parametrize("op", ["SET", "ADD", "MUL", "MIN", "MAX"])
@pytest.mark.parametrize("columns", [1, 24])
def test_scatter_with_duplicates_goes_in_row_major_order(
    chip: Any, op: str, dtype: Dtype, columns: int
) -> None:
    start = (values((12, columns), dtype, 1) * 2).to(TORCH[dtype])
    source = (values((200, columns), dtype, 2) * 2).to(TORCH[dtype])
    if op in ("ADD", "MUL"):  # exact in every dtype
        start, source = start.sign(), source.sign()
    index = np.random.default_rng(3).integers(0, 12, 200)
    want = start.double().clone()
    for i, row in enumerate(index):
        old, new = want[row], source[i].double()
        want[row] = {
            "SET": new, "ADD": old + new, "MUL": old * new, "MIN": torch.minimum(old, new),
            "MAX": torch.maximum(old, new),
        }[op]  # fmt: skip
    target = upload(chip, start)
    scatter(chip, target, index, upload(chip, source), op)
    assert torch.equal(download(target).double(), want)


@pytest.mark.parametrize("dtype", [*FLOATS, Dtype.I64])
@pytest.mark.parametrize("dim", [0, 1])
def test_prefixes(chip: Any, dtype: Dtype, dim: int) -> None:
    x = values((37, 53), dtype)
    oracle: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "SUM": lambda v: v.cumsum(dim), "PROD": lambda v: v.cumprod(dim),
        "MAX": lambda v: v.cummax(dim).values, "MIN": lambda v: v.cummin(dim).values,
        "LOGSUMEXP": lambda v: v.logcumsumexp(dim),
    }  # fmt: skip
    for name, function in oracle.items():
        if name == "LOGSUMEXP" and dtype == Dtype.I64:
            continue
        out, index = chip.empty((37, 53), dtype), chip.empty((37, 53), Dtype.I64)
        with_index = name in ("MAX", "MIN")
        chip.call(
            "scan", op=ScanOp[name], dim=dim, compute_dtype=dtype, input=upload(chip, x),
            output=out, indices=index if with_index else None,
        )  # fmt: skip
        want = function(x.double())
        epsilon = torch.finfo(TORCH[dtype]).eps if TORCH[dtype].is_floating_point else 0
        scale = want.abs() + x.double().abs().cumsum(dim) * (name == "SUM")
        bound = 2 * epsilon * scale + (1e-5 if dtype == Dtype.F32 else 1e-12) * want.abs()
        if dtype == Dtype.F16:
            bound = bound + torch.finfo(torch.float16).smallest_normal
        assert not ((download(out).double() - want).abs() > bound).any(), name
        if with_index:
            reference = x.double().cummax(dim) if name == "MAX" else x.double().cummin(dim)
            assert torch.equal(download(index), reference.indices)


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("descending", [0, 1])
@pytest.mark.parametrize("dim", [0, 1])
def test_sort_is_stable_and_puts_nan_last(
    chip: Any, dtype: Dtype, descending: int, dim: int
) -> None:
    x = values((40, 130), dtype)
    if TORCH[dtype].is_floating_point:
        x = (x * 4).round()
        x[3, 7] = x[9, 7] = math.nan
    want = torch.sort(x, dim=dim, descending=bool(descending), stable=True)
    out, index = chip.empty((40, 130), dtype), chip.empty((40, 130), Dtype.I64)
    chip.call(
        "sort", dim=dim, descending=descending, stable=1, k=x.shape[dim], input=upload(chip, x),
        values=out, indices=index,
    )  # fmt: skip
    assert torch.equal(download(out).nan_to_num(99), want.values.nan_to_num(99))
    assert torch.equal(download(index), want.indices)
    shape = (40, 5) if dim == 1 else (5, 130)
    top, where = chip.empty(shape, dtype), chip.empty(shape, Dtype.I64)
    chip.call(
        "sort", dim=dim, descending=descending, stable=0, k=5, input=upload(chip, x), values=top,
        indices=where,
    )  # fmt: skip
    best = want.values.narrow(dim, 0, 5)
    assert torch.equal(download(top).nan_to_num(99), best.nan_to_num(99))
    assert torch.equal(x.gather(dim, download(where)).nan_to_num(99), best.nan_to_num(99))
