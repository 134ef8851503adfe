"""Torch: PyTorch's own operator database, gradients, and what training loops rest on.

Every entry of ``op_db`` is a case: its samples in float32, forward and backward, against torch's
CPU. A case says whether the plugin computed (native), the core (composed) or the host (fallback).
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from chipset_conformance import opinfo
from chipset_conformance.case import (
    MANDATORY,
    OPTIONAL,
    Case,
    CaseFailure,
    NotRun,
    Unsupported,
    cases,
)
from chipset_conformance.context import Context

GROUP = "torch"
SAMPLES = 4
# Sparse layouts are not the bridge's; what jiterator compiles runs on CUDA and ROCm only, so that
# torch's CPU gives nothing to compare with.
SPECIAL = ("sparse", "to_sparse", "jiterator")
# f64 gradients by finite differences, of functions whose backward is not torch's own composition.
GRADCHECKED = (
    "nn.functional.linear", "nn.functional.scaled_dot_product_attention", "nn.functional.rms_norm",
    "nn.functional.layer_norm", "nn.functional.cross_entropy", "nn.functional.embedding",
    "nn.functional.gelu", "nn.functional.silu", "softmax", "log_softmax", "matmul", "bmm", "cumsum",
    "logsumexp", "index_select", "gather", "scatter_add", "masked_fill", "norm", "prod", "var",
    "mean", "sigmoid", "tanh", "erf", "pow", "where", "cat", "amax", "index_put",
)  # fmt: skip


@cases(level=3)
def operator_cases() -> Iterator[Case]:
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if torch.float32 not in op.supported_dtypes("cpu"):
            continue
        tag = OPTIONAL if any(word in op.name for word in SPECIAL) else MANDATORY
        yield Case(
            id=f"torch/operator/{name_of(op)}",
            functions=(),
            group=GROUP,
            tags=frozenset({tag}),
            run=partial(check_operator, op=op),
        )


@cases(level=3)
def gradient_cases() -> Iterator[Case]:
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if op.name in GRADCHECKED and not op.variant_test_name:
            for name, run in (("gradcheck", check_gradient), ("gradgradcheck", check_second)):
                yield Case(f"torch/{name}/{op.name}", (), partial(run, op=op), group=GROUP)


@cases(level=3)
def machinery_cases() -> Iterator[Case]:
    checks: dict[str, Callable[[Context], None]] = {
        "save-and-load": save_and_load,
        "pickle-and-deepcopy": pickle_and_deepcopy,
        "state-dict-across-devices": state_dict_across,
        "random-numbers-follow-the-seed": follow_seed,
        "views-and-in-place": views_and_in_place,
        "pinned-copies": pinned_copies,
        "streams-and-events": streams_and_events,
        "autocast": autocast,
        "gradient-accumulation": accumulate,
        "memory-statistics": memory_statistics,
        "errors-are-torchs": errors_are_torchs,
        "compile-aot-eager": compile_aot_eager,
    }
    for name, run in checks.items():
        yield Case(f"torch/{name}", (), run, group=GROUP)


def name_of(op: Any) -> str:
    return str(op.name) + (f".{op.variant_test_name}" if op.variant_test_name else "")


# ---- operators -----------------------------------------------------------------------------------


def check_operator(context: Context, op: Any) -> None:
    result = opinfo.run_operator(op, context.device.torch, SAMPLES)
    status = str(result["status"])
    context.count(status)
    if status == "no samples":
        raise NotRun(f"{name_of(op)}: torch's CPU accepts no sample, so nothing was judged")
    if status == "wrong":
        raise CaseFailure(f"{name_of(op)}: {result['detail']}")
    if status == "unsupported":
        raise Unsupported(f"{name_of(op)}: {result['detail']}")
    if status == "fallback":
        context.note("the host computed: " + ", ".join(result["fallbacks"]))


def double_samples(context: Context, op: Any) -> list[Any]:
    """The two samples with the fewest differentiable elements."""
    device = context.device.torch
    torch.manual_seed(context.seed)
    found = []
    for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
        tensors = [
            t
            for t in torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
            if isinstance(t, torch.Tensor) and t.requires_grad
        ]
        if elements := sum(t.numel() for t in tensors):
            found.append((elements, sample))
    found.sort(key=lambda pair: pair[0])
    return [sample.transform(partial(moved, device=device)) for _, sample in found[:2]]


def moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    return value


def as_function(op: Any, sample: Any) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """The operator as a function of its differentiable tensors alone, and those tensors."""
    leaves, tree = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.requires_grad]

    def function(*values: Any) -> Any:
        filled = list(leaves)
        for i, value in zip(places, values, strict=True):
            filled[i] = value
        first, args, kwargs = torch.utils._pytree.tree_unflatten(filled, tree)
        result = op(first, *args, **kwargs)
        post = sample.output_process_fn_grad
        return post(result) if post is not None else result

    return function, tuple(leaves[i] for i in places)


def differentiate(context: Context, op: Any, check: Callable[..., bool]) -> None:
    samples = double_samples(context, op)
    if not samples:
        raise NotRun(f"{name_of(op)} has no differentiable sample, so nothing was judged")
    for sample in samples:
        function, inputs = as_function(op, sample)
        check(function, inputs, fast_mode=True, raise_exception=True)


def check_gradient(context: Context, op: Any) -> None:
    differentiate(context, op, torch.autograd.gradcheck)


def check_second(context: Context, op: Any) -> None:
    if not op.supports_gradgrad:
        raise Unsupported("torch has no second derivative of it")
    # The fused attention has no second derivative on any device; the composition has.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        differentiate(context, op, torch.autograd.gradgradcheck)


# ---- what training loops rest on -----------------------------------------------------------------


def small_model() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)
    )


def same(context: Context, found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Equal bits, wherever both lie."""
    context.check(torch.equal(found.cpu(), expected.cpu()), f"{what}: {found} is not {expected}")


def close(context: Context, found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Within what float32 and a sum of some terms allow."""
    try:
        torch.testing.assert_close(found.cpu(), expected.cpu(), rtol=1e-5, atol=1e-5)
    except AssertionError as error:
        context.check(False, f"{what}: {error}")


def save_and_load(context: Context) -> None:
    device = context.device.torch
    x = torch.arange(12.0, device=device).view(3, 4).t()
    buffer = io.BytesIO()
    torch.save({"x": x, "n": 3}, buffer)
    buffer.seek(0)
    back = torch.load(buffer)
    context.check(back["x"].device == x.device, f"loaded to {back['x'].device}, not {x.device}")
    same(context, back["x"], x, "loaded")
    buffer.seek(0)
    host = torch.load(buffer, map_location="cpu")
    context.check(host["x"].device.type == "cpu", "map_location is not followed")


def pickle_and_deepcopy(context: Context) -> None:
    model = small_model().to(context.device.torch)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for mine, its in zip(model.parameters(), twin.parameters(), strict=True):
            same(context, its, mine, "copied parameter")
            context.check(its.data_ptr() != mine.data_ptr(), "a copy shares memory")


def state_dict_across(context: Context) -> None:
    host, chip = small_model(), small_model().to(context.device.torch)
    with torch.no_grad():
        for parameter in chip.parameters():
            parameter.mul_(2)
    host.load_state_dict(chip.state_dict())
    for mine, its in zip(host.parameters(), chip.parameters(), strict=True):
        same(context, mine, its, "loaded from the chip's state dict")


def follow_seed(context: Context) -> None:
    device = context.device.torch
    draws = []
    for _ in range(2):
        torch.manual_seed(11)
        draws.append([torch.randn(100, device=device), torch.rand(5, 3, device=device)])
    for first, second in zip(*draws, strict=True):
        same(context, second, first, "the same seed")
    more = torch.randn(100, device=device)
    context.check(not torch.equal(more.cpu(), draws[0][0].cpu()), "numbers repeat")


def views_and_in_place(context: Context) -> None:
    device = context.device.torch
    host = torch.arange(24.0).view(2, 3, 4)
    chip = host.clone().to(device)
    for x in (host, chip):
        x[:, 1].mul_(2)
        x.transpose(0, 2)[1:3].add_(x.new_ones(3, 2))
        x.view(-1)[::5] = -1
    same(context, chip, host, "after writing through views")
    version = chip._version
    chip.add_(1)
    context.check(chip._version > version, "in-place operations are not counted")


def pinned_copies(context: Context) -> None:
    device = context.device.torch
    pinned = torch.arange(1 << 16, dtype=torch.float32).pin_memory()
    context.check(pinned.is_pinned(), "pin_memory gave pageable memory")
    chip = pinned[1:].to(device, non_blocking=True)
    back = torch.empty(chip.shape, pin_memory=True)
    back.copy_(chip, non_blocking=True)
    torch.accelerator.synchronize()
    same(context, back, pinned[1:], "there and back")


def streams_and_events(context: Context) -> None:
    device = context.device.torch
    side = torch.Stream(device)
    with torch.no_grad():
        x = torch.full((1 << 16,), 1.0, device=device)
        event = torch.accelerator.current_stream(device).record_event()
        side.wait_event(event)
        with side:
            y = x * 2
            x.record_stream(side)
        done = side.record_event()
        torch.accelerator.current_stream(device).wait_event(done)
        z = y + 1
    same(context, z, torch.full((1 << 16,), 3.0), "across two streams")


def autocast(context: Context) -> None:
    device = context.device.torch
    model = small_model().to(device)
    x = torch.randn(4, 6, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        context.check(model[0](x).dtype == torch.bfloat16, "a linear layer ran outside bfloat16")
        context.check(model[2](model[1](model[0](x))).dtype == torch.float32, "layer_norm in bf16")
    scaler = torch.amp.GradScaler(device.type)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model[0].weight.detach().clone()
    scaler.scale(model(x).sum()).backward()
    model[0].weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    same(context, model[0].weight.detach(), before, "a step with an infinite gradient")


def accumulate(context: Context) -> None:
    device = context.device.torch
    host, chip = small_model(), small_model().to(device)
    x = torch.randn(8, 6)
    for part in x.split(2):
        host(part).square().sum().backward()
        chip(part.to(device)).square().sum().backward()
    for mine, its in zip(host.parameters(), chip.parameters(), strict=True):
        assert mine.grad is not None and its.grad is not None
        close(context, its.grad, mine.grad, "accumulated gradient")


def memory_statistics(context: Context) -> None:
    device = context.device.torch
    key = "allocated_bytes.all.current"
    before = torch.accelerator.memory_stats(device)[key]
    x = torch.empty(1 << 20, dtype=torch.uint8, device=device)
    during = torch.accelerator.memory_stats(device)[key]
    del x
    after = torch.accelerator.memory_stats(device)[key]
    context.check(during - before >= 1 << 20, f"1 MiB shows as {during - before} bytes")
    context.check(after == before, f"{after - before} bytes stay after the tensor is gone")


def errors_are_torchs(context: Context) -> None:
    device = context.device.torch
    a, b = torch.ones(2, 3, device=device), torch.ones(4, 5, device=device)
    for what, call in (
        ("mm", lambda: a @ b),
        ("add", lambda: a + b),
        ("mixed devices", lambda: a + torch.ones(2, 3)),
    ):
        try:
            call()
        except RuntimeError as error:
            context.check(len(str(error)) > 20, f"{what}: '{error}' says nothing")
        else:
            context.check(False, f"{what} with wrong operands raised nothing")


def compile_aot_eager(context: Context) -> None:
    device = context.device.torch
    host, chip = small_model(), small_model().to(device)
    x = torch.randn(4, 6)
    compiled: Any = torch.compile(chip, backend="aot_eager")
    compiled(x.to(device)).sum().backward()
    host(x).sum().backward()
    gradient, expected = chip[0].weight.grad, host[0].weight.grad
    close(context, gradient, expected, "gradient of the compiled model")
