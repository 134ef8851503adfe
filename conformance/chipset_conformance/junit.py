"""The records of a run as JUnit XML, for continuous-integration systems."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml

from chipset_conformance.results import Certificate, Outcome, Record

# What XML 1.0 cannot hold even escaped.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
_SKIPPED = (Outcome.UNSUPPORTED, Outcome.WAIVED, Outcome.NOT_RUN)


def document(certificate: Certificate) -> str:
    """One ``testsuite`` per level; crashed and hung cases are errors, not failures."""
    root = xml.Element("testsuites", name=f"chipset certify {certificate.device}")
    for result in certificate.levels:
        suite = xml.SubElement(
            root,
            "testsuite",
            name=f"level {result.level} {result.title}",
            tests=str(result.cases),
            failures=str(result.failed),
            errors=str(result.crashed + result.hung),
            skipped=str(result.unsupported + result.waived + result.not_run),
            time=f"{result.seconds:.3f}",
            timestamp=certificate.started,
        )
        for record in certificate.cases:
            if record.level == result.level:
                _add(suite, record)
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, "unicode") + "\n"


def _add(suite: xml.Element, record: Record) -> None:
    name = f"chipset.{record.level}.{record.group}"
    case = xml.SubElement(
        suite, "testcase", classname=name, name=record.id, time=f"{record.seconds:.4f}"
    )
    message = _clean(record.message)
    if record.outcome == Outcome.FAILED:
        xml.SubElement(case, "failure", message=message).text = _clean(record.reproducer)
    elif record.outcome in (Outcome.CRASHED, Outcome.HUNG):
        child = xml.SubElement(case, "error", type=record.outcome.value, message=message)
        child.text = _clean(record.reproducer)
    elif record.outcome in _SKIPPED:
        notes = "; ".join(record.notes)
        xml.SubElement(case, "skipped", type=record.outcome.value, message=_clean(message or notes))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
