"""What changed between two certificates."""

from __future__ import annotations

from pydantic import BaseModel

from chipset_conformance.results import FAULTS, Certificate, Outcome

# An error that grew by less says nothing: other inputs, other worst case.
ULP_GROWTH = 1.5


class Change(BaseModel):
    """One case that ended differently."""

    id: str
    before: str
    after: str
    message: str = ""


class Difference(BaseModel):
    """The document of ``chipset report diff``.

    Attributes:
        regressions: cases that passed, or were legally declined, and now are faults or declined.
        fixes: the other way round.
        other: any other change.
        added, removed: ids that only the later or the earlier certificate has.
        ulps: function/dtype whose worst error grew by half or more: before, after.
    """

    regressions: list[Change] = []
    fixes: list[Change] = []
    other: list[Change] = []
    added: list[str] = []
    removed: list[str] = []
    ulps: dict[str, tuple[float, float]] = {}


def difference(before: Certificate, after: Certificate) -> Difference:
    """Compares case by case."""
    old = {record.id: record for record in before.cases}
    new = {record.id: record for record in after.cases}
    result = Difference(
        added=sorted(new.keys() - old.keys()), removed=sorted(old.keys() - new.keys())
    )
    for id_ in sorted(old.keys() & new.keys()):
        a, b = old[id_], new[id_]
        if a.outcome == b.outcome:
            continue
        change = Change(
            id=id_, before=a.outcome.value, after=b.outcome.value, message=b.message[:500]
        )
        if b.outcome in FAULTS or a.outcome == Outcome.PASSED:
            result.regressions.append(change)
        elif a.outcome in FAULTS or b.outcome == Outcome.PASSED:
            result.fixes.append(change)
        else:
            result.other.append(change)
    for key in sorted(before.ulps.keys() & after.ulps.keys()):
        was, now = before.ulps[key], after.ulps[key]
        if now > 1 and now > ULP_GROWTH * was:
            result.ulps[key] = (was, now)
    return result
