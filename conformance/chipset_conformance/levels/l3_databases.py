"""Torch: PyTorch's databases of modules and of optimizers, against torch's CPU.

PyTorch's device-generic test files are not in its wheel; what they are generated from is:
``module_db`` and ``optim_db`` of ``torch.testing._internal``, beside ``op_db`` (``l3_torch``). The
checks are our own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from chipset_conformance.case import MANDATORY, OPTIONAL, Case, NotRun, Unsupported, cases
from chipset_conformance.context import Context

GROUP = "torch"
STEPS = 3
MOST_INPUTS = 6
# float32, sums of some hundred terms, and Adam's division by small roots.
RELATIVE = ABSOLUTE = 1e-4


@cases(level=3)
def module_cases() -> Iterator[Case]:
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        run = partial(check_module, info=info)
        yield Case(f"torch/module/{info.name}", (), run, group=GROUP)


@cases(level=3)
def optimizer_cases() -> Iterator[Case]:
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        for foreach in (False, True):
            if foreach and "foreach" not in info.supported_impls:
                continue
            name = f"torch/optimizer/{info.optim_cls.__name__}{'-foreach' if foreach else ''}"
            run = partial(check_optimizer, info=info, foreach=foreach)
            tags = frozenset({OPTIONAL if info.only_supports_sparse_grads else MANDATORY})
            yield Case(name, (), run, tags, group=GROUP)


def leaves(*trees: Any) -> list[torch.Tensor]:
    found = torch.utils._pytree.tree_leaves(trees)
    return [leaf for leaf in found if isinstance(leaf, torch.Tensor)]


def place(value: Any, device: torch.device | str) -> Any:
    """A copy of all tensors of a tree on the device, leaves of their own graph."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)

    return torch.utils._pytree.tree_map(one, value)


def forward_and_backward(module: Any, given: Any, device: torch.device | str) -> list[torch.Tensor]:
    """Outputs, gradients of parameters and inputs, and buffers afterwards."""
    torch.manual_seed(0)
    own = copy.deepcopy(module).to(device)
    args, kwargs = place((given.args, given.kwargs), device)
    results = leaves(own(*args, **kwargs))
    scores = [r.float().square().sum() for r in results if r.requires_grad]
    if scores:
        torch.stack(scores).sum().backward()
    touched = [*own.parameters(), *leaves(args, kwargs)]
    gradients = [t.grad for t in touched if t.grad is not None]
    return [t.detach().cpu() for t in (*results, *gradients, *own.buffers())]


def compare(context: Context, found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    context.check(len(found) == len(expected), f"{len(found)} tensors, not {len(expected)}")
    for number, (mine, its) in enumerate(zip(found, expected, strict=True)):
        try:
            torch.testing.assert_close(
                mine, its, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True, check_stride=False
            )
        except AssertionError as error:
            context.check(False, f"tensor {number}: {error}")


def check_module(context: Context, info: Any) -> None:
    """Training mode; what draws random numbers is compared in evaluation mode."""
    torch.manual_seed(context.seed)
    judged = 0
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=True
    )
    for sample in list(inputs)[:MOST_INPUTS]:
        if sample.forward_input is None:
            continue
        args, kwargs = torch.utils._pytree.tree_map(
            to_float32, (sample.constructor_input.args, sample.constructor_input.kwargs)
        )
        module = info.module_cls(*args, **kwargs).train()
        try:
            if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):  # takes its shapes now
                module(*sample.forward_input.args, **sample.forward_input.kwargs)
            expected = forward_and_backward(module, sample.forward_input, "cpu")
            if draws(module, sample.forward_input):
                expected = forward_and_backward(module.eval(), sample.forward_input, "cpu")
        except (RuntimeError, ValueError, TypeError):
            continue  # torch's CPU refuses it: nothing to compare with
        found = forward_and_backward(module, sample.forward_input, context.device.torch)
        compare(context, found, expected)
        judged += 1
    if not judged:
        raise NotRun(f"{info.name}: torch's CPU accepts no sample, so nothing was judged")


def to_float32(value: Any) -> Any:
    """The database gives FractionalMaxPool its random places in float64, whatever was asked."""
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(torch.float32) if is_float else value


def draws(module: Any, given: Any) -> bool:
    """Whether the generator of random numbers has moved on after a forward pass."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    args, kwargs = place((given.args, given.kwargs), "cpu")
    copy.deepcopy(module)(*args, **kwargs)
    return not torch.equal(before, torch.get_rng_state())


def check_optimizer(context: Context, info: Any, foreach: bool) -> None:
    """Every configuration of the database, from the same weights and gradients."""
    if info.only_supports_sparse_grads:
        raise Unsupported("it takes sparse gradients, whose layouts are not the bridge's")
    for configuration in info.optim_inputs_func(device="cpu"):
        kwargs = {**configuration.kwargs, "foreach": foreach} if foreach else configuration.kwargs
        expected = optimize(info, kwargs, "cpu")
        found = optimize(info, kwargs, context.device.torch)
        compare(context, found, expected)


def optimize(info: Any, kwargs: dict[str, Any], device: torch.device | str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    start, target = (torch.randn(6, 5, generator=generator) for _ in range(2))
    weight = torch.nn.Parameter(start.to(device))
    optimizer = info.optim_cls([weight], **place(kwargs, device))
    goal = target.to(device)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight - goal).square().mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    return [weight.detach().cpu()]
