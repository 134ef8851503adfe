"""Memory, copies, queues, events and captured graphs of an OpenCL device."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

from chipset._interface import (
    Capability,
    CopyKind,
    DeviceInfo,
    EventFlag,
    MemoryKind,
    Status,
)
from chipset._runtime import Error

LONG = 1024  # a product of two such matrices keeps the device busy for milliseconds


def made(chip: Any, function: str, *arguments: Any) -> int:
    out = ctypes.c_void_p()
    chip.invoke(function, *arguments, ctypes.addressof(out))
    assert out.value is not None
    return out.value


@pytest.fixture
def other(chip: Any) -> Any:
    """A second stream."""
    stream = made(chip, "stream_create", chip.local, 0)
    yield stream
    chip.invoke("stream_destroy", stream)


@pytest.fixture
def host(chip: Any) -> Any:
    """4 MiB of page-locked memory as an array."""
    pointer = made(chip, "mem_alloc", chip.local, int(MemoryKind.HOST), 4 << 20)
    array = np.ctypeslib.as_array((ctypes.c_float * (1 << 20)).from_address(pointer))
    array[:] = 0
    yield array
    chip.invoke("mem_free", chip.local, pointer)


def multiply(chip: Any, stream: int, a: Any, out: Any) -> None:
    args = chip.arguments("gemm", a=a, b=a, d=out, alpha=1.0)
    chip.invoke("gemm", stream, ctypes.addressof(args))


def copy(chip: Any, stream: int, to: int, source: int, size: int, kind: CopyKind) -> None:
    chip.invoke("mem_copy", stream, to, source, size, int(kind))


def test_the_device_names_itself_and_hides_its_memory_from_the_host(chip: Any) -> None:
    info = DeviceInfo(struct_size=ctypes.sizeof(DeviceInfo))
    chip.invoke("device_info", chip.local, ctypes.addressof(info))
    assert info.name and info.vendor and info.driver and info.compute_units > 0
    assert info.capabilities & Capability.HOST_ASYNC and info.capabilities & Capability.CAPTURE
    assert not info.capabilities & (Capability.UNIFIED | Capability.INLINE)
    assert 0 < info.max_allocation <= info.total_memory


def test_a_device_that_is_not_there(chip: Any) -> None:
    with pytest.raises(Error, match="no device 99"):
        made(chip, "mem_alloc", 99, 0, 64)


def test_memory_is_freed_once_and_only_what_was_allocated(chip: Any) -> None:
    pointer = made(chip, "mem_alloc", chip.local, 0, 1000)
    assert pointer % 128 == 0
    chip.invoke("mem_free", chip.local, pointer)
    with pytest.raises(Error, match="freed before"):
        chip.invoke("mem_free", chip.local, pointer)


@pytest.mark.parametrize("size", [1, 7, 4096, 65536, 65537, 3 << 20])
def test_pageable_memory_may_change_as_soon_as_the_copy_has_returned(chip: Any, size: int) -> None:
    values = np.arange(size, dtype=np.uint8)
    device = chip.empty((size + 3,), chip.array(values).dtype)
    source = values.copy()
    a = chip.array(np.ones((LONG, LONG), np.float32))
    multiply(chip, chip.stream, a, chip.empty((LONG, LONG)))  # the copy stands behind this
    copy(chip, chip.stream, device.address + 3, source.ctypes.data, size, CopyKind.HOST_TO_DEVICE)
    source[:] = 0
    back = np.zeros(size, np.uint8)
    copy(chip, chip.stream, back.ctypes.data, device.address + 3, size, CopyKind.DEVICE_TO_HOST)
    assert np.array_equal(back, values)  # it was there when the call returned


def test_copies_with_page_locked_memory_do_not_block(chip: Any, host: Any) -> None:
    a = chip.array(np.ones((LONG, LONG), np.float32))
    out = chip.empty((LONG, LONG))
    done = made(chip, "event_create", chip.local, 0)
    for _ in range(20):
        multiply(chip, chip.stream, a, out)
    copy(chip, chip.stream, host.ctypes.data, out.address, host.nbytes, CopyKind.DEVICE_TO_HOST)
    chip.invoke("event_record", done, chip.stream)
    assert chip.status("event_query", done, 0) == Status.NOT_READY
    assert chip.status("event_query", done, 1000) == Status.TIMEOUT
    chip.invoke("event_query", done, -1)
    assert np.all(host == LONG)
    chip.invoke("event_destroy", done)


def test_fill_writes_bytes_at_any_alignment(chip: Any) -> None:
    device = chip.array(np.zeros(64, np.uint8))
    chip.invoke("mem_fill", chip.stream, device.address + 5, 0x1AB, 13)
    expected = np.zeros(64, np.uint8)
    expected[5:18] = 0xAB
    assert np.array_equal(device.numpy(), expected)


def test_a_queue_waits_for_another_only_through_an_event(chip: Any, other: int) -> None:
    a = chip.array(np.ones((LONG, LONG), np.float32))
    out, after = chip.empty((LONG, LONG)), chip.array(np.zeros((LONG, LONG), np.float32))
    event = made(chip, "event_create", chip.local, 0)
    for _ in range(10):
        multiply(chip, chip.stream, a, out)
    chip.invoke("event_record", event, chip.stream)
    chip.invoke("stream_wait", other, event)
    chip.invoke("event_destroy", event)  # at once: the wait holds what it needs (EVT-001)
    size = LONG * LONG * 4
    copy(chip, other, after.address, out.address, size, CopyKind.DEVICE_TO_DEVICE)
    chip.invoke("stream_sync", other)
    assert np.all(after.numpy() == LONG)


def test_an_event_outlives_its_stream(chip: Any) -> None:
    stream = made(chip, "stream_create", chip.local, 0)
    event = made(chip, "event_create", chip.local, int(EventFlag.TIMING))
    chip.invoke("event_query", event, 0)  # never recorded: passed
    chip.invoke("event_record", event, stream)
    chip.invoke("stream_destroy", stream)
    chip.invoke("event_query", event, -1)
    chip.invoke("event_destroy", event)


def test_elapsed_is_the_devices_time(chip: Any) -> None:
    start, end = (made(chip, "event_create", chip.local, int(EventFlag.TIMING)) for _ in range(2))
    a = chip.array(np.ones((LONG, LONG), np.float32))
    out = ctypes.c_double()
    with pytest.raises(Error, match="recorded and passed"):
        chip.invoke("event_elapsed", start, end, ctypes.addressof(out))
    chip.invoke("event_record", start, chip.stream)
    multiply(chip, chip.stream, a, chip.empty((LONG, LONG)))
    chip.invoke("event_record", end, chip.stream)
    chip.synchronize()
    chip.invoke("event_elapsed", start, end, ctypes.addressof(out))
    assert out.value > 0
    untimed = made(chip, "event_create", chip.local, 0)
    chip.invoke("event_record", untimed, chip.stream)
    chip.synchronize()
    with pytest.raises(Error, match="TIMING"):
        chip.invoke("event_elapsed", start, untimed, ctypes.addressof(out))


def test_many_threads_share_a_kernel(chip: Any) -> None:
    failures: list[str] = []

    def work(value: int) -> None:
        stream = made(chip, "stream_create", chip.local, 0)
        a = chip.array(np.full((64, 64), value, np.float32))
        for _ in range(50):
            out = chip.empty((64, 64))
            multiply(chip, stream, a, out)
            chip.invoke("stream_sync", stream)
            if not np.all(out.numpy() == 64 * value * value):
                failures.append(f"thread {value}: {out.numpy()[0, 0]}")
        chip.invoke("stream_destroy", stream)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_graph_replays_calls_with_what_memory_holds_then(chip: Any, other: int) -> None:
    a = chip.array(np.ones((32, 32), np.float32))
    first, second = chip.empty((32, 32)), chip.array(np.zeros((32, 32), np.float32))
    event = made(chip, "event_create", chip.local, 0)
    chip.invoke("capture_begin", chip.stream)
    multiply(chip, chip.stream, a, first)
    chip.invoke("event_record", event, chip.stream)
    chip.invoke("stream_wait", other, event)  # the other stream joins
    size = 32 * 32 * 4
    copy(chip, other, second.address, first.address, size, CopyKind.DEVICE_TO_DEVICE)
    graph = made(chip, "capture_end", chip.stream)
    assert np.all(second.numpy() == 0)  # nothing ran
    for value in (1, 3):
        data = np.full((32, 32), value, np.float32)
        copy(chip, chip.stream, a.address, data.ctypes.data, size, CopyKind.HOST_TO_DEVICE)
        chip.invoke("capture_replay", graph, chip.stream)
        chip.synchronize()
        assert np.all(second.numpy() == 32 * value * value)
    chip.invoke("graph_destroy", graph)
    chip.invoke("event_destroy", event)


def test_a_capture_that_meets_the_host_is_spoilt(chip: Any) -> None:
    out = ctypes.c_void_p()
    chip.invoke("capture_begin", chip.stream)
    with pytest.raises(Error, match="spoilt"):
        chip.invoke("stream_sync", chip.stream)
    with pytest.raises(Error, match="no graph"):
        chip.invoke("capture_end", chip.stream, ctypes.addressof(out))
    assert out.value is None
    chip.synchronize()


def test_missing_handles_are_named(chip: Any) -> None:
    for function, arguments in {
        "stream_sync": (None,),
        "event_query": (None, 0),
        "capture_begin": (None,),
    }.items():
        assert chip.status(function, *arguments) == Status.INVALID
