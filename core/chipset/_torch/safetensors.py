"""``safetensors.torch.load_file(path, device="chip")``."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch

from chipset._torch.imports import when_imported


def register() -> None:
    """The library knows devices by fixed names; for a chip it loads to the host, then moves."""
    when_imported("safetensors.torch", _wrap)


def _wrap(module: ModuleType) -> None:
    load_file, load_model = module.load_file, module.load_model

    @functools.wraps(load_file)
    def load_file_to_chip(filename: Any, device: Any = "cpu", **options: Any) -> Any:
        if not _is_chip(device):
            return load_file(filename, device=device, **options)
        loaded = load_file(filename, device="cpu", **options)
        return {name: tensor.to(device) for name, tensor in loaded.items()}

    @functools.wraps(load_model)
    def load_model_from_host(
        model: Any, filename: Any, strict: bool = True, device: Any = "cpu", **options: Any
    ) -> Any:
        # The tensors are copied into the model's own, wherever those are.
        host = "cpu" if _is_chip(device) else device
        return load_model(model, filename, strict=strict, device=host, **options)

    module.load_file = load_file_to_chip  # type: ignore[attr-defined]
    module.load_model = load_model_from_host  # type: ignore[attr-defined]


def _is_chip(device: Any) -> bool:
    try:
        return torch.device(device).type == "chip"
    except (RuntimeError, TypeError):
        return False
