"""The example chips, ready to be loaded, and programs that run on them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("core", "layers", "plugins/cpu", "plugin_sdk", "conformance")
Runner = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def sources() -> list[str]:
    """The folders of this source tree that a program needs on its path."""
    return [str(ROOT / root) for root in SOURCE_ROOTS]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One test process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def tools() -> dict[str, str]:
    """An environment in which cmake and ninja beside this Python are found."""
    search = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(search)}


@pytest.fixture(scope="session")
def hello(tools: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with hello_chip's package, its library built by its own CMakeLists.txt."""
    source, build = ROOT / "examples" / "hello_chip", ROOT / "build" / "tests-hello_chip"
    site = tmp_path_factory.mktemp("hello")
    with locked(build.with_suffix(".lock")):
        commands = [
            ["cmake", "-G", "Ninja", "-S", source, "-B", build, f"-Dchipset_DIR={ROOT / 'cmake'}"],
            ["cmake", "--build", build],
            ["cmake", "--install", build, "--prefix", site],
        ]
        for command in commands:
            done = subprocess.run(command, env=tools, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(source / "chipset_hello" / "__init__.py", site / "chipset_hello")
    return site


@pytest.fixture(scope="session")
def on_hello(run_python: Runner, hello: Path, sources: list[str]) -> Runner:
    """Runs a program that sees the chip ``hello``."""
    path = os.pathsep.join([*sources, str(hello)])

    def run(*arguments: str, env: dict[str, str] | None = None, **options: object) -> object:
        environment = {"PYTHONPATH": path, "CHIPSET_PLUGINS": "chipset_hello", **(env or {})}
        return run_python(*arguments, env=environment, **options)

    return run


@pytest.fixture(scope="session")
def on_python_chip(
    run_python: Runner, sources: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Runner:
    """Runs a program that sees a chip in Python: ``chipset_toy``, or the source that is given."""

    def run(
        *arguments: str, chip: str = "", env: dict[str, str] | None = None, **options: object
    ) -> object:
        folder = ROOT / "examples" / "python_chip"
        if chip:
            folder = tmp_path_factory.mktemp("chip")
            (folder / "chipset_toy.py").write_text(chip)
        environment = {
            "PYTHONPATH": os.pathsep.join([*sources, str(folder)]),
            "CHIPSET_PLUGINS": "chipset_toy",
            **(env or {}),
        }
        return run_python(*arguments, env=environment, **options)

    return run
