"""Merge projections of the same input into one product: q, k, v, and gate, up.

At batch 1 a product is a walk over the weights, and starting it costs as much as a small walk. The
model's own code stays: it still calls ``q_proj``, ``k_proj`` and ``v_proj`` in turn; the first
call computes all of them, the others return their share. The products and sums are the same, only
a kernel may block them otherwise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from chipset_layers.compression.modules import Int4Linear, QuantLinear
from chipset_layers.errors import LayerError

MERGEABLE = (nn.Linear, QuantLinear, Int4Linear)
GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class _Shared:
    """The merged layer, and the results of its last call that were not taken yet."""

    def __init__(self, linear: nn.Module, sizes: list[int]) -> None:
        self.linear = linear
        self.sizes = sizes
        self.input: Tensor | None = None
        self.parts: list[Tensor | None] = []


class _FirstPart(nn.Module):
    def __init__(self, shared: _Shared) -> None:
        super().__init__()
        self.linear = shared.linear  # registered here, so that it moves with the model
        self.shared = shared

    def forward(self, x: Tensor) -> Tensor:
        whole: Tensor = self.linear(x)
        first, *rest = torch.split(whole, self.shared.sizes, dim=-1)
        self.shared.input, self.shared.parts = x, [None, *rest]
        return first


class _LaterPart(nn.Module):
    def __init__(self, shared: _Shared, place: int) -> None:
        super().__init__()
        self.shared = shared
        self.place = place

    def forward(self, x: Tensor) -> Tensor:
        shared = self.shared
        part = shared.parts[self.place] if shared.input is x else None
        if part is None:
            raise LayerError(
                "merged projections were called out of order or with different inputs; "
                "this model needs EngineConfig(fused=False)"
            )
        shared.parts[self.place] = None
        if self.place == len(shared.sizes) - 1:
            shared.input = None  # holds no tensor beyond the step
        return part


def merge_projections(model: nn.Module) -> int:
    """Merge what can be merged in ``model``, in place; return how many groups were."""
    merged = 0
    for module in list(model.modules()):
        for names in GROUPS:
            parts = [getattr(module, name, None) for name in names]
            linear = _merged(parts)
            if linear is None:
                continue
            shared = _Shared(linear, [part.out_features for part in parts])  # type: ignore[union-attr]
            setattr(module, names[0], _FirstPart(shared))
            for place, name in enumerate(names[1:], start=1):
                setattr(module, name, _LaterPart(shared, place))
            merged += 1
    return merged


def _merged(parts: list[Any]) -> nn.Module | None:
    """One layer for ``parts``, or None if they are not alike."""
    kind = type(parts[0])
    if kind not in MERGEABLE or any(type(part) is not kind for part in parts):
        return None
    biases = [part.bias for part in parts]
    if len({part.in_features for part in parts}) > 1:
        return None
    if any(bias is None for bias in biases) and any(bias is not None for bias in biases):
        return None
    bias = None if biases[0] is None else torch.cat([b.detach() for b in biases])
    if kind is not nn.Linear:
        scale = torch.cat([part.scale for part in parts])
        quantized: nn.Module = kind(torch.cat([part.qweight for part in parts]), scale, bias)
        return quantized
    weight = torch.cat([part.weight.detach() for part in parts])
    with torch.device("meta"):
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear
