"""What a vendor builds a plugin with.

``python -m chipset_sdk include`` and ``python -m chipset_sdk cmake`` print the folders of the
interface header and of the CMake package.
"""
