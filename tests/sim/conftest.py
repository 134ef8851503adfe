"""Programs that run on the simulated chip in a process of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

# Helpers for programs: `raw(function, *arguments)` calls the plugin's own table, without the
# checked layer above it, and raises unless the status is OK.
PRELUDE = """
import ctypes, threading, time
import numpy as np
import chipset, chipset_sim
from chipset import _runtime as rt
from chipset._interface import Dtype, Api
from chipset.driver import Driver, _PROTOTYPES
chipset.select("sim:0")
dev = Driver(0)
stream = dev.stream
def second(device=0):
    other = Driver(device)
    other.stream = rt.pool_stream(device, 0, 0)
    return other
def made(function, *arguments):
    out = ctypes.c_uint64()
    dev.invoke(function, *arguments, ctypes.addressof(out))
    return out.value
def alloc(size, kind=0, device=0):
    return made("mem_alloc", device, kind, size)
def event(device=0, flags=1):
    return made("event_create", device, flags)
def host(address, count, dtype=np.float32):
    kind = ctypes.c_byte * (count * np.dtype(dtype).itemsize)
    return np.frombuffer(kind.from_address(address), dtype)
def ones(n):
    return dev.array(np.ones(n, np.float32))
"""
# Speaks to the plugin with no runtime in between, as another caller of the interface would.
RAW = """
import ctypes
import chipset_sim
from chipset._interface import Api, FUNCTIONS, Tensor
from chipset.driver import _PROTOTYPES
library = ctypes.CDLL(str(chipset_sim.LIBRARY))
OPTIONS = {options!r}
texts = []
SetError = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
Log = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_char_p)
Option = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_char_p)
keep = [ctypes.create_string_buffer(v.encode()) for v in OPTIONS.values()]
table = dict(zip((k.encode() for k in OPTIONS), (ctypes.addressof(k) for k in keep)))
OptionRaw = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
callbacks = (SetError(lambda t: texts.append(t.decode())), Log(lambda level, t: None),
             OptionRaw(lambda name: table.get(name)))
class Host(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("major", ctypes.c_uint16), ("minor", ctypes.c_uint16),
                ("set_error", SetError), ("log", Log), ("option", OptionRaw)]
the_host = Host(ctypes.sizeof(Host), 1, 0, *callbacks)
library.chipset_plugin.restype = ctypes.c_void_p
address = library.chipset_plugin(ctypes.byref(the_host))
assert address, texts
api = Api.from_address(address)
def call(function, *arguments):
    return _PROTOTYPES[function](getattr(api, function))(*arguments)
def made(function, *arguments):
    out = ctypes.c_uint64()
    status = call(function, *arguments, ctypes.addressof(out))
    assert status == 0, texts
    return out.value
def report(status):
    print(status, texts[-1] if texts else "")
stream = made("stream_create", 0, 0)
"""

Runner = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session", autouse=True)
def built(repository: Path) -> None:
    library = repository / "plugins" / "sim" / "chipset_sim" / "libchipset_sim.so"
    if not library.exists():
        pytest.fail(f"{library} is not built; run 'pip install -e .'")


@pytest.fixture
def on_sim(run_python: Runner) -> Runner:
    """``on_sim(program, "mode=eager,devices=2")``: the finished process, whatever its status."""

    def run(program: str, options: str = "", timeout: float = 120) -> object:
        return run_python(PRELUDE + program, env={"CHIPSET_SIM": options}, timeout=timeout)

    return run


# Imports once; each program then launches the chip in a forked process of its own.
EACH = """
import os, sys
import numpy, chipset, chipset_sim, chipset.driver
program = {program!r}
for n in range(1, 200):
    out, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(end, 1)
        exec(program, {{"n": n}})
        sys.stdout.flush()
        os._exit(0)
    os.close(end)
    text = os.fdopen(out).read()
    _, status = os.waitpid(child, 0)
    assert status == 0, (n, status)
    if not text:
        break
    print(text, end="", flush=True)
"""


@pytest.fixture
def on_sim_each(run_python: Runner) -> Runner:
    """Like ``on_sim``, with ``n`` = 1, 2, … in a fresh process each until one prints nothing."""

    def run(program: str, options: str = "", timeout: float = 240) -> object:
        whole = EACH.format(program=PRELUDE + program)
        return run_python(whole, env={"CHIPSET_SIM": options}, timeout=timeout)

    return run


@pytest.fixture
def raw_sim(run_python: Runner) -> Runner:
    """The same with the plugin's bare table: ``call``, ``made``, ``report``, ``stream``."""

    def run(program: str, timeout: float = 120, **options: str) -> object:
        return run_python(RAW.format(options=options) + program, timeout=timeout)

    return run
