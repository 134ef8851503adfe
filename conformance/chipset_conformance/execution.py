"""Runs one case in this process and says how it ended."""

from __future__ import annotations

import time
import traceback

import chipset
from chipset import _runtime
from chipset._interface import FUNCTIONS, Status
from chipset.device import Device
from chipset_conformance.case import Case, CaseFailure, NotRun, Unsupported, load
from chipset_conformance.context import Context
from chipset_conformance.results import Outcome, Record

_REQUIRED = {function.name for function in FUNCTIONS if function.required}
_TRACE_LINES = 12


def execute(device: Device, case: Case, seed: int) -> Record:
    """Runs the case; never raises for what the chip does."""
    record = blank(case)
    started = time.perf_counter()
    _runtime.reset_composed_counts()
    context = Context(device, case, seed)
    try:
        _need_functions(context)
        case.run(context)
        context.close()
    except Unsupported as answer:
        record.outcome, record.message = Outcome.UNSUPPORTED, str(answer)
    except NotRun as reason:
        record.outcome, record.message = Outcome.NOT_RUN, str(reason)
    except CaseFailure as failure:
        record.outcome, record.message = Outcome.FAILED, str(failure)
        record.reproducer = failure.reproducer or script(device, case, seed)
    except _runtime.Error as error:
        if error.status == Status.UNSUPPORTED:
            record.outcome, record.message = Outcome.UNSUPPORTED, str(error)
        else:
            record.outcome, record.message = Outcome.FAILED, f"a call failed: {error}"
            record.reproducer = script(device, case, seed)
    except Exception as error:
        trace = "".join(traceback.format_exception(error)[-_TRACE_LINES:])
        record.outcome, record.message = Outcome.FAILED, f"the case raised {trace}"
        record.reproducer = script(device, case, seed)
    finally:
        context.abandon()
    record.seconds = round(time.perf_counter() - started, 4)
    record.notes, record.ulps = context.notes, context.ulps
    record.measurements, record.counts = context.measurements, context.counts
    composed = {name.rpartition(".")[2] for name in _runtime.composed_counts()}
    record.composed = sorted(composed & set(case.functions))
    return record


def blank(case: Case, outcome: Outcome = Outcome.PASSED, message: str = "") -> Record:
    """A record of the case with nothing measured."""
    return Record(
        id=case.id,
        level=case.level,
        group=case.group,
        functions=list(case.functions),
        dtype=case.dtype,
        rule=case.rule,
        mandatory=case.mandatory,
        outcome=outcome,
        message=message,
    )


def _need_functions(context: Context) -> None:
    """What the table lacks is not supported; a required function that it lacks is a fault."""
    for name in context.case.functions:
        if context.chip.has(name):
            continue
        if name in _REQUIRED:
            raise CaseFailure(f"the required function {name} is missing (VER-003)")
        raise Unsupported(f"the table has no {name}")


def is_healthy(device: Device) -> bool:
    """Whether the device still computes after a failed case; if not, its process is replaced."""
    chip = device.driver
    try:
        memory = chip.empty((64,))
        chip.invoke("mem_fill", chip.stream, memory.address, 0, 256)
        return bool((memory.numpy() == 0).all())
    except _runtime.Error:
        return False


def script(device: Device | str, case: Case, seed: int) -> str:
    """A script that runs the case in its own process, so that a debugger sees the fault."""
    return (
        "from chipset_conformance import reproduce\n\n"
        f"# {case.id}: judges {', '.join(case.functions) or 'a model'}"
        f"{f', rule {case.rule}' if case.rule else ''}\n"
        f'reproduce("{device}", "{case.id}", seed={seed})\n'
    )


def reproduce(device: str, case_id: str, seed: int = 0) -> None:
    """Runs one case in this process, in the device's own environment.

    Raises:
        CaseFailure: or whatever else the case raises; nothing if it passes.
        ValueError: there is no such case.
    """
    case = find(case_id)
    launched = chipset.select(device)
    context = Context(launched, case, seed)
    try:
        _need_functions(context)
        case.run(context)
        context.close()
    finally:
        context.abandon()
    print(f"{case_id} passed on {device} with seed {seed}")


def find(case_id: str) -> Case:
    """The case with this id.

    Raises:
        ValueError: there is none.
    """
    from chipset_conformance.case import LEVELS

    for level in LEVELS:
        for case in load([level]):
            if case.id == case_id:
                return case
    raise ValueError(f"there is no case '{case_id}'")
