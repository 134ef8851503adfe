"""softmax and norm, forward and backward, against fp64 formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
UNIT = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float64: 2**-53}


def compute_unit(dtype: torch.dtype) -> float:
    return 2**-53 if dtype == torch.float64 else 2**-24


def close(result: torch.Tensor, exact: torch.Tensor, slack: float = 8.0, size: float = 1.0) -> None:
    """One rounding to the result's dtype, and `slack` roundings of numbers of magnitude `size`."""
    bound = UNIT[result.dtype] * exact.abs() + slack * compute_unit(result.dtype) * (
        exact.abs() + size
    )
    if result.dtype == torch.float16:
        bound = bound + 2**-25
    error = (result.double() - exact).abs()
    assert (error <= bound).all(), f"worst ratio {(error / bound).max():.3g}"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("log", [0, 1])
@pytest.mark.parametrize(
    "shape,dim",
    [((3, 7), 1), ((5, 16), 1), ((2, 1000), 1), ((4, 33, 5), 1), ((17, 6), 0), ((1, 50000), 1),
     ((2, 3, 4, 5), 2), ((300, 64), 1), ((1, 1), 0)],
)  # fmt: skip
def test_softmax(
    table: Any, dtype: torch.dtype, log: int, shape: tuple[int, ...], dim: int
) -> None:
    torch.manual_seed(0)
    x = (4 * torch.randn(shape, dtype=torch.float64)).to(dtype)
    y = torch.empty_like(x)
    table.call("softmax", input=x, output=y, dim=dim, log=log)
    exact = torch.log_softmax(x.double(), dim) if log else torch.softmax(x.double(), dim)
    # exp(x - max) inherits the rounding of x - max, whose size is up to 40 here.
    close(y, exact, 48, 16.0 if log else 0.0)

    dy = torch.randn(shape, dtype=torch.float64).to(dtype)
    dx = torch.empty_like(x)
    table.call("softmax_backward", input=dy, result=y, output=dx, dim=dim, log=log)
    g, p = dy.double(), y.double()
    want = g - p.exp() * g.sum(dim, True) if log else (g - (g * p).sum(dim, True)) * p
    n = shape[dim]
    close(dx, want, 16 + n**0.5, float(g.abs().sum(dim).max()) if log else 1.0)


def test_softmax_layouts_and_dtypes(table: Any) -> None:
    x = torch.randn(6, 40, 8).transpose(0, 2)
    y = torch.empty(6, 8, 40).permute(1, 2, 0)
    table.call("softmax", input=x, output=y, dim=1)
    close(y, torch.softmax(x.double(), 1), 16, 0.0)
    half, wide = torch.randn(5, 30).bfloat16(), torch.empty(5, 30)
    table.call("softmax", input=half, output=wide, dim=1)
    close(wide, torch.softmax(half.double(), 1), 16, 0.0)
    same = x.contiguous()
    want = torch.softmax(same.double(), 2)
    table.call("softmax", input=same, output=same, dim=2)  # in place
    close(same, want, 16, 0.0)


def test_softmax_special_values(table: Any) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[-inf, -inf, -inf], [0.0, nan, 1.0], [-inf, 0.0, 0.0], [1e30, 0.0, -1e30]])
    y = torch.empty_like(x)
    table.call("softmax", input=x, output=y, dim=1)
    torch.testing.assert_close(y, torch.softmax(x, 1), equal_nan=True)
    empty = torch.zeros(0, 5)
    table.call("softmax", input=empty, output=empty.clone(), dim=1)
    scalar = torch.tensor(3.0)
    out = torch.zeros(())
    table.call("softmax", input=scalar, output=out, dim=0)
    assert out == 1


def test_softmax_refusals(table: Any, refused: type[Exception]) -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(refused, match="dim 2"):
        table.call("softmax", input=x, output=x.clone(), dim=2)
    with pytest.raises(refused, match=r"output has shape \[3, 2\]"):
        table.call("softmax", input=x, output=torch.zeros(3, 2), dim=0)
    with pytest.raises(refused, match="input is i32"):
        table.call("softmax", input=x.int(), output=x, dim=0)


def norm_exact(x: torch.Tensor, w: Any, b: Any, layer: bool, eps: float, off: float) -> Any:
    mean = x.mean(1, True) if layer else torch.zeros(x.shape[0], 1, dtype=x.dtype)
    rstd = ((x - mean).square().mean(1, True) + eps).rsqrt()
    y = (x - mean) * rstd
    if w is not None:
        y = y * (w + off)
    if b is not None:
        y = y + b
    return y, mean[:, 0], rstd[:, 0]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layer", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("rows,size", [(1, 1), (3, 7), (50, 576), (700, 64), (2, 5000), (129, 33)])
def test_norm(
    table: Any, dtype: torch.dtype, layer: bool, affine: bool, rows: int, size: int
) -> None:
    torch.manual_seed(rows)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x = (1 + 2 * torch.randn(rows, size, dtype=torch.float64)).to(dtype)
    w = torch.randn(size, dtype=torch.float64).to(dtype) if affine else None
    b = torch.randn(size, dtype=torch.float64).to(dtype) if affine and layer else None
    off = 1.0 if affine and not layer else 0.0
    eps = 1e-2 if size == 1 else 1e-5
    y, mean, rstd = (
        torch.empty_like(x),
        torch.empty(rows, dtype=wide),
        torch.empty(rows, dtype=wide),
    )
    table.call(
        "norm", x=x, weight=w, bias=b, y=y, mean=mean if layer else None, rstd=rstd,
        kind=int(layer), eps=eps, weight_offset=off,
    )  # fmt: skip
    xd = x.double().requires_grad_()
    wd = w.double().requires_grad_() if w is not None else None
    bd = b.double().requires_grad_() if b is not None else None
    exact, exact_mean, exact_rstd = norm_exact(xd, wd, bd, layer, eps, off)
    close(y, exact.detach(), 40, 10.0)
    close(rstd, exact_rstd.detach(), 40, 0.0)
    if layer:
        close(mean, exact_mean.detach(), 40, 5.0)

    dy = torch.randn(rows, size, dtype=torch.float64).to(dtype)
    exact.backward(dy.double())
    dx = torch.empty_like(x)
    dw = torch.empty_like(w) if w is not None else None
    db = torch.empty_like(b) if b is not None else None
    # Statistics as the forward rounded them.
    table.call(
        "norm_backward", x=x, weight=w, dy=dy, mean=mean if layer else None, rstd=rstd, dx=dx,
        dweight=dw, dbias=db, kind=int(layer), eps=eps, weight_offset=off,
    )  # fmt: skip
    scale = float(exact_rstd.detach().max()) * 10
    close(dx, xd.grad, 100, scale)
    if dw is not None:
        close(dw, wd.grad, 20 + rows, 10.0)
    if db is not None:
        close(db, bd.grad, 20 + rows, 2.0)


def test_norm_mixed_and_strided(table: Any) -> None:
    x = torch.randn(8, 40).bfloat16()[:, ::2]
    w = torch.rand(20)
    y = torch.empty(20, 8).mT
    table.call("norm", x=x, weight=w, y=y, kind=0, eps=1e-6, weight_offset=0.0)
    close(y, norm_exact(x.double(), w.double(), None, False, 1e-6, 0.0)[0], 40, 5.0)


def test_norm_without_rows_gives_zero_weight_gradient(table: Any) -> None:
    x, dw = torch.zeros(0, 5), torch.ones(5)
    table.call(
        "norm_backward", x=x, dy=x, rstd=torch.zeros(0), dweight=dw, weight=torch.ones(5), kind=0,
        eps=1e-5,
    )  # fmt: skip
    assert (dw == 0).all()


def test_norm_refusals(table: Any, refused: type[Exception]) -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(refused, match=r"weight has shape \[4\], need \[3\]"):
        table.call("norm", x=x, weight=torch.zeros(4), y=x.clone(), kind=0)
    with pytest.raises(refused, match="unknown kind 7"):
        table.call("norm", x=x, y=x.clone(), kind=7)
