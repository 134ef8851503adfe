"""Each ATen operator that the 15 families call runs on the chip itself, as torch's CPU has it."""

from __future__ import annotations

from collections import Counter
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
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.names.add(str(function))
        overload = function._overloadname
        name = function._schema.name
        self.counts[name if overload == "default" else f"{name}.{overload}"] += 1
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


def test_the_hottest_structured_operators_skip_the_detour_through_out(chip: torch.device) -> None:
    """torch gives a chip without a functional kernel one that calls ``.out``: 350 ns a call."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "vocab_size": 128}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads)).to(chip)
    ids = torch.randint(0, 128, (1, 16), device=chip)
    with Seen() as seen:
        model(input_ids=ids, labels=ids).loss.backward()
        model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    hottest = [
        name
        for name, _ in seen.counts.most_common()
        if has(name, "CompositeExplicitAutogradNonFunctional")  # torch's detour
    ][:15]
    assert {"aten::mul.Tensor", "aten::add.Tensor", "aten::cat", "aten::isin.Tensor_Tensor"} <= set(
        hottest
    )
    detours = [name for name in hottest if not has(name, "PrivateUse1")]
    assert not detours, detours
