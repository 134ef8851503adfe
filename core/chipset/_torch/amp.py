"""``torch.chip.amp``: autocast and loss scaling, torch's own with the chip as device."""

from __future__ import annotations

from typing import Any

import torch


class autocast(torch.amp.autocast_mode.autocast):
    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.bfloat16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("chip", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__("chip", *arguments, **options)
