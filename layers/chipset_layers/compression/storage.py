"""Write and read quantised models in the ``compressed-tensors`` format, ``pack-quantized``.

A quantised module ``m`` is stored as ``m.weight_packed`` (four int8 values, offset by 128, or eight
int4 values, offset by 8, in an int32, lowest bits first), ``m.weight_scale`` ``[N, G]`` and
``m.weight_shape``; everything else as it is. ``config.json`` carries the scheme. Source: the
compressed-tensors package, which vLLM and transformers read; here only PyTorch and safetensors are
needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from chipset_layers.compression.modules import (
    GROUP_SIZE,
    Int4Linear,
    QuantEmbedding,
    QuantLinear,
    quantize_groups,
    quantize_rows,
)
from chipset_layers.errors import LayerError
from chipset_layers.nibbles import pack_nibbles

_INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
_INT4 = {**_INT8, "num_bits": 4, "strategy": "group", "group_size": GROUP_SIZE}
# What each scheme quantises, and how. In int4 the embedding and the output layer, which most models
# share and where four bits cost most, stay as they are; two kinds of integers in one model would
# also be misread by transformers, which takes every module for one of the first kind.
SCHEMES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "int8": (["Linear", "Embedding"], _INT8),
    "int4": (["Linear"], _INT4),
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


def pack_int4(qweight: Tensor) -> Tensor:
    """int8 ``[N, K]`` in -8..7, K even, to int32 ``[N, ceil(K / 8)]``, each value offset by 8."""
    nibbles = pack_nibbles(qweight) ^ 0x88  # two's complement to an offset of 8, in both halves
    padded = nn.functional.pad(nibbles, (0, -nibbles.shape[1] % 4))
    return padded.contiguous().view(torch.int32)


def unpack_int4(packed: Tensor, columns: int) -> Tensor:
    """What :class:`Int4Linear` holds: uint8 ``[N, columns / 2]``, two values a byte."""
    return (packed.view(torch.uint8)[:, : columns // 2] ^ 0x88).contiguous()


def quantization_config(scheme: str, ignored: list[str]) -> dict[str, Any]:
    """The ``quantization_config`` of a model whose weights follow ``scheme``."""
    targets, weights = SCHEMES[scheme]
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": targets,
                "weights": weights,
                "input_activations": None,
                "output_activations": None,
            }
        },
        "ignore": ignored,
    }


def quantized_state(model: nn.Module, scheme: str) -> tuple[dict[str, Tensor], list[str]]:
    """Quantise the layers of ``model`` that ``scheme`` names in :data:`SCHEMES`.

    Returns:
        The tensors to store, on the CPU, and the names of the quantised modules. A module that
        shares its weight with an earlier one (tied embeddings) is stored once.

    Raises:
        LayerError: a linear layer's width is no multiple of the group size.
    """
    quantize = {"int8": _int8, "int4": _int4}[scheme]
    tensors: dict[str, Tensor] = {}
    names: list[str] = []
    stored: set[int] = set()
    for name, module in _targets(model, scheme):
        if id(module.weight) in stored:
            continue
        stored.add(id(module.weight))
        names.append(name)
        packed, scale = quantize(name, module.weight)
        tensors[name + PACKED] = packed.cpu()
        tensors[name + SCALE] = scale.to(torch.bfloat16).cpu()
        tensors[name + SHAPE] = torch.tensor(module.weight.shape)
    for name, parameter in model.named_parameters():
        if id(parameter) not in stored:
            tensors[name] = parameter.detach().cpu().contiguous()
    for name, buffer in _persistent_buffers(model):
        tensors[name] = buffer.detach().cpu().contiguous()
    return tensors, names


def _targets(model: Any, scheme: str) -> list[tuple[str, Any]]:
    modules = list(model.named_modules())
    if scheme == "int8":
        return [(name, m) for name, m in modules if isinstance(m, (nn.Linear, nn.Embedding))]
    output = model.get_output_embeddings()
    return [(name, m) for name, m in modules if isinstance(m, nn.Linear) and m is not output]


def _int8(name: str, weight: Tensor) -> tuple[Tensor, Tensor]:
    qweight, scale = quantize_rows(weight)
    return pack_int8(qweight), scale[:, None]


def _int4(name: str, weight: Tensor) -> tuple[Tensor, Tensor]:
    if weight.shape[1] % GROUP_SIZE != 0:
        raise LayerError(
            f"layer '{name}' has {weight.shape[1]} inputs, no multiple of the {GROUP_SIZE} that "
            "share a scale in int4; use --weights int8"
        )
    qweight, scale = quantize_groups(weight)
    return pack_int4(qweight), scale


def save_compressed(model: Any, tensors: dict[str, Tensor], folder: Path, scheme: str) -> None:
    """Write ``tensors`` and the config of the transformers model into an existing ``folder``."""
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    config = model.config.to_dict()
    kinds = (nn.Linear, nn.Embedding) if "Embedding" in SCHEMES[scheme][0] else nn.Linear
    # Not quantised, or tied to another and not in the file.
    ignored = [
        name
        for name, module in model.named_modules()
        if isinstance(module, kinds) and name + PACKED not in tensors
    ]
    config["quantization_config"] = quantization_config(scheme, ignored)
    config["architectures"] = [type(model).__name__]
    text = json.dumps(config, indent=2, default=str)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    if model.generation_config is not None:
        model.generation_config.save_pretrained(folder)


def scheme_of(config: dict[str, Any]) -> str:
    """The name in :data:`SCHEMES` of a stored ``quantization_config``.

    Raises:
        LayerError: it is none of those.
    """
    groups = list((config.get("config_groups") or {}).values())
    found = {_meaning(group.get("weights") or {}) for group in groups}
    packed = (
        config.get("quant_method") == "compressed-tensors"
        and config.get("format") == "pack-quantized"
        and all(group.get("input_activations") is None for group in groups)
    )
    for name, (_, weights) in SCHEMES.items():
        if packed and found == {_meaning(weights)}:
            return name
    raise LayerError(
        f"the model is quantised as {config.get('quant_method')}/{config.get('format')} "
        f"{[group.get('weights') for group in groups]}; this loader reads only "
        "compressed-tensors/pack-quantized weights, symmetric: int8 per channel, or int4 in groups "
        f"of {GROUP_SIZE}; start from the unquantised model and run 'chipset compress'"
    )


def _meaning(weights: dict[str, Any]) -> tuple[Any, ...]:
    """What decides how stored numbers are read."""
    size = weights.get("group_size") if weights.get("strategy") == "group" else None
    return (*(weights.get(key) for key in ("num_bits", "type", "symmetric", "strategy")), size)


def load_into(model: Any, tensors: dict[str, Tensor], dtype: torch.dtype, scheme: str) -> None:
    """Put stored ``tensors`` into a freshly built transformers ``model``, in place."""
    plain = {k: v for k, v in tensors.items() if not k.endswith((PACKED, SCALE, SHAPE))}
    for key in [key for key in tensors if key.endswith(PACKED)]:
        name = key.removesuffix(PACKED)
        packed, columns = tensors[key], int(tensors[name + SHAPE][1])
        scale = tensors[name + SCALE].to(torch.float32)
        if isinstance(model.get_submodule(name), nn.Embedding):
            table = QuantEmbedding(unpack_int8(packed, columns), scale.flatten(), dtype)
            model.set_submodule(name, table)
            continue
        bias = plain.pop(name + ".bias", None)
        bias = None if bias is None else bias.to(dtype)
        linear = (
            Int4Linear(unpack_int4(packed, columns), scale, bias)
            if scheme == "int4"
            else QuantLinear(unpack_int8(packed, columns), scale.flatten(), bias)
        )
        model.set_submodule(name, linear)
    tie_embeddings(model)
    missing, unexpected = model.load_state_dict(plain, strict=False)
    held = {n for n, m in model.named_modules() if isinstance(m, (QuantLinear, QuantEmbedding))}
    if model.config.tie_word_embeddings:
        held |= {n for n, m in model.named_modules() if m is model.get_output_embeddings()}
    missing = [key for key in missing if key.rpartition(".")[0] not in held]
    if missing or unexpected:
        raise LayerError(
            f"the stored model does not fit its config.json: missing {missing[:3]}, "
            f"unexpected {list(unexpected)[:3]} (of {len(missing)} and {len(unexpected)})"
        )


def tie_embeddings(model: Any) -> None:
    """Let the output layer use the table of the embedding if the model ties them.

    Called again after a move to another device, which copies buffers one by one.
    """
    table = model.get_input_embeddings()
    if not model.config.tie_word_embeddings:
        return
    if not isinstance(table, QuantEmbedding):
        model.tie_weights()
        return
    head = model.get_output_embeddings()
    if isinstance(head, QuantLinear):
        head.qweight, head.scale = table.qweight, table.scale
    else:
        model.set_output_embeddings(QuantLinear(table.qweight, table.scale))


def _persistent_buffers(model: nn.Module) -> list[tuple[str, Tensor]]:
    kept = set(model.state_dict().keys())
    return [(name, buffer) for name, buffer in model.named_buffers() if name in kept]
