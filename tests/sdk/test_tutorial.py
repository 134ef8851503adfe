"""docs/write-a-plugin.md does what it says: each block, in order, as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "write-a-plugin.md"
BLOCK = re.compile(r"^```(bash|python|cpp)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FUNCTION = re.compile(r"^  static (?:void|float&) (\w+)\(.*?^  }\n", re.MULTILINE | re.DOTALL)


def put_in_place(source: Path, code: str) -> None:
    """Functions of the block go where the file has one of the same name, others before the next."""
    text = source.read_text()
    new = ""
    replaced = 0
    for match in FUNCTION.finditer(code):
        new += match[0]
        old = re.search(rf"^  static void {match[1]}\(.*?^  }}\n", text, re.MULTILINE | re.DOTALL)
        if old is not None:
            text = text[: old.start()] + new + text[old.end() :]
            new = ""
            replaced += 1
    assert replaced and not new, f"nothing in {source.name} is replaced by\n{code}"
    source.write_text(text)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_block_runs(tmp_path: Path, sources: list[str], tools: dict[str, str]) -> None:
    site, scripts = tmp_path / "site", tmp_path / "bin"
    scripts.mkdir()
    # `chipset` and `python` are this interpreter's, whether or not its environment is activated.
    (scripts / "chipset").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m chipset.cli "$@"\n')
    (scripts / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for script in scripts.iterdir():
        script.chmod(0o755)
    environment = {
        **tools,
        "PATH": os.pathsep.join([str(scripts), tools["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(site), *sources]),
        "PIP_TARGET": str(site),
        "PIP_UPGRADE": "1",
        "CMAKE_ARGS": f"-Dchipset_DIR={ROOT / 'cmake'}",
    }
    work = tmp_path / "work"
    work.mkdir()
    found = BLOCK.findall(PAGE.read_text())
    assert {language for language, _ in found} == {"bash", "python", "cpp"}
    for language, code in found:
        if language == "cpp":
            put_in_place(work / "mychip" / "src" / "mychip.cpp", code)
            continue
        command = ["bash", "-euc"] if language == "bash" else [sys.executable, "-c"]
        done = subprocess.run(
            [*command, code], cwd=work, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        if "chipset devices" in code:
            assert "mychip" in done.stdout
