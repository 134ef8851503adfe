"""Folders that appear whole or not at all, and an early check that they can be written."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from chipset_layers.errors import LayerError

PARTIAL_PREFIX = ".partial-"


def prepare_output(folder: Path) -> Path:
    """Create ``folder`` and prove that a file can be written there.

    Raises:
        LayerError: it cannot; nothing long has run yet.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
    except OSError as error:
        raise LayerError(
            f"the output folder '{folder}' cannot be written ({error.strerror}); "
            "choose another with --output"
        ) from None
    return folder


@contextlib.contextmanager
def whole_folder(place: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``place`` and rename it to ``place`` on success.

    After any failure, also a kill, ``place`` is as it was before.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    for left in place.parent.glob(f"{PARTIAL_PREFIX}{place.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{PARTIAL_PREFIX}{place.name}-", dir=place.parent))
    try:
        yield partial
        _flush(partial)
        partial.chmod(0o755)
        if place.exists():
            doomed = partial.with_name(partial.name + "-old")
            place.rename(doomed)
            partial.rename(place)
            shutil.rmtree(doomed)
        else:
            partial.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Make the bytes durable before the name is, so that a power cut leaves no empty file."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
