"""int4 values, two in a byte: the even column in the low half, each in two's complement."""

from __future__ import annotations

import torch
from torch import Tensor


def pack_nibbles(values: Tensor) -> Tensor:
    """int8 ``[N, K]`` in -8..7, K even, to uint8 ``[N, K / 2]``."""
    nibbles = values.view(torch.uint8) & 15
    return nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)


def unpack_nibbles(packed: Tensor) -> Tensor:
    """The inverse of :func:`pack_nibbles`: int8 ``[N, K]``."""
    nibbles = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1)
    return (nibbles ^ 8).view(torch.int8) - 8


def dequantize_int4(packed: Tensor, scale: Tensor) -> Tensor:
    """Weights ``[N, K]`` in the dtype of ``scale [N, G]``, one scale for K / G neighbours."""
    rows, groups = scale.shape
    values = unpack_nibbles(packed).to(scale.dtype).view(rows, groups, -1)
    return (values * scale[:, :, None]).view(rows, -1)
