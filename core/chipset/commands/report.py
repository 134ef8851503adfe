"""How a command speaks: tables and progress for people, or one JSON document for programs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


class Reporter:
    """Given to a command by :func:`reporting`.

    Attributes:
        json: whether one JSON document is wanted.
        console: where everything for people goes; standard error if ``json``.
    """

    def __init__(self, json_wanted: bool) -> None:
        self.json = json_wanted
        self.console = Console(stderr=json_wanted, highlight=False)
        self.document: Any = None

    def result(self, document: Any) -> None:
        """Set the document that ``--json`` prints when the command ends."""
        self.document = document

    def note(self, text: str) -> None:
        """Say something to the reader that is not the result."""
        self.console.print(text, markup=False)

    def write(self, text: str) -> None:
        """Stream a piece of text without a line end."""
        stream = sys.stderr if self.json else sys.stdout
        stream.write(text)
        stream.flush()

    def progress(self, *fields: str) -> Progress:
        """A progress bar; ``fields`` are extra columns named in ``update(..., name=text)``."""
        extra = [TextColumn(f"{{task.fields[{name}]}}") for name in fields]
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn("{task.completed:.0f}/{task.total:.0f}"),
            *extra,
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            transient=True,
        )

    @contextlib.contextmanager
    def steps(self, total: int) -> Iterator[Callable[[str], None]]:
        """A progress bar over ``total`` steps; the function given is called before each."""
        begun = 0
        with self.progress() as bar:
            task = bar.add_task("", total=total)

            def begin(description: str) -> None:
                nonlocal begun
                bar.update(task, completed=begun, description=description)
                begun += 1

            yield begin


@contextlib.contextmanager
def reporting(json_wanted: bool) -> Iterator[Reporter]:
    """Run the body of a command: print its document, or one line that says what went wrong.

    With ``json_wanted`` whatever libraries print on standard output goes to standard error, so
    that the document is alone there. ``CHIPSET_DEBUG=1`` lets exceptions through.
    """
    reporter = Reporter(json_wanted)
    status = 0
    with _document_stream(json_wanted) as stream:
        try:
            yield reporter
        except typer.Exit as request:
            status = request.exit_code
        except KeyboardInterrupt:
            status = 130
            _fail(reporter, "interrupted")
        except Exception as error:
            if os.environ.get("CHIPSET_DEBUG") == "1":
                raise
            status = 1
            _fail(reporter, one_line(error))
        if json_wanted:
            print(json.dumps(reporter.document, ensure_ascii=False), file=stream, flush=True)
    if status != 0:
        raise typer.Exit(status)


def one_line(error: BaseException) -> str:
    """The first line of an error; its type too unless the text was written for users."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else "no message"
    ours = type(error).__module__.startswith("chipset")
    return first if ours else f"{type(error).__name__}: {first} (CHIPSET_DEBUG=1 shows where)"


def _fail(reporter: Reporter, text: str) -> None:
    print(f"chipset: {text}", file=sys.stderr, flush=True)
    reporter.document = {"error": text}


@contextlib.contextmanager
def _document_stream(json_wanted: bool) -> Iterator[Any]:
    if not json_wanted:
        yield sys.stdout
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    before, sys.stdout = sys.stdout, sys.stderr
    try:
        with open(saved, "w", encoding="utf-8", closefd=False) as stream:
            yield stream
    finally:
        sys.stdout = before
        os.dup2(saved, 1)
        os.close(saved)
