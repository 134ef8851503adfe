"""Compress a model to int8 or int4 weights and measure what that cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from chipset_layers.compression.modules import QuantLinear
from chipset_layers.compression.perplexity import perplexity
from chipset_layers.compression.storage import (
    SCHEMES,
    WEIGHTS_FILE,
    quantized_state,
    save_compressed,
)
from chipset_layers.errors import LayerError
from chipset_layers.files import prepare_output, whole_folder
from chipset_layers.models import load_model, load_tokenizer

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CompressConfig:
    """What to compress, where to, and how to judge it.

    ``eval_text`` is scored before and after (None: not at all), at most ``eval_tokens`` of it.
    """

    model: str
    output: Path
    device: torch.device
    dtype: torch.dtype = torch.bfloat16
    weights: str = "int8"
    eval_text: str | None = None
    eval_tokens: int | None = None


@dataclass(frozen=True)
class CompressResult:
    """Sizes in bytes; ``ratio`` is the stored file over the same parameters in f32."""

    output: str
    weights: str
    quantized_modules: int
    bytes_f32: int
    bytes_before: int
    bytes_after: int
    ratio: float
    eval_tokens: int
    perplexity_before: float | None
    perplexity_after: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compress_model(config: CompressConfig, report: Report | None = None) -> CompressResult:
    """Quantise, store, load again from the stored file, and compare the perplexities."""
    if config.weights not in SCHEMES:
        known = ", ".join(SCHEMES)
        raise LayerError(f"unknown weight scheme '{config.weights}'; choose one of {known}")
    prepare_output(config.output.parent)
    _check_replaceable(config.output)
    tokenizer = load_tokenizer(config.model)
    model = load_model(config.model, config.device, config.dtype)
    if any(isinstance(module, QuantLinear) for module in model.modules()):
        raise LayerError(f"model '{config.model}' is already compressed")
    before = _score(model, tokenizer, config, "before", report)
    bytes_f32 = sum(p.numel() * 4 for p in model.parameters())
    bytes_before = sum(p.numel() * p.element_size() for p in model.parameters())
    tensors, names = quantized_state(model, config.weights)
    if not names:
        raise LayerError(f"model '{config.model}' has no linear layer to compress")
    with whole_folder(config.output) as folder:
        save_compressed(model, tensors, folder, config.weights)
        tokenizer.save_pretrained(folder)
    del model, tensors

    after = None
    if config.eval_text is not None:
        compressed = load_model(str(config.output), config.device, config.dtype)
        after = _score(compressed, tokenizer, config, "after", report)
    bytes_after = (config.output / WEIGHTS_FILE).stat().st_size
    return CompressResult(
        output=str(config.output),
        weights=config.weights,
        quantized_modules=len(names),
        bytes_f32=bytes_f32,
        bytes_before=bytes_before,
        bytes_after=bytes_after,
        ratio=bytes_after / bytes_f32,
        eval_tokens=before.tokens if before else 0,
        perplexity_before=before.value if before else None,
        perplexity_after=after.value if after else None,
    )


def _check_replaceable(output: Path) -> None:
    """Only a model folder or an empty one may be replaced."""
    empty = output.is_dir() and not any(output.iterdir())
    if output.exists() and not empty and not (output / "config.json").exists():
        raise LayerError(
            f"the output '{output}' exists and is not a model folder; choose another with --output"
        )


def _score(
    model: Any, tokenizer: Any, config: CompressConfig, when: str, report: Report | None
) -> Any:
    if config.eval_text is None:
        return None
    step = None if report is None else (lambda done, total: report(when, done, total))
    return perplexity(
        model, tokenizer, config.eval_text, most_tokens=config.eval_tokens, report=step
    )
