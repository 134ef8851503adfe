"""One AdamW step (arXiv:1711.05101), in the order of PyTorch's fused kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chipset._interface import Dtype
from chipset_conformance.numerics import Array, Bounded


@dataclass(frozen=True)
class Step:
    """Scalars of a step; fields as in chipset_adamw_args."""

    count: int = 1
    lr: float = 1e-2
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    decoupled: bool = True
    maximize: bool = False
    grad_scale: float | None = None


@dataclass(frozen=True)
class State:
    """A tensor's numbers after the step."""

    param: Bounded
    exp_avg: Bounded
    exp_avg_sq: Bounded
    max_exp_avg_sq: Bounded | None


def adamw(
    param: Array,
    grad: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    max_exp_avg_sq: Array | None,
    dtype: Dtype,
    s: Step,
) -> State:
    """Evaluated in F32 (F64 for F64); the bias corrections by pow in the same type."""

    def number(value: float) -> Bounded:
        return Bounded(np.zeros(()), dtype)._other(value)

    p, g = Bounded(param, dtype), Bounded(grad, dtype)
    if s.grad_scale is not None:
        g = g / s.grad_scale
    if s.maximize:
        g = -g
    if s.decoupled:
        p = p - p * (number(s.lr) * s.weight_decay)
    else:
        g = g + p * s.weight_decay
    beta1, beta2 = number(s.beta1), number(s.beta2)
    m = Bounded(exp_avg, dtype) * beta1 + g * (1 - beta1)
    v = Bounded(exp_avg_sq, dtype) * beta2 + g * g * (1 - beta2)
    correction1 = 1 - beta1.apply("pow", lambda x: x**s.count)
    correction2 = 1 - beta2.apply("pow", lambda x: x**s.count)
    used, largest = v, None
    if max_exp_avg_sq is not None:
        old = Bounded(max_exp_avg_sq, dtype)
        largest = used = v.where(v.value >= old.value, old)
        largest = largest.reordered()

    def root(x: Bounded) -> Bounded:
        return x.apply("sqrt", lambda y: np.sqrt(np.maximum(y, 0)))

    denominator = root(used) / root(correction2) + s.eps
    p = p - (number(s.lr) / correction1) * (m / denominator)
    return State(p.reordered(), m.reordered(), v.reordered(), largest)
