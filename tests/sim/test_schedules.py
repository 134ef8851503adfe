"""The adversarial scheduler: what it may do, that it does it, and that a seed repeats it."""

from __future__ import annotations

import json

import pytest

# Two streams write to one byte range without order, through the bare table: who wins tells which
# order was taken.
ORDER = """
p = made("mem_alloc", 0, 0, 64)
streams = [made("stream_create", 0, 0) for _ in range(4)]
host = (ctypes.c_ubyte * 1)()
winners = []
for _ in range(12):
    for i, s in enumerate(streams):
        assert call("mem_fill", s, p, i, 64) == 0
    assert call("device_sync", 0) == 0
    assert call("mem_copy", stream, ctypes.addressof(host), p, 1, 1) == 0
    winners.append(host[0])
print(winners)
"""


def test_random_orders_differ_by_seed_and_repeat(raw_sim):
    outputs = {}
    for seed in ("1", "2", "1"):
        done = raw_sim(ORDER, mode="random", seed=seed, leaks="0")
        assert done.returncode == 0, done.stderr
        outputs.setdefault(seed, set()).add(done.stdout)
    assert all(len(seen) == 1 for seen in outputs.values())
    assert outputs["1"] != outputs["2"]
    assert len(set(json.loads(outputs["1"].pop()))) > 1


# Two streams of two commands; each command appends its digit to a number, so that the number is the
# order. Legal are the six in which 1 comes before 2 and 3 before 4.
INTERLEAVING = """
from chipset._interface import Dtype, PointwiseArgs, PointwiseOp
p = made("mem_alloc", 0, 0, 4)
log = Tensor(struct_size=ctypes.sizeof(Tensor), dtype=int(Dtype.F32), rank=0, data=p)
def append(stream, digit):
    # log = digit + 10 * log * 1
    args = PointwiseArgs(struct_size=ctypes.sizeof(PointwiseArgs), op=int(PointwiseOp.ADDCMUL),
                         compute_dtype=int(Dtype.F32), num_inputs=3)
    args.output = ctypes.addressof(log)
    args.input[1] = ctypes.addressof(log)
    for scalar, value in ((args.immediate[0], digit), (args.immediate[2], 1), (args.param[0], 10)):
        scalar.f = value
    assert call("pointwise", stream, ctypes.addressof(args)) == 0, texts
streams = [stream, made("stream_create", 0, 0)]
found = set()
for _ in range(150):
    assert call("mem_fill", stream, p, 0, 4) == 0 and call("device_sync", 0) == 0
    append(streams[0], 1); append(streams[1], 3); append(streams[0], 2); append(streams[1], 4)
    assert call("device_sync", 0) == 0
    value = ctypes.c_float()
    assert call("mem_copy", stream, ctypes.addressof(value), p, 4, 1) == 0
    found.add(int(value.value))
print(sorted(found))
"""


@pytest.mark.parametrize("options", [{"mode": "random", "seed": "3"}, {"mode": "eager"}])
def test_random_takes_every_legal_order_and_no_other(options, raw_sim):
    done = raw_sim(INTERLEAVING, leaks="0", **options)
    assert done.returncode == 0, done.stderr
    every = [1234, 1324, 1342, 3124, 3142, 3412]
    assert json.loads(done.stdout) == (every if options["mode"] == "random" else [1324])


def test_eager_runs_in_the_order_of_the_calls(raw_sim):
    done = raw_sim(ORDER, mode="eager", leaks="0")
    assert set(json.loads(done.stdout)) == {3}


PENDING = """
p = made("mem_alloc", 0, 0, 64)
e, f = made("event_create", 0, 1), made("event_create", 0, 1)
other = made("stream_create", 0, 0)
call("mem_fill", stream, p, 1, 64); call("event_record", e, stream)
call("mem_fill", other, p, 2, 64); call("event_record", f, other)
print(call("event_query", e, 0), call("event_query", f, 0))
call("stream_sync", stream)
print(call("event_query", e, 0), call("event_query", f, 0))
polls = 0
while call("event_query", f, 0) == 7: polls += 1
print(polls)
"""


def test_latest_runs_nothing_that_nobody_asked_for(raw_sim):
    """And whoever only polls gets an answer in the end."""
    done = raw_sim(PENDING, mode="latest", leaks="0", polls="20")
    first, second, polls = done.stdout.splitlines()
    assert (first, second) == ("7 7", "0 7")
    assert 10 <= int(polls) < 20


def test_latest_runs_what_an_event_needs(raw_sim):
    done = raw_sim(
        """
p = made("mem_alloc", 0, 0, 64)
e = made("event_create", 0, 0)
third, other = made("stream_create", 0, 0), made("stream_create", 0, 0)
call("mem_fill", other, p, 9, 64); call("event_record", e, other)
call("stream_wait", stream, e)
host = (ctypes.c_ubyte * 1)()
call("mem_copy", stream, ctypes.addressof(host), p, 1, 1)
print(host[0])
""",
        mode="latest",
        leaks="0",
    )
    assert done.stdout.strip() == "9"


# The same faults through the bare table, without the checked layer above.
RAW_FAULTS = {
    "free under pending work": (
        "p = made('mem_alloc', 0, 0, 64); call('mem_fill', stream, p, 0, 64)\n"
        "report(call('mem_free', 0, p))",
        ["MEM-002", "64 bytes on sim:0", "mem_fill (call", "of stream 0", "record_stream"],
    ),
    "double free": (
        "p = made('mem_alloc', 0, 0, 64); call('mem_free', 0, p); report(call('mem_free', 0, p))",
        ["MEM-002", "second time", "64 bytes"],
    ),
    "use after free": (
        "p = made('mem_alloc', 0, 0, 64); call('mem_free', 0, p)\n"
        "report(call('mem_fill', stream, p, 0, 64))",
        ["MEM-004", "'destination'", "freed by call", "keep the tensor alive"],
    ),
    "beyond the end": (
        "p = made('mem_alloc', 0, 0, 64); report(call('mem_fill', stream, p, 0, 65))",
        ["MEM-004", "reaches bytes 0 to 65"],
    ),
    "a wild pointer": (
        "report(call('mem_fill', stream, 4096, 0, 64))",
        ["MEM-004", "lies in no allocation"],
    ),
    "memory of another device": (
        "p = made('mem_alloc', 1, 0, 64); report(call('mem_fill', stream, p, 0, 64))",
        ["STA-001", "on sim:1", "stream is of sim:0", "current device"],
    ),
    "a stream that never was": (
        "report(call('stream_sync', 4096))",
        ["HND-001", "never made"],
    ),
    "the NULL stream": (
        "report(call('stream_sync', None))",
        ["HND-001", "there is no default stream"],
    ),
    "page-locked memory freed while a copy may use it": (
        "p = made('mem_alloc', 0, 1, 64); d = made('mem_alloc', 0, 0, 64)\n"
        "call('mem_copy', stream, d, p, 64, 0); report(call('mem_free', 0, p))",
        ["MEM-002", "page-locked", "mem_copy"],
    ),
    "a device that is not": (
        "report(call('device_sync', 7))",
        ["STA-001", "no device 7", "2 present"],
    ),
    "a communicator that never was": (
        "report(call('all_reduce', stream, 4096, None, None, 0, 8, 0))",
        ["HND-001", "communicator"],
    ),
}


@pytest.mark.parametrize("mode", ["latest", "random"])
@pytest.mark.parametrize("name", RAW_FAULTS)
def test_the_bare_table_refuses(name, mode, raw_sim):
    program, words = RAW_FAULTS[name]
    done = raw_sim(program, mode=mode, seed="4", devices="2", leaks="0")
    assert done.returncode == 0, done.stderr
    if name == "free under pending work" and mode == "random" and done.stdout.startswith("0"):
        pytest.skip("this seed ran the work first; the checked layer refuses it in any order")
    assert done.stdout.startswith("1 sim: "), done.stdout + done.stderr
    for word in words:
        assert word in done.stdout


def test_two_threads_on_one_stream_are_reported(raw_sim):
    done = raw_sim(
        """
import threading
p = made("mem_alloc", 0, 0, 1 << 24)
def use():
    for _ in range(30):
        call("mem_fill", stream, p, 1, 1 << 24)
threads = [threading.Thread(target=use) for _ in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
""",
        mode="eager",
        leaks="0",
    )
    assert "THR-001" in done.stderr and "another thread" in done.stderr


def test_the_runtime_lets_one_thread_at_a_time_into_a_stream(run_python):
    """The same program through the runtime, which keeps the rule for its callers."""
    program = """
import threading
import chipset
chip = chipset.select("sim").driver
stream = chip.stream
memory = chip.empty((1 << 24,))
def use():
    for _ in range(30):
        chip.invoke("mem_fill", stream, memory.address, 1, 1 << 24)
threads = [threading.Thread(target=use) for _ in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
chip.synchronize()
"""
    done = run_python(program, env={"CHIPSET_SIM": "mode=eager,exitcode=86"})
    assert (done.returncode, done.stderr) == (0, "")
