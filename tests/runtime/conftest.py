"""The toy plugin, whole or spoilt in one way, and programs that run with it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PRELUDE = """
import numpy as np
from chipset import _runtime as rt
from chipset.driver import Driver
from chipset._interface import Dtype
rt.launch([("toy", {library!r}, {options!r})])
stream = rt.default_stream(0)
dev = Driver(0)
"""


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Callable[..., Path]:
    """``toy("TOY_CRASH")`` compiles the toy plugin with these macros and returns its path."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.fail("no C compiler: the build needs one, and so do these tests")
    folder = tmp_path_factory.mktemp("toy")

    def compile_throws() -> Path:
        target = folder / "throws.o"
        command = [compiler, "-fPIC", "-c", str(HERE / "plugins" / "throws.cpp")]
        subprocess.run([*command, "-o", str(target)], check=True)
        return target

    def compile_toy(*macros: str) -> Path:
        target = folder / ("_".join(["libtoy", *macros]) + ".so")
        if not target.exists():
            command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
            command += ["-shared", "-fPIC", "-fvisibility=hidden"]
            command += [f"-I{repository / 'csrc' / 'include'}", *(f"-D{m}" for m in macros)]
            command += [str(HERE / "plugins" / "toy.c"), "-lm", "-o", str(target)]
            if "TOY_THROWS" in macros:
                command += ["-fexceptions", str(compile_throws()), "-lstdc++"]
            subprocess.run(command, check=True)
        return target

    return compile_toy


@pytest.fixture
def with_cpu(repository: Path, run_python: Callable[..., object]) -> Callable[..., str]:
    """Runs a program with the CPU chip in the place of the toy; returns its output."""

    def run(program: str, env: dict[str, str] | None = None, **options: str) -> str:
        library = repository / "plugins" / "cpu" / "chipset_cpu" / "libchipset_cpu.so"
        assert library.exists(), f"{library} is not built; run 'pip install -e .'"
        prelude = PRELUDE.format(library=str(library), options=options).replace('"toy"', '"cpu"')
        done = run_python(prelude + program, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def with_toy(toy: Callable[..., Path], run_python: Callable[..., object]) -> Callable[..., str]:
    """Runs a program with the toy launched (``rt``, ``stream``, ``dev``); returns its output."""

    def run(
        program: str,
        env: dict[str, str] | None = None,
        status: int = 0,
        macros: tuple[str, ...] = (),
        **options: str,
    ) -> str:
        prelude = PRELUDE.format(library=str(toy(*macros)), options=options)
        done = run_python(prelude + program, env=env)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run
