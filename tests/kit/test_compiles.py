"""The kit's kernels, compiled for CUDA and for HIP by compilers that need no device.

Nothing runs: this shows that the text is right in both languages, not that a chip computes with it.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CUDA = ("sm_75", "sm_80", "sm_90", "sm_100")
HIP = ("gfx906", "gfx90a")
EACH = 6  # programs of each kernel, of different signatures, that are compiled
KIT_HEADER = ROOT / "plugin_sdk" / "chipset_sdk" / "kit" / "include" / "chipset_kit.hpp"
KERNEL_FILES = ROOT / "plugin_sdk" / "chipset_sdk" / "kit" / "kernels"
FOR_PROCESSORS = {"gemm_processor.c"}  # written in OpenCL C alone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Record = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """``record("cuda")``: the programs that the cases of level 2 make the kit compile."""
    build = tmp_path_factory.mktemp("recorder")
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": search}
    for command in (
        ["cmake", "-G", "Ninja", "-S", HERE / "recorder", "-B", build],
        ["cmake", "--build", build],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    roots = [ROOT / "core", ROOT / "conformance", HERE / "recorder"]

    def run(language: str) -> list[str]:
        folder = tmp_path_factory.mktemp(language)
        own = {
            "PYTHONPATH": os.pathsep.join(map(str, roots)),
            "CHIPSET_PLUGINS": "chipset_recorder",
            "RECORDER_LIBRARY": str(build / "libchipset_recorder.so"),
            "RECORDER_LANGUAGE": language,
            "RECORDER_FOLDER": str(folder),
        }
        done = subprocess.run(
            [sys.executable, "-m", "chipset_recorder"],
            env={**environment, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [path.read_text() for path in sorted(folder.iterdir())]

    return run


def kernels_of(source: str) -> list[str]:
    return re.findall(r"^KERNEL\((\w+)\)", source, re.MULTILINE)


def chosen(programs: list[str]) -> list[str]:
    """A few programs of each kernel, spread evenly; all kernels of the kit must be among them."""
    by_kernel: dict[str, list[str]] = defaultdict(list)
    for program in programs:
        for kernel in kernels_of(program):
            by_kernel[kernel].append(program)
    written = {
        kernel
        for file in KERNEL_FILES.glob("*.c")
        if file.name not in FOR_PROCESSORS
        for kernel in kernels_of(file.read_text())
    }
    assert written - by_kernel.keys() == set(), "kernels that no case made the kit compile"
    some = {same[index * len(same) // EACH] for same in by_kernel.values() for index in range(EACH)}
    return sorted(some)


class Compiler:
    """NVRTC or hipRTC, whose C functions differ in the prefix of their names alone."""

    def __init__(self, library: str, prefix: str) -> None:
        self.library = ctypes.CDLL(library)
        self.prefix = prefix

    def call(self, name: str, *arguments: object) -> int:
        return int(getattr(self.library, self.prefix + name)(*arguments))

    def errors(self, source: str, option: str) -> str:
        """What the compiler has against a program; empty if nothing."""
        program = ctypes.c_void_p()
        created = self.call(
            "CreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
        )
        assert created == 0, f"{self.prefix}CreateProgram answered {created}"
        options = (ctypes.c_char_p * 1)(option.encode())
        status = self.call("CompileProgram", program, 1, options)
        size = ctypes.c_size_t()
        self.call("GetProgramLogSize", program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        self.call("GetProgramLog", program, log)
        self.call("DestroyProgram", ctypes.byref(program))
        return f"{status}: {log.value.decode()}" if status else ""


def check(compiler: Compiler, programs: list[str], options: list[str]) -> None:
    assert compiler.errors("KERNEL(broken)(", options[0]), "the compiler takes whatever it is given"
    wrong = [
        f"{option}, {kernels_of(program)}: {log[:800]}"
        for option in options
        for program in programs
        if (log := compiler.errors(program, option))
    ]
    assert not wrong, f"{len(wrong)} of {len(programs) * len(options)}:\n" + "\n".join(wrong[:5])


def test_cuda(record: Record) -> None:
    nvidia = pytest.importorskip("nvidia", reason="needs the package nvidia-cuda-nvrtc")
    found = [f for root in nvidia.__path__ for f in Path(root).glob("*/lib/libnvrtc.so.*")]
    if not found:
        pytest.skip("needs the package nvidia-cuda-nvrtc")
    compiler = Compiler(str(found[0]), "nvrtc")
    check(compiler, chosen(record("cuda")), [f"--gpu-architecture={name}" for name in CUDA])


def test_hip(record: Record) -> None:
    try:
        compiler = Compiler("libamdhip64.so.5", "hiprtc")
    except OSError as error:
        pytest.skip(f"needs hipRTC (Debian: libamdhip64-5): {error}")
    check(compiler, chosen(record("hip")), [f"--offload-arch={name}" for name in HIP])
