"""adamw against torch.optim in fp64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

UNIT = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float64: 2**-53}


@pytest.mark.parametrize("dtype", list(UNIT))
@pytest.mark.parametrize("decoupled,amsgrad,maximize", [(1, 0, 0), (0, 1, 0), (1, 1, 1)])
def test_matches_torch(table: Any, dtype: Any, decoupled: int, amsgrad: int, maximize: int) -> None:
    generator = torch.Generator().manual_seed(0)
    state_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    shapes = [(), (700,), (33, 1000), (0, 3)]
    param = [torch.randn(s, generator=generator).to(dtype) for s in shapes]
    param[2] = torch.randn(1000, 33, generator=generator).to(dtype).t()
    state = [[torch.zeros_like(p, dtype=state_dtype) for p in param] for _ in range(3)]
    step = [torch.zeros(()) for _ in param]
    reference = [p.double().clone().requires_grad_() for p in param]
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimizer = kind(
        reference, lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1,
        amsgrad=bool(amsgrad), maximize=bool(maximize),
    )  # fmt: skip
    lr, scale, found_inf = torch.tensor(0.01), torch.tensor(4.0), torch.tensor(0.0)
    for turn in range(4):
        found_inf.fill_(turn == 2)
        grad = [torch.randn(p.shape, generator=generator).to(dtype) for p in param]
        grad = [torch.empty_like(p).copy_(4 * g) for p, g in zip(param, grad, strict=True)]
        if turn != 2:
            for p, r, g in zip(param, reference, grad, strict=True):
                r.data.copy_(p)  # one step's error at a time
                r.grad = torch.empty_like(r).copy_(g.double() / 4)
            optimizer.step()
            step = [s + 1 for s in step]
        before = [p.clone() for p in param]
        table.call(
            "adamw", num_tensors=len(param), param=param, grad=grad, exp_avg=state[0],
            exp_avg_sq=state[1], max_exp_avg_sq=state[2] if amsgrad else None, step=step,
            lr=123.0, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1, decoupled=decoupled,
            maximize=maximize, lr_tensor=lr.data_ptr(), grad_scale=scale.data_ptr(),
            found_inf=found_inf.data_ptr(),
        )  # fmt: skip
        if turn == 2:
            assert all(torch.equal(p, b) for p, b in zip(param, before, strict=True))
            continue
        for p, r in zip(param, reference, strict=True):
            error = (p.double() - r.data).abs()
            # lr_tensor is F32, torch's lr F64: that alone is 2^-24 of a step.
            assert (error <= 1.01 * UNIT[dtype] * r.data.abs() + 3e-7 * 0.3).all(), error.max()


def test_refuses_other_strides(table: Any, refused: Any) -> None:
    t = [torch.zeros(4, 3)]
    with pytest.raises(refused, match="grad .*dense"):
        table.call(
            "adamw", num_tensors=1, param=t, grad=[torch.zeros(3, 4).t()], exp_avg=t,
            exp_avg_sq=t, step=[torch.ones(())], lr=0.1,
        )  # fmt: skip
