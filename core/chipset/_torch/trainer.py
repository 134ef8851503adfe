"""``transformers.Trainer`` trains on the chip."""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

import torch

from chipset._torch.imports import when_imported


def register() -> None:
    """``accelerate`` asks ``torch.accelerator`` and so finds the chip; the Trainer's arguments then
    go through a list of device names that has no place for another, and fall back to the CPU."""
    when_imported("transformers.training_args", _wrap)


def _wrap(module: ModuleType) -> None:
    arguments: Any = module.TrainingArguments
    choose = arguments._setup_devices.func

    def _setup_devices(self: Any) -> torch.device:
        accelerator = torch.accelerator.current_accelerator()
        on_chip = accelerator is not None and accelerator.type == "chip" and not self.use_cpu
        processes = os.environ.get("WORLD_SIZE", "1")
        if on_chip and int(processes) > 1:
            raise RuntimeError(
                f"transformers.Trainer: WORLD_SIZE={processes}, but accelerate has no distributed "
                "backend for 'chip': each process would train alone; start only one"
            )
        device: torch.device = choose(self)
        # Otherwise a device that it knows, or the CPU because that was asked for.
        if device.type == "cpu" and on_chip and self.distributed_state.device.type == "chip":
            return torch.device("chip", torch.accelerator.current_device_index())
        return device

    # A cached property learns its name when its class is made, which was before.
    own = functools.cached_property(functools.wraps(choose)(_setup_devices))
    own.__set_name__(arguments, "_setup_devices")
    arguments._setup_devices = own
