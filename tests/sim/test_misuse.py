"""Everything that the simulated chip must catch, seeded once; and that legal programs stay silent.

Each fault names the words that its report must hold: the rule, the call, the allocation, the
streams, the missing step.
"""

from __future__ import annotations

import pytest

# Refused at the call: the error's text.
REFUSED = {
    "a race: write and read": (
        "x = ones(4); y = dev.empty((4,)); z = dev.empty((4,)); other = second()\n"
        "dev.pointwise('COPY', y, x); other.pointwise('COPY', z, y)",
        [
            "ORD-001",
            "pointwise in stream",
            "reads 'input'",
            "16 bytes of sim:0",
            "calls ago at",
            "in stream 0 wrote",
            "record an event",
        ],
    ),
    "a race: two writers": (
        "y = dev.empty((4,)); other = second()\n"
        "dev.pointwise('FILL', y, params=[1]); other.pointwise('FILL', y, params=[2])",
        ["ORD-001", "writes 'output'", "wrote", "let this stream wait"],
    ),
    "a race through mem_copy_peer": (
        "x = dev.array(np.ones(4, np.float32)); far = Driver(1); y = far.empty((4,))\n"
        "dev.pointwise('FILL', x, params=[2])\n"
        "far.invoke('mem_copy_peer', far.stream, y.address, x.address, 0, 16)",
        ["ORD-001", "mem_copy_peer", "reads 'source'", "nothing orders"],
    ),
    "memory freed while another stream uses it": (
        "p = alloc(64); other = second()\n"
        "other.invoke('mem_fill', other.stream, p, 0, 64); dev.synchronize()\n"
        "dev.invoke('mem_free', 0, p)",
        ["MEM-002", "64 bytes of sim:0", "mem_fill of stream 1", "record_stream"],
    ),
    "a double free": (
        "p = alloc(64); dev.invoke('mem_free', 0, p); dev.invoke('mem_free', 0, p)",
        ["MEM-002", "64 bytes", "freed before"],
    ),
    "a wild pointer": (
        "y = dev.empty((4,)); dev.invoke('mem_copy', stream, y.address, 4096, 16, 2)",
        ["MEM-004", "'source'", "no allocation"],
    ),
    "a read beyond the end": (
        "x = ones(4); y = dev.empty((5,)); dev.pointwise('COPY', y, x.view((5,)))",
        ["MEM-004", "bytes 0 to 20", "has 16"],
    ),
    "a use after free": (
        "p = alloc(64); dev.invoke('mem_free', 0, p)\ndev.invoke('mem_fill', stream, p, 0, 64)",
        ["MEM-004", "64 bytes, which has been freed", "keep it until its last use"],
    ),
    "unwritten memory": (
        "x = dev.empty((4,)); y = dev.empty((4,)); dev.pointwise('EXP', y, x)",
        [
            "MEM-001",
            "pointwise (call",
            "'input' at byte 0",
            "of 16 bytes on sim:0",
            "test_line",
            "write it first",
        ],
    ),
    "the unwritten half": (
        "x = dev.empty((4, 4)); y = dev.empty((4, 4))\n"
        "dev.pointwise('FILL', x.view((4, 2), (4, 1)), params=[1]); dev.pointwise('EXP', y, x)",
        ["MEM-001", "'input' at byte 8"],
    ),
    "memory of another device": (
        "x = ones(4); far = Driver(1); y = far.empty((4,)); far.pointwise('COPY', y, x)",
        ["MEM-004", "memory of sim:0", "stream is of sim:1", "not of a current device"],
    ),
    "an event of another device": (
        "e = event(device=1); dev.invoke('event_record', e, stream)",
        ["HND-001", "sim:1", "sim:0"],
    ),
    "the default stream of a current device": (
        "dev.invoke('mem_fill', 0, ones(4).address, 0, 16)",
        ["HND-001", "NULL"],
    ),
    "page-locked memory as a kernel's operand": (
        "import chipset._interface as ci\n"
        "p = alloc(64, kind=1); x = ones(4); x.memory.address, kept = p, x.memory.address\n"
        "y = dev.empty((4,))\ntry:\n    dev.pointwise('COPY', y, x)\n"
        "finally:\n    x.memory.address = kept",
        ["MEM-004", "page-locked host memory", "copy it to the device"],
    ),
    "a copy with the wrong kind": (
        "x = ones(4); y = ones(4); dev.invoke('mem_copy', stream, y.address, x.address, 16, 0)",
        ["MEM-003", "source", "device memory"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_misuse_is_refused(name, on_sim):
    program, words = REFUSED[name]
    lines = "".join(f"        {line}\n" for line in program.splitlines())
    done = on_sim(
        f"def test_line():\n    try:\n{lines}    except rt.Error as error:\n"
        "        print(error.status, error)\ntest_line()\n",
        "devices=2,leaks=0",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 sim: "), f"not refused: {done.stdout}{done.stderr}"
    for word in words:
        assert word in done.stdout, f"{word!r} is not in {done.stdout}"


# The host touches what it must not: the process ends, the report stands on stderr.
FATAL = {
    "the host reads device memory": (
        "x = ones(16); host(x.address, 16)[3]",
        [
            "MEM-003",
            "the host reads device memory",
            "byte 12 of allocation",
            "of 64 bytes on sim:0",
            "Tensor.cpu()",
            "the host is at",
        ],
    ),
    "the host writes device memory": (
        "x = ones(16); host(x.address, 16)[0] = 1.0",
        ["MEM-003", "the host writes device memory", "byte 0 of allocation"],
    ),
    "the host reads freed device memory": (
        "p = alloc(64); dev.invoke('mem_free', 0, p); host(p, 16)[0]",
        ["MEM-003", "freed by call"],
    ),
    "the host writes beside page-locked memory": (
        "p = alloc(64, kind=1); host(p, 8192)[1030] = 1",
        ["MEM-004", "outside of any live allocation"],
    ),
    "the host reads what a copy has yet to write": (
        "x = ones(16); p = alloc(64, kind=1)\n"
        "dev.invoke('mem_copy', stream, p, x.address, 64, 1); host(p, 16)[0]",
        [
            "ASY-002",
            "the host reads byte 0",
            "page-locked",
            "mem_copy (call",
            "in stream 0",
            "synchronise with the stream",
        ],
    ),
    "the host overwrites what a copy has yet to read": (
        "x = dev.empty((16,)); p = alloc(64, kind=1); host(p, 16)[:] = 1\n"
        "dev.invoke('mem_copy', stream, x.address, p, 64, 0); host(p, 16)[5] = 2",
        ["ASY-002", "the host writes byte 20", "which reads it"],
    ),
}


@pytest.mark.parametrize("mode", ["eager", "latest"])
@pytest.mark.parametrize("name", FATAL)
def test_host_access_is_reported(name, mode, on_sim):
    """Whether the copy has run already makes no difference: nobody has waited for it."""
    program, words = FATAL[name]
    done = on_sim(program + "\nprint('survived')\n", f"mode={mode},leaks=0")
    assert done.returncode == -11, f"survived: {done.stdout}{done.stderr}"
    for word in words:
        assert word in done.stderr, f"{word!r} is not in {done.stderr}"


# Found later than the call, or legal: the findings.
REPORTED = {
    "unwritten memory copied to the host": (
        "dev.empty((4,)).numpy()",
        ["warning MEM-001", "mem_copy (call", "'source' at byte 0"],
    ),
    "an overrun of a kernel": (
        "chipset_sim.inject('pointwise:1=OVERRUN')\n"
        "y = dev.empty((4,)); dev.pointwise('FILL', y, params=[1]); dev.synchronize()",
        [
            "fault MEM-004",
            "overrun: byte 1 past the end of allocation",
            "of 16 bytes",
            "pointwise (call",
            "in stream 0",
        ],
    ),
    "an overrun found when the memory is freed": (
        "chipset_sim.inject('mem_fill:1=OVERRUN'); p = alloc(24)\n"
        "dev.invoke('mem_fill', stream, p, 0, 24); e = event()\n"
        "dev.invoke('event_record', e, stream)\n"
        "dev.invoke('event_query', e, -1); dev.invoke('mem_free', 0, p)",
        ["fault MEM-004", "overrun", "of 24 bytes", "mem_fill (call"],
    ),
    "an event asked for before it is recorded": (
        "e = event(); dev.invoke('event_query', e, 0)",
        ["warning EVT-001", "event_query (call", "never been recorded", "record it in the stream"],
    ),
    "an event waited for before it is recorded": (
        "e = event(); dev.invoke('stream_wait', stream, e)",
        ["warning EVT-001", "stream_wait (call", "waits for"],
    ),
    "a change beside the guarded bytes is legal, one inside is not": (
        "x = dev.empty((16,)); p = alloc(4096, kind=1); view = host(p, 1024); view[:] = 1\n"
        "dev.invoke('mem_copy', stream, x.address, p, 64, 0); view[500] = 3; view[2] = 4\n"
        "dev.synchronize()",
        ["fault ASY-002", "the host changed bytes 0 to 64", "of 4096 bytes"],
    ),
}


@pytest.mark.parametrize("name", REPORTED)
def test_misuse_is_reported(name, on_sim):
    program, words = REPORTED[name]
    done = on_sim(
        program
        + "\nfor f in chipset_sim.findings(): print(f.severity, f.rule, f.text, f.replay)\n",
        "leaks=0,seed=5",
    )
    assert done.returncode == 0, done.stderr
    for word in [*words, "seed=5"]:
        assert word in done.stdout, f"{word!r} is not in {done.stdout}"


def test_leaks_are_reported_at_exit_with_tag_and_place(on_sim):
    done = on_sim(
        "def leak():\n    with chipset_sim.tag('the optimizer'):\n        return alloc(640)\n"
        "leak()\n",
        "exitcode=86",
    )
    assert done.returncode == 86
    for word in ["LEAK", "of 640 bytes on sim:0", "tag 'the optimizer'", "in leak", "never freed"]:
        assert word in done.stderr


def test_no_leak_is_reported_of_what_the_runtime_holds(on_sim):
    done = on_sim(
        "x = ones(100); y = dev.empty((100,)); dev.pointwise('EXP', y, x); del x\n"
        "p = rt.allocate_host(0, 100); rt.deallocate_host(p)\n",
        "exitcode=86",
    )
    assert (done.returncode, done.stderr) == (0, "")


LEGAL = {
    "ordered by an event": (
        "x = ones(4); y = dev.empty((4,)); z = dev.empty((4,)); other = second(); e = event()\n"
        "dev.pointwise('EXP', y, x); dev.invoke('event_record', e, stream)\n"
        "dev.invoke('stream_wait', other.stream, e); other.pointwise('NEG', z, y)\n"
        "other.synchronize(); assert np.allclose(z.numpy(), -np.exp(1))"
    ),
    "ordered by the host": (
        "x = ones(4); y = dev.empty((4,)); z = dev.empty((4,)); other = second()\n"
        "dev.pointwise('EXP', y, x); dev.synchronize(); other.pointwise('NEG', z, y)\n"
        "other.synchronize(); assert np.allclose(z.numpy(), -np.exp(1))"
    ),
    "page-locked memory after the wait": (
        "p = alloc(64, kind=1); v = host(p, 16); v[:] = np.arange(16); x = dev.empty((16,))\n"
        "dev.invoke('mem_copy', stream, x.address, p, 64, 0); dev.synchronize(); v[:] = 0\n"
        "dev.invoke('mem_copy', stream, p, x.address, 64, 1); dev.synchronize()\n"
        "assert (v == np.arange(16)).all(); dev.invoke('mem_free', 0, p)"
    ),
    "page-locked memory after an event": (
        "p = alloc(64, kind=1); v = host(p, 16); x = ones(16); e = event()\n"
        "dev.invoke('mem_copy', stream, p, x.address, 64, 1)\n"
        "dev.invoke('event_record', e, stream)\n"
        "while dev.status('event_query', e, 0) == 7: pass\n"
        "assert v.sum() == 16; dev.invoke('mem_free', 0, p)"
    ),
    "neighbours on one page": (
        "p = alloc(4096, kind=1); v = host(p, 1024); v[:] = 7; x = dev.empty((16,))\n"
        "dev.invoke('mem_copy', stream, x.address, p, 64, 0); v[100] = 3; assert v[100] == 3\n"
        "dev.synchronize(); assert (x.numpy() == 7).all(); dev.invoke('mem_free', 0, p)"
    ),
    "pageable memory may change at once": (
        "a = np.ones(16, np.float32); x = dev.empty((16,))\n"
        "dev.invoke('mem_copy', stream, x.address, a.ctypes.data, 64, 0); a[:] = 0\n"
        "assert (x.numpy() == 1).all()"
    ),
    "rows written one by one": (
        "x = dev.empty((4, 4)); y = dev.empty((4, 4))\n"
        "for i in range(4): dev.pointwise('FILL', x.view((4,), (1,), 4 * i), params=[i])\n"
        "dev.pointwise('COPY', y, x.transpose()); assert (y.numpy()[0] == np.arange(4)).all()"
    ),
    "columns written one by one": (
        "x = dev.empty((4, 4))\n"
        "for i in range(4): dev.pointwise('FILL', x.view((4,), (4,), i), params=[i])\n"
        "assert (x.numpy()[0] == np.arange(4)).all()"
    ),
    "capture and replay": (
        "x = ones(4); y = dev.empty((4,)); g = ctypes.c_uint64()\n"
        "dev.invoke('capture_begin', stream); dev.pointwise('ADD', y, x, 1.0)\n"
        "dev.pointwise('MUL', x, y, 2.0)\n"
        "dev.invoke('capture_end', stream, ctypes.addressof(g))\n"
        "for _ in range(2): dev.invoke('capture_replay', g.value, stream)\n"
        "dev.synchronize(); assert (x.numpy() == 10).all(), x.numpy()\n"
        "dev.invoke('graph_destroy', g.value)"
    ),
    "a copy between devices": (
        "far = Driver(1); x = ones(4); y = far.empty((4,)); dev.synchronize()\n"
        "far.invoke('mem_copy_peer', far.stream, y.address, x.address, 0, 16)\n"
        "assert (y.numpy() == 1).all()"
    ),
}
SCHEDULES = [
    "mode=eager",
    "mode=latest",
    "mode=random,seed=1",
    "mode=random,seed=2",
    "workers=1,delay_us=300,seed=3",
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_legal_programs_are_silent(schedule, on_sim):
    """All in one process for each schedule; any finding, also a leak, makes the status 86."""
    programs = "".join(
        f"def legal_{i}():\n"
        + "".join(f"    {line}\n" for line in program.splitlines())
        + f"legal_{i}()\n"
        for i, program in enumerate(LEGAL.values())
    )
    done = on_sim(programs, f"devices=2,exitcode=86,{schedule}")
    assert (done.returncode, done.stderr) == (0, "")
