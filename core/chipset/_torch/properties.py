"""What a chip says about itself."""

from __future__ import annotations

from dataclasses import dataclass

from chipset import _runtime
from chipset._interface import Capability, Dtype
from chipset._torch.target import Target, index_of


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of one device, with torch.cuda's names where the meaning is the same.

    Attributes:
        name: marketing name of the device.
        plugin: the plugin that drives it.
        total_memory: bytes.
        multi_processor_count: cores, SMs or compute units; 0 if unknown.
        emulated: True where the device is a software stand-in for a chip.
    """

    name: str
    plugin: str
    vendor: str
    architecture: str
    driver: str
    total_memory: int
    multi_processor_count: int
    capabilities: int
    dtypes: int
    emulated: bool
    warp_size: int = 1
    major: int = 1
    minor: int = 0


def get_device_properties(device: Target = None) -> DeviceProperties:
    entry = _runtime.device(index_of(device))
    return DeviceProperties(
        name=entry["name"],
        plugin=entry["plugin"],
        vendor=entry["vendor"],
        architecture=entry["architecture"],
        driver=entry["driver"],
        total_memory=entry["total_memory"],
        multi_processor_count=entry["compute_units"],
        capabilities=entry["capabilities"],
        dtypes=entry["dtypes"],
        emulated=bool(entry["capabilities"] & Capability.EMULATED),
    )


def get_device_name(device: Target = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: Target = None) -> tuple[int, int]:
    """Version of the interface that the device's plugin is driven through."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    properties = get_device_properties()
    return bool(properties.dtypes >> Dtype.BF16 & 1) and (
        including_emulation or not properties.emulated
    )
