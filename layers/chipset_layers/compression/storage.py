"""Write and read int8 models in the ``compressed-tensors`` format, ``pack-quantized``.

A quantised module ``m`` is stored as ``m.weight_packed`` (four int8 values, offset by 128, in an
int32, lowest byte first), ``m.weight_scale`` ``[N, 1]`` and ``m.weight_shape``; everything else as
it is. ``config.json`` carries the scheme. Source: the compressed-tensors package, which vLLM and
transformers read; here only PyTorch and safetensors are needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from chipset_layers.compression.modules import QuantEmbedding, QuantLinear, quantize_rows
from chipset_layers.errors import LayerError

QUANTIZATION_CONFIG: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "config_groups": {
        "group_0": {
            "targets": ["Linear", "Embedding"],
            "weights": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "channel",
                "dynamic": False,
            },
            "input_activations": None,
            "output_activations": None,
        }
    },
    "ignore": [],
}
WEIGHTS_FILE = "model.safetensors"
PACKED, SCALE, SHAPE = ".weight_packed", ".weight_scale", ".weight_shape"


def pack_int8(qweight: Tensor) -> Tensor:
    """int8 ``[N, K]`` to int32 ``[N, ceil(K / 4)]``, each value offset by 128."""
    padded = nn.functional.pad(qweight, (0, -qweight.shape[1] % 4), value=-128)
    return (padded.view(torch.uint8) ^ 0x80).contiguous().view(torch.int32)


def unpack_int8(packed: Tensor, columns: int) -> Tensor:
    """The inverse of :func:`pack_int8`: int8 ``[N, columns]``."""
    return (packed.view(torch.uint8) ^ 0x80).view(torch.int8)[:, :columns].contiguous()


def quantized_state(model: nn.Module) -> tuple[dict[str, Tensor], list[str]]:
    """Quantise every ``nn.Linear`` and ``nn.Embedding`` of ``model``.

    Returns:
        The tensors to store, on the CPU, and the names of the quantised modules. A module that
        shares its weight with an earlier one (tied embeddings) is stored once.
    """
    tensors: dict[str, Tensor] = {}
    names: list[str] = []
    stored: set[int] = set()
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Linear, nn.Embedding)) or id(module.weight) in stored:
            continue
        stored.add(id(module.weight))
        names.append(name)
        qweight, scale = quantize_rows(module.weight)
        tensors[name + PACKED] = pack_int8(qweight).cpu()
        tensors[name + SCALE] = scale[:, None].to(torch.bfloat16).cpu()
        tensors[name + SHAPE] = torch.tensor(qweight.shape)
    for name, parameter in model.named_parameters():
        if id(parameter) not in stored:
            tensors[name] = parameter.detach().cpu().contiguous()
    for name, buffer in _persistent_buffers(model):
        tensors[name] = buffer.detach().cpu().contiguous()
    return tensors, names


def save_compressed(model: Any, tensors: dict[str, Tensor], folder: Path) -> None:
    """Write ``tensors`` and the config of the transformers model into an existing ``folder``."""
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    config = model.config.to_dict()
    # A tied output layer is not in the file: readers take the embedding's table for it.
    absent = ["lm_head"] if config.get("tie_word_embeddings") else []
    config["quantization_config"] = {**QUANTIZATION_CONFIG, "ignore": absent}
    config["architectures"] = [type(model).__name__]
    text = json.dumps(config, indent=2, default=str)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    if model.generation_config is not None:
        model.generation_config.save_pretrained(folder)


def check_scheme(config: dict[str, Any]) -> None:
    """Refuse a ``quantization_config`` that is not the one scheme this loader knows."""
    method, layout = config.get("quant_method"), config.get("format")
    groups = list((config.get("config_groups") or {}).values())
    weights = [group.get("weights") or {} for group in groups]
    known = (
        (method, layout) == ("compressed-tensors", "pack-quantized")
        and all(group.get("input_activations") is None for group in groups)
        and all(
            (w.get("num_bits"), w.get("type"), w.get("symmetric"), w.get("strategy"))
            == (8, "int", True, "channel")
            for w in weights
        )
        and len(groups) > 0
    )
    if not known:
        raise LayerError(
            f"the model is quantised as {method}/{layout} {weights}; this loader reads only "
            "compressed-tensors/pack-quantized int8 weights, symmetric, per channel; "
            "start from the unquantised model and run 'chipset compress'"
        )


def load_into(model: Any, tensors: dict[str, Tensor], dtype: torch.dtype) -> None:
    """Put stored ``tensors`` into a freshly built transformers ``model``, in place."""
    plain = {k: v for k, v in tensors.items() if not k.endswith((PACKED, SCALE, SHAPE))}
    for key in [key for key in tensors if key.endswith(PACKED)]:
        name = key.removesuffix(PACKED)
        qweight = unpack_int8(tensors[key], int(tensors[name + SHAPE][1]))
        scale = tensors[name + SCALE].to(torch.float32).flatten()
        module = model.get_submodule(name)
        if isinstance(module, nn.Embedding):
            model.set_submodule(name, QuantEmbedding(qweight, scale, dtype))
        else:
            bias = plain.pop(name + ".bias", None)
            bias = None if bias is None else bias.to(dtype)
            model.set_submodule(name, QuantLinear(qweight, scale, bias))
    tie_quantized(model)
    missing, unexpected = model.load_state_dict(plain, strict=False)
    held = {n for n, m in model.named_modules() if isinstance(m, (QuantLinear, QuantEmbedding))}
    missing = [key for key in missing if key.rpartition(".")[0] not in held]
    if missing or unexpected:
        raise LayerError(
            f"the stored model does not fit its config.json: missing {missing[:3]}, "
            f"unexpected {list(unexpected)[:3]} (of {len(missing)} and {len(unexpected)})"
        )


def tie_quantized(model: Any) -> None:
    """Let the output layer use the table of the embedding if the model ties them.

    Called again after a move to another device, which copies buffers one by one.
    """
    table = model.get_input_embeddings()
    if not (isinstance(table, QuantEmbedding) and model.config.tie_word_embeddings):
        return
    head = model.get_output_embeddings()
    if isinstance(head, QuantLinear):
        head.qweight, head.scale = table.qweight, table.scale
    else:
        model.set_output_embeddings(QuantLinear(table.qweight, table.scale))


def _persistent_buffers(model: nn.Module) -> list[tuple[str, Tensor]]:
    kept = set(model.state_dict().keys())
    return [(name, buffer) for name, buffer in model.named_buffers() if name in kept]
