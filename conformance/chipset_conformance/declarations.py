"""What a backend declares about itself: cases that it does not support or is expected to fail.

A TOML file, ``conformance.toml`` beside the plugin's library unless named with ``--declarations``::

    [[unsupported]]
    cases = "sort/*"
    reason = "The chip has no sorting unit, and the host sorts faster than its cores would."

    [[expected_failure]]
    cases = "gemm/f64/*"
    reason = "The vendor's library 4.2 accumulates double in single precision; fixed in 4.3."
    expires = 2027-06-30

An entry that has expired excuses nothing, and one whose cases pass is an error.
"""

from __future__ import annotations

import datetime
import fnmatch
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chipset_conformance.results import FAULTS, Outcome, Record, Waiver

KINDS = ("unsupported", "expected_failure")
FILE_NAME = "conformance.toml"
_FIELDS = {"cases", "reason", "expires"}
_SHORTEST_REASON = 20  # characters; a sentence, not "todo"


class DeclarationError(ValueError):
    """The file of declarations cannot be used; the text says where and why."""


@dataclass
class Declaration:
    """One entry."""

    kind: str
    cases: str
    reason: str
    expires: datetime.date | None = None
    matched: list[str] = field(default_factory=list)

    def covers(self, record: Record, today: datetime.date) -> bool:
        current = self.expires is None or today <= self.expires
        return current and fnmatch.fnmatchcase(record.id, self.cases)

    def waiver(self) -> Waiver:
        expires = self.expires.isoformat() if self.expires else None
        return Waiver(
            kind=self.kind,
            cases=self.cases,
            reason=self.reason,
            expires=expires,
            matched=len(self.matched),
        )


def read(path: Path) -> list[Declaration]:
    """The declarations of a file.

    Raises:
        DeclarationError: it is not TOML of the form above.
    """
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise DeclarationError(f"{path}: {error}") from None
    unknown = sorted(set(document) - set(KINDS))
    if unknown:
        raise DeclarationError(f"{path}: unknown table '{unknown[0]}'; use {' or '.join(KINDS)}")
    return [
        _declaration(kind, entry, f"{path}: {kind} {number}")
        for kind in KINDS
        for number, entry in enumerate(document.get(kind, []), 1)
    ]


def _declaration(kind: str, entry: Any, where: str) -> Declaration:
    if not isinstance(entry, dict) or not {"cases", "reason"} <= set(entry) <= _FIELDS:
        raise DeclarationError(f"{where}: needs cases and reason, and may have expires: {entry!r}")
    cases, reason, expires = entry["cases"], entry["reason"], entry.get("expires")
    if not isinstance(cases, str) or not cases.strip("*?/ "):
        raise DeclarationError(f"{where}: cases is a glob that names something, not {cases!r}")
    if not isinstance(reason, str) or len(reason) < _SHORTEST_REASON or not reason.endswith("."):
        raise DeclarationError(f"{where}: reason is a full sentence with a full stop: {reason!r}")
    if expires is not None and type(expires) is not datetime.date:
        raise DeclarationError(f"{where}: expires is a date such as 2027-06-30, not {expires!r}")
    return Declaration(kind, cases, reason, expires)


def apply(record: Record, declared: list[Declaration], today: datetime.date) -> Record:
    """The record as the declarations and its tags judge it."""
    for entry in declared:
        if not entry.covers(record, today):
            continue
        if record.outcome == Outcome.PASSED and not record.composed:
            return record.model_copy(
                update={
                    "outcome": Outcome.FAILED,
                    "message": f"passed although it is declared as {entry.kind} "
                    f"('{entry.cases}': {entry.reason}); remove or narrow the declaration",
                }
            )
        excused = (
            record.outcome == Outcome.UNSUPPORTED
            if entry.kind == "unsupported"
            else record.outcome in FAULTS
        )
        if excused:
            entry.matched.append(record.id)
            return record.model_copy(
                update={
                    "outcome": Outcome.WAIVED,
                    "notes": [*record.notes, f"waived ({entry.kind}): {entry.reason}"],
                }
            )
    if record.outcome == Outcome.UNSUPPORTED and record.mandatory:
        return record.model_copy(
            update={
                "outcome": Outcome.FAILED,
                "message": f"mandatory, but not supported: {record.message}; "
                f"implement it, or declare it in {FILE_NAME}",
            }
        )
    return record
