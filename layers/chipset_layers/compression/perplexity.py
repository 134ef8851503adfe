"""Perplexity of a causal language model on held-out text."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

MOST_LOSS = 709.0  # above it, exp is more than a double holds
HELD_OUT = 0.2  # the last part of a text is never trained on


@dataclass(frozen=True)
class Perplexity:
    """``value`` is exp of the mean negative log-likelihood over ``tokens`` predicted tokens."""

    value: float
    tokens: int


def held_out(text: str) -> str:
    """The last fifth of ``text``, counted in characters."""
    return text[int(len(text) * (1 - HELD_OUT)) :]


def perplexity(
    model: Any,
    tokenizer: Any,
    text: str,
    window: int = 1024,
    most_tokens: int | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Score ``text`` in windows that do not overlap; each window's first token is not scored.

    Args:
        window: tokens in a window, which is also the batch of one forward pass.
        most_tokens: use only so many tokens from the start of ``text``.
        report: called with (tokens done, tokens in all) after each window.
    """
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"][:most_tokens]
    device = next(model.buffers()).device
    total, scored = 0.0, 0
    for start in range(0, len(ids) - 1, window):
        part = torch.tensor(ids[start : start + window])[None]
        if part.shape[1] < 2:
            break
        with torch.inference_mode():
            logits = model(part.to(device), use_cache=False).logits[0, :-1].float()
            loss = F.cross_entropy(logits, part[0, 1:].to(device), reduction="sum")
        total, scored = total + loss.item(), scored + part.shape[1] - 1
        if report is not None:
            report(start + part.shape[1], len(ids))
    mean = total / max(scored, 1)
    return Perplexity(math.exp(mean) if mean < MOST_LOSS else math.inf, scored)
