"""The judge is judged: chips with one fault each, all of which the suite must catch.

The native library seeds one fault at a time into a good chip's table (the CPU chip's); ``plugin``
describes it under the name ``mutant``, with the fault in ``CHIPSET_MUTANT_FAULT`` and the path of
the good chip's library in ``CHIPSET_MUTANT_GOOD``. :func:`self_test` runs, for every mutant, the
cases of its level that judge its functions, until one fails.
"""

from __future__ import annotations

import ctypes
import functools
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

import chipset
from chipset_conformance.case import LEVELS, Case, Level, has_cases, load
from chipset_conformance.results import FAULTS, Outcome, Record
from chipset_conformance.worker import StartError, Worker

LIBRARY = Path(__file__).with_name("lib") / "libchipset_mutants.so"
DEVICE = "mutant"
# The "faults" of the good chip, as it is and behind queues with threads of their own.
GOOD = "none"
GOOD_QUEUED = "none-asynchronous"
QUEUED_LEVELS: tuple[Level, ...] = (0, 1)
# What the good chip must pass with every seed; Performs has mutants too, but judges no numbers
# that a seed decides.
LADDER_LEVELS: tuple[Level, ...] = (0, 1, 2, 5)
# Times a case's limit: of the good chip the verdict counts, not how busy the machine is.
PATIENCE = 5
# Cases that many faults fail which they are not about: they refuse what the chip must have accepted
# before, or look at several functions.
BROAD = ("refuses/", "large/", "device/wrong-index/", "device/two-devices")
DEADLINE_S = 300.0  # for the cases of one mutant; whoever outlasts it is not caught


@chipset.hookimpl
def chipset_plugin() -> chipset.PluginDescription:
    """Describes the mutant plugin; opens nothing."""
    return chipset.PluginDescription(
        name=DEVICE,
        library=LIBRARY,
        version="0",
        emulated=True,
        options={"devices": "2", "memory_mib": "1024"},
    )


plugin = sys.modules[__name__]


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        name: unique, ``gemm-drops-bias``.
        level: whose cases must catch it.
        functions: of the table that the fault is in; the first names it.
        fault: what is wrong, a sentence.
    """

    name: str
    level: Level
    functions: tuple[str, ...]
    fault: str


class Verdict(BaseModel):
    """What became of a mutant: the case that caught it, or nothing."""

    name: str
    level: Level
    functions: list[str]
    fault: str
    case: str | None = None
    how: Outcome | None = None
    cases_run: int = 0
    seconds: float = 0.0


class SelfTest(BaseModel):
    """The document of ``chipset certify --self-test --json``.

    Attributes:
        mutants, caught: counts.
        missed: names of the mutants that no case of their level caught.
        false_alarms: cases that the good chip failed, with the seed.
        not_judged: mutants of levels that the suite has no cases for yet.
    """

    mutants: int
    caught: int
    missed: list[str]
    false_alarms: list[str]
    not_judged: list[str]
    seeds: list[int]
    levels: list[Level]
    seconds: float
    verdicts: list[Verdict]


@functools.cache
def mutants() -> tuple[Mutant, ...]:
    """Every mutant, in the order of the native list."""
    library = ctypes.CDLL(str(LIBRARY))
    library.chipset_mutants.restype = ctypes.c_char_p
    rows = [line.split("\t") for line in library.chipset_mutants().decode().splitlines()]
    return tuple(
        Mutant(name, int(level) if level.isdigit() else level, tuple(functions.split()), fault)
        for name, level, functions, fault in rows
    )


def cases_for(mutant: Mutant) -> list[Case]:
    """The cases that may catch it: with words of its name first, about many things last.

    So that the page shows the case that is about the fault, and that it has one.
    """
    words = set(re.split(r"[-/_]", mutant.name))

    def unlike(case: Case) -> tuple[bool, int]:
        return case.id.startswith(BROAD), -len(words & set(re.split(r"[-/_]", case.id)))

    chosen = [c for c in load([mutant.level]) if set(c.functions) & set(mutant.functions)]
    return sorted(chosen, key=unlike)


def environment(fault: str) -> dict[str, str]:
    """What a worker needs to launch the mutant with this fault."""
    from chipset.registry import find_plugins, library_path

    good = find_plugins()["cpu"].description
    if good is None:
        raise StartError("the self-test needs the CPU chip; 'chipset devices' says what is wrong")
    return {
        "CHIPSET_PLUGINS": __name__,
        "CHIPSET_MUTANT_FAULT": fault,
        "CHIPSET_MUTANT_GOOD": library_path(good),
    }


def judge(mutant: Mutant, seed: int) -> Verdict:
    """Runs its cases until one fails."""
    started = time.perf_counter()
    verdict = Verdict(
        name=mutant.name,
        level=mutant.level,
        functions=list(mutant.functions),
        fault=mutant.fault,
    )
    try:
        record = _first_fault(cases_for(mutant), mutant, seed, verdict)
    except StartError:  # it does not even launch: a worker of any run would say so
        verdict.case, verdict.how = "the launch of the device", Outcome.CRASHED
    else:
        if record is not None:
            verdict.case, verdict.how = record.id, record.outcome
    verdict.seconds = round(time.perf_counter() - started, 3)
    return verdict


def _first_fault(
    chosen: Sequence[Case], mutant: Mutant, seed: int, verdict: Verdict
) -> Record | None:
    worker = Worker(DEVICE, seed, [mutant.level], environment(mutant.name))
    deadline = time.monotonic() + DEADLINE_S
    try:
        for case in chosen:
            record, usable = worker.run(case)
            verdict.cases_run += 1
            if _is_fault(record):
                return record
            if not usable or time.monotonic() > deadline:
                return None
    finally:
        worker.kill()
        worker.close()
    return None


def _is_fault(record: Record) -> bool:
    """Also a mandatory call that is declined, of a mutant as of the good chip."""
    declined = record.mandatory and record.outcome == Outcome.UNSUPPORTED
    return declined or record.outcome in FAULTS


def alarms(levels: Sequence[Level], fault: str, seed: int) -> list[str]:
    """The cases that the good chip fails."""
    worker = Worker(DEVICE, seed, list(levels), environment(fault))
    found = []
    for case in load(levels):
        record, usable = worker.run(case, PATIENCE * case.timeout_s)
        if _is_fault(record):
            found.append(f"{case.id} with seed {seed} on {fault}: {record.message}")
        if not usable:
            worker.kill()
            worker.close()
            worker = Worker(DEVICE, seed, list(levels), environment(fault))
    worker.close()
    return found


def self_test(
    only: str = "",
    seeds: Sequence[int] = (0,),
    jobs: int = 2,
    progress: Callable[[str, int, int], None] | None = None,
    levels: Sequence[Level] = LEVELS,
) -> SelfTest:
    """Judges every mutant of the levels whose name contains ``only``, and the good chip with every
    seed.

    Raises:
        ValueError: no mutant of these levels has such a name.
        StartError: the good chip does not launch, so that no mutant that does not is to blame.
    """
    started = time.perf_counter()
    asked = [m for m in mutants() if only in m.name and m.level in levels]
    if not asked:
        raise ValueError(f"no mutant's name contains '{only}' at levels {list(levels)}")
    ladder = [level for level in LADDER_LEVELS if level in levels]
    queued = [level for level in QUEUED_LEVELS if level in levels]
    judged = [m for m in asked if has_cases(m.level)]
    Worker(DEVICE, seeds[0], [0], environment(GOOD)).close()
    verdicts: dict[str, Verdict] = {}
    false_alarms: list[str] = []
    work: list[Callable[[], str]] = []

    def about_mutant(mutant: Mutant) -> str:
        verdicts[mutant.name] = judge(mutant, seeds[0])
        return mutant.name

    def about_good(levels: Sequence[Level], fault: str, seed: int) -> str:
        false_alarms.extend(alarms(levels, fault, seed))
        return f"the good chip, seed {seed}"

    # Long ones first, so that no thread is left with one at the end.
    for seed in seeds if not only else ():
        work.append(functools.partial(about_good, ladder, GOOD, seed))
        work.append(functools.partial(about_good, queued, GOOD_QUEUED, seed))
    work += [functools.partial(about_mutant, mutant) for mutant in judged]
    _in_threads(work, jobs, progress)
    ordered = [verdicts[m.name] for m in judged]
    return SelfTest(
        mutants=len(asked),
        caught=sum(verdict.case is not None for verdict in ordered),
        missed=[verdict.name for verdict in ordered if verdict.case is None],
        false_alarms=sorted(false_alarms),
        not_judged=[m.name for m in asked if m not in judged],
        seeds=list(seeds),
        levels=list(levels),
        seconds=round(time.perf_counter() - started, 3),
        verdicts=ordered,
    )


def _in_threads(
    work: Sequence[Callable[[], str]],
    jobs: int,
    progress: Callable[[str, int, int], None] | None,
) -> None:
    waiting: queue.SimpleQueue[Callable[[], str]] = queue.SimpleQueue()
    for item in work:
        waiting.put(item)
    done: list[str] = []
    faults: list[BaseException] = []

    def drain() -> None:
        try:
            while True:
                done.append(waiting.get_nowait()())
                if progress is not None:
                    progress(done[-1], len(done), len(work))
        except queue.Empty:
            pass
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=drain) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def document(result: SelfTest) -> str:
    """The page that lists what caught each mutant."""
    lines = [
        "# Mutants",
        "",
        "Written by `chipset certify --self-test --write docs/mutants.md`. Each row is a chip with "
        "one fault: a good chip whose table was changed in one place "
        "(`conformance/native`). The suite is trusted because it catches them.",
        "",
        f"{result.mutants} mutants, {result.caught} caught, {len(result.missed)} missed, "
        f"{len(result.not_judged)} of levels without cases yet; "
        f"{len(result.false_alarms)} false alarms in {len(result.seeds)} seeds of levels "
        f"{', '.join(str(level) for level in LADDER_LEVELS if level in result.levels)}.",
        "",
        "| mutant | level | function | fault | caught by |",
        "|---|---|---|---|---|",
    ]
    for verdict in result.verdicts:
        caught = f"`{verdict.case}`" if verdict.case else "**missed**"
        lines.append(
            f"| `{verdict.name}` | {verdict.level} | `{verdict.functions[0]}` | {verdict.fault} "
            f"| {caught} |"
        )
    lines += [f"| `{name}` | | | | no cases yet |" for name in result.not_judged]
    return "\n".join([*lines, ""])
