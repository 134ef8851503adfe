"""Is this Hugging Face folder whole? Checked without torch, before anything loads it.

A truncated file otherwise fails deep inside a loader, with a message about byte offsets.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

from chipset.fetch.errors import FetchError

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
MOST_HEADER_BYTES = 100_000_000  # the limit of the safetensors format


def check_model_folder(folder: Path) -> None:
    """Raise :class:`FetchError` naming the first thing that is missing or damaged in ``folder``."""
    if not folder.is_dir():
        raise FetchError(f"model folder '{folder}' does not exist")
    _read_json(folder, "config.json", "it says what the model is; is this a model folder?")
    for shard in _weight_files(folder):
        check_safetensors(folder / shard)


def check_safetensors(path: Path) -> None:
    """Compare the header of a safetensors file with the file's size."""
    if not path.is_file():
        raise FetchError(
            f"model folder '{path.parent}' lacks the shard '{path.name}'; copy or download it again"
        )
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if length == 0 or length > min(size, MOST_HEADER_BYTES):
            raise _damaged(path, f"its header is unreadable ({size} bytes in all)")
        try:
            header = json.loads(file.read(length))
        except ValueError:
            raise _damaged(path, "its header is not JSON") from None
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    need = 8 + length + max(ends, default=0)
    if size != need:
        raise _damaged(path, f"it has {size} bytes and should have {need}")


def _weight_files(folder: Path) -> list[str]:
    if (folder / INDEX_FILE).exists():
        index = _read_json(folder, INDEX_FILE, "")
        return sorted(set(index.get("weight_map", {}).values()))
    if (folder / SINGLE_FILE).exists():
        return [SINGLE_FILE]
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    raise FetchError(
        f"model folder '{folder}' has neither {SINGLE_FILE} nor {INDEX_FILE}"
        + (f" (found {', '.join(found)})" if found else "")
        + "; the download is not complete, or the weights are in another format"
    )


def _read_json(folder: Path, name: str, why: str) -> dict[str, dict[str, str]]:
    path = folder / name
    if not path.is_file():
        raise FetchError(f"model folder '{folder}' has no {name}" + (f": {why}" if why else ""))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FetchError(f"'{path}' is not valid JSON ({error}); download it again") from None
    if not isinstance(content, dict):
        raise FetchError(f"'{path}' holds no JSON object; download it again")
    return content


def _damaged(path: Path, what: str) -> FetchError:
    return FetchError(f"'{path}' is damaged or half-downloaded: {what}; download it again")
