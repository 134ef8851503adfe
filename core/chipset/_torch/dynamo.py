"""What torch.compile asks about a device."""

from __future__ import annotations

from typing import Any

import torch

from chipset._torch.imports import when_imported


def register() -> None:
    """Registers the chip with dynamo, now or when dynamo is first imported.

    Importing dynamo takes a second that most programs do not need.
    """
    when_imported("torch._dynamo.device_interface", _register_interface)


def _register_interface(device_interface: Any) -> None:
    from chipset._torch import chip

    class ChipInterface(device_interface.DeviceInterface):
        """torch.chip in dynamo's words."""

        Event = chip.Event
        Stream = chip.Stream
        device = chip.device
        current_device = staticmethod(chip.current_device)
        set_device = staticmethod(chip.set_device)
        device_count = staticmethod(chip.device_count)
        is_available = staticmethod(chip.is_available)
        exchange_device = staticmethod(chip.exchange_device)
        maybe_exchange_device = staticmethod(chip.maybe_exchange_device)
        current_stream = staticmethod(chip.current_stream)
        set_stream = staticmethod(chip.set_stream)
        stream = staticmethod(chip.stream)
        synchronize = staticmethod(chip.synchronize)
        memory_allocated = staticmethod(chip.memory_allocated)
        is_bf16_supported = staticmethod(chip.is_bf16_supported)
        get_device_properties = staticmethod(chip.get_device_properties)
        get_compute_capability = staticmethod(chip.get_device_capability)

        class Worker:
            """The same in inductor's compile workers, which have no device."""

            set_device = staticmethod(chip.set_device)
            current_device = staticmethod(chip.current_device)
            get_device_properties = staticmethod(chip.get_device_properties)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            stream: Any = chip.current_stream(device_idx)
            return int(stream.native_handle)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            torch.accelerator.set_stream(
                torch.Stream(
                    stream_id=stream_id, device_index=device_index, device_type=device_type
                )
            )

        @staticmethod
        def is_triton_capable(device: Any = None) -> bool:
            return False

        @staticmethod
        def raise_if_triton_unavailable(device: Any = None) -> None:
            raise RuntimeError("a chip has no triton; use torch.compile(backend='aot_eager')")

    device_interface.register_interface_for_device("chip", ChipInterface)
    for index in range(chip.device_count()):
        device_interface.register_interface_for_device(f"chip:{index}", ChipInterface)
