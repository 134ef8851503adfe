"""A model folder that is not whole is named before anything loads it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from chipset.fetch.errors import FetchError
from chipset.fetch.folder import check_model_folder
from chipset.fetch.models import resolve_model


def write_safetensors(path: Path, values: int = 8) -> None:
    header = {"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4 * values))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    write_safetensors(tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def sharded(folder):
    (folder / "model.safetensors").unlink()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name in names:
        write_safetensors(folder / name)
    index = {"weight_map": {"a": names[0], "b": names[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_whole_folders_pass(folder):
    check_model_folder(folder)
    assert resolve_model(str(folder)) == str(folder)


def test_whole_shards_pass(sharded):
    check_model_folder(sharded)


def test_a_missing_shard_is_named(sharded):
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FetchError, match=r"lacks the shard 'model-00002-of-00002\.safetensors'"):
        check_model_folder(sharded)


@pytest.mark.parametrize("kept", [0, 5, 20, -1])
def test_a_truncated_file_is_named(folder, kept):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(FetchError, match=r"model\.safetensors' is damaged or half-downloaded"):
        check_model_folder(folder)


def test_a_pointer_file_instead_of_weights_is_named(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid x")
    with pytest.raises(FetchError, match="damaged"):
        check_model_folder(folder)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("config.json", None, "has no config.json"),
        ("config.json", '{"model_ty', "config.json' is not valid JSON"),
        ("model.safetensors", None, "has neither model.safetensors nor"),
    ],
)
def test_other_faults(folder, name, content, text):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(FetchError, match=text):
        resolve_model(str(folder))


def test_what_is_neither_folder_nor_name(tmp_path):
    for wrong in (str(tmp_path / "absent"), "nonsense", "a/b/c", "./x"):
        with pytest.raises(FetchError, match="neither a folder, nor a catalogue name"):
            resolve_model(wrong)


def test_a_training_output_stands_for_its_final_model(folder):
    final = folder / "out" / "final"
    final.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).rename(final / name)
    assert resolve_model(str(folder / "out")) == str(final)
