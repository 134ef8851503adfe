"""The one error type of the layers."""

from __future__ import annotations

from chipset.errors import ChipsetError


class LayerError(ChipsetError):
    """A fault the user can act on: the text names the fault, the value and the way out."""
