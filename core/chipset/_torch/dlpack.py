"""DLPack for tensors on a chip."""

from __future__ import annotations

from typing import Any

import torch


def register() -> None:
    """Lets ``Tensor.__dlpack_device__`` answer for a chip.

    Torch compares the type with the name that the device had before it was renamed, and so raises;
    its exporter and importer themselves know the device (kDLExtDev).
    """
    known = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
        if self.device.type == "chip":
            return torch.utils.dlpack.DLDeviceType.kDLExtDev, self.device.index or 0
        return known(self)

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
