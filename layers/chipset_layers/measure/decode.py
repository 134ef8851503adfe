"""Greedy decoding at batch 1: the engine on a device beside transformers on PyTorch's CPU."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from chipset_layers.compression.compress import CompressConfig, compress_model
from chipset_layers.inference.engine import Engine, EngineConfig, Timing
from chipset_layers.inference.sequence import SamplingParams
from chipset_layers.models import load_model

PROMPT = (
    "The history of the steam engine begins long before the railways. In the first century a "
    "sphere that turned by jets of steam was described in Alexandria, but it did no work. "
    "Pumping water out of mines was the first task that paid for itself, and the machines that "
    "did it were large, slow and hungry for coal. Their builders"
)


def measure_decode(
    model: str,
    device: torch.device,
    dtype: torch.dtype,
    new_tokens: int,
    rounds: int,
    int8: bool = True,
) -> dict[str, Any]:
    """Tokens per second after the first token, the sides taking turns, medians of ``rounds``.

    Returns:
        Per side ``tokens_per_second`` (median) and ``all``; for each side of the engine the
        ``ratio`` to transformers (more is faster) and how many leading tokens are equal.
    """
    with tempfile.TemporaryDirectory() as scratch:
        sides: dict[str, Callable[[], tuple[float, list[int]]]] = {}
        reference, ids = _transformers_side(model, dtype, new_tokens)
        sides["transformers"] = reference
        captured = {"engine": _add_engine(sides, "engine", model, device, dtype, ids, new_tokens)}
        if int8:
            folder = Path(scratch) / "int8"
            compress_model(CompressConfig(model, folder, torch.device("cpu"), dtype))
            captured["engine int8"] = _add_engine(
                sides, "engine int8", str(folder), device, dtype, ids, new_tokens
            )
        speeds: dict[str, list[float]] = {name: [] for name in sides}
        outputs: dict[str, list[int]] = {}
        for counted in range(rounds + 1):  # the first round warms up
            for name, run in sides.items():
                speed, outputs[name] = run()
                if counted:
                    speeds[name].append(speed)
    base = statistics.median(speeds["transformers"])
    return {
        "prompt_tokens": len(ids),
        "new_tokens": new_tokens,
        "threads": torch.get_num_threads(),
        "sides": {
            name: {
                "tokens_per_second": round(statistics.median(values), 2),
                "all": [round(value, 2) for value in values],
                "ratio": round(statistics.median(values) / base, 3),
                "captured": captured.get(name, False),
                "equal_tokens": _common(outputs[name], outputs["transformers"]),
            }
            for name, values in speeds.items()
        },
    }


def _transformers_side(
    model: str, dtype: torch.dtype, new_tokens: int
) -> tuple[Callable[[], tuple[float, list[int]]], list[int]]:
    from transformers import AutoTokenizer

    ids: list[int] = AutoTokenizer.from_pretrained(model)(PROMPT)["input_ids"]
    loaded = load_model(model, torch.device("cpu"), dtype)
    stops = loaded.generation_config.eos_token_id
    loaded.generation_config.eos_token_id = None
    loaded.generation_config.pad_token_id = stops[0] if isinstance(stops, list) else stops
    inputs = torch.tensor([ids])

    def generate(count: int) -> tuple[float, list[int]]:
        started = time.perf_counter()
        with torch.inference_mode():
            out = loaded.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                do_sample=False,
                max_new_tokens=count,
            )
        return time.perf_counter() - started, out[0, len(ids) :].tolist()

    def run() -> tuple[float, list[int]]:
        first, _ = generate(1)
        whole, tokens = generate(new_tokens)
        return (new_tokens - 1) / (whole - first), tokens

    return run, ids


def _add_engine(
    sides: dict[str, Callable[[], tuple[float, list[int]]]],
    name: str,
    model: str,
    device: torch.device,
    dtype: torch.dtype,
    ids: list[int],
    new_tokens: int,
) -> bool:
    engine = Engine(EngineConfig(model, device, dtype, cache_tokens=1024))
    params = SamplingParams(max_new_tokens=new_tokens, ignore_eos=True)

    def run() -> tuple[float, list[int]]:
        engine.timing = Timing()
        sequence = engine.generate([ids], params)[0]
        return engine.timing.decode_tokens / engine.timing.decode_seconds, sequence.generated

    sides[name] = run
    return engine.runner.uses_graphs


def _common(left: list[int], right: list[int]) -> int:
    for place, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return place
    return min(len(left), len(right))
