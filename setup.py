"""Builds the native parts with CMake; pyproject.toml holds everything else.

One CMake tree builds the runtime, the Python modules and the CPU plugin. An editable install
copies what it built beside the Python sources; a wheel takes it from CMake's install rules.
Both work with and without build isolation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

# Before torch is imported: the installed chipset that torch would load is the one being replaced.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
# One compilation of the bridge against torch's headers takes up to 2 GB.
BYTES_PER_JOB = 2 << 30


class Build(build):
    """Starts from an empty package folder, so that no deleted module gets into a wheel."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class CMakeBuild(build_ext):
    """Configures, builds and installs the top-level CMakeLists.txt."""

    def run(self) -> None:
        in_place = self.inplace or self.editable_mode
        tree = ROOT / "build" / f"cmake-{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        cmake = _tool("cmake")
        self._call(cmake, "-S", str(ROOT), "-B", str(tree), *_options(in_place))
        self._call(cmake, "--build", str(tree), "--parallel", str(_jobs()))
        if not in_place:
            prefix = Path(self.build_lib).resolve()
            self._call(
                cmake, "--install", str(tree), "--prefix", str(prefix), "--component", "python"
            )

    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def _call(self, *command: str) -> None:
        print("+", " ".join(command), flush=True)
        done = subprocess.run(command, check=False)
        if done.returncode != 0:
            raise SystemExit(
                f"chipset: '{' '.join(command[:3])} …' failed with status {done.returncode}; "
                "the messages above say why"
            )


def _options(in_place: bool) -> list[str]:
    import pybind11
    import torch

    options = {
        "CMAKE_BUILD_TYPE": os.environ.get("CHIPSET_BUILD_TYPE", "Release"),
        "CMAKE_MAKE_PROGRAM": _tool("ninja"),
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "BUILD_TESTING": "OFF",
        "CHIPSET_INPLACE": "ON" if in_place else "OFF",
        "Python_EXECUTABLE": sys.executable,
        "pybind11_DIR": pybind11.get_cmake_dir(),
        "Torch_DIR": str(Path(torch.utils.cmake_prefix_path) / "Torch"),
        "CHIPSET_TORCH_ROOT": str(Path(torch.__file__).resolve().parent),
    }
    extra = os.environ.get("CHIPSET_CMAKE_ARGS", "").split()
    return ["-G", "Ninja", *(f"-D{name}={value}" for name, value in options.items()), *extra]


def _tool(name: str) -> str:
    """The path of a build tool; beside this Python first, since a venv need not be activated."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    if found is None:
        raise SystemExit(
            f"chipset: the build needs '{name}', and it is neither beside {sys.executable} nor on "
            f"PATH; run '{sys.executable} -m pip install {name}'"
        )
    return found


def _jobs() -> int:
    limit = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL")
    if limit:
        return int(limit)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // BYTES_PER_JOB))


setup(
    # Named so that the wheel is tagged for this Python and platform; CMake builds it.
    ext_modules=[Extension("chipset._runtime", sources=[])],
    cmdclass={"build": Build, "build_ext": CMakeBuild},
)
