"""Certificates from files, and what can be made of them: the door for ``chipset report``."""

from __future__ import annotations

from pathlib import Path

from chipset_conformance.report.diff import difference
from chipset_conformance.report.page import compare, html
from chipset_conformance.results import Certificate

__all__ = ["certificate", "compare", "difference", "html"]


def certificate(path: Path) -> Certificate:
    """Reads a certificate.

    Raises:
        ValueError: the file is none; the text says what is wrong with it.
    """
    try:
        return Certificate.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read certificate '{path}': {error.strerror}") from None
    except ValueError as error:
        first = str(error).splitlines()[:2]
        raise ValueError(f"'{path}' is no certificate of this suite: {' '.join(first)}") from None
