"""Every mixture of dtypes that the header allows a function of several tensors is done natively.

Each function in one dtype at a time is held to fp64 by its own file beside this one.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import chipset
from chipset import _interface
from chipset_conformance.levels import l2_pointwise
from chipset_conformance.oracles.pointwise import OPS

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
UNIT = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float64: 2**-53}
MIXTURES = list(itertools.product(FLOATS, FLOATS))


def evaluated_in(*dtypes: torch.dtype) -> float:
    """The unit roundoff of the dtype that a function of such tensors is evaluated in."""
    return 2**-53 if torch.float64 in dtypes else 2**-24


def close(result: torch.Tensor, want: torch.Tensor, compute: float, slack: float) -> None:
    """One rounding to the result's dtype, and `slack` of the compute dtype at the largest size."""
    bound = UNIT[result.dtype] * want.abs() + slack * compute * (1 + want.abs().max())
    if result.dtype == torch.float16:
        bound = bound + 2**-25
    error = (result.double() - want).abs()
    assert (error <= bound).all(), f"worst ratio {(error / bound).max():.3g}"


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("log", [0, 1])
@pytest.mark.parametrize("source,target", MIXTURES)
def test_softmax_to_any_float(
    table: Any, source: torch.dtype, target: torch.dtype, log: int
) -> None:
    torch.manual_seed(0)
    x, y = random(5, 37, dtype=source), torch.empty(5, 37, dtype=target)
    table.call("softmax", input=x, output=y, dim=1, log=log)
    exact = (torch.log_softmax if log else torch.softmax)(x.double(), 1)
    close(y, exact, evaluated_in(source, target), 48)


@pytest.mark.parametrize("log", [0, 1])
@pytest.mark.parametrize(
    "gradient,result,target", list(itertools.product([torch.bfloat16, *FLOATS[2:]], repeat=3))
)
def test_softmax_backward_of_any_floats(
    table: Any, gradient: torch.dtype, result: torch.dtype, target: torch.dtype, log: int
) -> None:
    torch.manual_seed(1)
    dy = random(4, 21, dtype=gradient)
    scores = random(4, 21, dtype=torch.float64)
    y = (scores.log_softmax(1) if log else scores.softmax(1)).to(result)
    dx = torch.empty(4, 21, dtype=target)
    table.call("softmax_backward", input=dy, result=y, output=dx, dim=1, log=log)
    g, p = dy.double(), y.double()
    want = g - p.exp() * g.sum(1, True) if log else (g - (g * p).sum(1, True)) * p
    close(dx, want, evaluated_in(gradient, result, target), 48)


@pytest.mark.parametrize("param", FLOATS)
@pytest.mark.parametrize("grad", FLOATS)
@pytest.mark.parametrize("state", [torch.bfloat16, torch.float32, torch.float64])
def test_adamw_of_any_floats(
    table: Any, param: torch.dtype, grad: torch.dtype, state: torch.dtype
) -> None:
    torch.manual_seed(2)
    p, g = random(700, dtype=param), random(700, dtype=grad)
    m, v = random(700, dtype=state), random(700, dtype=state).abs()
    p64, g64, m64, v64 = (t.double().clone() for t in (p, g, m, v))
    table.call(
        "adamw", num_tensors=1, param=[p], grad=[g], exp_avg=[m], exp_avg_sq=[v],
        step=[torch.tensor(3.0)], lr=0.01, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1,
        decoupled=1,
    )  # fmt: skip
    m64 = 0.9 * m64 + 0.1 * g64
    v64 = 0.99 * v64 + 0.01 * g64 * g64
    update = 0.01 / (1 - 0.9**3) * m64 / ((v64 / (1 - 0.99**3)).sqrt() + 1e-8)
    compute = evaluated_in(param, grad, state)
    close(m, m64, compute, 8)
    close(v, v64, compute, 8)
    close(p, p64 * (1 - 0.001) - update, compute, 16)


@pytest.mark.parametrize("source,target", MIXTURES)
def test_cross_entropy_gradient_of_any_float(
    table: Any, source: torch.dtype, target: torch.dtype
) -> None:
    torch.manual_seed(3)
    logits, classes = random(9, 50, dtype=source), torch.randint(0, 50, (9,))
    wide = torch.float64 if source == torch.float64 else torch.float32
    x = logits.double().requires_grad_()
    torch.nn.functional.cross_entropy(x, classes, reduction="sum").backward()
    gradient = torch.empty(9, 50, dtype=target)
    table.call(
        "cross_entropy_backward", logits=logits, target=classes, ignore_index=-100,
        lse=torch.logsumexp(logits.double(), 1).to(wide), dloss=torch.ones(9, dtype=wide),
        dlogits=gradient,
    )  # fmt: skip
    close(gradient, x.grad, evaluated_in(source), 48)  # lse carries the logits' precision


@pytest.mark.parametrize("source,target", MIXTURES)
def test_norm_to_any_float(table: Any, source: torch.dtype, target: torch.dtype) -> None:
    torch.manual_seed(4)
    x, y = random(6, 33, dtype=source), torch.empty(6, 33, dtype=target)
    table.call("norm", x=x, y=y, kind=0, eps=1e-6, weight_offset=0.0)
    exact = x.double() * (x.double().square().mean(1, True) + 1e-6).rsqrt()
    close(y, exact, evaluated_in(source), 40)


@pytest.mark.parametrize("operands", FLOATS)
@pytest.mark.parametrize("addend", FLOATS)
@pytest.mark.parametrize("target", FLOATS)
def test_gemm_mixtures_are_those_of_the_header(
    table: Any,
    refused: type[Exception],
    operands: torch.dtype,
    addend: torch.dtype,
    target: torch.dtype,
) -> None:
    torch.manual_seed(5)
    a, b = random(7, 19, dtype=operands), random(19, 5, dtype=operands)
    c, d = random(7, 5, dtype=addend), torch.empty(7, 5, dtype=target)
    small = operands in (torch.float16, torch.bfloat16)
    legal = all(t == operands or (small and t == torch.float32) for t in (addend, target))
    call = {"a": a, "b": b, "c": c, "d": d, "alpha": 1.0, "beta": 0.5}
    if not legal:
        with pytest.raises(refused, match="need one of f16, bf16, f32, f64"):
            table.call("gemm", **call)
        return
    table.call("gemm", **call)
    close(d, a.double() @ b.double() + 0.5 * c.double(), evaluated_in(operands), 40)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mask", ["bool", "f32", "own"])
def test_attention_masks(table: Any, dtype: torch.dtype, mask: str) -> None:
    torch.manual_seed(6)
    q, k, v = (random(1, 2, 9, 16, dtype=dtype) for _ in range(3))
    out = torch.empty_like(q)
    if mask == "bool":
        given = torch.rand(1, 2, 9, 9) > 0.3
        given[..., 0] = True
    else:
        given = random(1, 2, 9, 9, dtype=dtype if mask == "own" else torch.float32)
    table.call("attention", q=q, k=k, v=v, mask=given, out=out, scale=0.25, window_left=-1,
               window_right=-1)  # fmt: skip
    scores = 0.25 * q.double() @ k.double().mT
    scores = (
        scores.masked_fill(~given, float("-inf")) if mask == "bool" else scores + given.double()
    )
    # The probabilities meet the values in the operands' dtype.
    bound = 4 * UNIT[dtype] + 64 * evaluated_in(dtype)
    assert (out.double() - scores.softmax(-1) @ v.double()).abs().max() <= bound


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name.lower())
def test_pointwise_is_asked_in_every_dtype(op: _interface.PointwiseOp) -> None:
    """No opcode answers UNSUPPORTED in a dtype in which the conformance suite judges it."""
    driver = chipset.select("cpu").driver
    for dtype in l2_pointwise.dtypes_of(op):
        x = driver.empty((3,), dtype)
        operands = [driver.empty((3,), t) for t in operand_dtypes(op, dtype)]
        for operand in operands:
            driver.pointwise("FILL", operand, params=[1.0])
        driver.pointwise(op.name, x, *operands, compute=dtype, params=[1.0, 2.0, 1.0, 0.0])


def operand_dtypes(op: _interface.PointwiseOp, dtype: _interface.Dtype) -> list[Any]:
    return list(l2_pointwise.operand_dtypes(op, OPS[op], dtype))
