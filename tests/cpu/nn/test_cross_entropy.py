"""cross_entropy and its backward against torch in fp64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
UNIT = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float64: 2**-53}
IGNORED = -100


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def close(result: torch.Tensor, want: torch.Tensor, size: torch.Tensor | float) -> None:
    """One rounding of the result, and 16 of the compute dtype at the given magnitude."""
    compute = 2**-53 if result.dtype == torch.float64 else 2**-24
    bound = UNIT[result.dtype] * want.abs() + 16 * compute * size
    if result.dtype == torch.float16:
        bound = bound + 2**-25
    error = (result.double() - want).abs()
    assert (error <= bound).all(), f"worst ratio {(error / bound).max():.3g}"


def run(
    table: Any, logits: torch.Tensor, target: torch.Tensor, smoothing: float, dlogits: torch.Tensor
) -> None:
    rows = logits.shape[0]
    loss, lse = (torch.full((rows,), 7.0, dtype=wide(logits.dtype)) for _ in range(2))
    common = {"logits": logits, "target": target, "ignore_index": IGNORED, "lse": lse,
              "label_smoothing": smoothing}  # fmt: skip
    table.call("cross_entropy", loss=loss, **common)
    x = logits.double().requires_grad_()
    want = F.cross_entropy(
        x, target, reduction="none", ignore_index=IGNORED, label_smoothing=smoothing
    )
    size = 1 + x.detach().abs().amax(1)
    close(loss, want.detach(), size)
    close(lse, torch.logsumexp(x.detach(), 1), size)

    dloss = torch.randn(rows, dtype=loss.dtype)
    want.backward(dloss.double())
    gradient = x.grad
    table.call("cross_entropy_backward", dloss=dloss, dlogits=dlogits, **common)
    close(dlogits, gradient, size[:, None] * dloss.double().abs()[:, None])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(
    "rows,classes", [(1, 1), (5, 3), (7, 17), (3, 2048), (4, 2049), (2, 49152), (300, 33)]
)
def test_against_fp64(
    table: Any, dtype: torch.dtype, smoothing: float, rows: int, classes: int
) -> None:
    torch.manual_seed(rows)
    logits = (5 * torch.randn(rows, classes, dtype=torch.float64)).to(dtype)
    target = torch.randint(0, classes, (rows,))
    target[::3] = IGNORED
    target[-1] = classes - 1
    run(table, logits, target, smoothing, torch.full_like(logits, float("nan")))


@pytest.mark.parametrize("dtype", FLOATS)
def test_layouts(table: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = torch.randn(70, 9, dtype=torch.float64).to(dtype).T
    target = torch.randint(0, 70, (18,))[::2]
    run(table, logits, target, 0.2, torch.empty(9, 140, dtype=dtype)[:, ::2])


def test_the_gradient_may_replace_the_logits(table: Any) -> None:
    logits, target = torch.randn(6, 5000), torch.randint(0, 5000, (6,))
    lse = torch.logsumexp(logits, 1)
    fields = {"target": target, "lse": lse, "dloss": torch.ones(1).expand(6), "ignore_index": -1}
    apart = torch.empty_like(logits)
    table.call("cross_entropy_backward", logits=logits, dlogits=apart, **fields)
    table.call("cross_entropy_backward", logits=logits, dlogits=logits, **fields)
    assert torch.equal(apart, logits)


def test_lse_is_optional_and_the_gradient_may_be_narrower(table: Any) -> None:
    logits, target, loss = torch.randn(4, 10), torch.tensor([1, 2, 3, 4]), torch.empty(4)
    table.call("cross_entropy", logits=logits, target=target, loss=loss, ignore_index=-1)
    close(loss, F.cross_entropy(logits.double(), target, reduction="none"), 5.0)


def test_infinite_logits(table: Any) -> None:
    inf = float("inf")
    blocks = torch.full((1, 5000), -inf)  # whole blocks of a row without a finite logit
    blocks[0, 4500] = 1.0
    loss, lse = torch.empty(1), torch.empty(1)
    common = {"logits": blocks, "ignore_index": -1, "lse": lse}
    table.call("cross_entropy", target=torch.tensor([4500]), loss=loss, **common)
    assert loss == 0 and lse == 1
    table.call("cross_entropy", target=torch.tensor([0]), loss=loss, **common)
    assert loss == inf
    gradient = torch.empty_like(blocks)
    table.call(
        "cross_entropy_backward", target=torch.tensor([4500]), dloss=torch.ones(1),
        dlogits=gradient, **common,
    )  # fmt: skip
    assert (gradient == 0).all()


def test_nan_spreads_but_not_from_ignored_rows(table: Any) -> None:
    logits = torch.zeros(2, 3000)
    logits[:, 2900] = float("nan")
    loss, lse, gradient = torch.empty(2), torch.empty(2), torch.empty(2, 3000)
    common = {"logits": logits, "target": torch.tensor([5, 1]), "ignore_index": 5, "lse": lse}
    table.call("cross_entropy", loss=loss, **common)
    assert loss[0] == 0 and loss[1].isnan() and lse[1].isnan()
    table.call("cross_entropy_backward", dloss=torch.ones(2), dlogits=gradient, **common)
    assert (gradient[0] == 0).all() and gradient[1].isnan().all()


def test_nothing_to_do(table: Any) -> None:
    empty, none = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    logits = torch.zeros(0, 7)
    common = {"logits": logits, "target": none, "lse": empty}
    table.call("cross_entropy", loss=empty, **common)
    table.call("cross_entropy_backward", dloss=empty, dlogits=logits, **common)


def test_refusals(table: Any, refused: type[Exception]) -> None:
    logits, loss, lse = torch.zeros(2, 3), torch.full((2,), 9.0), torch.zeros(2)
    common = {"logits": logits, "loss": loss, "lse": lse, "ignore_index": -100}
    for bad in (3, -1):
        with pytest.raises(refused, match=rf"target\[1\] is {bad}; need 0 to 2, or") as caught:
            table.call("cross_entropy", target=torch.tensor([0, bad]), **common)
        assert caught.value.status == 8
    assert (loss == 9).all()
    target = torch.tensor([0, 1])
    with pytest.raises(refused, match="label_smoothing is 1.5"):
        table.call("cross_entropy", target=target, label_smoothing=1.5, **common)
    with pytest.raises(refused, match="target is i32"):
        table.call("cross_entropy", target=target.int(), **common)
    with pytest.raises(refused, match=r"loss has shape \[3\], need \[2\]"):
        table.call("cross_entropy", target=target, **{**common, "loss": torch.zeros(3)})
    with pytest.raises(refused, match=r"dlogits has shape \[2, 4\]"):
        table.call(
            "cross_entropy_backward", target=target, dloss=lse, dlogits=torch.zeros(2, 4), **common
        )
