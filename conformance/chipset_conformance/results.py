"""What a run leaves behind: a record per case, a journal of them, a certificate over all.

The models are the published schema (``certificate.schema.json``, written by
``python -m chipset_conformance schema``). Fields are only added within a schema version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chipset_conformance.case import Level

SCHEMA_VERSION = "1.1"


class Outcome(StrEnum):
    """How a case ended. Each is counted apart."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"  # answered UNSUPPORTED, legally, or lacks what the case needs
    WAIVED = "waived"  # the backend declared it, with a reason that has not expired
    CRASHED = "crashed"  # its process ended
    HUNG = "hung"  # its process was killed at the watchdog's limit
    NOT_RUN = "not_run"


FAULTS = frozenset({Outcome.FAILED, Outcome.CRASHED, Outcome.HUNG})


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Measurement(Model):
    """One figure that a case measured; figures of one name and growing ``x`` make a curve."""

    name: str = Field(description="what was measured, such as 'copy on the device'")
    value: float
    unit: str
    x: float | None = Field(default=None, description="the size at which it was measured")
    x_label: str = ""
    limit: float | None = Field(default=None, description="of the device's own roofline")
    limit_is: str = Field(default="", description="how the limit was measured")


class Record(Model):
    """One case of one run."""

    id: str
    level: Level
    group: str
    functions: list[str]
    dtype: str | None = None
    rule: str | None = None
    mandatory: bool
    outcome: Outcome
    message: str = Field(default="", description="what went wrong, or what is not supported")
    reproducer: str = Field(default="", description="a script that shows the fault")
    seconds: float = 0.0
    notes: list[str] = []
    ulps: dict[str, float] = Field(default={}, description="worst error in ULP")
    composed: list[str] = Field(
        default=[], description="functions that the core composed in the case"
    )
    measurements: list[Measurement] = []
    counts: dict[str, int] = Field(
        default={}, description="what the case counted, such as operators per kind of answer"
    )

    @property
    def bars_the_level(self) -> bool:
        """A fault does, and a mandatory case that nothing has judged."""
        unjudged = self.mandatory and self.outcome == Outcome.NOT_RUN
        return unjudged or self.outcome in FAULTS


class Waiver(Model):
    """A declared entry that excused cases of the run."""

    kind: str = Field(description="unsupported or expected_failure")
    cases: str = Field(description="glob over case ids")
    reason: str
    expires: str | None = None
    matched: int = Field(description="cases that it excused")


class LevelResult(Model):
    """Counts of one level; ``cases`` is the sum of the seven outcomes."""

    level: Level
    title: str
    reached: bool
    cases: int
    passed: int
    failed: int
    unsupported: int
    waived: int
    crashed: int
    hung: int
    not_run: int
    composed: int = Field(description="of passed: cases in which the core composed a function")
    seconds: float = Field(description="sum over the level's cases")


class Failure(Model):
    """A case that failed, crashed or hung."""

    id: str
    level: Level
    outcome: Outcome
    functions: list[str]
    message: str
    reproducer: str


class Next(Model):
    """What a vendor does next: the first missing or failing function of the table."""

    function: str
    why: str
    specification: str
    case: str | None = None
    reproducer: str = ""


class Certificate(Model):
    """What was tested, with which versions, on what, and how it went."""

    schema_version: str = SCHEMA_VERSION
    device: str
    emulated: bool
    level_asked: Level
    level_reached: int | None = Field(
        description="highest level reached with all below; None: none, or only a part was asked"
    )
    reached: bool = Field(description="whether what was asked is reached; the exit status")
    only: str | None = Field(default=None, description="the part that was asked, if not everything")
    levels: list[LevelResult]
    failures: list[Failure]
    waivers: list[Waiver] = []
    next: Next | None = None
    ulps: dict[str, float] = Field(
        default={}, description="function[.operation]/dtype: worst error in ULP"
    )
    seed: int
    started: str
    seconds: float
    environment: dict[str, Any]
    libraries: dict[str, str] = Field(
        default={},
        description="SHA-256 of the plugin's library and of the runtime's (since 1.1)",
    )
    cases: list[Record]
    content_hash: str = ""

    def hashed(self) -> str:
        """SHA-256 over everything but the hash itself, as canonical JSON."""
        content = self.model_dump(mode="json", exclude={"content_hash"})
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


class CertificateError(ValueError):
    """A file is no certificate; the text names the file, what is wrong with it, and the way out."""


def read_certificate(path: Path) -> Certificate:
    """Reads a certificate.

    Raises:
        CertificateError: the file cannot be read, or is none.
    """
    try:
        return Certificate.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CertificateError(
            f"cannot read certificate '{path}' ({error.strerror}); 'chipset certify DEVICE' "
            "writes certificate.json into its --out folder"
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise CertificateError(
            f"'{path}' is no certificate of this suite ({where + ': ' if where else ''}"
            f"{first['msg']}); give a certificate.json that 'chipset certify DEVICE' wrote"
        ) from None


class Journal:
    """Records as they come, a line each, so that an interrupted run can be resumed.

    The first line says which run it is; another run's journal is not resumed.
    """

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self.path = path
        self.run = run

    def resume(self) -> dict[str, Record]:
        """Records of an earlier part of this run; empty if there are none.

        Raises:
            ValueError: the journal belongs to another run.
        """
        if not self.path.exists():
            return {}
        lines = self.path.read_text().splitlines()
        if not lines:
            return {}
        if json.loads(lines[0]) != self.run:
            raise ValueError(
                f"{self.path} belongs to another run ({lines[0]}); leave --resume out to replace it"
            )
        return {record.id: record for record in _whole_records(lines[1:])}

    def restart(self, records: Iterable[Record] = ()) -> None:
        """Begins the file anew with these records."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(self.run), *(record.model_dump_json() for record in records)]
        self.path.write_text("".join(line + "\n" for line in lines))

    def append(self, record: Record) -> None:
        with self.path.open("a") as file:
            file.write(record.model_dump_json() + "\n")


def _whole_records(lines: list[str]) -> Iterator[Record]:
    """All but a last line that was cut off."""
    for number, line in enumerate(lines):
        try:
            yield Record.model_validate_json(line)
        except ValueError:
            if number != len(lines) - 1:
                raise


def schema() -> dict[str, Any]:
    """JSON schema of a certificate."""
    return Certificate.model_json_schema()
