"""A device that was selected."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from chipset.errors import PluginError

if TYPE_CHECKING:
    from torch import device as TorchDevice

    from chipset.driver import Driver


@dataclass(frozen=True)
class DeviceInfo:
    """What a device says about itself; see ``chipset_device_info`` in the header.

    Attributes:
        total_memory, max_allocation, alignment, preferred_vector_bytes: bytes.
        capabilities: bits of :class:`chipset._interface.Capability`.
        dtypes: bit ``1 << Dtype`` for each dtype that compute functions accept.
    """

    name: str
    vendor: str = ""
    architecture: str = ""
    driver: str = ""
    compute_units: int = 0
    capabilities: int = 0
    total_memory: int = 0
    max_allocation: int = 0
    dtypes: int = 0
    alignment: int = 0
    preferred_vector_bytes: int = 0

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> DeviceInfo:
        """From the mapping that the runtime gives; it may hold more."""
        return cls(**{f.name: entry[f.name] for f in fields(cls)})


@dataclass(frozen=True)
class Device:
    """A device, launched.

    Attributes:
        name: of its plugin.
        index: within its plugin.
        number: over all launched plugins: ``chip:NUMBER`` in torch.
        info: what it says about itself.
        adopted: the torch device type if torch drives it by itself, else None.
        module: a module that makes torch know an adopted device.
    """

    name: str
    index: int
    number: int
    info: DeviceInfo
    adopted: str | None = None
    module: str | None = None

    @property
    def torch(self) -> TorchDevice:
        """The torch device. Imports torch, and the bridge unless the device is adopted."""
        if self.adopted is not None:
            return self._adopt()
        from chipset import _torch

        _torch.activate()
        import torch

        return torch.device("chip", self.number)

    def _adopt(self) -> TorchDevice:
        import torch

        if self.module is not None:
            try:
                importlib.import_module(self.module)
            except ImportError as error:
                raise PluginError(
                    f"device '{self.name}' needs the module '{self.module}': {error}"
                ) from None
        try:
            device = torch.device(f"{self.adopted}:{self.index}")
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            first = str(error).splitlines()[0]
            raise PluginError(f"torch cannot use '{self.adopted}:{self.index}': {first}") from None
        return device

    @property
    def driver(self) -> Driver:
        """Calls the functions of the plugin's table with NumPy arrays; needs no torch."""
        if self.adopted is not None:
            raise PluginError(f"device '{self.name}' is adopted from torch and has no plugin table")
        from chipset.driver import Driver

        return Driver(self.number)

    def __str__(self) -> str:
        return f"{self.name}:{self.index}"
