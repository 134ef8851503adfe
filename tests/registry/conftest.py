"""Packages that are installed only for one test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGE = """
import sys
import chipset

@chipset.hookimpl
def chipset_plugin():
    return chipset.PluginDescription(name={name!r}, library={library!r}, {extra})

plugin = sys.modules[__name__]
"""


@pytest.fixture(scope="session")
def toy_library(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The toy plugin of tests/runtime."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    assert compiler is not None, "no C compiler: the build needs one, and so do these tests"
    target = tmp_path_factory.mktemp("toy") / "libtoy.so"
    command = [compiler, "-std=c11", "-shared", "-fPIC", f"-I{repository / 'csrc/include'}"]
    command += [str(repository / "tests/runtime/plugins/toy.c"), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


@pytest.fixture
def installed(
    tmp_path: Path, toy_library: Path, repository: Path, run_python: Callable[..., object]
) -> Callable[..., object]:
    """``installed({"name": "…", …}, program)`` runs a program that sees these packages.

    Keys of a package: name (of the plugin), dist, source (the whole module), library, extra.
    """

    def run(packages: list[dict[str, str]], *arguments: str, env: dict[str, str] | None = None):
        for number, package in enumerate(packages):
            name = package["name"]
            module = f"package{number}_{name}"
            source = package.get("source") or PACKAGE.format(
                name=name,
                library=package.get("library", str(toy_library)),
                extra=package.get("extra", ""),
            )
            (tmp_path / f"{module}.py").write_text(source)
            info = tmp_path / f"{module}-1.0.dist-info"
            info.mkdir(exist_ok=True)
            dist = package.get("dist", module)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text(f"[chipset.plugins]\n{name} = {module}:plugin\n")
        roots = [str(tmp_path), str(repository / "core"), str(repository / "plugins/cpu")]
        return run_python(*arguments, env={"PYTHONPATH": os.pathsep.join(roots), **(env or {})})

    return run
