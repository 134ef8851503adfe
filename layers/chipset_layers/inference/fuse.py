"""Replace parts of a transformers model by single operators where that is exactly equivalent.

Modules are recognised by structure, then *proved*: the module and the operator's composed
definition get the same random input and must agree bit for bit. What differs (Gemma's norm with
``1 + weight``, a gelu MLP) stays as it is. The changes are per instance; the model classes and
other models in the process are untouched.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chipset_layers import ops


@dataclass
class FuseCounts:
    """How many places of the model now call one operator."""

    rms_norm: int = 0
    swiglu: int = 0
    rotary: int = 0
    projections: int = 0

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


def fuse(model: nn.Module) -> FuseCounts:
    """Fuse what can be fused in ``model``, in place. For inference only: no gradients."""
    counts = FuseCounts()
    for module in model.modules():
        if _is_rms_norm(module):
            _fuse_rms_norm(module)
            counts.rms_norm += 1
        elif _is_silu_mlp(module):
            _fuse_mlp(module)
            counts.swiglu += 1
        elif _uses_plain_rotary(module):
            _fuse_rotary(module)
            counts.rotary += 1
    return counts


def _probe(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).to(torch.bfloat16)


# --- RMS norm ------------------------------------------------------------------------------


def _epsilon(module: nn.Module) -> float | None:
    for name in ("variance_epsilon", "eps"):
        value = getattr(module, name, None)
        if isinstance(value, float):
            return value
    return None


def _is_rms_norm(module: nn.Module) -> bool:
    weight, eps = getattr(module, "weight", None), _epsilon(module)
    if not isinstance(weight, Tensor) or weight.ndim != 1 or eps is None:
        return False
    if list(module.children()) or isinstance(module, nn.LayerNorm):
        return False
    x = _probe(3, weight.shape[0])
    host = _on_host(module, {"weight": weight.detach().cpu().to(x.dtype)})
    try:
        expected = type(module).forward(host, x)
    except (TypeError, AttributeError, RuntimeError):
        return False  # another kind of module with a vector called weight
    return torch.equal(expected, ops.rms_norm(x, host.weight, eps))


def _fuse_rms_norm(module: nn.Module) -> None:
    eps = _epsilon(module)

    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        y: Tensor = torch.ops.chipset.rms_norm(hidden_states, self.weight, eps)
        return y

    _set_forward(module, forward)


def _on_host(module: nn.Module, tensors: dict[str, Tensor]) -> Any:
    """A stand-in for ``module`` with the same plain attributes and the given tensors."""
    plain = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return types.SimpleNamespace(**plain, **tensors)


# --- gated MLP -----------------------------------------------------------------------------


def _is_silu_mlp(module: nn.Module) -> bool:
    names = {name for name, _ in module.named_children()}
    if not names >= {"gate_proj", "up_proj", "down_proj", "act_fn"}:
        return False
    gate, up = _probe(2, 8), _probe(2, 8).flip(0)
    stand_in = types.SimpleNamespace(
        gate_proj=lambda x: gate,
        up_proj=lambda x: up,
        down_proj=lambda x: x,
        act_fn=module.act_fn,
        config=getattr(module, "config", None),
    )
    try:
        expected = type(module).forward(stand_in, gate)
    except (TypeError, AttributeError, RuntimeError):
        return False
    return torch.equal(expected, ops.swiglu(gate, up))


def _fuse_mlp(module: nn.Module) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(torch.ops.chipset.swiglu(self.gate_proj(x), self.up_proj(x)))
        return y

    _set_forward(module, forward)


# --- rotary embedding ----------------------------------------------------------------------

ROTARY = "apply_rotary_pos_emb"


def _rotary_function(module: nn.Module) -> Callable[..., Any] | None:
    """The rotary function that the forward of ``module`` calls by its global name."""
    forward = inspect.unwrap(type(module).forward)
    if ROTARY not in forward.__code__.co_names:
        return None
    found: Callable[..., Any] | None = forward.__globals__.get(ROTARY)
    return found


def _uses_plain_rotary(module: nn.Module) -> bool:
    function = _rotary_function(module)
    if function is None:
        return False
    q, k = _probe(2, 4, 3, 8), _probe(2, 2, 3, 8)
    cos, sin = _probe(2, 3, 8), _probe(2, 3, 8).flip(1)
    try:
        found_q, found_k = function(q, k, cos, sin)
    except (TypeError, ValueError, RuntimeError):
        return False
    expected_q, expected_k = ops.rotary(q, k, cos, sin)
    return torch.equal(found_q, expected_q) and torch.equal(found_k, expected_k)


def _one_call_rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    rotated: tuple[Tensor, Tensor] = torch.ops.chipset.rotary(q, k, cos, sin)
    return rotated


def _fuse_rotary(module: nn.Module) -> None:
    """Give this instance a copy of its forward whose global name means the operator.

    The code object is the model's own; only the one name is resolved differently.
    """
    forward = inspect.unwrap(type(module).forward)
    names = {**sys.modules[forward.__module__].__dict__, ROTARY: _one_call_rotary}
    rebound = types.FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    rebound.__kwdefaults__ = forward.__kwdefaults__
    _set_forward(module, rebound)


def _set_forward(module: nn.Module, forward: Callable[..., Any]) -> None:
    module.forward = types.MethodType(forward, module)
