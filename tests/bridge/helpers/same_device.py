"""Which operators take operands of different devices without a word."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

# Operators that copy from one operand into another's memory, only look at an operand's shape, or
# treat each operand by itself; two that take lengths or targets from the
# host; and bilinear, which does not look at the bias of an empty batch.
LEGAL = {"broadcast_tensors", "diff", "expand_as", "view_as", "reshape_as", "resize_as_", "to",
         "type_as",
         "atleast_1d", "atleast_2d", "atleast_3d", "diagonal_scatter", "select_scatter",
         "slice_scatter", "as_strided_scatter", "tensor_split",
         "nn.functional.ctc_loss",
         "nn.functional.bilinear"}  # fmt: skip
# Operators that take index tensors from the host, as torch's own devices do.
HOST_INDICES = {"__getitem__", "index_put", "_unsafe_masked_index",
                "_unsafe_masked_index_put_accumulate"}  # fmt: skip
NOT_FOR_CHIPS = ("sparse.", "jiterator")


def accepted_mixtures(first: torch.device, other: torch.device, most: int = 2) -> list[str]:
    """Runs every operator of torch's database with one operand after the other on ``other``.

    Returns:
        The calls that raised no error which names a device; empty where all is well.
    """
    found: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in op_db:
            if op.name in LEGAL or op.name.startswith(NOT_FOR_CHIPS):
                continue
            if other.type == "cpu" and op.name in HOST_INDICES:
                continue
            for leaves, spec, moved in mixtures(op, most):
                there = [
                    leaf.to(other if i == moved else first)
                    if isinstance(leaf, torch.Tensor)
                    else leaf
                    for i, leaf in enumerate(leaves)
                ]
                sample, arguments, options = tree_unflatten(there, spec)
                shapes = [tuple(t.shape) for t in leaves if isinstance(t, torch.Tensor)]
                call = f"{op.name} {op.variant_test_name} {shapes}, leaf {moved} on {other}"
                try:
                    op.op(sample, *arguments, **options)
                    found.append(f"{call}: ran")
                except Exception as error:
                    if "device" not in str(error).lower():
                        found.append(f"{call}: {error}")
    return found


def mixtures(op: Any, most: int) -> Iterator[tuple[list[Any], Any, int]]:
    """Leaves and structure of a sample, and which leaf to move: of up to ``most`` samples."""
    if torch.float32 not in op.dtypes:
        return
    torch.manual_seed(0)
    taken = 0
    for sample in op.sample_inputs("cpu", torch.float32):
        leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        # One number may come from the host; torch's empty tensors may be anywhere.
        tensors = [
            i
            for i, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.numel() > 0
        ]
        if len(tensors) < 2 or any(leaves[i].layout != torch.strided for i in tensors):
            continue
        try:
            op.op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue
        for i in tensors:
            yield leaves, spec, i
        taken += 1
        if taken == most:
            return
