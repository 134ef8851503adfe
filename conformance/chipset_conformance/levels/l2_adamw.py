"""Level 2, adamw: step counts, options, many tensors, layouts, scaled and skipped steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from chipset._interface import Dtype
from chipset_conformance import values as draw
from chipset_conformance.case import OPTIONAL, Case, cases
from chipset_conformance.context import Context
from chipset_conformance.numerics import FLOATS, Array, name_of, round_to
from chipset_conformance.oracles.adamw import Step, adamw
from chipset_conformance.trial import Address, Trial

COUNTS = (1, 2, 3, 10, 1000)
PLAIN = Step()
OPTIONS: dict[str, Step] = {
    "no decay": replace(PLAIN, weight_decay=0.0),
    "coupled": replace(PLAIN, decoupled=False, weight_decay=0.1),
    "maximize": replace(PLAIN, maximize=True, count=4),
    "eps": replace(PLAIN, eps=1e-2, count=3),
    "betas": replace(PLAIN, beta1=0.5, beta2=0.75, count=5),
    "scaled": replace(PLAIN, grad_scale=1024.0, count=2),
    "scaled, maximize, coupled": replace(
        PLAIN, grad_scale=8.0, maximize=True, decoupled=False, count=7
    ),
}
NAMES = ("param", "grad", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")


@cases(level=2)
def adamw_cases() -> Iterator[Case]:
    for dtype in FLOATS:
        for name, check in (
            ("counts", check_counts), ("options", check_options), ("tensors", check_tensors),
            ("grad-dtypes", check_grad_dtypes), ("skipped", check_skipped),
            ("five-steps", check_five_steps),
        ):  # fmt: skip
            yield Case(
                id=f"adamw/{name_of(dtype)}/{name}", functions=("adamw",),
                tags=frozenset({OPTIONAL}), dtype=name_of(dtype),
                run=partial(check, dtype=dtype),
            )  # fmt: skip


def check_counts(context: Context, dtype: Dtype) -> None:
    """The bias corrections take the count as it is given: no more, no less."""
    for count in COUNTS:
        for amsgrad in (False, True):
            run_step(context, dtype, [(33,)], replace(PLAIN, count=count), amsgrad=amsgrad)


def check_options(context: Context, dtype: Dtype) -> None:
    """Each option alone; the learning rate from device memory."""
    for step in OPTIONS.values():
        run_step(context, dtype, [(5, 7)], step)
    run_step(context, dtype, [(5, 7)], replace(PLAIN, lr=0.125), lr_on_device=True)


def check_tensors(context: Context, dtype: Dtype) -> None:
    """One, several and many tensors of every size and dense layout, some with no elements."""
    run_step(context, dtype, [(1,), (0,), (3, 5), (), (1000,), (2, 3, 4)], PLAIN)
    run_step(context, dtype, [(n % 7 + 1,) for n in range(37)], replace(PLAIN, count=3))
    for layout in ("transposed", "permuted", "offset"):
        run_step(context, dtype, [(4, 6), (3, 5, 7)], PLAIN, layout=layout)


def check_grad_dtypes(context: Context, dtype: Dtype) -> None:
    """Gradients of any float dtype are converted, not reinterpreted."""
    for grad in FLOATS:
        run_step(context, dtype, [(40,)], replace(PLAIN, count=2), grad_dtype=grad)


def check_skipped(context: Context, dtype: Dtype) -> None:
    """found_inf = 1 leaves everything as it was; 0 does not."""
    run_step(context, dtype, [(9,), (4, 4)], PLAIN, found=1.0)
    run_step(context, dtype, [(9,), (4, 4)], PLAIN, found=0.0)


def check_five_steps(context: Context, dtype: Dtype) -> None:
    """Five steps in a row from zero state, each judged from what the one before left."""
    state: list[Array] | None = None
    for count in range(1, 6):
        state = run_step(context, dtype, [(30,)], replace(PLAIN, count=count), state=state,
                         from_zero=state is None)  # fmt: skip


def run_step(
    context: Context,
    dtype: Dtype,
    shapes: list[tuple[int, ...]],
    step: Step,
    amsgrad: bool = False,
    layout: str = "contiguous",
    grad_dtype: Dtype | None = None,
    lr_on_device: bool = False,
    found: float | None = None,
    state: list[Array] | None = None,
    from_zero: bool = False,
) -> list[Array]:
    """Calls adamw once and judges every tensor; returns the first one's state."""
    rng = context.rng
    trial = Trial(context, "adamw", f"{len(shapes)} tensors, {step}, amsgrad {amsgrad}")
    names = NAMES if amsgrad else NAMES[:4]
    columns: dict[str, list[object]] = {name: [] for name in names}
    counts = []
    given = []
    for i, shape in enumerate(shapes):
        arrays = {name: draw.ordinary(rng, shape, dtype) for name in names}
        arrays["grad"] = draw.ordinary(rng, shape, grad_dtype or dtype)
        if step.grad_scale is not None:
            arrays["grad"] = round_to(
                arrays["grad"].astype(np.float64) * step.grad_scale, grad_dtype or dtype
            )
        for name in names[3:]:
            arrays[name] = np.abs(arrays[name])
        if from_zero:
            arrays["exp_avg"] = np.zeros_like(arrays["exp_avg"])
            arrays["exp_avg_sq"] = np.zeros_like(arrays["exp_avg_sq"])
        if state is not None:
            arrays["param"], arrays["exp_avg"], arrays["exp_avg_sq"] = state
        operands = {
            name: trial.give(
                f"{name}_{i}", arrays[name], grad_dtype or dtype if name == "grad" else dtype,
                layout, written=name != "grad",
            )
            for name in names
        }  # fmt: skip
        for name in names:
            columns[name].append(operands[name])
        counts.append(trial.give(f"step_{i}", np.float32(step.count), Dtype.F32))
        given.append((operands, {name: np.array(o.values) for name, o in operands.items()}))
    fields: dict[str, object] = dict(columns)
    if lr_on_device:
        fields["lr_tensor"] = Address(trial.give("lr", np.float32(step.lr), Dtype.F32))
    if step.grad_scale is not None:
        scale = trial.give("grad_scale", np.float32(step.grad_scale), Dtype.F32)
        fields["grad_scale"] = Address(scale)
    if found is not None:
        fields["found_inf"] = Address(trial.give("found_inf", np.float32(found), Dtype.F32))
    trial.call(
        num_tensors=len(shapes), **fields, step=counts, lr=-1.0 if lr_on_device else step.lr,
        beta1=step.beta1, beta2=step.beta2, eps=step.eps, weight_decay=step.weight_decay,
        decoupled=int(step.decoupled), maximize=int(step.maximize),
    )  # fmt: skip
    for operands, before in given:
        if 0 in before["param"].shape:
            continue
        if found == 1.0:
            for operand in operands.values():
                trial.expect_untouched(operand)
            continue
        exact = adamw(
            before["param"],
            before["grad"],
            before["exp_avg"],
            before["exp_avg_sq"],
            before.get("max_exp_avg_sq"),
            dtype,
            step,
        )
        for name in names:
            if name != "grad":
                trial.expect(operands[name], getattr(exact, name), flush=True)
    first = given[0][0]
    return [np.array(trial.result(first[n])) for n in ("param", "exp_avg", "exp_avg_sq")]
