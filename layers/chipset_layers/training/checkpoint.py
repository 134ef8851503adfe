"""Checkpoints that are whole or absent, and hold all that an exact continuation needs.

``OUTPUT/checkpoint-000100`` is a Hugging Face folder (any tool loads it) plus ``trainer.pt`` with
the optimizer, the random state and the settings.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chipset_layers.errors import LayerError
from chipset_layers.files import whole_folder

STATE_FILE = "trainer.pt"
PREFIX = "checkpoint-"
KEPT = 2  # older checkpoints are removed once a newer one is whole


def save_checkpoint(
    output: Path, step: int, model: Any, tokenizer: Any, optimizer: Any, settings: dict[str, Any]
) -> Path:
    """Write the checkpoint after ``step`` steps and return its folder."""
    place = output / f"{PREFIX}{step:06d}"
    with whole_folder(place) as folder:
        save_model(model, tokenizer, folder)
        state = {
            "step": step,
            "settings": settings,
            "optimizer": _to_host(optimizer.state_dict()),
            "random": random_state(model.device),
        }
        torch.save(state, folder / STATE_FILE)
    for old in checkpoints(output)[:-KEPT]:
        shutil.rmtree(old)
    return place


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face folder from a model on any device."""
    copies: dict[tuple[int, torch.Size], Tensor] = {}
    host = {}
    for name, tensor in model.state_dict().items():
        # Tied weights must stay one tensor, or they would be stored twice.
        key = (tensor.data_ptr(), tensor.shape)
        host[name] = copies.setdefault(key, tensor.detach().to("cpu"))
    model.save_pretrained(folder, state_dict=host)
    tokenizer.save_pretrained(folder)


def checkpoints(output: Path) -> list[Path]:
    """All whole checkpoints in ``output``, oldest first."""
    return sorted(p for p in output.glob(f"{PREFIX}*") if (p / STATE_FILE).is_file())


def load_state(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Read ``trainer.pt`` and refuse to continue under other settings."""
    try:
        state: dict[str, Any] = torch.load(
            folder / STATE_FILE, map_location="cpu", weights_only=True
        )
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise LayerError(
            f"the checkpoint '{folder}' cannot be read ({reason}); "
            "delete it to continue from an older one"
        ) from None
    different = [
        f"{name} was {state['settings'].get(name)!r} and is {value!r}"
        for name, value in settings.items()
        if state["settings"].get(name) != value
    ]
    if different:
        raise LayerError(
            f"cannot continue from '{folder}': {'; '.join(different)}; "
            "use the same settings, or another --output"
        )
    return state


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of the host's and the device's default generators."""
    state = {"host": torch.get_rng_state()}
    if device.type != "cpu":
        state["device"] = torch.get_device_module(device).get_rng_state(device).cpu()
    return state


def restore_random_state(device: torch.device, state: dict[str, Tensor]) -> None:
    """Set what :func:`random_state` returned."""
    torch.set_rng_state(state["host"])
    if device.type != "cpu" and "device" in state:
        torch.get_device_module(device).set_rng_state(state["device"], device)


def _to_host(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu")
    if isinstance(value, dict):
        return {key: _to_host(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_host(item) for item in value]
    return value
