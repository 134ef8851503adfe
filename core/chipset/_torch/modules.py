"""Parameters keep their identity when a module moves to a chip or loads its weights."""

from __future__ import annotations

from typing import Any

import torch


def register() -> None:
    # Module.to() would otherwise make new Parameter objects for a device that torch does not know,
    # which unties tied weights (an embedding and its output layer) without a word.
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.nn.RNNBase._load_from_state_dict = _load_recurrent  # type: ignore[method-assign,assignment]


def _load_recurrent(self: torch.nn.RNNBase, *arguments: Any) -> None:
    """Recurrent layers hold weak references to their weights, which forbid swapping.

    ``RNNBase._apply`` drops them for the same reason and makes them anew; loading forgets to.
    """
    self._flat_weight_refs = []
    super(torch.nn.RNNBase, self)._load_from_state_dict(*arguments)
    self._init_flat_weights()
