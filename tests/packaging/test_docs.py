"""Documents point at what exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def documents() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in listing.stdout.splitlines() if (ROOT / line).exists()]


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings, and explicit ones."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+\s+(.*)$", text, re.MULTILINE)
    slugs = {
        re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")
        for heading in headings
    }
    return slugs | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    broken = []
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        page = (path.parent / file).resolve() if file else path
        if not page.exists() or (anchor and page.suffix == ".md" and anchor not in anchors(page)):
            broken.append(target)
    assert not broken, broken


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    unlisted = [path.name for path in folder.glob("0*.md") if f"({path.name})" not in index]
    assert not unlisted, unlisted


def test_every_environment_variable_is_documented() -> None:
    """Those that users may set; the parts of the suite and of the build tell each other others."""
    sources = subprocess.run(
        ["git", "ls-files", "*.py", "*.cpp", "*.hpp", "*.h"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    read = {
        name
        for source in sources
        if not source.startswith(("tests/", "benchmarks/")) and (ROOT / source).exists()
        for name in re.findall(r"[\"'](CHIPSET_[A-Z_]+)[\"']", (ROOT / source).read_text())
    }
    assert {"CHIPSET_DEVICE", "CHIPSET_KERNEL_CACHE", "CHIPSET_CHECK"} <= read
    internal = {
        "CHIPSET_CONFORMANCE_SOAK_S",  # certify --soak, for its children
        "CHIPSET_MUTANT_FAULT", "CHIPSET_MUTANT_GOOD",  # self-test, for its children
        "CHIPSET_INPLACE", "CHIPSET_TORCH_ROOT",  # setup.py, for CMake
    }  # fmt: skip
    text = "".join(path.read_text() for path in documents() if path.name != "CHANGELOG.md")
    missing = sorted(name for name in read - internal if name not in text)
    assert not missing, f"no page names {missing}"
    assert internal <= read, "no longer read: take it off the list"


def test_picture_is_well_formed() -> None:
    ElementTree.parse(ROOT / "docs" / "architecture.svg")


def test_readme_names_real_commands(run_python) -> None:
    readme = (ROOT / "README.md").read_text()
    commands = set(
        re.findall(
            r"^chipset ([a-z-]+(?: (?:sft|fetch|list|dispatch|step|decode))?)", readme, re.MULTILINE
        )
    )
    assert commands, "README.md shows no chipset command"
    for command in sorted(commands):
        done = run_python("-m", "chipset.cli", *command.split(), "--help")
        assert done.returncode == 0, f"chipset {command}: {done.stderr}"
