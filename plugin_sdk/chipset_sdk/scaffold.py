"""Writes a new plugin package: complete, buildable, with what is left to write marked.

The functions come from the interface table, so that a scaffold names every one there is.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import textwrap
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from chipset._interface import FUNCTIONS, Function
from chipset.errors import ChipsetError
from chipset.registry import SOURCE_PLUGINS

TEMPLATES = Path(__file__).with_name("scaffold")
NAME = re.compile(r"[a-z][a-z0-9_]*")
# Words of the launch syntax, and packages chipset_NAME that exist already.
TAKEN = ("chip", "torch", "layers", "sdk", "conformance", *SOURCE_PLUGINS)
# Template: where it goes in the package.
FILES = {
    "pyproject.toml.jinja": "pyproject.toml",
    "CMakeLists.txt.jinja": "CMakeLists.txt",
    "README.md.jinja": "README.md",
    "gitignore.jinja": ".gitignore",
    "src/plugin.cpp.jinja": "src/{name}.cpp",
    # Not at the top: the folder would hide the installed package from programs that run there.
    "package/__init__.py.jinja": "python/chipset_{name}/__init__.py",
    "test_conformance.py.jinja": "tests/test_conformance.py",
    "workflows/conformance.yml.jinja": ".github/workflows/conformance.yml",
}


class Listed(NamedTuple):
    """A function as the templates show it."""

    name: str
    brief: str
    parameters: str
    composed: str


def new_plugin(name: str, folder: Path) -> list[Path]:
    """Writes the package for a chip called ``name`` into a new folder; returns its files.

    Raises:
        ChipsetError: the name cannot be a plugin's, or the folder has something in it.
    """
    import jinja2

    if not NAME.fullmatch(name) or name in TAKEN:
        raise ChipsetError(
            f"'{name}' cannot name a plugin: use lower-case letters, digits and '_', a letter "
            f"first, and none of {', '.join(TAKEN)}"
        )
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise ChipsetError(f"{folder} is there already; name another with --output")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["comment"] = _comment
    values = {
        "name": name,
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "modelled": [
            (group, [_listed(f) for f in functions])
            for group, functions in groupby(filter(_is_modelled, FUNCTIONS), lambda f: f.group)
        ],
        "required": [_listed(f) for f in FUNCTIONS if f.required and f.group == "compute"],
        "optional": [_listed(f) for f in FUNCTIONS if not f.required and f.name != "event_elapsed"],
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, and renamed when it is whole.
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        built = Path(scratch) / folder.name
        for template, target in FILES.items():
            path = built / target.format(name=name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(environment.get_template(template).render(values))
        if folder.exists():
            folder.rmdir()
        shutil.move(built, folder)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _is_modelled(function: Function) -> bool:
    """Whether the SDK's QueuedDevice serves the function until the vendor does."""
    runtime = function.group in ("device", "memory", "stream", "event")
    own = function.name in ("device_info", "mem_copy_peer")
    return runtime and not own


def _listed(function: Function) -> Listed:
    brief = re.split(r"(?<=[.;])\s", function.doc, maxsplit=1)[0].rstrip(".;") + "."
    parameters = ", ".join(f"{p.type} {p.name}" for p in function.params)
    return Listed(function.name, brief, parameters, function.composed)


def _comment(text: str) -> str:
    """The text as lines of a C++ comment inside a class."""
    return textwrap.fill(text, 100, initial_indent="  // ", subsequent_indent="  //     ")
