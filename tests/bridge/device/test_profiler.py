"""The profiler shows operators of a chip, and the trace shows calls and fallbacks."""

from __future__ import annotations

import json
from pathlib import Path

import torch


def test_operators_appear(chip: torch.device) -> None:
    x = torch.randn(32, 32, device=chip)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        (x @ x).relu()
    names = {event.key for event in profile.key_averages()}
    assert {"aten::mm", "aten::relu"} <= names
    assert "aten::mm" in profile.key_averages().table()


def test_memory_is_reported(chip: torch.device) -> None:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        kept = torch.empty(1 << 20, dtype=torch.uint8, device=chip)
    assert kept.numel() == 1 << 20
    assert max(event.device_memory_usage for event in profile.key_averages()) >= 1 << 20


def test_record_function_and_chrome_trace(chip: torch.device, tmp_path: Path) -> None:
    with torch.profiler.profile() as profile, torch.profiler.record_function("step"):
        torch.ones(3, device=chip) + 1
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event.get("name") == "step" for event in events)


def test_fallbacks_are_in_the_core_s_trace(run_python, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    done = run_python(
        "import chipset; d = chipset.select('cpu').torch; import torch\n"
        "torch.special.airy_ai(torch.ones(3, device=d)) + 1",
        env={"CHIPSET_TRACE": str(file)},
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    events = document["traceEvents"] if isinstance(document, dict) else document
    assert any("airy_ai" in event.get("name", "") for event in events)
    assert any("pointwise" in event.get("name", "") for event in events)


def test_device_time_of_operators(chip: torch.device) -> None:
    x = torch.randn(200, 200, device=chip)
    with torch.autograd.profiler.profile(use_device="chip", use_kineto=False) as profile:
        (x @ x).relu()
        torch.chip.synchronize()
    times = {event.key: event.device_time_total for event in profile.key_averages()}
    assert times["aten::mm"] > 0
