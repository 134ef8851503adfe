"""Load a causal language model and its tokenizer onto a device, quantised or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from chipset_layers.compression.storage import load_into, scheme_of, tie_embeddings
from chipset_layers.errors import LayerError

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "f16": torch.float16}


def parse_dtype(name: str) -> torch.dtype:
    """``bf16``, ``f32`` or ``f16`` to a ``torch.dtype``."""
    if name not in DTYPES:
        raise LayerError(f"unknown dtype '{name}'; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def load_model(
    model: str, device: torch.device, dtype: torch.dtype, attention: str = "sdpa"
) -> Any:
    """Build the ``transformers`` model of a folder on ``device``, in eval mode.

    Args:
        model: a Hugging Face folder; ``chipset.fetch.models.resolve_model`` makes one of a name.
        device: where the weights go.
        dtype: of the floating-point weights and of the activations.
        attention: a name in the attention-interface registry of ``transformers``.

    Raises:
        LayerError: the stored weights do not fit the config, or use an unknown quantisation.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    scheme = _quantization(Path(model))
    if scheme is None:
        loaded = AutoModelForCausalLM.from_pretrained(
            model, dtype=dtype, attn_implementation=attention
        )
    else:
        loaded = _build_quantized(Path(model), dtype, attention, scheme_of(scheme))
    loaded = loaded.to(device)
    tie_embeddings(loaded)
    return loaded.eval()


def load_tokenizer(model: str) -> Any:
    """The tokenizer of a folder, with a pad token."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise LayerError(f"model '{model}' has no usable tokenizer: {reason}") from None
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def stop_token_ids(model: Any, tokenizer: Any) -> set[int]:
    """Every token id that ends an answer, from the generation config and the tokenizer."""
    stops: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            stops.update(ids if isinstance(ids, (list, tuple)) else [ids])
    return stops


def _quantization(folder: Path) -> dict[str, Any] | None:
    config = folder / "config.json"
    if not config.is_file():
        return None
    scheme: dict[str, Any] | None = json.loads(config.read_text("utf-8")).get("quantization_config")
    return scheme


def _build_quantized(folder: Path, dtype: torch.dtype, attention: str, scheme: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
    from transformers.initialization import no_init_weights

    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    if (folder / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    tensors: dict[str, torch.Tensor] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(shard))
    load_into(model, tensors, dtype, scheme)
    return model
