"""Runs the cases of a device in child processes and makes the certificate."""

from __future__ import annotations

import datetime
import fnmatch
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chipset._interface import FUNCTIONS
from chipset.registry import find_plugins
from chipset_conformance import declarations
from chipset_conformance.case import LEVELS, TITLES, Case, Level, levels_up_to, load
from chipset_conformance.declarations import Declaration
from chipset_conformance.execution import blank
from chipset_conformance.results import (
    FAULTS,
    Certificate,
    Failure,
    Journal,
    LevelResult,
    Next,
    Outcome,
    Record,
    read_certificate,
)
from chipset_conformance.worker import StartError, Worker

Progress = Callable[[Record, int, int], None]  # record, done, of how many
CERTIFICATE = "certificate.json"
JOURNAL = "journal.jsonl"


@dataclass(frozen=True)
class Settings:
    """What is asked.

    Attributes:
        device: ``NAME[:INDEX]``.
        level: asked; every level of the ladder below is asked, too.
        only: glob over groups, functions and case ids; no level can be reached with it.
        out: folder of journal and certificate, or None to keep nothing.
        declared: file of declarations; None: the plugin's own, if it has one.
        timeout_s: for each case, instead of the case's own limit.
    """

    device: str
    level: Level
    only: str | None = None
    seed: int = 0
    jobs: int = 1
    out: Path | None = None
    resume: bool = False
    declared: Path | None = None
    timeout_s: float | None = None
    today: datetime.date = field(default_factory=datetime.date.today)

    @property
    def levels(self) -> list[Level]:
        return levels_up_to(self.level)


def certify(settings: Settings, progress: Progress | None = None) -> Certificate:
    """Runs what is asked.

    Raises:
        StartError: the device cannot be launched.
        DeclarationError: the file of declarations cannot be used.
        ValueError: nothing matches ``only``, or the journal belongs to another run.
    """
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    clock = time.perf_counter()
    declared = declarations.read(path) if (path := declarations_of(settings)) else []
    known = load(settings.levels)
    chosen = select(known, settings.only)
    first = Worker(settings.device, settings.seed, settings.levels)
    records = run(chosen, settings, first, progress)
    everything = [records.get(case.id) or blank(case, Outcome.NOT_RUN) for case in known]
    everything += [_without_case(level, name) for level, name in uncovered(settings.levels)]
    judged = [declarations.apply(record, declared, settings.today) for record in everything]
    certificate = Certificate(
        device=first.ready["device"],
        emulated=first.ready["emulated"],
        level_asked=settings.level,
        level_reached=None,
        reached=False,
        only=settings.only,
        levels=[_level(level, judged) for level in settings.levels],
        failures=[_failure(record) for record in judged if record.outcome in FAULTS],
        waivers=[entry.waiver() for entry in declared if entry.matched],
        next=following(judged),
        ulps=_worst(judged),
        seed=settings.seed,
        started=started,
        seconds=round(time.perf_counter() - clock, 3),
        environment=first.ready["environment"],
        libraries=first.ready["libraries"],
        cases=judged,
    )
    certificate.level_reached = _reached(certificate, settings)
    certificate.reached = _is_reached(certificate, chosen)
    certificate.content_hash = certificate.hashed()
    if settings.out is not None:
        settings.out.mkdir(parents=True, exist_ok=True)
        (settings.out / CERTIFICATE).write_text(certificate.model_dump_json(indent=1) + "\n")
    return certificate


# ---- what runs -----------------------------------------------------------------------------------


def select(known: Sequence[Case], only: str | None) -> list[Case]:
    """The cases whose group, function or id matches the glob."""
    if only is None:
        return list(known)

    def matches(case: Case) -> bool:
        names = (case.group, case.id.partition("/")[0], case.id, *case.functions)
        return any(fnmatch.fnmatchcase(name, only) for name in names)

    chosen = [case for case in known if matches(case)]
    if not chosen:
        groups = ", ".join(sorted({case.group for case in known}))
        raise ValueError(f"no case matches '{only}': give a group ({groups}), a function or a glob")
    return chosen


def declarations_of(settings: Settings) -> Path | None:
    """The file given, or the one beside the plugin's library."""
    if settings.declared is not None:
        return settings.declared
    found = find_plugins().get(settings.device.partition(":")[0])
    if found is None or found.description is None or found.description.library is None:
        return None
    path = Path(found.description.library).parent / declarations.FILE_NAME
    return path if path.exists() else None


def uncovered(levels: Sequence[Level]) -> list[tuple[Level, str]]:
    """Functions of the table that belong to these levels and that no case judges."""
    covered = {name for case in load(levels) for name in case.functions}
    home = {"device": 0, "memory": 0, "stream": 1, "event": 1, "collective": 5}
    belongs = [(home.get(function.group, 2), function.name) for function in FUNCTIONS]
    return [(level, name) for level, name in belongs if level in levels and name not in covered]


def _without_case(level: Level, name: str) -> Record:
    group = next(function.group for function in FUNCTIONS if function.name == name)
    text = f"the suite has no case for {name} yet"
    return Record(
        id=f"{name}/without-case",
        level=level,
        group=group,
        functions=[name],
        mandatory=True,
        outcome=Outcome.NOT_RUN,
        message=text,
    )


def run(
    chosen: Sequence[Case], settings: Settings, first: Worker, progress: Progress | None
) -> dict[str, Record]:
    """Runs the cases on ``settings.jobs`` workers, the given one among them."""
    records: dict[str, Record] = {}
    journal = None
    if settings.out is not None:
        identity = {
            "device": first.ready["device"],
            "seed": settings.seed,
            "environment": first.ready["environment"],
            "libraries": first.ready["libraries"],
        }
        journal = Journal(settings.out / JOURNAL, identity)
        records = journal.resume() if settings.resume else {}
        journal.restart(records.values())
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in chosen:
        if case.id not in records:
            waiting.put(case)
    lock = threading.Lock()
    faults: list[BaseException] = []

    def keep(record: Record) -> None:
        with lock:
            records[record.id] = record
            if journal is not None:
                journal.append(record)
            if progress is not None:
                progress(record, len(records), len(chosen))

    def work(worker: Worker | None) -> None:
        try:
            _drain(waiting, settings, worker, keep)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(None,)) for _ in range(settings.jobs - 1)]
    for thread in threads:
        thread.start()
    work(first)
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return records


def _drain(
    waiting: queue.SimpleQueue[Case],
    settings: Settings,
    worker: Worker | None,
    keep: Callable[[Record], None],
) -> None:
    """Takes cases until none is left; a worker that is spent is replaced."""
    try:
        while True:
            case = waiting.get_nowait()
            if worker is None:
                worker = Worker(settings.device, settings.seed, settings.levels)
            record, usable = worker.run(case, settings.timeout_s)
            keep(record)
            if not usable:
                worker.kill()
                worker.close()
                worker = None
    except queue.Empty:
        pass
    finally:
        if worker is not None:
            worker.close()


# ---- what it comes to ----------------------------------------------------------------------------


def _level(level: Level, records: Sequence[Record]) -> LevelResult:
    own = [record for record in records if record.level == level]
    counts: dict[str, Any] = {
        outcome.value: sum(record.outcome == outcome for record in own) for outcome in Outcome
    }
    passed = [record for record in own if record.outcome == Outcome.PASSED]
    return LevelResult(
        level=level,
        title=TITLES[level],
        reached=bool(passed) and not any(record.bars_the_level for record in own),
        cases=len(own),
        composed=sum(bool(record.composed) for record in passed),
        seconds=round(sum(record.seconds for record in own), 3),
        **counts,
    )


def _failure(record: Record) -> Failure:
    return Failure(**record.model_dump(include=set(Failure.model_fields)))


def _worst(records: Sequence[Record]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for record in records:
        for key, value in record.ulps.items():
            worst[key] = max(value, worst.get(key, 0.0))
    return dict(sorted(worst.items()))


def _reached(certificate: Certificate, settings: Settings) -> int | None:
    """The highest level of the ladder that is reached with all below it."""
    reached = None
    if settings.only is not None:
        return None
    for result in certificate.levels:
        if not result.reached or not isinstance(result.level, int):
            break
        reached = result.level
    return reached


def _is_reached(certificate: Certificate, chosen: Sequence[Case]) -> bool:
    if certificate.only is None:
        return all(result.reached for result in certificate.levels)
    asked = {case.id for case in chosen}
    return not any(r.bars_the_level for r in certificate.cases if r.id in asked)


def following(records: Sequence[Record]) -> Next | None:
    """The first function of the table, level by level, that has a fault; else that is lacking."""
    order = {function.name: place for place, function in enumerate(FUNCTIONS)}
    text = {function.name: function.doc for function in FUNCTIONS}

    def key(record: Record) -> tuple[int, int]:
        first = order.get(record.functions[0], len(order)) if record.functions else len(order)
        return LEVELS.index(record.level), first

    faults = [record for record in records if record.outcome in FAULTS]
    native = {
        name
        for record in records
        if record.outcome == Outcome.PASSED
        for name in record.functions
        if name not in record.composed
    }
    lacking = [
        record
        for record in records
        if (record.outcome == Outcome.UNSUPPORTED or record.composed)
        and not native.issuperset(record.functions)
    ]
    if not (faults or lacking):
        return None
    record = min(faults or lacking, key=key)
    function = record.functions[0] if record.functions else record.group
    if not faults:
        function = next(name for name in record.functions if name not in native)
    why = f"{record.outcome.value}: {record.message}"
    if not faults and record.composed:
        why = "optional: the core composes it; an own implementation would be faster"
    elif not faults:
        why = f"optional: {record.message}"
    return Next(
        function=function,
        why=why,
        specification=text.get(function, ""),
        case=record.id,
        reproducer=record.reproducer,
    )


# ---- verification --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verification:
    """What came of checking a certificate.

    Attributes:
        hash_matches: whether the certificate is as it was written.
        libraries: what is said of each native library here that is not the certificate's.
        sampled: ids of the cases that were run again.
        differences: ``id: then -> now`` of those that ended differently.
    """

    hash_matches: bool
    libraries: list[str]
    sampled: list[str]
    differences: list[str]

    @property
    def good(self) -> bool:
        return self.hash_matches and not self.libraries and not self.differences


def verify(path: Path, sample: int = 40, declared: Path | None = None) -> Verification:
    """Recomputes the hash and runs a random sample of the cases that ran again.

    Raises:
        StartError: the device cannot be launched here.
        CertificateError: the file is no certificate.
    """
    certificate = read_certificate(path)
    ran = [record for record in certificate.cases if record.outcome != Outcome.NOT_RUN]
    drawn = {record.id for record in random.SystemRandom().sample(ran, min(sample, len(ran)))}
    settings = Settings(
        device=certificate.device,
        level=certificate.level_asked,
        seed=certificate.seed,
        declared=declared,
    )
    entries: list[Declaration] = []
    if file := declarations_of(settings):
        entries = declarations.read(file)
    chosen = [case for case in load(settings.levels) if case.id in drawn]
    worker = Worker(settings.device, settings.seed, settings.levels)
    records = run(chosen, settings, worker, None)
    today = datetime.date.fromisoformat(certificate.started[:10])
    differences = []
    for record in ran:
        if record.id not in drawn:
            continue
        now: Outcome | str = "no such case in this suite"
        if record.id in records:
            now = declarations.apply(records[record.id], entries, today).outcome
        if now != record.outcome:
            differences.append(f"{record.id}: {record.outcome} -> {now}")
    return Verification(
        hash_matches=certificate.hashed() == certificate.content_hash,
        libraries=_other_libraries(certificate.libraries, worker.ready["libraries"]),
        sampled=sorted(drawn),
        differences=differences,
    )


def _other_libraries(certified: dict[str, str], here: dict[str, str]) -> list[str]:
    """Another build may answer otherwise in what the sample does not show."""
    return [
        f"the {name}'s library here is {found}, the certificate is about "
        f"{certified.get(name, 'one that it does not name')}: certify this build"
        for name, found in here.items()
        if certified.get(name) != found
    ]


__all__ = ["Settings", "StartError", "Verification", "certify", "verify"]
