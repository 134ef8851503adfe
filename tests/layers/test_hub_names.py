"""``--model owner/name``: from the Hugging Face cache, without a network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

NAME = "chipset-tests/tiny-llama"
REVISION = "0123456789abcdef0123456789abcdef01234567"

# Each command in one process: the hub's library reads its environment when it is imported.
COMMANDS = """
import sys
from chipset.cli import main
for arguments in {commands!r}:
    try:
        main([str(a) for a in arguments])
    except SystemExit as ended:
        if ended.code:
            raise
"""


@pytest.fixture
def hub(tiny_model: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose cache has the model and which has no network."""
    place = tmp_path / "hf" / "hub" / ("models--" + NAME.replace("/", "--"))
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(REVISION)
    shutil.copytree(tiny_model, place / "snapshots" / REVISION)
    return {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}


def test_train_compress_and_generate(hub, run_python, instructions, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("some words to score, again and again. " * 30)
    model = ["--device", "torch:cpu", "--model", NAME, "--json"]
    commands = [
        ["train", "sft", *model, "--data", str(instructions), "--output", str(tmp_path / "sft"),
         "--steps", 2, "--max-length", 64, "--dtype", "f32"],
        ["compress", *model, "--output", str(tmp_path / "q"), "--eval-text", str(text),
         "--eval-tokens", 60],
        ["generate", *model, "--prompt", "ab", "--max-new-tokens", 3, "--dtype", "f32"],
    ]  # fmt: skip
    done = run_python(COMMANDS.format(commands=commands), env=hub, timeout=280)
    assert done.returncode == 0, done.stderr
    trained, packed, generated = map(json.loads, done.stdout.splitlines())
    assert trained["steps"] == 2 and Path(trained["model"]).is_dir()
    assert packed["ratio"] < 0.3
    assert generated["results"][0]["prompt_tokens"] == 2


OFFLINE = {"HF_HUB_OFFLINE": "1"}
UNREACHABLE = {"HF_ENDPOINT": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("command", "offline"),
    [
        (["train", "sft"], OFFLINE),
        (["compress", "--eval-text", "none"], OFFLINE),
        (["generate"], OFFLINE),
        (["generate"], UNREACHABLE),
    ],
    ids=["train", "compress", "generate", "generate, unreachable"],
)
def test_a_name_that_is_nowhere(offline, command, run_python, tmp_path):
    """Switched off or out of reach, the hub's absence is said in one line, with the way out."""
    rest = ["--prompt", "x"] if command == ["generate"] else ["--output", str(tmp_path / "out")]
    done = run_python(
        "-m", "chipset.cli", *command, "--device", "torch:cpu", "--model", "nobody/nothing", *rest,
        "--json", env={"HF_HOME": str(tmp_path / "hf"), **offline}, timeout=280,
    )  # fmt: skip
    assert done.returncode == 1
    text = json.loads(done.stdout)["error"]
    for word in ["nobody/nothing", str(tmp_path / "hf"), "hf download nobody/nothing"]:
        assert word in text
    assert "Traceback" not in done.stderr


def test_a_half_downloaded_model(hub, run_python):
    for file in Path(hub["HF_HOME"]).rglob("model.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    done = run_python(
        "-m", "chipset.cli", "generate", "--device", "torch:cpu", "--model", NAME, "--prompt", "x",
        "--json", env=hub, timeout=280,
    )  # fmt: skip
    assert done.returncode == 1
    assert "damaged or half-downloaded" in json.loads(done.stdout)["error"]
