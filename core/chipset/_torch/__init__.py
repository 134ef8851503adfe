"""The torch side of the core: makes the devices of the launched plugins torch's device ``chip``.

``activate()`` is all that a program needs; ``chipset.select(NAME).torch`` calls it.
"""

from __future__ import annotations

import threading
from typing import Any

BACKEND = "chip"
__all__ = ["BACKEND", "activate", "fallback_mode", "fallbacks", "reset_fallbacks"]

_lock = threading.RLock()
_active = False


def activate() -> None:
    """Makes ``torch.device("chip")`` work in this process. Calling it again takes in new devices.

    Devices are numbered over all launched plugins, in the order of their launch; when none was
    launched, the plugin of ``CHIPSET_DEVICE`` (default ``cpu``) is.

    Raises:
        chipset.ChipsetError: the plugin cannot be launched.
        RuntimeError: another out-of-tree device has taken torch's only place for one.
    """
    global _active
    with _lock:
        _launch()
        import torch  # before the bridge, which needs its libraries in the process

        bridge = _import_bridge(torch)
        if _active:
            bridge.adopt_devices()
            return
        _register(torch)
        _active = True


def _launch() -> None:
    from chipset import _runtime, launch

    if _runtime.device_count() == 0:
        launch.select()


def _import_bridge(torch: Any) -> Any:
    try:
        from chipset import _bridge
    except ImportError as error:
        raise RuntimeError(
            f"chipset: the bridge cannot be loaded into torch {torch.__version__}: {error}. It is "
            "bound to the torch that it was built with; reinstall chipset "
            "(pip install --no-build-isolation --force-reinstall --no-deps chipset)"
        ) from error
    return _bridge


def _register(torch: Any) -> None:
    """Once per process: torch's name, module, methods and defaults for the device."""
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", BACKEND):
        raise RuntimeError(
            f"chipset: torch has room for one out-of-tree device, and '{taken}' took it in this "
            "process; use the one or the other"
        )
    torch.utils.rename_privateuse1_backend(BACKEND)
    from chipset._torch import (
        chip,
        dlpack,
        dynamo,
        modules,
        processes,
        recurrent,
        safetensors,
        trainer,
    )

    torch._register_device_module(BACKEND, chip)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    # float16 is what torch assumes for a new device; bfloat16 has float32's range and needs no
    # loss scaling.
    torch.set_autocast_dtype(BACKEND, torch.bfloat16)
    # Torch's backward threads for devices may want the GIL while the interpreter ends, which
    # aborts the process. One thread is also faster, and keeps this thread's current streams.
    torch.autograd.set_multithreading_enabled(False)
    dynamo.register()
    dlpack.register()
    modules.register()
    processes.register()
    recurrent.register()
    safetensors.register()
    trainer.register()


def fallbacks() -> dict[str, dict[str, int]]:
    """Operators that the host ran in the place of a chip: ``{op: {"count", "bytes"}}``."""
    if not _active:
        return {}
    from chipset import _bridge

    found: dict[str, dict[str, int]] = _bridge.fallbacks()
    return found


def reset_fallbacks() -> None:
    """Sets the counters of :func:`fallbacks` to zero."""
    if _active:
        from chipset import _bridge

        _bridge.reset_fallbacks()


class fallback_mode:
    """Sets what a host fallback does: ``"allow"``, ``"warn"`` or ``"error"``.

    As a function for the rest of the process, or as a context manager. The start value is that of
    the environment variable ``CHIPSET_FALLBACK``.
    """

    def __init__(self, mode: str) -> None:
        activate()
        from chipset import _bridge

        self._bridge = _bridge
        self._previous: str = _bridge.fallback_mode()
        _bridge.set_fallback_mode(mode)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        self._bridge.set_fallback_mode(self._previous)
