"""`chipset new-plugin`: one command to a chip that boots; refusals leave nothing behind."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import jinja2
import pytest
import yaml

from chipset._interface import FUNCTIONS
from chipset.errors import ChipsetError
from chipset_sdk import scaffold

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def installed(tmp_path: Path, sources: list[str], tools: dict[str, str]) -> dict[str, str]:
    """An environment whose pip installs into a folder of the test, which Python sees."""
    site = tmp_path / "site"
    environment = {
        **tools,
        "PIP_TARGET": str(site),
        "PYTHONPATH": os.pathsep.join([str(site), *sources]),
        # Where a build finds the CMake package if chipset itself is not installed.
        "CMAKE_ARGS": f"-Dchipset_DIR={ROOT / 'cmake'}",
    }
    return environment


def test_one_command_boots_a_chip(run_python, installed: dict[str, str], tmp_path: Path) -> None:
    command = ["-m", "chipset.cli", "new-plugin", "mychip", "--install", "--json"]
    started = time.perf_counter()
    done = run_python(*command, env=installed, cwd=tmp_path, timeout=280)
    print(f"from nothing to level 0: {time.perf_counter() - started:.1f} s")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["level_reached"] == 0

    # What certify names next is a function that the source marks.
    command = ["-m", "chipset.cli", "certify", "mychip", "--level", "1", "--jobs", "1", "--json"]
    done = run_python(*command, "--out", str(tmp_path / "out"), env=installed, cwd=tmp_path)
    certificate = json.loads(done.stdout)
    assert done.returncode == 1 and certificate["level_reached"] == 0
    assert re.search(r"\w+ is NOT WRITTEN", certificate["next"]["why"]), certificate["next"]

    # The vendor's own test, as the workflow runs it.
    package = tmp_path / "chipset-mychip"
    done = run_python("-m", "pytest", "-q", str(package), env=installed, cwd=package)
    assert done.returncode == 0, done.stdout


def test_it_is_complete_and_marks_what_is_left(tmp_path: Path) -> None:
    files = scaffold.new_plugin("my_chip2", tmp_path / "there")
    names = {str(path.relative_to(tmp_path / "there")) for path in files}
    assert names == {
        ".github/workflows/conformance.yml",
        ".gitignore",
        "CMakeLists.txt",
        "README.md",
        "python/chipset_my_chip2/__init__.py",
        "pyproject.toml",
        "src/my_chip2.cpp",
        "tests/test_conformance.py",
    }
    text = "".join(path.read_text() for path in files)
    assert "{{" not in text.replace("${{", "") and "{%" not in text
    source = (tmp_path / "there" / "src" / "my_chip2.cpp").read_text()
    missing = [f.name for f in FUNCTIONS if not re.search(rf"\b{f.name}\b", source)]
    # The SDK's model has these for good; a vendor with a driver hides them.
    assert not missing, missing
    for function in FUNCTIONS:
        if function.group == "compute" and function.required and function.name != "pointwise":
            assert f'unsupported("{function.name} is NOT WRITTEN")' in source


def test_the_workflow_is_valid_and_its_commands_exist(tmp_path: Path, run_python) -> None:
    scaffold.new_plugin("mychip", tmp_path / "there")
    workflow = yaml.safe_load((tmp_path / "there/.github/workflows/conformance.yml").read_text())
    assert workflow[True] == ["push", "pull_request"]  # YAML 1.1 reads the key 'on' so
    steps = workflow["jobs"]["certify"]["steps"]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", s["uses"]) for s in steps if "uses" in s)
    commands = [step["run"] for step in steps if "run" in step]
    extras = (ROOT / "pyproject.toml").read_text()
    for extra in re.search(r"chipset\[(.*?)\]", commands[0])[1].split(","):
        assert re.search(rf"^{extra} = \[", extras, re.MULTILINE), extra
    certify = next(command for command in commands if command.startswith("chipset "))
    options = re.findall(r"--[a-z]+", certify)
    done = run_python("-m", "chipset.cli", certify.split()[1], "--help")
    assert done.returncode == 0 and options and all(o in done.stdout for o in options)


@pytest.mark.parametrize(
    "name", ["", "Mychip", "9chip", "my-chip", "my chip", "../chip", "chip", "torch", "cpu", "sim"]
)
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ChipsetError, match="cannot name a plugin"):
        scaffold.new_plugin(name, tmp_path / "there")
    assert not list(tmp_path.iterdir())


def test_what_exists_is_left_alone(tmp_path: Path) -> None:
    folder, file, empty = tmp_path / "folder", tmp_path / "file", tmp_path / "empty"
    folder.mkdir()
    empty.mkdir()
    (folder / "precious").write_text("kept")
    file.write_text("kept")
    for taken in (folder, file):
        with pytest.raises(ChipsetError, match="is there already; name another with --output"):
            scaffold.new_plugin("mychip", taken)
    assert (folder / "precious").read_text() == file.read_text() == "kept"
    assert [p.name for p in folder.iterdir()] == ["precious"]
    scaffold.new_plugin("mychip", empty)  # nothing is in it: no harm
    assert (empty / "pyproject.toml").exists()


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {**scaffold.FILES, "no-such-template.jinja": "late.txt"}
    monkeypatch.setattr(scaffold, "FILES", broken)
    with pytest.raises(jinja2.TemplateNotFound):
        scaffold.new_plugin("mychip", tmp_path / "there")
    assert not list(tmp_path.iterdir())


def test_the_command_names_the_fault(run_python, tmp_path: Path) -> None:
    done = run_python("-m", "chipset.cli", "new-plugin", "My-Chip", cwd=tmp_path)
    assert done.returncode != 0 and "'My-Chip' cannot name a plugin" in done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())


def test_a_build_that_fails_says_why(run_python, installed: dict[str, str], tmp_path: Path) -> None:
    environment = {**installed, "CMAKE_ARGS": "-DCMAKE_CXX_COMPILER=/nowhere/g++"}
    command = ["-m", "chipset.cli", "new-plugin", "mychip", "--install"]
    done = run_python(*command, env=environment, cwd=tmp_path, timeout=280)
    assert done.returncode != 0
    assert "/nowhere/g++" in done.stderr and "pip install chipset[sdk]" in done.stderr
    assert sys.executable not in done.stdout
