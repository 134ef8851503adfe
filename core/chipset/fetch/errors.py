"""The error type of everything that fetches or reads a model folder or a data set."""

from __future__ import annotations

from chipset.errors import ChipsetError


class FetchError(ChipsetError):
    """A download, a cache entry or a model folder is unusable; the text says how to go on."""
