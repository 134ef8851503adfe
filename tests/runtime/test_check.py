"""The checked layer: each fault is refused with its rule's id, and legal programs pass."""

from __future__ import annotations

import pytest

CHECK = {"CHIPSET_CHECK": "1"}

# What a program does wrong: the rule and words of the message.
FAULTS = {
    "a read beyond the end": (
        "x = dev.array(np.ones(4, np.float32)); y = dev.empty((5,))\n"
        "dev.pointwise('COPY', y, x.view((5,)))",
        ["MEM-004", "'input' reaches bytes 0 to 20 of allocation", "has 16"],
    ),
    "a write beyond the end through strides": (
        "x = dev.array(np.ones((2, 2), np.float32)); y = dev.empty((4,))\n"
        "dev.pointwise('COPY', y.view((2, 2), (3, 1)), x)",
        ["MEM-004", "'output'", "of allocation"],
    ),
    "use after free": (
        "x = dev.array(np.ones(4, np.float32)); y = dev.empty((4,)); old = x.tensor()\n"
        "t = x.memory; rt.deallocate(t.address); t.address_was, t.address = t.address, t.address\n"
        "rt.empty_cache(0)\ntry:\n    dev.pointwise('COPY', y, x)\nfinally:\n    t.address = 0",
        ["MEM-004", "which has been freed"],
    ),
    "a written broadcast": (
        "x = dev.array(np.ones((2, 2), np.float32)); y = dev.empty((2,))\n"
        "dev.pointwise('COPY', y.view((2, 2), (0, 1)), x)",
        ["SHP-002", "dimension 0 has stride 0"],
    ),
    "overlap that is not in place": (
        "x = dev.array(np.ones(8, np.float32))\n"
        "dev.pointwise('COPY', x.view((4,), offset=2), x.view((4,)))",
        ["SHP-002", "overlaps 'input'"],
    ),
    "a negative stride": (
        "x = dev.array(np.ones(8, np.float32)); y = dev.empty((4,))\n"
        "dev.pointwise('COPY', y, x.view((4,), (-1,), offset=4))",
        ["SHP-001", "negative"],
    ),
    "shapes that disagree": (
        "a = dev.empty((2, 3)); b = dev.empty((4, 2)); d = dev.empty((2, 2))\n"
        "dev.call('gemm', a=a, b=b, d=d, alpha=1.0)",
        ["SHP-003", "'a' f32[2, 3] and 'b' f32[4, 2] disagree about K"],
    ),
    "a missing operand": (
        "dev.call('gemm', a=dev.empty((2, 3)), d=dev.empty((2, 2)), alpha=1.0)",
        ["SHP-003", "'b' is missing"],
    ),
    "an unknown operation": (
        "dev.call('pointwise', op=9999, output=dev.empty((2,)))",
        ["SHP-003", "op 9999 is no chipset_pointwise_op"],
    ),
    "a struct without its size": (
        "a = dev.arguments('gemm', a=dev.empty((2, 2)), b=dev.empty((2, 2)), d=dev.empty((2, 2)))\n"
        "import ctypes; a.struct_size = 0\n"
        "dev.invoke('gemm', stream, ctypes.addressof(a))",
        ["VER-002", "struct_size is 0"],
    ),
    "a stream that never was": (
        "dev.invoke('stream_sync', 4096)",
        ["HND-001", "never made, or has been destroyed"],
    ),
    "a stream after its end": (
        "import ctypes; s = ctypes.c_uint64()\n"
        "dev.invoke('stream_create', 0, 0, ctypes.addressof(s))\n"
        "dev.invoke('stream_destroy', s.value); dev.invoke('stream_sync', s.value)",
        ["HND-001", "destroyed"],
    ),
    "an event after its end": (
        "import ctypes; e = ctypes.c_uint64()\n"
        "dev.invoke('event_create', 0, 0, ctypes.addressof(e))\n"
        "dev.invoke('event_destroy', e.value); dev.invoke('event_record', e.value, stream)",
        ["HND-001", "event"],
    ),
    "an event of another device": (
        "import ctypes; e = ctypes.c_uint64()\n"
        "dev.invoke('event_create', 1, 0, ctypes.addressof(e))\n"
        "dev.invoke('event_record', e.value, stream)",
        ["HND-001", "toy:1 cannot be recorded in a stream of toy:0"],
    ),
    "memory of another device": (
        "other = Driver(1); x = other.array(np.ones(4, np.float32)); y = dev.empty((4,))\n"
        "dev.pointwise('COPY', y, x)",
        ["MEM-004", "'input' is memory of toy:1, but the stream is of toy:0"],
    ),
    "a double free": (
        "import ctypes; p = ctypes.c_uint64()\n"
        "dev.invoke('mem_alloc', 0, 0, 64, ctypes.addressof(p))\n"
        "dev.invoke('mem_free', 0, p.value); dev.invoke('mem_free', 0, p.value)",
        ["MEM-002", "freed before"],
    ),
    "a double free, another call refused in between": (
        "import ctypes; p = ctypes.c_uint64()\n"
        "dev.invoke('mem_alloc', 0, 0, 64, ctypes.addressof(p)); old = p.value\n"
        "dev.invoke('mem_free', 0, old)\n"
        "try: dev.invoke('mem_alloc', 0, 0, 1 << 62, ctypes.addressof(p))\n"
        "except rt.Error: pass\n"
        "dev.invoke('mem_free', 0, old)",
        ["MEM-002", "freed before"],
    ),
    "a free inside an allocation": (
        "import ctypes; p = ctypes.c_uint64()\n"
        "dev.invoke('mem_alloc', 0, 0, 64, ctypes.addressof(p))\n"
        "dev.invoke('mem_free', 0, p.value + 8)",
        ["MEM-002", "not the start of an allocation"],
    ),
    "a free while work may run": (
        "import ctypes; p = ctypes.c_uint64()\n"
        "dev.invoke('mem_alloc', 0, 0, 64, ctypes.addressof(p))\n"
        "dev.invoke('mem_fill', stream, p.value, 0, 64); dev.invoke('mem_free', 0, p.value)",
        ["MEM-002", "mem_fill of stream", "may still use"],
    ),
    "device memory as host memory": (
        "x = dev.array(np.ones(4, np.float32)); y = dev.empty((4,))\n"
        "dev.invoke('mem_copy', stream, y.address, x.address, 16, 0)",
        ["MEM-003", "source"],
    ),
    "a race: write and read": (
        "x = dev.array(np.ones(4, np.float32)); y = dev.empty((4,)); z = dev.empty((4,))\n"
        "other = Driver(0); other.stream = rt.pool_stream(0, 0, 0)\n"
        "dev.pointwise('COPY', y, x); other.pointwise('COPY', z, y)",
        ["ORD-001", "reads 'input'", "nothing orders the two"],
    ),
    "a race: read and write": (
        "x = dev.array(np.ones(4, np.float32)); y = dev.empty((4,))\n"
        "other = Driver(0); other.stream = rt.pool_stream(0, 0, 0)\n"
        "dev.pointwise('COPY', y, x); other.pointwise('FILL', x, params=[1])",
        ["ORD-001", "writes 'output'", "read"],
    ),
    "an out parameter that is not there": (
        "import ctypes; e = ctypes.c_uint64()\n"
        "dev.invoke('device_memory', 0, ctypes.addressof(e), 0)",
        ["SHP-003", "out parameter is NULL"],
    ),
    "a device that is not": (
        "dev.invoke('device_sync', 7)",
        ["STA-001", "device 7 does not exist; 2 present"],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_refused(name, with_toy):
    program, words = FAULTS[name]
    body = "".join(f"    {line}\n" for line in program.splitlines())
    out = with_toy(
        f"try:\n{body}except rt.Error as error:\n    print(error.status, error)\n",
        env=CHECK,
        devices="2",
    )
    assert out.startswith("1 toy: "), f"not refused: {out}"
    for word in words:
        assert word in out


# Faults that the toy itself neither sees nor dies of.
SILENT = [
    "a read beyond the end",
    "overlap that is not in place",
    "shapes that disagree",
    "a race: write and read",
    "a race: read and write",
    "a free while work may run",
]


@pytest.mark.parametrize("name", SILENT)
def test_the_faults_are_silent_without_the_layer(name, with_toy):
    """The test above proves something only if nobody else would have said it."""
    body = "".join(f"    {line}\n" for line in FAULTS[name][0].splitlines())
    out = with_toy(f"if True:\n{body}print('fine')\n", devices="2", capacity=str(1 << 20))
    assert out.strip() == "fine"


LEGAL = {
    "in place": "x = dev.array(np.ones(4, np.float32)); dev.pointwise('ADD', x, x, 1.0)",
    "interleaved columns do not overlap": (
        "x = dev.array(np.ones((4, 2), np.float32))\n"
        "dev.pointwise('COPY', x.view((4,), (2,), 1), x.view((4,), (2,)))"
    ),
    "interleaved columns do not race": (
        "x = dev.array(np.ones((4, 2), np.float32))\n"
        "other = Driver(0); other.stream = rt.pool_stream(0, 0, 0)\n"
        "dev.pointwise('FILL', x.view((4,), (2,)), params=[1])\n"
        "other.pointwise('FILL', x.view((4,), (2,), 1), params=[1])"
    ),
    "two readers": (
        "x = dev.array(np.ones(4, np.float32)); y = dev.empty((4,)); z = dev.empty((4,))\n"
        "other = Driver(0); other.stream = rt.pool_stream(0, 0, 0)\n"
        "dev.pointwise('COPY', y, x); other.pointwise('COPY', z, x)"
    ),
    "ordered by an event": (
        "import ctypes\n"
        "x = dev.array(np.ones(4, np.float32)); y = dev.empty((4,)); z = dev.empty((4,))\n"
        "other = Driver(0); other.stream = rt.pool_stream(0, 0, 0)\n"
        "dev.pointwise('COPY', y, x)\n"
        "e = ctypes.c_uint64(); dev.invoke('event_create', 0, 0, ctypes.addressof(e))\n"
        "dev.invoke('event_record', e.value, stream)\n"
        "dev.invoke('stream_wait', other.stream, e.value)\n"
        "other.pointwise('COPY', z, y); other.synchronize(); assert z.numpy().sum() == 4"
    ),
    "ordered by the host": (
        "x = dev.array(np.ones(4, np.float32)); y = dev.empty((4,)); z = dev.empty((4,))\n"
        "other = Driver(0); other.stream = rt.pool_stream(0, 0, 0)\n"
        "dev.pointwise('COPY', y, x); dev.synchronize(); other.pointwise('COPY', z, y)"
    ),
    "no elements": "y = dev.empty((0, 3)); dev.pointwise('FILL', y, params=[1])",
    "memory is given back in order": (
        "for _ in range(50):\n"
        "    x = dev.array(np.ones(1000, np.float32)); y = dev.empty((1000,))\n"
        "    dev.pointwise('ADD', y, x, x); del x\n"
        "rt.empty_cache(0)"
    ),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_programs_pass(name, with_toy):
    out = with_toy(LEGAL[name] + "\nprint('fine')\n", env=CHECK, devices="2")
    assert out.strip() == "fine"
