"""Choose the next token from logits, on the host."""

from __future__ import annotations

import torch
from torch import Tensor

from chipset_layers.inference.sequence import SamplingParams


def sample(logits: Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    """Draw one token id.

    Args:
        logits: ``[V]`` on the CPU, any float dtype.
        params: temperature, then top-k, then top-p (nucleus, arXiv 1904.09751), in this order.
        generator: on the CPU; advanced by one draw unless greedy.
    """
    if params.temperature == 0:
        return int(logits.argmax())
    scores = logits.to(torch.float32) / params.temperature
    if 0 < params.top_k < scores.numel():
        least = scores.topk(params.top_k).values[-1]
        scores = scores.masked_fill(scores < least, float("-inf"))
    probabilities = scores.softmax(-1)
    if params.top_p < 1:
        ordered, order = probabilities.sort(descending=True)
        # Keep the shortest prefix whose mass reaches top_p: drop what starts at or above it.
        dropped = ordered.cumsum(-1) - ordered >= params.top_p
        probabilities[order[dropped]] = 0
    return int(torch.multinomial(probabilities, 1, generator=generator))
