"""Device rows of torch.profiler: the calls that a chip ran, when, and for which operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def rows(profiled: profile) -> list:
    return [e for e in profiled.events() if e.device_type == DeviceType.PrivateUse1]


@pytest.fixture
def product(chip: torch.device):
    """A product that takes a while, and what is left after it."""
    a, b = (torch.randn(300, 300, device=chip) for _ in range(2))
    (a @ b).relu()  # whatever is made once is made before the profile
    torch.chip.synchronize()
    return lambda: (a @ b).relu()


def test_rows_have_names_and_durations(chip, product) -> None:
    with profile(activities=BOTH) as profiled:
        product()
    found = {row.name: row for row in rows(profiled)}
    assert {"gemm", "pointwise"} <= set(found)
    assert all(row.time_range.elapsed_us() > 0 for row in found.values())
    assert all(row.device_index == chip.index for row in found.values())
    assert found["gemm"].time_range.end <= found["pointwise"].time_range.start + 1


def test_their_time_is_the_operators(chip, product) -> None:
    with profile(activities=BOTH) as profiled:
        product()
    operators = {e.key: e for e in profiled.key_averages() if e.device_type == DeviceType.CPU}
    took = {row.name: row.time_range.elapsed_us() for row in rows(profiled)}
    assert operators["aten::mm"].self_device_time_total == pytest.approx(took["gemm"], abs=1)
    assert operators["aten::relu"].self_device_time_total == pytest.approx(took["pointwise"], abs=1)
    assert "CHIP" in profiled.key_averages().table(sort_by="self_device_time_total").upper()


def test_one_row_for_each_call(chip, product) -> None:
    with profile(activities=BOTH) as profiled:
        for _ in range(5):
            product()
    assert [row.name for row in rows(profiled)] == ["gemm", "pointwise"] * 5


def test_more_rows_than_are_kept_waiting(chip) -> None:
    x = torch.zeros(4, device=chip)
    with profile(activities=BOTH) as profiled:
        for _ in range(5000):
            x.add_(1)
    assert len([row for row in rows(profiled) if row.name == "pointwise"]) == 5000
    assert x.tolist() == [5000] * 4


def test_backward_and_a_copy(chip) -> None:
    w = torch.randn(64, 64, device=chip, requires_grad=True)
    with profile(activities=BOTH) as profiled:
        (w @ torch.ones(64, 64).to(chip)).sum().backward()
        w.grad.cpu()
    names = [row.name for row in rows(profiled)]
    assert names.count("gemm") == 2 and "reduce" in names
    assert names.count("mem_copy") == 2


@pytest.mark.parametrize("form", ["fused", "foreach"])
def test_calls_of_an_optimizer(chip, form: str) -> None:
    """What docs/decisions/0015 says of the two: one call, or eight for each parameter."""
    weights = [torch.nn.Parameter(torch.randn(5, n, device=chip)) for n in (3, 4, 6)]
    optimizer = torch.optim.AdamW(weights, **{form: True})
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()  # makes its state
    with profile(activities=BOTH) as profiled:
        optimizer.step()
    names = [row.name for row in rows(profiled)]
    want = {"fused": (1, 3), "foreach": (0, 24)}[form]
    assert (names.count("adamw"), names.count("pointwise")) == want


def test_streams_have_their_own_rows(chip, product) -> None:
    side = torch.chip.Stream()
    with profile(activities=BOTH) as profiled:
        product()
        side.wait_stream(torch.chip.current_stream())
        with side:
            product()
    torch.chip.synchronize()
    lanes = [row.device_resource_id for row in rows(profiled) if row.name == "gemm"]
    assert len(lanes) == 2 and lanes[0] != lanes[1]


def test_chrome_trace(chip, product, tmp_path: Path) -> None:
    with profile(activities=BOTH) as profiled, record_function("a step"):
        product()
    file = tmp_path / "trace.json"
    profiled.export_chrome_trace(str(file))
    events = json.loads(file.read_text())["traceEvents"]
    kernels = {e["name"]: e for e in events if e.get("cat") == "kernel"}
    assert {"gemm", "pointwise"} <= set(kernels)
    for event in kernels.values():
        assert event["ph"] == "X" and event["dur"] > 0
        assert event["args"]["device"] == chip.index and event["args"]["stream"] == 0
    # Within the step, but for the clocks' difference: the two are compared once.
    (step,) = (e for e in events if e["name"] == "a step" and e.get("cat") == "user_annotation")
    assert step["ts"] - 1000 < kernels["gemm"]["ts"] < step["ts"] + step["dur"] + 1000


def test_without_the_chips_activity_there_are_no_rows(chip, product) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        product()
    assert rows(profiled) == []


def test_profiles_one_after_the_other(chip, product) -> None:
    """Each has its own rows, and between them the calls are not timed."""
    live = torch.chip.memory_allocated()
    for _ in range(3):
        with profile(activities=BOTH) as profiled:
            product()
        product()
        assert [row.name for row in rows(profiled)] == ["gemm", "pointwise"]
    assert torch.chip.memory_allocated() == live


def test_a_failing_call_within_a_profile(chip, product) -> None:
    """A refused call has no row; the profile and the chip go on."""
    with profile(activities=BOTH) as profiled:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 50, dtype=torch.uint8, device=chip)
        with pytest.raises(RuntimeError):
            torch.ones(2, 3, device=chip) @ torch.ones(2, 3, device=chip)
        torch.special.airy_ai(torch.ones(3, device=chip))  # on the host
        product()
    names = [row.name for row in rows(profiled)]
    assert names.count("gemm") == 1


def test_schedule(chip, product) -> None:
    """Only the steps that the schedule names are recorded."""
    seen = []
    with profile(
        activities=BOTH,
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda p: seen.append([row.name for row in rows(p)]),
    ) as profiled:
        for _ in range(6):
            product()
            profiled.step()
    assert seen == [["gemm", "pointwise"] * 2]
