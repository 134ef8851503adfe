"""The command line on a plain torch device: one document with --json, one line for a fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chipset.cli import main

DEVICE = ["--device", "torch:cpu"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(capfd, monkeypatch):
    """Run a command in this process; returns (status, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return call


def document(result):
    status, out, err = result
    assert status == 0, err
    assert out.count("\n") == 1  # one document, one line
    return json.loads(out)


def test_generate(run, tiny_model):
    found = document(
        run("generate", *DEVICE, "--model", tiny_model, "--prompt", "ab", "--prompt", "c",
            "--max-new-tokens", 5, "--dtype", "f32", "--json")
    )  # fmt: skip
    assert [r["prompt"] for r in found["results"]] == ["ab", "c"]
    assert found["results"][0]["prompt_tokens"] == 2
    assert found["torch_device"].startswith("cpu") and found["fallback_calls"] == 0
    status, out, _ = run("generate", *DEVICE, "--model", tiny_model, "--prompt", "ab",
                         "--max-new-tokens", 5, "--dtype", "f32")  # fmt: skip
    assert status == 0 and out.startswith("ab" + found["results"][0]["text"][:2])


def test_chat_streams_and_remembers(run, tiny_model, monkeypatch):
    found = document(
        run("chat", *DEVICE, "--model", tiny_model, "--prompt", "hi", "--system", "be short",
            "--max-new-tokens", 6, "--json")
    )  # fmt: skip
    assert [m["role"] for m in found["messages"]] == ["system", "user", "assistant"]
    monkeypatch.setattr("sys.stdin", __import__("io").StringIO("one\ntwo\n\n"))
    found = document(run("chat", *DEVICE, "--model", tiny_model, "--max-new-tokens", 4, "--json"))
    assert [m["role"] for m in found["messages"]] == ["user", "assistant"] * 2


def test_train_then_compress_then_generate(run, tiny_model, instructions, tmp_path):
    trained = document(
        run("train", "sft", *DEVICE, "--model", tiny_model, "--data", instructions, "--output",
            tmp_path / "sft", "--steps", 4, "--max-length", 64, "--save-every", 2,
            "--eval-examples", 3, "--dtype", "f32", "--json")
    )  # fmt: skip
    assert trained["steps"] == 4 and not trained["interrupted"]
    assert Path(trained["loss_curve"]).is_file() and Path(trained["checkpoint"]).is_dir()
    text = tmp_path / "text.txt"
    text.write_text("some words to score, again and again. " * 30)
    packed = document(
        run("compress", *DEVICE, "--model", tmp_path / "sft", "--output", tmp_path / "q",
            "--eval-text", text, "--eval-tokens", 60, "--json")
    )  # fmt: skip
    assert packed["ratio"] < 0.3 and packed["eval_tokens"] == 59
    assert packed["perplexity_before"] > 1 and packed["perplexity_after"] > 1
    document(run("generate", *DEVICE, "--model", tmp_path / "q", "--prompt", "x",
                 "--max-new-tokens", 3, "--json"))  # fmt: skip


def test_compress_names_a_bad_model_or_folder_before_it_fetches(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "chipset.fetch.datasets.resolve_data", lambda _: pytest.fail("fetched the text first")
    )
    output = tmp_path / "q"
    status, _, err = run("compress", *DEVICE, "--model", "/nonexistent/x", "--output", output)
    assert status == 1 and "no model '/nonexistent/x'" in err
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "q"
    status, _, err = run("compress", *DEVICE, "--model", "/nonexistent/x", "--output", output)
    assert status == 1 and "cannot be written" in err


def test_bench_dispatch_shows_both_sides(run):
    found = document(run("bench", "dispatch", *DEVICE, "--only", "add", "--only", "mm", "--json"))
    assert [row["operator"] for row in found["operators"]] == ["add", "mm"]
    for row in found["operators"]:
        assert row["cpu_us"] > 0
        assert row["ratio"] == pytest.approx(row["chip_us"] / row["cpu_us"], abs=0.02)
    status, _, err = run("bench", "dispatch", *DEVICE, "--only", "ad")
    assert status != 0 and "no such operator in this benchmark: ad; there are add, " in err


def test_bench_shows_both_sides(run, tiny_model):
    found = document(
        run("bench", "step", *DEVICE, "--model", tiny_model, "--tokens", 32, "--rounds", 2,
            "--dtype", "f32", "--json")
    )  # fmt: skip
    host, device = found["sides"]["host"], found["sides"]["device"]
    assert host["first_loss"] == device["first_loss"] and len(device["seconds"]) == 2
    assert found["ratio"] > 0
    found = document(
        run("bench", "decode", *DEVICE, "--model", tiny_model, "--max-new-tokens", 8, "--rounds", 1,
            "--dtype", "f32", "--json")
    )  # fmt: skip
    assert set(found["sides"]) == {"transformers", "engine", "engine int8"}
    assert found["sides"]["engine"]["equal_tokens"] == 8
    assert found["sides"]["transformers"]["ratio"] == 1


def test_lists_need_no_device(run):
    rows = document(run("data", "list", "--json"))
    assert all(row["licence"] and row["origin"] for row in rows)
    assert document(run("model", "list", "--json"))[0]["name"] == "smollm2-135m"
    for command in (["data", "list"], ["model", "list"], ["devices"]):
        assert run(*command)[0] == 0


def test_devices_have_the_promised_fields(run):
    fields = {"name", "available", "reason", "count", "torch_device", "emulated", "version"}
    assert all(set(row) == fields for row in document(run("devices", "--json")))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["generate", "--device", "nochip", "--prompt", "x"], "nochip"),
        (["generate", *DEVICE, "--model", "./absent", "--prompt", "x"], "no model './absent'"),
        (["generate", *DEVICE, "--prompt", "x", "--temperature", "-1"], "temperature"),
        (["model", "fetch", "smol"], "catalogue has"),
        (["data", "fetch", "nothing"], "catalogue has"),
        (["train", "sft", *DEVICE, "--output", "/dev/null/x"], "cannot be written"),
    ],
)
def test_faults_are_one_line_and_one_document(run, arguments, text):
    status, out, err = run(*arguments)
    assert status == 1 and out == ""
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("chipset: ") and text in lines[0]
    status, out, _ = run(*arguments, "--json")
    assert status == 1 and text in json.loads(out)["error"]


def test_a_wrong_call_is_a_document_too(run):
    status, out, err = run("generate", "--nonsense", "--json")
    assert status == 2 and "wrong call" in json.loads(out)["error"] and "--nonsense" in err


def test_debug_shows_where(tiny_model):
    command = [sys.executable, "-m", "chipset.cli", "generate", *DEVICE, "--model", "./absent"]
    command += ["--prompt", "x"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(DEBUG="1"))
    assert done.returncode == 1 and "Traceback" in done.stderr


def test_an_interrupted_training_ends_with_130(tiny_model, instructions, tmp_path):
    script = (
        "import os, signal, chipset_layers.training.sft as s\n"
        "real = s._train_step\n"
        "def step(*a):\n"
        "    if a[-1] == 2: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(*a)\n"
        "s._train_step = step\n"
        "import sys; from chipset.cli import main; main(sys.argv[1:])\n"
    )
    arguments = ["train", "sft", *DEVICE, "--model", tiny_model, "--data", instructions, "--json",
                 "--output", tmp_path / "o", "--steps", "50", "--max-length", "64"]  # fmt: skip
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 130, done.stderr
    found = json.loads(done.stdout)
    assert found["interrupted"] and found["steps"] == 3
    assert Path(found["checkpoint"]).name == "checkpoint-000003"
    assert "--resume" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["devices", "--json"], ["train", "sft", "-h"]])
def test_help_and_devices_import_no_torch(arguments):
    script = (
        "import sys; from chipset.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["generate.py", "finetune.py"])
def test_examples_run(name, tiny_model):
    command = [sys.executable, str(ROOT / "examples" / name), "torch:cpu", str(tiny_model)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 6


def environment(**debug):
    """This process's, with the source roots; ``DEBUG`` becomes ``CHIPSET_DEBUG``."""
    roots = [str(ROOT / name) for name in ("core", "layers", "plugins/cpu")]
    settings = {f"CHIPSET_{name}": value for name, value in debug.items()}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(roots), **settings}
