"""``transformers.Trainer`` and ``accelerate`` take the chip that was selected."""

from __future__ import annotations

import json

import pytest

PROGRAM = """
import json, sys
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

transformers.utils.logging.disable_progress_bar()
rows = torch.randint(0, 64, (16, 12), generator=torch.Generator().manual_seed(0))
data = [{"input_ids": row, "labels": row} for row in rows]

def train(folder, **options):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2))
    arguments = TrainingArguments(
        folder, max_steps=5, per_device_train_batch_size=4, logging_steps=1, learning_rate=1e-2,
        report_to=[], disable_tqdm=True, save_steps=3, seed=1, **options)
    trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:4])
    trainer.train()
    return {
        "device": str(arguments.device),
        "accelerator": str(trainer.accelerator.device),
        "weights": sorted({str(p.device) for p in model.parameters()}),
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "eval": trainer.evaluate()["eval_loss"],
    }
"""
CHIP = "import chipset; chipset.select('cpu').torch\n"


def test_it_trains_on_the_chip(run_python, tmp_path):
    done = run_python(
        CHIP + PROGRAM + f"print(json.dumps([train({str(tmp_path / 'chip')!r}),"
        f"train({str(tmp_path / 'host')!r}, use_cpu=True), chipset.fallbacks()]))",
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    chip, host, fallbacks = json.loads(done.stdout.splitlines()[-1])
    assert (chip["device"], chip["weights"]) == ("chip:0", ["chip:0"])
    assert chip["accelerator"].startswith("chip")
    assert (host["device"], host["weights"]) == ("cpu", ["cpu"])
    assert chip["losses"] == pytest.approx(host["losses"], rel=1e-4)
    assert chip["eval"] == pytest.approx(host["eval"], rel=1e-4)
    assert chip["losses"][-1] < chip["losses"][0]
    assert fallbacks == {}


def test_it_knows_the_chip_also_when_it_was_imported_first(run_python, tmp_path):
    done = run_python(
        "from transformers import TrainingArguments\n"
        "import chipset; chipset.select('cpu').torch\n"
        f"print(TrainingArguments({str(tmp_path)!r}, report_to=[]).device)"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "chip:0"), done.stderr


def test_without_a_chip_nothing_changes(run_python, tmp_path):
    done = run_python(
        "from transformers import TrainingArguments\n"
        f"print(TrainingArguments({str(tmp_path)!r}, report_to=[]).device)"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "cpu"), done.stderr


def test_accelerate_alone(run_python):
    done = run_python(
        CHIP
        + """
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model = torch.nn.Linear(3, 1)
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1),
    torch.utils.data.DataLoader(torch.ones(8, 3), batch_size=4))
for x in loader:
    assert x.device.type == "chip"
    accelerator.backward(model(x).square().mean())
    optimizer.step()
print(accelerator.device.type, model.weight.device)
"""
    )
    assert (done.returncode, done.stdout.split()) == (0, ["chip", "chip:0"]), done.stderr


def test_processes_that_would_train_alone_are_refused(run_python, tmp_path):
    done = run_python(
        CHIP + PROGRAM + f"train({str(tmp_path)!r})",
        env={"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"},
    )
    assert done.returncode == 1
    assert "no distributed backend for 'chip'" in done.stderr and "start only one" in done.stderr
