"""The distribution's metadata agrees with the source tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from setuptools import find_packages

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOTS = PROJECT["tool"]["setuptools"]["packages"]["find"]["where"]
FIRST_PARTY = {
    "chipset",
    "chipset_layers",
    "chipset_cpu",
    "chipset_opencl",
    "chipset_sdk",
    "chipset_sim",
    "chipset_conformance",
}
# Imported only inside functions that explain what to install when they are missing.
OPTIONAL: set[str] = {"pytest", "expecttest", "hypothesis"}


@cache
def sources() -> list[Path]:
    """Python files that git knows, or would add, below the source roots."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *ROOTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / line for line in listing.stdout.splitlines() if line.endswith(".py")]
    return [path for path in files if path.is_file() and "tests" not in path.parts]


def imports(path: Path) -> set[str]:
    """Top-level names that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_import_is_a_declared_dependency() -> None:
    declared = {
        normal(match.group())
        for requirement in PROJECT["project"]["dependencies"]
        if (match := re.match(r"[\w.-]+", requirement))
    }
    providers = packages_distributions()
    undeclared = {}
    for path in sources():
        for name in imports(path) - FIRST_PARTY - OPTIONAL - set(sys.stdlib_module_names):
            if not declared & {normal(found) for found in providers.get(name, [name])}:
                undeclared.setdefault(name, str(path.relative_to(ROOT)))
    assert not undeclared, f"imported but not in pyproject.toml's dependencies: {undeclared}"


def test_every_package_folder_is_packaged() -> None:
    found = set()
    for root in ROOTS:
        found |= {f"{root}/{name.replace('.', '/')}" for name in find_packages(str(ROOT / root))}
    folders = {str(path.parent.relative_to(ROOT)) for path in sources()}
    # Files directly in a source root, such as a plugin's own setup, are not packages.
    unpackaged = folders - found - set(ROOTS)
    assert not unpackaged, f"folders without __init__.py, left out of the wheel: {unpackaged}"


def test_plugin_folder_is_a_distribution_of_its_own() -> None:
    for folder in sorted((ROOT / "plugins").iterdir()):
        if not folder.is_dir():
            continue
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        ours = PROJECT["project"]["entry-points"]["chipset.plugins"]
        assert project["entry-points"]["chipset.plugins"][folder.name] == ours[folder.name]
        assert (folder / "README.md").is_file()


@pytest.mark.parametrize("target", ["demo", "test", "lint", "bench", "clean"])
def test_make_target_exists(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_version_is_stated_once() -> None:
    import chipset

    assert chipset.__version__ == PROJECT["project"]["version"]
