"""The cache: folders that appear whole or not at all, each with a manifest of checksums.

``$CHIPSET_CACHE`` or ``~/.cache/chipset`` holds ``models/NAME`` and ``data/NAME``. An entry is
written into a temporary folder beside its place; its manifest is written last; one rename makes
it visible. So an entry without a manifest, or one that disagrees with it, was damaged later.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from chipset.fetch.errors import FetchError

MANIFEST = "chipset-manifest.json"
PARTIAL_PREFIX = ".partial-"


def cache_root() -> Path:
    """``$CHIPSET_CACHE``, else ``~/.cache/chipset`` (or below ``$XDG_CACHE_HOME``)."""
    if chosen := os.environ.get("CHIPSET_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "chipset"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_damage(folder: Path) -> str | None:
    """What is wrong with a cache entry, in words, or None if it is as it was written."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return f"it has no {MANIFEST}"
    try:
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    except (ValueError, KeyError, TypeError):
        return f"its {MANIFEST} is unreadable"
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            return f"the file '{name}' is missing"
        if path.stat().st_size != expected["bytes"]:
            return f"'{name}' has {path.stat().st_size} bytes instead of {expected['bytes']}"
        if file_sha256(path) != expected["sha256"]:
            return f"'{name}' does not have the SHA-256 {expected['sha256']}"
    return None


def fill_entry(place: Path, source: dict[str, str], fill: Callable[[Path], None]) -> None:
    """Create the cache entry ``place``: ``fill`` writes its files into a folder given to it.

    Whatever goes wrong, including an interrupt, ``place`` is left as it was.
    """
    make_folder(place.parent)
    with _locked(place), _removed_at_exit(place) as partial:
        fill(partial)
        _write_manifest(partial, source)
        if place.exists():
            doomed = partial.with_name(partial.name + "-old")
            place.rename(doomed)
            partial.rename(place)
            shutil.rmtree(doomed)
        else:
            partial.rename(place)


def make_folder(folder: Path) -> None:
    """Create ``folder``; an unusable place is named together with the variable to set."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(
            f"the cache folder '{folder}' cannot be created ({error.strerror}); "
            "set CHIPSET_CACHE to a writable folder"
        ) from None


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Two processes that want the same entry take turns."""
    with (place.parent / f".lock-{place.name}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _removed_at_exit(place: Path) -> Iterator[Path]:
    for left in place.parent.glob(f"{PARTIAL_PREFIX}{place.name}-*"):
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
    partial = Path(tempfile.mkdtemp(prefix=f"{PARTIAL_PREFIX}{place.name}-", dir=place.parent))
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_manifest(folder: Path, source: dict[str, str]) -> None:
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    text = json.dumps({"source": source, "files": files}, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
