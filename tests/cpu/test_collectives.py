"""Collectives among processes and among threads, against NumPy on every rank's data."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import chipset
from chipset._interface import Status
from chipset._runtime import Error

ROOT = Path(__file__).resolve().parents[2]
SOURCES = os.pathsep.join(str(ROOT / p) for p in ("core", "plugins/cpu"))

# What every worker starts with: its rank, the communicator and short names.
PROLOGUE = """
import ctypes, os, sys
import numpy as np
import chipset
from chipset._interface import CollectiveOp, Dtype, Status
rank, size, id_ = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
chip = chipset.select("cpu:0").driver
comm = ctypes.c_void_p()
chip.invoke("comm_create", 0, ctypes.create_string_buffer(id_, 128), rank, size,
            ctypes.addressof(comm))
stream, comm = chip.stream, comm.value
def data(r, n, dtype=np.float32, low=-8, high=8):
    return np.random.default_rng(1000 + r).integers(low, high, n).astype(dtype)
"""


def make_id(chip: Any) -> bytes:
    buffer = ctypes.create_string_buffer(128)
    chip.invoke("comm_id", ctypes.addressof(buffer))
    return buffer.raw


def run_ranks(
    code: str, size: int, environment: dict[str, str] | None = None, come: int | None = None
) -> list[subprocess.CompletedProcess[str]]:
    """Runs the code on every rank (or on the first ``come``); returns what they printed."""
    chip = chipset.select("cpu:0").driver
    id_ = make_id(chip)
    env = {
        **os.environ,
        "PYTHONPATH": SOURCES,
        "CHIPSET_CPU_COMM_TIMEOUT_MS": "60000",
        "OMP_NUM_THREADS": "1",
        **(environment or {}),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROLOGUE + code, str(rank), str(size), id_.hex()],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size if come is None else come)
    ]
    done = []
    for process in ranks:
        out, err = process.communicate(timeout=120)
        done.append(subprocess.CompletedProcess([], process.returncode, out, err))
    return done


def expect_success(done: list[subprocess.CompletedProcess[str]]) -> None:
    for rank, process in enumerate(done):
        assert process.returncode == 0, f"rank {rank}: {process.stderr}"


REDUCTIONS = """
NUMPY = {"SUM": np.add, "PROD": np.multiply, "MIN": np.minimum, "MAX": np.maximum,
         "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}
for kind in ("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64"):
    for name in ("SUM", "PROD", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR"):
        if name.startswith("B") and kind.startswith("f"):
            continue
        low, high = (1, 4) if name == "PROD" or kind == "uint8" else (-8, 8)
        for n in (0, 1, 1001):
            parts = [data(r, n * size, kind, low, high) for r in range(size)]
            wide = np.float64 if kind.startswith("f") else np.int64
            want = parts[0].astype(wide)
            for part in parts[1:]:
                want = NUMPY["SUM" if name == "AVG" else name](want, part.astype(wide))
            if name == "AVG":
                want = want / size if wide is np.float64 else np.trunc(want / size)
            want = want.astype(wide).astype(kind)
            x = chip.array(parts[rank])
            chip.invoke("all_reduce", stream, comm, x.address, x.address, n * size, int(x.dtype),
                        int(CollectiveOp[name]))
            np.testing.assert_array_equal(x.numpy(), want, err_msg=f"{kind} {name}")
            x = chip.array(parts[rank])
            y = chip.empty((n,), x.dtype)
            chip.invoke("reduce_scatter", stream, comm, x.address, y.address, n, int(x.dtype),
                        int(CollectiveOp[name]))
            np.testing.assert_array_equal(y.numpy(), want[rank * n : (rank + 1) * n])
"""

MOVES = """
n = 700_001  # more than one slot holds
x = chip.array(data(rank, n))
y = chip.empty((size * n,))
chip.invoke("all_gather", stream, comm, x.address, y.address, n, int(Dtype.F32))
np.testing.assert_array_equal(y.numpy(), np.concatenate([data(r, n) for r in range(size)]))
own = chip.array(np.concatenate([data(rank, n)] * size))  # in place, as NCCL allows
chip.invoke("all_gather", stream, comm, own.address + 4 * n * rank, own.address, n, int(Dtype.F32))
np.testing.assert_array_equal(own.numpy(), y.numpy())
for root in range(size):
    x = chip.array(data(rank, n))
    chip.invoke("broadcast", stream, comm, x.address, n, int(Dtype.F32), root)
    np.testing.assert_array_equal(x.numpy(), data(root, n))
x = chip.array(data(rank, n))
chip.invoke("all_reduce", stream, comm, x.address, x.address, n, int(Dtype.F32), 0)
np.testing.assert_array_equal(x.numpy(), sum(data(r, n) for r in range(size)))
# rank r sends 1000*(r + 2*s) elements to rank s
count = lambda r, s: 1000 * (r + 2 * s)
sent = [np.full(count(rank, s), 10 * rank + s, np.int64) for s in range(size)]
send = chip.array(np.concatenate([np.zeros(0, np.int64), *sent]))
want = np.concatenate([np.full(count(r, rank), 10 * r + rank, np.int64) for r in range(size)])
receive = chip.empty(want.shape, Dtype.I64)
counts = (ctypes.c_uint64 * size)(*[count(rank, s) for s in range(size)])
receive_counts = (ctypes.c_uint64 * size)(*[count(r, rank) for r in range(size)])
chip.invoke("all_to_all", stream, comm, send.address, ctypes.addressof(counts), receive.address,
            ctypes.addressof(receive_counts), int(Dtype.I64))
np.testing.assert_array_equal(receive.numpy(), want)
# a ring of plain sends and receives, then opposite ones in a group, larger than any buffer
right, left = (rank + 1) % size, (rank - 1) % size
x, y = chip.array(data(rank, n)), chip.empty((n,))
def pass_on(first):
    for step in (0, 1):
        if (step == 0) == first:
            chip.invoke("send", stream, comm, x.address, n, int(Dtype.F32), right)
        else:
            chip.invoke("recv", stream, comm, y.address, n, int(Dtype.F32), left)
pass_on(rank % 2 == 0)
np.testing.assert_array_equal(y.numpy(), data(left, n))
y, small = chip.empty((n,)), chip.empty((3,))
chip.invoke("group_begin", comm)
pass_on(True)
chip.invoke("send", stream, comm, x.address, 3, int(Dtype.F32), right)
chip.invoke("recv", stream, comm, small.address, 3, int(Dtype.F32), left)
chip.invoke("all_reduce", stream, comm, x.address, x.address, n, int(Dtype.F32), 0)
chip.invoke("group_end", comm)
np.testing.assert_array_equal(y.numpy(), data(left, n))
np.testing.assert_array_equal(small.numpy(), data(left, n)[:3])
np.testing.assert_array_equal(x.numpy(), sum(data(r, n) for r in range(size)))
chip.invoke("comm_destroy", comm)
"""


@pytest.mark.parametrize("size", [1, 2, 4])
def test_reductions_agree_with_numpy(size: int) -> None:
    expect_success(run_ranks(REDUCTIONS, size))


@pytest.mark.parametrize("size", [2, 4])
def test_data_moves_between_processes(size: int) -> None:
    expect_success(run_ranks(MOVES, size))


def test_bf16_sums_round_once_and_are_the_same_on_every_rank() -> None:
    code = """
bits = lambda v: (np.asarray(v, np.float32).view(np.uint32) >> 16).astype(np.uint16)
x = chip.array(np.concatenate([bits([256.0 if rank == 0 else 1.0]), bits(data(rank, 999) / 7)]),
               Dtype.BF16)
chip.invoke("all_reduce", stream, comm, x.address, x.address, 1000, int(Dtype.BF16), 0)
# 256 + 1 + 1 + 1 is 259, which rounds to 260; rounding after each addition would stay at 256
assert x.numpy().view(np.uint16)[0] == bits([260.0])[0]
print(x.numpy().tobytes().hex())
"""
    done = run_ranks(code, 4)
    expect_success(done)
    assert len({process.stdout for process in done}) == 1


def test_calls_that_differ_are_an_error_on_every_rank() -> None:
    code = """
x = chip.array(data(rank, 10))
status = chip.status("all_reduce", stream, comm, x.address, x.address, 10 - rank, int(Dtype.F32), 0)
assert status == Status.INVALID, status
chip.invoke("all_reduce", stream, comm, x.address, x.address, 10, int(Dtype.F32), 0)
np.testing.assert_array_equal(x.numpy(), data(0, 10) + data(1, 10))
"""
    expect_success(run_ranks(code, 2))


def test_a_dead_peer_is_an_error_not_a_hang() -> None:
    code = """
if rank == 1:
    os._exit(0)
x = chip.array(data(rank, 10))
try:
    chip.invoke("all_reduce", stream, comm, x.address, x.address, 10, int(Dtype.F32), 0)
except Exception as error:
    assert "has died or left" in str(error) or "gave up" in str(error), error
else:
    raise SystemExit("no error")
"""
    expect_success(run_ranks(code, 3))


def test_a_peer_that_never_comes_is_a_timeout() -> None:
    done = run_ranks("", 3, {"CHIPSET_CPU_COMM_TIMEOUT_MS": "300"}, come=1)
    assert done[0].returncode != 0
    assert "for rank 1, 2, which never came" in done[0].stderr


def test_a_peer_that_does_not_make_the_call_is_a_timeout() -> None:
    code = """
x = chip.array(data(rank, 10))
if rank == 0:
    status = chip.status("recv", stream, comm, x.address, 10, int(Dtype.F32), 1)
    assert status == Status.TIMEOUT, status
else:
    sys.stdin.read()
"""
    chip = chipset.select("cpu:0").driver
    id_ = make_id(chip)
    env = {**os.environ, "PYTHONPATH": SOURCES, "CHIPSET_CPU_COMM_TIMEOUT_MS": "1000"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROLOGUE + code, str(rank), "2", id_.hex()],
            env=env,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    _, err = ranks[0].communicate(timeout=60)
    assert ranks[0].returncode == 0, err
    ranks[1].communicate(timeout=60)


def test_ranks_may_be_threads_of_one_process() -> None:
    chip = chipset.select("cpu:0").driver
    id_ = ctypes.create_string_buffer(make_id(chip), 128)
    results: dict[int, list[float]] = {}

    def work(rank: int) -> None:
        comm, stream = ctypes.c_void_p(), ctypes.c_void_p()
        chip.invoke("comm_create", 0, id_, rank, 3, ctypes.addressof(comm))
        chip.invoke("stream_create", 0, 0, ctypes.addressof(stream))
        x = chip.array([rank + 1.0, 10.0 * rank])
        chip.invoke(
            "all_reduce", stream.value, comm.value, x.address, x.address, 2, int(x.dtype), 0
        )
        results[rank] = x.numpy().tolist()
        chip.invoke("comm_destroy", comm.value)
        chip.invoke("stream_destroy", stream.value)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {rank: [6.0, 30.0] for rank in range(3)}


def test_nothing_is_left_in_shared_memory() -> None:
    chip = chipset.select("cpu:0").driver
    id_ = ctypes.create_string_buffer(make_id(chip), 128)
    comm = ctypes.c_void_p()
    chip.invoke("comm_create", 0, id_, 0, 1, ctypes.addressof(comm))
    name = id_.value.decode().split("/")[-1]
    assert not (Path("/dev/shm") / name).exists()
    chip.invoke("comm_destroy", comm.value)


def test_faults_of_arguments() -> None:
    chip = chipset.select("cpu:0").driver
    comm = ctypes.c_void_p()
    foreign = ctypes.create_string_buffer(b"something else", 128)
    with pytest.raises(Error, match="not one that comm_id"):
        chip.invoke("comm_create", 0, foreign, 0, 1, ctypes.addressof(comm))
    id_ = ctypes.create_string_buffer(make_id(chip), 128)
    with pytest.raises(Error, match="rank 2 of 2"):
        chip.invoke("comm_create", 0, id_, 2, 2, ctypes.addressof(comm))
    chip.invoke("comm_create", 0, id_, 0, 1, ctypes.addressof(comm))
    x = chip.array([1.0])
    for dtype, op in ((int(x.dtype), 5), (17, 0), (int(x.dtype), 99)):
        status = chip.status(
            "all_reduce", chip.stream, comm.value, x.address, x.address, 1, dtype, op
        )
        assert status == Status.UNSUPPORTED
    with pytest.raises(Error, match="peer 3"):
        chip.invoke("send", chip.stream, comm.value, x.address, 1, int(x.dtype), 3)
    chip.invoke("comm_destroy", comm.value)
