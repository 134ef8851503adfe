"""Devices, memory, streams, events and capture of the CPU chip."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

import chipset
from chipset._interface import (
    Capability,
    CopyKind,
    DeviceInfo,
    Dtype,
    EventFlag,
    PointwiseOp,
    Status,
)
from chipset._runtime import Error


@pytest.fixture(scope="module")
def chip() -> Any:
    return chipset.select("cpu:0").driver


def handle(chip: Any, function: str, *arguments: Any) -> int:
    out = ctypes.c_void_p()
    chip.invoke(function, *arguments, ctypes.addressof(out))
    assert out.value is not None
    return out.value


def test_the_device_describes_itself(chip: Any) -> None:
    info = DeviceInfo(struct_size=ctypes.sizeof(DeviceInfo))
    chip.invoke("device_info", 0, ctypes.addressof(info))
    assert info.capabilities & (Capability.UNIFIED | Capability.CAPTURE | Capability.INLINE)
    assert info.name and info.alignment >= 64 and info.total_memory > 0
    with pytest.raises(Error, match="no device 7"):
        chip.invoke("device_info", 7, ctypes.addressof(info))
    short = DeviceInfo(struct_size=8)  # an older caller: only what fits is written (VER-002)
    chip.invoke("device_info", 0, ctypes.addressof(short))
    assert short.struct_size == 8 and short.compute_units > 0 and short.name == b""


def test_memory_is_aligned_counted_and_refused_beyond_the_limit(chip: Any) -> None:
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    chip.invoke("device_memory", 0, ctypes.addressof(free), ctypes.addressof(total))
    assert 0 < free.value <= total.value
    for size in (1, 100, 5 << 20):
        pointer = handle(chip, "mem_alloc", 0, 0, size)
        assert pointer % 64 == 0
        chip.invoke("mem_free", 0, pointer)
    out = ctypes.c_void_p()
    assert chip.status("mem_alloc", 0, 0, total.value + 1, ctypes.addressof(out)) == 3
    chip.invoke("mem_alloc", 0, 0, 0, ctypes.addressof(out))
    assert out.value is None
    chip.invoke("mem_free", 0, None)


def test_events_measure_and_refuse(chip: Any) -> None:
    plain = handle(chip, "event_create", 0, 0)
    start = handle(chip, "event_create", 0, int(EventFlag.TIMING))
    end = handle(chip, "event_create", 0, int(EventFlag.TIMING))
    milliseconds = ctypes.c_double(-1)
    address = ctypes.addressof(milliseconds)
    chip.invoke("event_query", plain, 0)  # never recorded: passed (EVT-001)
    assert chip.status("event_elapsed", start, end, address) == Status.INVALID
    chip.invoke("event_record", start, chip.stream)
    chip.invoke("event_record", end, chip.stream)
    chip.invoke("event_elapsed", start, end, address)
    assert milliseconds.value >= 0
    assert chip.status("event_elapsed", plain, end, address) == Status.INVALID
    for event in (plain, start, end):
        chip.invoke("event_destroy", event)


def test_a_captured_sequence_replays_with_its_own_copies(chip: Any) -> None:
    stream = handle(chip, "stream_create", 0, 0)
    a, b = chip.array(np.ones(1000, np.float32)), chip.array(np.full(1000, 2, np.float32))
    total = chip.array(np.zeros(1, np.float32))
    chip.invoke("capture_begin", stream)
    args = chip.arguments(
        "pointwise", op=PointwiseOp.ADD, compute_dtype=Dtype.F32, num_inputs=2, output=a,
        input=[a, b], param=[1],
    )  # fmt: skip
    chip.invoke("pointwise", stream, ctypes.addressof(args))
    ctypes.memset(ctypes.addressof(args), 0xFF, ctypes.sizeof(args))  # ours no more
    reduce_args = chip.arguments(
        "reduce", op=0, compute_dtype=Dtype.F32, dims=1, input=a, output=total
    )
    chip.invoke("reduce", stream, ctypes.addressof(reduce_args))
    graph = handle(chip, "capture_end", stream)
    assert (a.numpy() == 1).all(), "capturing runs nothing"
    for count in range(1, 4):
        chip.invoke("capture_replay", graph, stream)
        assert (a.numpy() == 1 + 2 * count).all()
        assert total.numpy()[0] == 1000 * (1 + 2 * count)
    chip.invoke("graph_destroy", graph)
    chip.invoke("stream_destroy", stream)


def test_a_capture_spreads_over_streams_that_wait_for_its_events(chip: Any) -> None:
    first, second = (handle(chip, "stream_create", 0, 0) for _ in range(2))
    event = handle(chip, "event_create", 0, 0)
    a = chip.array(np.zeros(8, np.uint8))
    chip.invoke("capture_begin", first)
    chip.invoke("event_record", event, first)
    chip.invoke("stream_wait", second, event)
    chip.invoke("mem_fill", second, a.address, 7, 8)
    assert chip.status("capture_end", second, ctypes.addressof(ctypes.c_void_p())) == 1
    graph = handle(chip, "capture_end", first)
    chip.invoke("event_destroy", event)
    assert (a.numpy() == 0).all()
    chip.invoke("capture_replay", graph, second)
    assert (a.numpy() == 7).all()
    chip.invoke("mem_fill", second, a.address, 1, 8)  # runs again, the capture is over
    assert (a.numpy() == 1).all()
    chip.invoke("graph_destroy", graph)
    for stream in (first, second):
        chip.invoke("stream_destroy", stream)


def test_what_cannot_be_captured_spoils_the_capture(chip: Any) -> None:
    stream = handle(chip, "stream_create", 0, 0)
    a = chip.array(np.zeros(8, np.uint8))
    host = np.ones(8, np.uint8)
    chip.invoke("capture_begin", stream)
    with pytest.raises(Error, match="captured"):
        chip.invoke(
            "mem_copy", stream, a.address, host.ctypes.data, 8, int(CopyKind.HOST_TO_DEVICE)
        )
    out = ctypes.c_void_p()
    assert chip.status("capture_end", stream, ctypes.addressof(out)) == Status.INVALID
    assert out.value is None
    assert chip.status("capture_end", stream, ctypes.addressof(out)) == Status.INVALID
    chip.invoke("stream_sync", stream)
    assert (a.numpy() == 0).all()
    chip.invoke("stream_destroy", stream)


def test_a_graph_replayed_into_a_capture_outlives_itself(chip: Any) -> None:
    stream = handle(chip, "stream_create", 0, 0)
    a = chip.array(np.zeros(4, np.float32))
    b = chip.array(np.ones(4, np.float32))
    args = chip.arguments(
        "pointwise", op=PointwiseOp.ADD, compute_dtype=Dtype.F32, num_inputs=2, output=a,
        input=[a, b], param=[1],
    )  # fmt: skip
    chip.invoke("capture_begin", stream)
    chip.invoke("pointwise", stream, ctypes.addressof(args))
    inner = handle(chip, "capture_end", stream)
    chip.invoke("capture_begin", stream)
    chip.invoke("capture_replay", inner, stream)
    chip.invoke("capture_replay", inner, stream)
    outer = handle(chip, "capture_end", stream)
    chip.invoke("graph_destroy", inner)
    chip.invoke("capture_replay", outer, stream)
    assert (a.numpy() == 2).all()
    chip.invoke("graph_destroy", outer)
    chip.invoke("stream_destroy", stream)


def test_host_threads_may_call_at_once(chip: Any) -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        stream = handle(chip, "stream_create", 0, 0)
        x = np.random.default_rng(seed).standard_normal(200_000).astype(np.float32)
        a, out = chip.array(x), chip.empty(x.shape)
        for _ in range(20):
            args = chip.arguments(
                "pointwise", op=PointwiseOp.MUL, compute_dtype=Dtype.F32, num_inputs=2,
                output=out, input=[a, a],
            )  # fmt: skip
            chip.invoke("pointwise", stream, ctypes.addressof(args))
            if not np.array_equal(out.numpy(), x * x):
                failures.append(f"thread {seed}")
        chip.invoke("stream_destroy", stream)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_thread_pool_works_in_a_forked_child(run_python: Any) -> None:
    code = """
import os, numpy as np, chipset
chip = chipset.select("cpu:0").driver
x = np.ones(1 << 20, np.float32)
a = chip.array(x)
chip.pointwise("ADD", a, a, a)
child = os.fork()
if child == 0:
    chip.pointwise("ADD", a, a, a)
    os._exit(0 if (a.numpy() == 4).all() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert (a.numpy() == 2).all() or (a.numpy() == 4).all()
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_several_devices_share_the_host(run_python: Any) -> None:
    code = """
import ctypes, numpy as np, chipset
one = chipset.select("cpu:1").driver
assert one.local == 1
a = one.array(np.arange(4.0))
b = one.empty((4,), a.dtype)
one.invoke("mem_copy_peer", one.stream, b.address, a.address, 0, 32)
assert (b.numpy() == np.arange(4.0)).all()
"""
    done = run_python(code, env={"CHIPSET_CPU_DEVICES": "2"})
    assert done.returncode == 0, done.stderr


def test_missing_arguments_are_faults_not_crashes(chip: Any) -> None:
    for function in ("pointwise", "reduce", "gather", "scatter", "gemm"):
        assert chip.status(function, chip.stream, None) == Status.INVALID
    assert chip.status("stream_wait", chip.stream, None) == Status.INVALID
    assert chip.status("capture_replay", None, chip.stream) == Status.INVALID
    too_small = chip.arguments("pointwise", op=PointwiseOp.FILL, output=chip.empty((1,)))
    too_small.struct_size = 8
    assert chip.status("pointwise", chip.stream, ctypes.addressof(too_small)) == Status.INVALID
