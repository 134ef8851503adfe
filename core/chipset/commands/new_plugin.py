"""``chipset new-plugin``: a package to start a plugin from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from chipset.commands.options import Json
from chipset.commands.report import reporting
from chipset.errors import ChipsetError


def new_plugin(
    name: Annotated[str, typer.Argument(help="The chip's name, as in --device NAME.")],
    output: Annotated[
        Path | None, typer.Option(help="The folder to make; default: chipset-NAME here.")
    ] = None,
    install: Annotated[
        bool,
        typer.Option("--install", help="Build and install it too, and certify that it boots."),
    ] = False,
    json: Json = False,
) -> None:
    """Write a complete plugin package, in which what is left to write is marked."""
    from chipset_sdk import scaffold

    with reporting(json) as out:
        folder = output if output is not None else Path(f"chipset-{name}")
        files = scaffold.new_plugin(name, folder)
        result: dict[str, object] = {
            "name": name,
            "path": str(folder),
            "files": [str(f) for f in files],
        }
        if install:
            _run(sys.executable, "-m", "pip", "install", "--quiet", *PIP, str(folder.absolute()))
            _run(sys.executable, "-m", "chipset.cli", "certify", name, "--level", "0")
            result["level_reached"] = 0
        out.result(result)
        if not json:
            out.note(f"wrote {len(files)} files to {folder}")
            if not install:
                out.note(f"next: pip install --no-build-isolation {folder.absolute()}")
            out.note(f"then: chipset certify {name}    (it says what to write next)")


# Against the installed chipset; what it depends on is there already.
PIP = ("--no-build-isolation", "--no-deps")


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise ChipsetError(
            f"'{' '.join(command[1:])}' ended with status {done.returncode}; the messages above "
            "say why. A build needs a C++17 compiler, and what 'pip install chipset[sdk]' brings"
        )
