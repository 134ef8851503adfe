"""What a vendor builds a plugin with: where the header and the CMake package are.

``python -m chipset_sdk include`` and ``python -m chipset_sdk cmake`` print the folders.
"""

from chipset_sdk.folders import cmake_folder, include_folder

__all__ = ["cmake_folder", "include_folder"]
