"""rotary against the fp64 formula, in both pairings, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
UNIT = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float64: 2**-53}


def angles(batch: int, positions: int, rotated: int, interleaved: bool) -> Any:
    """cos and sin [B, S, R] in fp64, both elements of a pair with the same angle."""
    inverse = 1 / 10000 ** (torch.arange(0, rotated, 2, dtype=torch.float64) / max(rotated, 1))
    at = torch.arange(positions, dtype=torch.float64) + 3 * torch.arange(batch)[:, None]
    half = at[:, :, None] * inverse
    whole = half.repeat_interleave(2, -1) if interleaved else torch.cat([half, half], -1)
    return whole.cos(), whole.sin()


def exact(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """y = x*cos + rotate(x)*sin in fp64; the dimensions beyond R pass through."""
    x, rotated = x.double(), cos.shape[-1]
    head = x[..., :rotated]
    if interleaved:
        turned = torch.stack([-head[..., 1::2], head[..., ::2]], -1).flatten(-2)
    else:
        turned = torch.cat([-head[..., rotated // 2 :], head[..., : rotated // 2]], -1)
    y = head * cos.double()[:, None] + turned * sin.double()[:, None]
    return torch.cat([y, x[..., rotated:]], -1)


def close(result: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    """One rounding to the dtype, and three of the compute dtype at the size of the two products."""
    compute = 2**-53 if dtype == torch.float64 else 2**-24
    size = want.abs().max() if want.numel() else 0
    bound = UNIT[dtype] * want.abs() + 3 * compute * size + (2**-25 if dtype == torch.half else 0)
    assert ((result.double() - want).abs() <= bound).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    "shape,rotated",
    [((1, 1, 1, 2), 2), ((2, 3, 5, 64), 64), ((1, 9, 300, 64), 64), ((2, 2, 7, 80), 20),
     ((1, 4, 3, 33), 14), ((2, 1, 4, 128), 0), ((1, 2, 9, 6), 6)],
)  # fmt: skip
def test_against_fp64(
    table: Any, dtype: torch.dtype, interleaved: bool, shape: Any, rotated: int
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    for kind in {dtype, torch.float32}:
        cos, sin = (t.to(kind) for t in angles(shape[0], shape[2], rotated, interleaved))
        y = torch.full_like(x, float("nan"))
        table.call("rotary", x=x, cos=cos, sin=sin, y=y, interleaved=int(interleaved))
        close(y, exact(x, cos, sin, interleaved), dtype)
        table.call("rotary", x=x, cos=cos, sin=sin, y=y, interleaved=int(interleaved), inverse=1)
        close(y, exact(x, cos, -sin, interleaved), dtype)


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_halves_of_a_table_may_differ(table: Any, interleaved: bool) -> None:
    x = torch.randn(1, 2, 3, 8)
    cos, sin = torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    y = torch.empty_like(x)
    table.call("rotary", x=x, cos=cos, sin=sin, y=y, interleaved=int(interleaved))
    close(y, exact(x, cos, sin, interleaved), torch.float32)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("interleaved", [False, True])
def test_layouts_and_in_place(table: Any, dtype: torch.dtype, interleaved: bool) -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 6, 3, 16, dtype=torch.float64).to(dtype).transpose(1, 2)  # [B,H,S,D]
    cos, sin = (t.to(dtype) for t in angles(1, 6, 16, interleaved))
    wide = [t.expand(2, 6, 16) for t in (cos, sin)]
    want = exact(x, *wide, interleaved)
    strided = torch.empty(2, 3, 16, 6, dtype=dtype).transpose(2, 3)
    fields = {"cos": wide[0], "sin": wide[1], "interleaved": int(interleaved)}
    table.call("rotary", x=x, y=strided, **fields)
    close(strided, want, dtype)
    table.call("rotary", x=x[:, :, :, ::1], y=x, **fields)  # in place
    close(x, want, dtype)
    padded = torch.randn(2, 3, 6, 32, dtype=torch.float64).to(dtype)[..., 1::2]
    table.call("rotary", x=padded, y=strided, **fields)
    close(strided, exact(padded, *wide, interleaved), dtype)


def test_nothing_to_do(table: Any) -> None:
    for shape in [(0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4)]:
        x = torch.zeros(shape)
        table_shape = (shape[0], shape[2], 4)
        table.call("rotary", x=x, y=x, cos=torch.zeros(table_shape), sin=torch.zeros(table_shape))


def test_refusals(table: Any, refused: type[Exception]) -> None:
    x, cos = torch.zeros(1, 2, 3, 8), torch.zeros(1, 3, 8)
    with pytest.raises(refused, match=r"cos has shape \[1, 3, 7\].*even R"):
        table.call("rotary", x=x, y=x, cos=torch.zeros(1, 3, 7), sin=torch.zeros(1, 3, 7))
    with pytest.raises(refused, match=r"sin has shape \[1, 4, 8\]"):
        table.call("rotary", x=x, y=x, cos=cos, sin=torch.zeros(1, 4, 8))
    with pytest.raises(refused, match=r"cos has shape \[1, 3, 8\], but sin has \[1, 3, 4\]"):
        table.call("rotary", x=x, y=x, cos=cos, sin=torch.zeros(1, 3, 4))
    with pytest.raises(refused, match="cos is f64, but x is f32"):
        table.call("rotary", x=x, y=x, cos=cos.double(), sin=cos.double())
    with pytest.raises(refused, match="x is i64"):
        table.call("rotary", x=x.long(), y=x, cos=cos, sin=cos)
    with pytest.raises(refused, match="need .B, H, S, D"):
        table.call("rotary", x=x[0], y=x[0], cos=cos, sin=cos)
