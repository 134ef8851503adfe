"""The one error type of the layers."""

from __future__ import annotations


class LayerError(RuntimeError):
    """A fault the user can act on: the text names the fault, the value and the way out."""
