"""A bad plugin is an answer with a reason; the process goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

PROBE = """
from chipset import _runtime as rt
answer = rt.probe(("toy", {library!r}, {{}}))
print(answer["available"], len(answer["devices"]))
print(answer["reason"])
"""
LAUNCH = """
from chipset import _runtime as rt
try:
    rt.launch([("toy", {library!r}, {{}})])
except rt.Error as error:
    print("refused:", error)
print("devices", rt.device_count())
"""

# The macro that spoils the toy, and words that the reason must hold.
SPOILT = {
    "TOY_WRONG_MAJOR": ["interface version 2.0", "VER-001"],
    "TOY_MISSING_GEMM": ["required functions", "gemm", "VER-003"],
    "TOY_CRASH": ["crashed", "signal 6"],
    "TOY_NULL": ["this host is too old for the toy"],
    "TOY_EXIT": ["ended the process", "status 7"],
    "TOY_TINY_TABLE": ["4 bytes", "VER-002"],
    "TOY_NO_DRIVER": ["libtoydriver.so.1 was not found in /usr/lib/toy"],
}


@pytest.mark.parametrize("macro", SPOILT)
def test_probe_gives_the_reason(macro, toy, run_python):
    done = run_python(PROBE.format(library=str(toy(macro))))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False 0")
    for words in SPOILT[macro]:
        assert words in done.stdout


@pytest.mark.parametrize("macro", [*SPOILT, "TOY_NO_DEVICE"])
def test_launch_refuses_and_the_process_goes_on(macro, toy, run_python):
    done = run_python(LAUNCH.format(library=str(toy(macro))))
    assert done.returncode == 0, done.stderr
    assert "refused:" in done.stdout
    assert "devices 0" in done.stdout
    for words in SPOILT.get(macro, ["no device is present"]):
        assert words in done.stdout


def test_missing_library(run_python):
    done = run_python(PROBE.format(library="/nowhere/libtoy.so"))
    assert "/nowhere/libtoy.so: No such file" in done.stdout


@pytest.mark.parametrize("keep", [0, 100, 3000, 9000])
def test_truncated_library(keep, toy, run_python, tmp_path: Path):
    whole = toy().read_bytes()
    assert keep < len(whole)
    cut = tmp_path / "libcut.so"
    cut.write_bytes(whole[:keep])
    done = run_python(LAUNCH.format(library=str(cut)))
    assert done.returncode == 0, done.stderr
    assert "refused:" in done.stdout
    assert str(cut) in done.stdout


def test_library_that_is_no_plugin(run_python, tmp_path: Path, toy):
    import subprocess

    source = tmp_path / "other.c"
    source.write_text("int nothing(void) { return 0; }\n")
    library = tmp_path / "libother.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    done = run_python(PROBE.format(library=str(library)))
    assert "exports no function chipset_plugin" in done.stdout


def test_exception_in_init(run_python, tmp_path: Path, repository: Path):
    import subprocess

    source = tmp_path / "throws.cpp"
    source.write_text(
        '#include <stdexcept>\n#include "chipset/chipset.h"\n'
        "const chipset_api* chipset_plugin(const chipset_host*) {\n"
        '  throw std::runtime_error("no licence file");\n}\n'
    )
    library = tmp_path / "libthrows.so"
    include = f"-I{repository / 'csrc' / 'include'}"
    command = ["c++", "-shared", "-fPIC", include, str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    done = run_python(LAUNCH.format(library=str(library)))
    assert done.returncode == 0, done.stderr
    assert "threw an exception" in done.stdout
    assert "no licence file" in done.stdout


def test_an_older_table_runs(toy, run_python):
    """A table that ends early: what lies beyond is absent, not garbage."""
    program = LAUNCH.format(library=str(toy("TOY_OLD_TABLE")))
    program += (
        "from chipset.driver import Driver\nd = Driver(0)\n"
        "print(d.has('gemm'), d.has('scan'), d.has('comm_create'))\n"
    )
    done = run_python(program)
    assert done.returncode == 0, done.stderr
    assert "True False False" in done.stdout


def test_launch_is_idempotent_and_appends(toy, run_python):
    program = f"""
from chipset import _runtime as rt
library = {str(toy())!r}
rt.launch([("toy", library, {{"devices": "2"}})])
rt.launch([("toy", library, {{"devices": "2"}})])
print(rt.device_count())
rt.launch([("other", library.replace("libtoy", "libtoy_TOY_OLD_TABLE"), {{}})])
print(rt.device_count(), rt.find_device("toy", 1), rt.find_device("other", 0))
try:
    rt.launch([("toy", library, {{}})])
except rt.Error as error:
    print(error)
try:
    rt.find_device("toy", 2)
except rt.Error as error:
    print(error)
"""
    toy("TOY_OLD_TABLE")
    done = run_python(program)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["2", "3 1 2"]
    assert "other options" in lines[2]
    assert "device 'toy:2' does not exist; toy has 2" in lines[3]


def test_two_plugins_keep_their_options_and_errors_apart(toy, run_python):
    """Callbacks know their plugin: options and error texts of two do not mix."""
    toy("TOY_OLD_TABLE")
    program = f"""
from chipset import _runtime as rt
library = {str(toy())!r}
rt.launch([("toy", library, {{"devices": "2"}}),
           ("xtoy", library.replace("libtoy", "libtoy_TOY_OLD_TABLE"), {{"devices": "3"}})])
print(rt.device_count(), rt.device(1)["plugin"], rt.device(2)["plugin"])
from chipset.driver import Driver
import ctypes
for number in (0, 2):
    try:
        Driver(number).invoke("device_info", 99, ctypes.addressof(ctypes.create_string_buffer(512)))
    except rt.Error as error:
        print(error, error.status)
"""
    done = run_python(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "5 toy xtoy",
        "toy: device_info: no such device 1",
        "xtoy: device_info: no such device 1",
    ]


def test_frozen_plugin_of_each_minor_version_runs(repository: Path, run_python):
    """A binary that was compiled against a released header works with this core, unchanged."""
    import platform

    frozen = sorted((repository / "tests/runtime/frozen").glob("*/*-x86_64.so"))
    assert frozen, "the frozen binaries are missing"
    if platform.machine() != "x86_64":
        pytest.skip("the frozen binaries are for x86-64")
    for library in frozen:
        program = f"""
import numpy as np
from chipset import _runtime as rt
rt.launch([("toy", {str(library)!r}, {{}})])
from chipset.driver import Driver
d = Driver(0)
a = np.arange(6, dtype=np.float32).reshape(2, 3)
x, y = d.array(a), d.empty((2, 2))
d.call("gemm", a=x, b=x.transpose(), d=y, alpha=1.0)
assert np.array_equal(y.numpy(), a @ a.T)
d.pointwise("ADD", y, y, 1.0)
assert np.array_equal(y.numpy(), a @ a.T + 1)
print("fine")
"""
        done = run_python(program)
        assert done.returncode == 0, f"{library}: {done.stderr}"
        assert "fine" in done.stdout
