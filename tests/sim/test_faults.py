"""Fault injection: every fault surfaces exactly once, leaks nothing, and leaves a device that works
or says that it is lost."""

from __future__ import annotations

import json

import pytest

# A workload that stops at the first error and gives back what it made, as careful callers do.
WORKLOAD = """
import json
def workload():
    '''One step: memory, streams, events, copies, kernels. Returns what went wrong.'''
    errors, cleanup = [], []
    def do(function, *arguments):
        status = dev.status(function, *arguments)
        if status not in (0, 7):
            errors.append((function, rt.status_name(status), rt.take_error()))
            raise StopIteration
    def make(function, *arguments, end=None):
        out = ctypes.c_uint64()
        do(function, *arguments, ctypes.addressof(out))
        cleanup.append((end, out.value))
        return out.value
    host_in = np.arange(16, dtype=np.float32)
    host_out = np.zeros(16, np.float32)
    try:
        s = make("stream_create", 0, 0, end="stream_destroy")
        a = make("mem_alloc", 0, 0, 64, end="mem_free")
        b = make("mem_alloc", 0, 0, 64, end="mem_free")
        e = make("event_create", 0, 1, end="event_destroy")
        do("mem_copy", s, a, host_in.ctypes.data, 64, 0)
        x, y = view(a), view(b)
        args = dev.arguments("pointwise", op=3, compute_dtype=8, num_inputs=2, output=y,
                             input=[x, x], param=[1])
        do("pointwise", s, ctypes.addressof(args))
        do("event_record", e, s)
        do("event_query", e, -1)
        do("mem_copy", s, host_out.ctypes.data, b, 64, 1)
        do("stream_sync", s)
        assert (host_out == 2 * host_in).all(), host_out
    except StopIteration:
        pass
    streams = [h for end, h in cleanup if end == "stream_destroy"]
    for h in streams:
        dev.status("stream_sync", h)
    for end, handle in reversed(cleanup):
        arguments = (0, handle) if end == "mem_free" else (handle,)
        status = dev.status(end, *arguments)
        if status == 0:
            continue
        errors.append((end, rt.status_name(status), rt.take_error()))
        dev.status(end, *arguments)  # an injected refusal did nothing; once more
    rt.take_error()
    return errors

class view:
    '''A contiguous vector of 16 floats at an address.'''
    def __init__(self, address): self.address = address
    def tensor(self):
        from chipset._interface import Tensor
        t = Tensor(struct_size=ctypes.sizeof(Tensor), dtype=8, rank=1, data=self.address)
        t.shape[0], t.stride[0] = 16, 1
        return t
def as_pointer(v, keep=[]):
    t = v.tensor(); keep.append(t); return ctypes.addressof(t)
import chipset.driver as driver
driver_fill = driver._fill
def fill(args, key, kind, value):
    if isinstance(value, view):
        value = as_pointer(value)
    elif isinstance(value, list) and value and isinstance(value[0], view):
        value = [as_pointer(v) for v in value]
    driver_fill(args, key, kind, value)
driver._fill = fill
"""

# For N = 1, 2, … the N-th call fails, until the run passes.
DRIVER_LOOP = """
assert workload() == []
before = chipset_sim.live()
failures = 0
for n in range(1, 200):
    chipset_sim.inject(f"*:{n}={KIND}")
    errors = workload()
    fired = chipset_sim.injections()
    chipset_sim.clear_injections()
    assert chipset_sim.live() == before, (n, errors, before, chipset_sim.live())
    assert workload() == [], n  # the device is as good as before
    if fired == 0:
        assert errors == []
        break
    assert len(errors) <= 1, (n, errors)
    if errors:
        failures += 1
        assert errors[0][1] == KIND and "injected" in errors[0][2], errors
print(json.dumps({"calls": n - 1, "failures": failures}))
"""


@pytest.mark.parametrize("kind", ["INVALID", "UNSUPPORTED", "OUT_OF_MEMORY", "TIMEOUT", "INTERNAL"])
@pytest.mark.parametrize("mode", ["eager", "latest"])
def test_every_call_may_fail(kind, mode, on_sim):
    program = WORKLOAD + f"KIND = {kind!r}\n" + DRIVER_LOOP
    done = on_sim(program, f"mode={mode},exitcode=86", timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["calls"] >= 15
    # Nearly each call's failure is seen: not that of the clean-up's own synchronisation.
    assert result["failures"] >= result["calls"] - 2


# With `n` set: prints what came of the loss at the n-th call, or nothing if there were fewer.
LOSS = """
before = chipset_sim.live()
chipset_sim.inject(f"*:{n}=KIND")
errors = workload()
if chipset_sim.injections():
    first, second = dev.status("device_sync", 0), dev.status("device_sync", 0)
    print(json.dumps([errors, first, second, rt.take_error(), before, chipset_sim.live()]))
"""


@pytest.mark.parametrize("kind", ["DEVICE_LOST", "ASYNC_LOST"])
def test_a_lost_device_stays_lost_and_leaks_nothing(kind, on_sim_each):
    """A device cannot be found again, so that each N takes a process of its own."""
    done = on_sim_each(WORKLOAD + LOSS.replace("KIND", kind), "leaks=0")
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) >= 15
    losses = 0
    for n, (errors, first, second, text, before, after) in enumerate(runs, 1):
        if kind == "DEVICE_LOST":
            assert errors, n
        lost = first == 4
        assert lost or kind == "ASYNC_LOST"  # a call that enqueues nothing loses nothing
        assert first == second
        if lost:
            assert all(error[1] == "DEVICE_LOST" for error in errors)
            assert "lost" in text
            losses += 1
        assert after == before, (n, errors)
    assert losses >= 3


def test_out_of_memory_is_survived_by_the_allocator(on_sim):
    done = on_sim(
        "chipset_sim.inject('mem_alloc:1=OUT_OF_MEMORY')\n"
        "x = dev.empty((16,))\n"  # the runtime frees what it caches and tries again
        "dev.pointwise('FILL', x, params=[3.0]); assert (x.numpy() == 3).all()\n"
        "print(rt.memory_stats(0)['num_alloc_retries'], chipset_sim.injections())\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "1"]


# A tensor whose last work is still to run is dropped while the plugin refuses what the allocator
# needs in order to know when that work has passed.
DROPPED = """
rt.default_stream(0); import gc
def settled():
    dev.synchronize()
    gc.collect()
    rt.empty_cache(0)
    return chipset_sim.live()["allocations"]
events = [event() for _ in range(3)]
before = settled()
y = dev.empty((16,))
dev.pointwise('FILL', y, params=[1.0])
chipset_sim.inject(RULES)
errors = []
for attempt in (lambda: globals().pop("y"), settled, settled):
    try: attempt()
    except rt.Error as error: errors.append(str(error))
print(chipset_sim.injections()); chipset_sim.clear_injections()
assert settled() == before, (settled(), before)
assert len(errors) <= 1 and all("injected" in error for error in errors), errors
z = dev.empty((16,)); dev.pointwise('FILL', z, params=[2.0]); assert (z.numpy() == 2).all()
for e in events: dev.invoke("event_destroy", e)
"""


@pytest.mark.parametrize(
    "rules",
    [
        "event_create:1=OUT_OF_MEMORY",
        "event_record:1=INTERNAL",
        "event_record:1=INTERNAL;event_record:2=INTERNAL",
        "event_query:1=INTERNAL",
        "mem_free:1=INTERNAL",
    ],
)
def test_memory_is_neither_freed_early_nor_lost_when_a_call_is_refused(rules, on_sim):
    done = on_sim(f"RULES = {rules!r}\n" + DROPPED, "mode=latest,exitcode=86")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert int(done.stdout) >= 1


def test_every_function_of_the_table_can_fail(raw_sim):
    """Also with arguments that no caller would give: the injected fault comes first."""
    done = raw_sim(
        """
import json
seen, quiet = {}, ("device_count", "device_info", "comm_id")
for name in _PROTOTYPES:
    if not getattr(api, name) or name in quiet:
        continue
    count = len(_PROTOTYPES[name]._argtypes_)
    chipset_sim.inject(f"{name}:2=TIMEOUT")
    call("device_memory", 0, None, None) if name != "device_memory" else None
    statuses = [call(name, *[0] * count) for _ in range(2)]
    seen[name] = statuses[1], f"{name}: injected by {name}:2=TIMEOUT" in texts[-1]
    chipset_sim.clear_injections()
print(json.dumps(seen))
""",
        leaks="0",
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert len(seen) >= 50
    assert {name: result for name, result in seen.items() if result != [5, True]} == {}


def test_capacity_is_a_limit(on_sim):
    done = on_sim(
        "try:\n    dev.empty((1 << 20,))\nexcept rt.Error as error:\n    print(error)\n"
        "x = ones(4); assert x.numpy().sum() == 4\n",
        "memory=1MiB",
    )
    assert done.returncode == 0, done.stderr
    assert "out of memory: tried to allocate 4.00 MiB" in done.stdout


def test_unsupported_functions_are_composed(on_sim):
    done = on_sim(
        "chipset_sim.inject('softmax:1+=UNSUPPORTED')\n"
        "x = dev.array(np.arange(6, dtype=np.float32).reshape(2, 3)); y = dev.empty((2, 3))\n"
        "dev.call('softmax', dim=1, input=x, output=y)\n"
        "e = np.exp(x.numpy()); assert np.allclose(y.numpy(), e / e.sum(1, keepdims=True))\n"
        "print(rt.composed_counts())\n"
    )
    assert done.returncode == 0, done.stderr
    assert "sim.softmax" in done.stdout


def test_bit_flips_change_one_bit(on_sim):
    done = on_sim(
        "chipset_sim.inject('pointwise:1=BITFLIP'); y = dev.empty((64,))\n"
        "dev.pointwise('FILL', y, params=[1.0]); bits = y.numpy().view(np.uint32)\n"
        "changed = bits ^ np.float32(1).view(np.uint32)\n"
        "print(sum(bin(int(b)).count('1') for b in changed))\n"
    )
    assert done.stdout.strip() == "1", done.stderr


def test_slow_devices_take_longer(on_sim):
    done = on_sim(
        "x = ones(1 << 16); y = dev.empty((1 << 16,))\n"
        "def step():\n"
        "    chipset_sim.reset_predicted_time(); dev.pointwise('EXP', y, x); dev.synchronize()\n"
        "    return chipset_sim.predicted_time()\n"
        "fast = step(); chipset_sim.inject('pointwise:1=SLOW'); step(); print(step() / fast)\n"
    )
    assert float(done.stdout) > 4, done.stderr


def test_a_stuck_collective_is_a_timeout_on_every_rank(on_sim):
    done = on_sim(
        "chipset_sim.inject('all_reduce@1:1=STUCK')\n"
        "import ctypes\n"
        "uid = ctypes.create_string_buffer(128); dev.invoke('comm_id', ctypes.addressof(uid))\n"
        "seen = [None, None]\n"
        "def rank(r):\n"
        "    d = Driver(r); c = ctypes.c_uint64()\n"
        "    d.invoke('comm_create', r, ctypes.addressof(uid), r, 2, ctypes.addressof(c))\n"
        "    x = d.array(np.ones(4, np.float32))\n"
        "    d.invoke('all_reduce', d.stream, c.value, x.address, x.address, 4, 8, 0)\n"
        "    seen[r] = d.status('stream_sync', d.stream), d.status('stream_sync', d.stream)\n"
        "threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]; print(seen)\n",
        "devices=2,comm_timeout_ms=1500,leaks=0",
    )
    assert done.stdout.strip() == "[(5, 0), (5, 0)]", (done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ("mem_alloc=OUT_OF_MEMORY", "no ':'"),
        ("nothing:1=INVALID", "no function 'nothing'"),
        ("mem_alloc:0=INVALID", "count from 1"),
        ("mem_alloc:p2=INVALID", "no probability"),
        ("mem_alloc:1=BROKEN", "no kind"),
    ],
)
def test_a_bad_rule_is_refused(rule, word, on_sim):
    done = on_sim(
        f"try:\n    chipset_sim.inject({rule!r})\nexcept ValueError as error:\n    print(error)\n"
    )
    assert word in done.stdout
