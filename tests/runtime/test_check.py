"""The checked layer: each fault is refused with its rule's id, and legal programs pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECK = {"CHIPSET_CHECK": "1"}

# A FILL whose output's descriptor is spoilt.
SPOILT_TENSOR = (
    "import ctypes; from chipset._interface import PointwiseOp\n"
    "a = dev.arguments('pointwise', op=PointwiseOp.FILL, compute_dtype=Dtype.F32, num_inputs=0,\n"
    "                  output=dev.empty((4,)), param=[1]); t = a.alive[0]\n"
    "{}; dev.invoke('pointwise', stream, ctypes.addressof(a))"
)

# What a program does wrong: the rule and words of the message.
FAULTS = {
    "a descriptor without its size": (
        SPOILT_TENSOR.format("t.struct_size = 4"),
        ["VER-002", "'output' has struct_size 4"],
    ),
    "an unknown dtype": (
        SPOILT_TENSOR.format("t.dtype = 77"),
        ["SHP-003", "'output' has dtype 77, which is no chipset_dtype"],
    ),
    "a rank above eight": (
        SPOILT_TENSOR.format("t.rank = 9"),
        ["SHP-001", "'output' has rank 9; 0 to 8 are legal"],
    ),
    "a negative size": (
        SPOILT_TENSOR.format("t.shape[0] = -1"),
        ["SHP-001", "negative size or stride in dimension 0"],
    ),
    "elements without data": (
        SPOILT_TENSOR.format("t.data = 0"),
        ["MEM-004", "'output' f32[4] has elements, but its data is NULL"],
    ),
    "an address between elements": (
        SPOILT_TENSOR.format("t.data += 2"),
        ["MEM-004", "is not aligned to its element size 4"],
    ),
    "no argument struct": (
        "dev.invoke('pointwise', stream, 0)",
        ["VER-002", "the argument struct is NULL"],
    ),
    "a copy from NULL": (
        "dev.invoke('mem_copy', stream, dev.empty((4,)).address, 0, 16, 0)",
        ["MEM-004", "'source' is NULL"],
    ),
    "a fill of NULL": (
        "dev.invoke('mem_fill', stream, 0, 0, 16)",
        ["MEM-004", "'destination' is NULL"],
    ),
    "an unknown kind of copy": (
        "x = dev.array(np.ones(4, np.float32)); y = dev.empty((4,))\n"
        "dev.invoke('mem_copy', stream, y.address, x.address, 16, 9)",
        ["SHP-003", "copy kind 9 is not a chipset_copy_kind"],
    ),
    "host memory as device memory": (
        "x = dev.array(np.ones(4, np.float32)); y = dev.empty((4,))\n"
        "dev.invoke('mem_copy', stream, y.address, x.address, 16, 1)",
        ["MEM-003", "the destination", "DEVICE_TO_HOST copy is device memory"],
    ),
    "a free on another device": (
        "import ctypes; p = ctypes.c_uint64()\n"
        "dev.invoke('mem_alloc', 0, 0, 64, ctypes.addressof(p))\n"
        "dev.invoke('mem_free', 1, p.value)",
        ["MEM-002", "belongs to toy:0, not to toy:1"],
    ),
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


# What a plugin answers wrongly: the option of the toy, a program, and words of what is said.
ANSWERS = {
    "an error without a text": (
        "wordless",
        "dev.invoke('device_sync', 0)",
        ["ERR-001", "device_sync answered INTERNAL without a text", "(the plugin gave no text)"],
    ),
    "what is no status": (
        "unknown",
        "dev.invoke('device_sync', 0)",
        ["ERR-001", "device_sync answered 99, which is no status"],
    ),
    "not ready": (
        "not ready",
        "dev.invoke('device_sync', 0)",
        ["ERR-001", "device_sync answered NOT_READY, which only event_query may"],
    ),
    "success without the memory": (
        "no memory",
        "import ctypes; p = ctypes.c_uint64()\n"
        "dev.invoke('mem_alloc', 0, 0, 64, ctypes.addressof(p))",
        ["ERR-001", "mem_alloc answered OK, but what it was to make is NULL"],
    ),
    "success without the event": (
        "no event",
        "import ctypes; e = ctypes.c_uint64()\n"
        "dev.invoke('event_create', 0, 0, ctypes.addressof(e))",
        ["ERR-001", "event_create answered OK, but what it was to make is NULL"],
    ),
}


def caught(program: str) -> str:
    """The program, with an error of the runtime printed on standard error."""
    body = "".join(f"    {line}\n" for line in program.splitlines())
    return f"import sys\ntry:\n{body}except rt.Error as error:\n    print(error, file=sys.stderr)\n"


@pytest.mark.parametrize("name", ANSWERS)
def test_a_wrong_answer_is_reported(name, toy, run_python):
    """On standard error, since the caller is not to blame; the answer itself is passed on."""
    answer, program, words = ANSWERS[name]
    done = run_python(toy_with(toy(), answer) + caught(program), env=CHECK)
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stderr
    # Without the fault nothing is said, and without the layer nobody says it.
    good = run_python(toy_with(toy(), "") + caught(program), env=CHECK)
    assert (good.returncode, good.stderr) == (0, "")
    assert "ERR-001" not in run_python(toy_with(toy(), answer) + caught(program)).stderr


def toy_with(library: Path, answer: str | None) -> str:
    options = {} if answer is None else {"answer": answer}
    return (
        "from chipset import _runtime as rt\nfrom chipset.driver import Driver\n"
        f"rt.launch([('toy', {str(library)!r}, {options!r})])\ndev = Driver(0)\n"
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [("the toy fell", "threw an exception: the toy fell"), (None, "threw an exception")],
)
def test_an_exception_becomes_a_status(answer, words, toy, run_python):
    program = toy_with(toy("TOY_THROWS"), answer)
    program += "try:\n    dev.invoke('device_sync', 0)\n"
    program += "except rt.Error as error:\n    print(error.status, error)"
    done = run_python(program, env=CHECK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("6 toy: ")
    assert "ERR-001: device_sync " + words in done.stdout


def test_zero_bytes_of_memory_are_nothing(with_toy):
    with_toy("import ctypes; p = ctypes.c_uint64(1)\n"
             "dev.invoke('mem_alloc', 0, 0, 0, ctypes.addressof(p)); assert p.value == 0",
             env=CHECK)  # fmt: skip


def test_every_rule_of_the_layer_is_broken_here(repository):
    """A rule that a message of the layer names, and that no test above breaks, is untested."""
    rules = set()
    for name in ("check.cpp", "check_shapes.cpp", "interpose.cpp", "watched.h"):
        text = (repository / "csrc" / "runtime" / name).read_text()
        rules |= set(re.findall(r'"[^"]*?\b([A-Z]{3}-\d{3}): ', text))
    assert len(rules) >= 10, f"the pattern finds too little: {sorted(rules)}"
    broken = {words[0] for _, words in FAULTS.values()} | {w[0] for _, _, w in ANSWERS.values()}
    assert sorted(broken) == sorted(rules)
