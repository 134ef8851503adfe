"""Certificates from files, and what can be made of them: the door for ``chipset report``."""

from __future__ import annotations

from chipset_conformance.report.diff import difference
from chipset_conformance.report.page import compare, html
from chipset_conformance.results import read_certificate as certificate

__all__ = ["certificate", "compare", "difference", "html"]
