"""Each ATen operator that the 15 families call runs on the chip itself, as torch's CPU has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llm_operators
import pytest
import torch
from llm_operators import ANY_VALUES, CALLS, DEVICE, OTHERS
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

RECORDED = Path(__file__).resolve().parents[4] / "shared" / "llm_ops.tsv"


def on(device: torch.device, value: Any) -> Any:
    """A copy of the operands on a device."""

    def move(x: Any) -> Any:
        if x is DEVICE:
            return device
        return x.to(device, copy=True) if isinstance(x, torch.Tensor) else x

    return tree_map(move, value)


def tensors(value: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(value) if isinstance(x, torch.Tensor)]


def run(name: str, device: torch.device) -> tuple[Any, Any]:
    """The operator's result and its operands afterwards."""
    call, _, overload = name.partition(".")
    *operands, keywords = CALLS[name] if isinstance(CALLS[name][-1], dict) else (*CALLS[name], {})
    operands, keywords = on(device, operands), on(device, keywords)
    result = getattr(getattr(torch.ops.aten, call), overload)(*operands, **keywords)
    return result, operands


@pytest.mark.parametrize("name", CALLS)
def test_runs_on_the_chip(chip: torch.device, no_fallback: None, name: str) -> None:
    host = torch.device("cpu")
    # histc counts integers on chips; torch's CPU has it for floats only.
    if name == "histc.default":
        want: Any = torch.histc(CALLS[name][0].float(), 4, 0, 3).int()
        found, operands = run(name, chip)[0], None
        want_operands = None
    else:
        want, want_operands = run(name, host)
        found, operands = run(name, chip)
    assert all(x.device == chip for x in tensors(found))
    if name in ANY_VALUES:
        assert (found.shape, found.dtype, found.stride()) == (want.shape, want.dtype, want.stride())
        return
    half = name == "_grouped_mm.default"
    close = {"rtol": 1e-2, "atol": 1e-2} if half else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(on(host, found), want, **close)
    torch.testing.assert_close(tensors(on(host, operands)), tensors(want_operands), **close)


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.names.add(str(function))
        return function(*args, **(kwargs or {}))


def test_attention_has_the_chip_s_own_operator(chip: torch.device, no_fallback: None) -> None:
    gradients = []
    for device in (torch.device("cpu"), chip):
        q, k, v = (llm_operators.t(1, 2, 5, n).to(device).requires_grad_() for n in (8, 8, 8))
        with Seen() as seen, torch.profiler.record_function("attention"):
            scaled_dot_product_attention(q, k, v, is_causal=True).square().sum().backward()
        gradients.append([x.grad.cpu() for x in (q, k, v)])
        own = llm_operators.ATTENTION if device.type == "cpu" else (
            "_scaled_dot_product_fused_attention_overrideable")  # fmt: skip
        assert {f"aten.{own}.default", f"aten.{own}_backward.default"} <= seen.names
        assert "profiler._record_function_enter_new.default" in seen.names
    torch.testing.assert_close(gradients[1], gradients[0])


def test_the_list_is_the_recorded_one() -> None:
    assert len(CALLS) + len(OTHERS) == 134
    if not RECORDED.exists():
        pytest.skip(f"{RECORDED} is not there")
    recorded = {line.split("\t")[0] for line in RECORDED.read_text().splitlines()[1:]}
    assert recorded == {f"aten.{name}" for name in CALLS} | OTHERS
