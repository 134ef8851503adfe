"""One chip's report as one self-contained HTML file, and the page that compares many chips."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from chipset._interface import FUNCTIONS, Dtype
from chipset_conformance.report.plots import curves, svg
from chipset_conformance.results import FAULTS, Certificate, Outcome, Record

TEMPLATES = Path(__file__).parent
DTYPES = [dtype.name.lower() for dtype in Dtype if not dtype.name.startswith("OPAQUE")]
ANY = "any"
# How a cell is shown when several cases of one function and dtype end differently: the first of
# these that any of them has.
SEVERITY = (
    Outcome.CRASHED,
    Outcome.HUNG,
    Outcome.FAILED,
    Outcome.NOT_RUN,
    Outcome.WAIVED,
    Outcome.PASSED,
    Outcome.UNSUPPORTED,
)


def html(certificate: Certificate) -> str:
    """The report: summary, levels, matrix, failures, fallbacks, performance, environment."""
    records = certificate.cases
    plots = [(name, svg(name, points)) for name, points in curves(records).items()]
    return _render(
        "report.html.jinja",
        c=certificate,
        badge=badge(certificate),
        columns=[*DTYPES, ANY],
        groups=matrix(certificate),
        notes=[(record.id, note) for record in records for note in record.notes],
        counts=[(record.id, record.counts) for record in records if record.counts],
        composed=_composed(records),
        figures=[m for record in records for m in record.measurements if m.x is None],
        plots=plots,
    )


def compare(certificates: Sequence[Certificate]) -> str:
    """Many chips: a row for each function, a column for each chip."""
    rows = []
    for function in FUNCTIONS:
        cells = [_function_cell(certificate, function.name) for certificate in certificates]
        rows.append((function, cells))
    return _render(
        "matrix.html.jinja",
        certificates=certificates,
        badges=[badge(c) for c in certificates],
        rows=rows,
    )


def badge(certificate: Certificate) -> str:
    """What the certificate says in a few words; an emulated chip says so here, too."""
    emulated = " · emulated" if certificate.emulated else ""
    if certificate.only is not None:
        return f"part: {certificate.only}{emulated}"
    if isinstance(certificate.level_asked, str):
        return f"{certificate.level_asked}{'' if certificate.reached else ' not reached'}{emulated}"
    if certificate.level_reached is None:
        return f"no level reached{emulated}"
    title = next(r.title for r in certificate.levels if r.level == certificate.level_reached)
    return f"level {certificate.level_reached} · {title}{emulated}"


def matrix(certificate: Certificate) -> list[tuple[str, list[tuple[Any, list[dict[str, Any]]]]]]:
    """Groups of the interface table; in each, a row of cells for each function, by dtype."""
    groups: dict[str, list[tuple[Any, list[dict[str, Any]]]]] = {}
    by_cell: dict[tuple[str, str], list[Record]] = {}
    for record in certificate.cases:
        for name in record.functions:
            by_cell.setdefault((name, record.dtype or ANY), []).append(record)
    for function in FUNCTIONS:
        cells = [
            cell(by_cell.get((function.name, dtype), []), certificate, function.name, dtype)
            for dtype in (*DTYPES, ANY)
        ]
        groups.setdefault(function.group, []).append((function, cells))
    return list(groups.items())


def cell(
    records: Sequence[Record], certificate: Certificate, function: str, dtype: str
) -> dict[str, Any]:
    """How the cases of one function and dtype ended, as a class, a text and a tooltip."""
    if not records:
        return {"state": "none", "text": "", "title": f"{function} {dtype}: no case"}
    state = next(s for s in SEVERITY if any(r.outcome == s for r in records))
    passed = sum(r.outcome == Outcome.PASSED for r in records)
    composed = state == Outcome.PASSED and all(
        function in r.composed for r in records if r.outcome == Outcome.PASSED
    )
    ulp = worst_error(certificate, function, dtype)
    title = f"{function} {dtype}: {passed} of {len(records)} cases passed"
    title += f", worst error {ulp:.3g} ULP" if ulp is not None else ""
    title += ", composed by the core" if composed else ""
    text = {Outcome.PASSED: f"{ulp:.2g}" if ulp is not None else "✓"}.get(state, _SIGNS[state])
    return {"state": "composed" if composed else state.value, "text": text, "title": title}


def worst_error(certificate: Certificate, function: str, dtype: str) -> float | None:
    """In ULP, over all operations of the function (``pointwise.add``); None: not measured."""
    found = []
    for key, ulp in certificate.ulps.items():
        name, _, of = key.partition("/")
        if name.partition(".")[0] == function and of == dtype:
            found.append(ulp)
    return max(found, default=None)


_SIGNS = {
    Outcome.CRASHED: "☠",
    Outcome.HUNG: "⏳",
    Outcome.FAILED: "✗",
    Outcome.NOT_RUN: "?",
    Outcome.WAIVED: "w",
    Outcome.PASSED: "✓",
    Outcome.UNSUPPORTED: "–",
}


def _function_cell(certificate: Certificate, name: str) -> dict[str, Any]:
    records = [record for record in certificate.cases if name in record.functions]
    shown = cell(records, certificate, name, "all dtypes")
    if records:
        passed = sum(r.outcome == Outcome.PASSED for r in records)
        shown["text"] = f"{passed}/{len(records)}"
    return shown


def _composed(records: Sequence[Record]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for record in records:
        for name in record.composed:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts.items())


def _render(template: str, **values: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["anchor"] = lambda text: re.sub(r"[^\w-]+", "-", str(text))
    environment.globals["faults"] = FAULTS
    return environment.get_template(template).render(**values)
