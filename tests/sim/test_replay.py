"""Every finding, also one of the checked layer, comes with a command that repeats the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

# Prints what the schedule and the seed decide: which events have passed when they are asked for,
# and which results an injected fault strikes. Then a race, which the checked layer refuses.
PROGRAM = """
import ctypes, json
import numpy as np
import chipset, chipset_sim
from chipset import _runtime as rt
from chipset.driver import Driver

dev = chipset.select("sim").driver
streams = [rt.pool_stream(0, 0, 0) for _ in range(3)]

def event(stream):
    out = ctypes.c_uint64()
    dev.invoke("event_create", 0, 1, ctypes.addressof(out))
    dev.invoke("event_record", out.value, stream)
    return out.value

passed = []
buffers = [dev.empty((16,)) for _ in streams]
for _ in range(8):
    events = []
    for buffer, stream in zip(buffers, streams):
        dev.invoke("mem_fill", stream, buffer.address, 0, 64)
        events.append(event(stream))
    passed += [dev.status("event_query", e, 0) for e in events]
    dev.synchronize()
    for e in events:
        dev.invoke("event_destroy", e)

chipset_sim.inject("pointwise:p0.5=BITFLIP")
flipped = []
for _ in range(8):
    y = dev.empty((64,))
    dev.pointwise("FILL", y, params=[1.0])
    flipped.append(np.flatnonzero(y.numpy() != 1).tolist())
chipset_sim.clear_injections()

other = Driver(0)
other.stream = streams[0]
dev.pointwise("FILL", y, params=[1.0])
try:
    other.pointwise("FILL", y, params=[2.0])
except rt.Error as error:
    refused = str(error)
print(json.dumps({
    "passed": passed, "flipped": flipped, "refused": refused, "replay": chipset_sim.replay(),
    "findings": [[f.severity, f.rule, f.text, f.replay] for f in chipset_sim.findings()],
}))
"""
# What a shell does with a command; the environment is the test's.
SHELL = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1], shell=True).returncode)"


def run_and_replay(run_python: Any, folder: Path, options: str) -> tuple[Any, Any]:
    """What the program printed, and what the command printed that its finding names."""
    file = folder / "a program.py"
    file.write_text(PROGRAM)
    first = run_python(str(file), "with an argument", env={"CHIPSET_SIM": options})
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    [[severity, rule, text, replay]] = found["findings"]
    assert (severity, rule) == ("fault", "ORD-001") and "nothing orders the two" in text
    assert f"[CHIPSET_SIM={found['replay']}]" in found["refused"]
    assert replay.startswith(f"CHIPSET_SIM={found['replay']} ") and "with an argument" in replay
    assert f"  replay: {replay}" in first.stderr
    again = run_python("-c", SHELL, replay, env={"CHIPSET_SIM": "mode=eager,seed=99"})
    assert again.returncode == 0, again.stderr
    return found, json.loads(again.stdout)


@pytest.mark.parametrize("options", ["", "mode=eager,devices=2", "mode=random"])
def test_the_command_of_a_finding_repeats_the_run(options, run_python, tmp_path):
    found, again = run_and_replay(run_python, tmp_path, options)
    assert found == again
    assert any(found["flipped"]) and not all(found["flipped"])
    assert all(name in found["replay"] for name in ("mode=", "seed="))


def test_the_command_repeats_options_of_a_file(run_python, tmp_path):
    file = tmp_path / "sim.toml"
    file.write_text('mode = "random"\ndevices = 2\n')
    found, again = run_and_replay(run_python, tmp_path, f"{file},polls=20")
    assert found == again
    assert found["replay"].startswith(f"{file},polls=20,seed=")


def test_with_workers_the_findings_repeat_but_not_the_order(run_python, tmp_path):
    """Which thread comes first is the operating system's; what breaks a rule does so anyhow."""
    found, again = run_and_replay(run_python, tmp_path, "workers=1,delay_us=200")
    del found["passed"], again["passed"]
    assert found == again


@pytest.mark.parametrize("schedule", ["mode=eager", "mode=latest", "mode=random", "workers=1"])
def test_a_race_is_one_report_everywhere(schedule, on_sim, tmp_path):
    report = tmp_path / "report.jsonl"
    done = on_sim(
        "y = dev.empty((4,)); other = second()\ndev.pointwise('FILL', y, params=[1])\n"
        "try:\n    other.pointwise('FILL', y, params=[2])\nexcept rt.Error: pass\n",
        f"report={report},exitcode=86,leaks=0,seed=5,{schedule}",
    )
    assert done.returncode == 86
    assert done.stderr.count("ORD-001") == 1, done.stderr
    [line] = report.read_text().splitlines()
    finding = json.loads(line)
    assert finding["rule"] == "ORD-001"
    assert "seed=5" in finding["replay"] and schedule in finding["replay"]
