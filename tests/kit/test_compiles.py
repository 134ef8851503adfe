"""The kit's kernels, compiled for CUDA and for HIP by compilers that need no device.

Nothing runs: this shows that the text is right in both languages, not that a chip computes with it.
"""

from __future__ import annotations

import json
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


def check(library: str, prefix: str, programs: list[str], options: list[str]) -> None:
    """Compiles in a process of its own: the compilers bring LLVM along, and so may this process."""
    request = {"library": library, "prefix": prefix, "programs": programs, "options": options}
    done = subprocess.run(
        [sys.executable, HERE / "compile_programs.py"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2000:]}"
    answer = json.loads(done.stdout)
    assert answer["compiled"] == len(programs) * len(options)
    assert answer["broken"], "the compiler takes whatever it is given"
    assert not answer["wrong"], f"{len(answer['wrong'])}:\n" + "\n".join(answer["wrong"][:5])


def test_cuda(record: Record) -> None:
    nvidia = pytest.importorskip("nvidia", reason="needs the package nvidia-cuda-nvrtc")
    found = [f for root in nvidia.__path__ for f in Path(root).glob("*/lib/libnvrtc.so.*")]
    if not found:
        pytest.skip("needs the package nvidia-cuda-nvrtc")
    options = [f"--gpu-architecture={name}" for name in CUDA]
    check(str(found[0]), "nvrtc", chosen(record("cuda")), options)


def test_hip(record: Record) -> None:
    library = "libamdhip64.so.5"
    loads = subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({library!r})"],
        capture_output=True,
        text=True,
        check=False,
    )
    if loads.returncode != 0 and "OSError" in loads.stderr:
        pytest.skip(f"needs hipRTC (Debian: libamdhip64-5): {loads.stderr.splitlines()[-1]}")
    check(library, "hiprtc", chosen(record("hip")), [f"--offload-arch={name}" for name in HIP])
