"""The CPU chip with one fault, and ``chipset certify`` in a fresh interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
PACKAGE = """
import sys
import chipset

@chipset.hookimpl
def chipset_plugin():
    return chipset.PluginDescription(name="faulty", library={library!r}, options={options!r})

plugin = sys.modules[__name__]
"""


class Run(NamedTuple):
    """What ``chipset certify --json`` did."""

    status: int
    document: dict[str, Any]
    cases: dict[str, dict[str, Any]]
    folder: Path
    text: str


@pytest.fixture(scope="session")
def faulty_library(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    compiler = os.environ.get("CC") or shutil.which("cc")
    assert compiler is not None, "no C compiler: the build needs one, and so do these tests"
    target = tmp_path_factory.mktemp("faulty") / "libfaulty.so"
    command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command += ["-fvisibility=hidden", f"-I{repository / 'csrc/include'}"]
    command += [str(HERE / "plugins" / "faulty.c"), "-ldl", "-o", str(target)]
    subprocess.run(command, check=True)
    return target


@pytest.fixture
def faulty(tmp_path: Path, faulty_library: Path, repository: Path) -> Callable[[str], str]:
    """``faulty("crash")`` writes a plugin's module with that fault; returns its folder."""

    def write(fault: str) -> str:
        library = repository / "plugins" / "cpu" / "chipset_cpu" / "libchipset_cpu.so"
        folder = tmp_path / f"plugin-{fault}"
        folder.mkdir(exist_ok=True)
        shutil.copy(faulty_library, folder)
        options = {"fault": fault, "good": str(library)}
        text = PACKAGE.format(library=str(folder / faulty_library.name), options=options)
        (folder / "chipset_faulty.py").write_text(text)
        return str(folder)

    return write


@pytest.fixture
def certify(
    tmp_path: Path, faulty: Callable[[str], str], run_python: Callable[..., Any]
) -> Callable[..., Run]:
    """``certify("--level", "0", fault="crash")``: on the faulty chip, or on ``device``."""

    def run(*arguments: str, fault: str = "none", device: str = "faulty", out: str = "out") -> Run:
        folder = tmp_path / out
        program = (
            f"import sys; sys.path.insert(0, {faulty(fault)!r})\n"
            "from chipset.cli import main\n"
            f"main({['certify', device, '--out', str(folder), '--json', *arguments]!r})"
        )
        path = os.pathsep.join([faulty(fault), *_roots()])
        env = {"CHIPSET_PLUGINS": "chipset_faulty", "PYTHONPATH": path}
        done = run_python(program, env=env)
        document = json.loads(done.stdout)
        cases = {}
        if (folder / "certificate.json").exists():
            whole = json.loads((folder / "certificate.json").read_text())
            cases = {case["id"]: case for case in whole["cases"]}
        return Run(done.returncode, document, cases, folder, done.stderr)

    return run


def _roots() -> list[str]:
    root = HERE.parent.parent
    return [str(root / name) for name in ("core", "layers", "plugins/cpu", "conformance")]
