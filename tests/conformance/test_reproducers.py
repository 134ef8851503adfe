"""The script that a failure carries fails as the report says, and passes on the good chip."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from chipset_conformance import mutants
from chipset_conformance.case import load
from chipset_conformance.worker import Worker

ELEMENT = ""  # the script names the report's first wrong element
# A mutant of each way in which scripts fail, with a case that catches it and what the script says.
QUICK = {
    "memory-filled": ("fill-past-the-end", "memory/fill/every-size-and-offset", "mem_fill"),
    "float-out-of-bounds": ("gemm-drops-bias", "gemm/f16/scalars", ELEMENT),
    "not-refused": ("softmax-over-the-last", "refuses/softmax/dim", "answered OK, not INVALID"),
}
SLOW = {
    "stream": (
        "stream-destroy-drops-work",
        "stream/destroy-waits-for-the-work",
        "mem_fill before stream_destroy",
    ),
    "event": ("event-keeps-its-first-record", "event/recording-again-replaces", "CaseFailure"),
    "integer": ("pointwise-bitwise-not-of-bool", "pointwise/bitwise_not/bool/values", ELEMENT),
    "refused-wrongly": ("pointwise-refuses-rank-0", "pointwise/copy/bool/ranks", "rank 0"),
    "not-a-number": ("scan-drops-nan", "scan/max/f16/values", ELEMENT),
    "reduce": ("reduce-skips-last-element", "reduce/sum/f16/dims", ELEMENT),
    "gather": ("gather-ignores-index-strides", "gather/bool/layouts", ELEMENT),
    "scatter": ("scatter-negative-is-zero", "scatter/set/bool/kinds", ELEMENT),
    "attention": ("attention-softcap-ignored", "attention/f16/scores", ELEMENT),
    "norm": ("norm-weight-ignored", "norm/f16/lengths", ELEMENT),
    "optimizer": ("adamw-skip-ignored", "adamw/f16/skipped", "of param_0 is"),
    "quantized": ("gemm-quantized-ignores-x-strides", "gemm_quantized/f32/i8", ELEMENT),
    "sort": ("sort-nan-first", "sort/f16/ties", ELEMENT),
    "random": ("random-mask-ignored", "random/bits/u8/counters", ELEMENT),
    "collective": ("all-reduce-one-short", "one-process/all_reduce/f32", "CaseFailure"),
}
PARAMETERS = [
    *(pytest.param(*values, id=name) for name, values in QUICK.items()),
    *(pytest.param(*values, id=name, marks=pytest.mark.slow) for name, values in SLOW.items()),
]


@pytest.mark.parametrize(("name", "case_id", "said"), PARAMETERS)
def test_the_script_of_a_failure(
    name: str, case_id: str, said: str, run_python: Callable[..., Any]
) -> None:
    mutant = next(m for m in mutants.mutants() if m.name == name)
    case = next(c for c in load([mutant.level]) if c.id == case_id)
    worker = Worker(mutants.DEVICE, 0, [mutant.level], mutants.environment(name))
    try:
        record, _ = worker.run(case)
    finally:
        worker.kill()
        worker.close()
    assert record.outcome == "failed", record
    script = record.reproducer
    assert len(script.splitlines()) <= 25, script
    failed = run_python(script, env=mutants.environment(name))
    assert failed.returncode == 1, script + failed.stdout
    if said == ELEMENT:
        found = re.search(r"^  (\w+\[.*?\]) = ", record.message, re.MULTILINE)
        assert found, record.message
        said = f"AssertionError: {found[1]} is "
    assert said in failed.stderr, script + failed.stderr
    good = mutants.GOOD_QUEUED if mutant.level == 1 else mutants.GOOD
    passed = run_python(script, env=mutants.environment(good))
    assert passed.returncode == 0, script + passed.stderr
