"""What a vendor builds a plugin with.

In C++: ``chipset_sdk.hpp``, found by ``find_package(chipset)`` as the target ``chipset::sdk``; in
Python: :class:`PythonDevice`. ``chipset new-plugin NAME`` writes a whole package to start from.
``python -m chipset_sdk include`` and ``python -m chipset_sdk cmake`` print the folders of the
interface header and of the CMake package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chipset_sdk.python_device import PythonDevice, StatusError, Unsupported

__all__ = ["PythonDevice", "StatusError", "Unsupported"]


def __getattr__(name: str) -> Any:
    # NumPy is loaded only by those who ask for the Python route.
    if name in __all__:
        from chipset_sdk import python_device

        return getattr(python_device, name)
    raise AttributeError(f"module 'chipset_sdk' has no attribute '{name}'")
