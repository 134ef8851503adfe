"""What ``chipset certify`` does; the command itself is ``chipset.commands.certify``."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from chipset_conformance import junit, mutants
from chipset_conformance.case import LEVELS, Level, levels_up_to
from chipset_conformance.report import page
from chipset_conformance.results import Certificate, Outcome, Record
from chipset_conformance.runner import CERTIFICATE, Settings, Verification, certify, verify

# Level 5 also judges torch.distributed, which the bridge does not serve yet.
HIGHEST_IN_REACH: Level = 4
JUNIT = "junit.xml"
REPORT = "report.html"
_SHOWN_FAILURES = 20
_COUNTS = ("passed", "failed", "unsupported", "waived", "crashed", "hung", "not_run")


def level_of(text: str | None) -> Level:
    """The level that a text names; without one, the highest that a chip can reach today.

    Raises:
        ValueError: there is no such level.
    """
    if text is None:
        return HIGHEST_IN_REACH
    level: Level = int(text) if text.isdigit() else text.lower()
    if level not in LEVELS:
        raise ValueError(f"there is no level '{text}'; levels: {', '.join(map(str, LEVELS))}")
    return level


def run(
    console: Console,
    device: str,
    level: str | None,
    only: str | None,
    resume: bool,
    jobs: int,
    seed: int,
    out: Path | None,
    declared: Path | None,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Certifies a device, says on the console how it goes, and writes certificate and JUnit XML.

    Returns:
        The document of ``--json``: the certificate without its cases, and where it lies.
    """
    folder = out or Path(f"certify-{device.replace(':', '-')}")
    asked = level_of(level)
    settings = Settings(
        device=device,
        level=asked,
        only=only,
        seed=seed,
        jobs=1 if asked == "performs" else jobs,  # who measures is alone
        out=folder,
        resume=resume,
        declared=declared,
        timeout_s=timeout_s,
        today=datetime.date.today(),
    )
    with console.status(f"{device}: starting") as status:

        def progress(record: Record, done: int, total: int) -> None:
            status.update(f"{device}: {done}/{total} {escape(record.id)}")
            if record.outcome in (Outcome.CRASHED, Outcome.HUNG):
                console.print(f"{record.outcome.value}: {escape(record.id)}")

        certificate = certify(settings, progress)
    (folder / JUNIT).write_text(junit.document(certificate))
    (folder / REPORT).write_text(page.html(certificate))
    show(console, certificate, folder)
    document = certificate.model_dump(mode="json", exclude={"cases", "ulps"})
    return {
        **document,
        "certificate": str(folder / CERTIFICATE),
        "junit": str(folder / JUNIT),
        "report": str(folder / REPORT),
    }


def show(console: Console, certificate: Certificate, folder: Path) -> None:
    """The levels, the failures, what is next."""
    for result in certificate.levels:
        verdict = "[green]reached[/]" if result.reached else "[red]not reached[/]"
        counts = [(getattr(result, name), name.replace("_", " ")) for name in _COUNTS]
        text = ", ".join(f"{count} {name}" for count, name in counts if count)
        composed = f" ({result.composed} composed)" if result.composed else ""
        console.print(
            f"level {result.level} {result.title}: {verdict}; {result.cases} cases, "
            f"{text or 'no cases'}{composed}, {result.seconds:.1f} s"
        )
    for failure in certificate.failures[:_SHOWN_FAILURES]:
        first = failure.message.strip().splitlines()[0] if failure.message.strip() else ""
        console.print(f"[red]{failure.outcome.value}[/] {escape(failure.id)}: {escape(first)}")
    if len(certificate.failures) > _SHOWN_FAILURES:
        console.print(f"and {len(certificate.failures) - _SHOWN_FAILURES} more")
    for waiver in certificate.waivers:
        until = f" until {waiver.expires}" if waiver.expires else ""
        console.print(
            f"waived: {waiver.matched} cases of {escape(waiver.cases)}{until}: "
            f"{escape(waiver.reason)}"
        )
    _show_next(console, certificate)
    emulated = ", emulated" if certificate.emulated else ""
    console.print(f"{certificate.device}{emulated}: {_verdict(certificate)}")
    console.print(f"{folder / CERTIFICATE}\n{certificate.content_hash}", soft_wrap=True)


def _show_next(console: Console, certificate: Certificate) -> None:
    following = certificate.next
    if following is None:
        return
    console.print(f"\nnext: [bold]{following.function}[/] ({escape(following.case or '')})")
    console.print(escape(following.why), soft_wrap=True)
    if following.specification:
        console.print(f"specification: {escape(following.specification)}", soft_wrap=True)
    if following.reproducer:
        console.print("reproduce with:", escape(following.reproducer), sep="\n", soft_wrap=True)


def _verdict(certificate: Certificate) -> str:
    if certificate.only is not None:
        how = "all well" if certificate.reached else "not well"
        return f"'{certificate.only}' alone: {how}; a part cannot reach a level"
    if isinstance(certificate.level_asked, str):
        return f"{certificate.level_asked} {'reached' if certificate.reached else 'not reached'}"
    if certificate.level_reached is None:
        return f"no level reached, {certificate.level_asked} asked"
    return f"level {certificate.level_reached} reached, {certificate.level_asked} asked"


def run_verification(console: Console, path: Path, declared: Path | None) -> Verification:
    """Checks a certificate and says what came of it."""
    result = verify(path, declared=declared)
    console.print(
        "the content hash matches" if result.hash_matches else "[red]the content was changed[/]"
    )
    for library in result.libraries:
        console.print(f"[red]another build:[/] {escape(library)}", soft_wrap=True)
    console.print(f"{len(result.sampled)} cases run again, {len(result.differences)} differ")
    for difference in result.differences:
        console.print(f"  {escape(difference)}")
    return result


def run_self_test(
    console: Console,
    level: str | None,
    only: str,
    seeds: Sequence[int],
    jobs: int,
    write: Path | None,
) -> mutants.SelfTest:
    """Runs the mutants of all levels, or of those up to the one given; says what was missed, and
    writes the page that lists them.
    """
    levels = LEVELS if level is None else levels_up_to(level_of(level))
    with console.status("self-test: starting") as status:

        def progress(name: str, done: int, total: int) -> None:
            status.update(f"self-test: {done}/{total} {name}")

        result = mutants.self_test(only, seeds, jobs, progress, levels)
    for verdict in result.verdicts:
        if verdict.case is None:
            console.print(f"[red]missed[/] {verdict.name}: {verdict.fault}")
    for alarm in result.false_alarms:
        console.print(f"[red]false alarm[/] {escape(alarm)}", soft_wrap=True)
    console.print(
        f"{result.caught} of {result.mutants} mutants caught, {len(result.missed)} missed, "
        f"{len(result.not_judged)} without cases of their level, "
        f"{len(result.false_alarms)} false alarms, {result.seconds:.0f} s"
    )
    if write is not None:
        scratch = write.with_name(write.name + ".new")
        scratch.write_text(mutants.document(result))
        scratch.replace(write)
    return result
