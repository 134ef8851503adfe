"""The time of a fine-tuning step, on PyTorch's CPU and on a device."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from chipset_layers.models import load_model
from chipset_layers.training.batches import Batch
from chipset_layers.training.sft import PRECISIONS, sft_loss

HOST = torch.device("cpu")


def measure_step(
    model: str, device: torch.device, precision: str, tokens: int, rounds: int
) -> dict[str, Any]:
    """Forward, backward, gradient clipping and fused AdamW on one row of ``tokens`` tokens.

    The sides take turns, ``rounds`` steps each after one that is not counted.

    Returns:
        Per side the seconds of each step, their median and the tokens per second; the losses of
        the first step (which must agree); ``ratio``, device over host (less is faster).
    """
    from transformers import AutoConfig

    batch = _full_row(tokens, AutoConfig.from_pretrained(model).get_text_config().vocab_size)
    sides = {
        "host": _Side(model, HOST, precision, batch),
        "device": _Side(model, device, precision, batch),
    }
    for side in sides.values():
        side.step()
    for _ in range(rounds):
        for side in sides.values():
            side.seconds.append(side.step())
    medians = {name: statistics.median(side.seconds) for name, side in sides.items()}
    return {
        "precision": precision,
        "tokens": tokens,
        "threads": torch.get_num_threads(),
        "sides": {
            name: {
                "torch_device": str(side.device),
                "seconds": [round(value, 4) for value in side.seconds],
                "median_seconds": round(medians[name], 4),
                "tokens_per_second": round(tokens / medians[name], 1),
                "first_loss": side.losses[0],
            }
            for name, side in sides.items()
        },
        "ratio": round(medians["device"] / medians["host"], 3),
    }


class _Side:
    def __init__(self, model: str, device: torch.device, precision: str, batch: Batch) -> None:
        weights, self.autocast = PRECISIONS[precision]
        self.device = device
        self.batch = batch
        self.model = load_model(model, device, weights).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6, fused=True)
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def step(self) -> float:
        started = time.perf_counter()
        with torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.autocast is not None
        ):
            loss = sft_loss(self.model, self.batch, self.device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.item())  # waits for the device
        return time.perf_counter() - started


def _full_row(tokens: int, vocabulary: int) -> Batch:
    """One row without padding, a label at every place."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, vocabulary, (1, tokens), generator=generator)
    places = torch.arange(tokens - 1)[None]
    return Batch(ids, torch.arange(tokens)[None], places, ids[:, 1:], tokens, tokens - 1)
