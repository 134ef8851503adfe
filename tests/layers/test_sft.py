"""Fine-tuning: the data, the loss, exact continuation, and what happens when things go wrong."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from chipset_layers.errors import LayerError
from chipset_layers.files import whole_folder
from chipset_layers.models import load_model
from chipset_layers.training import checkpoint, sft
from chipset_layers.training.batches import Batches
from chipset_layers.training.conversations import (
    IGNORED,
    Example,
    encode_all,
    encode_conversation,
    read_conversations,
)
from chipset_layers.training.sft import SftConfig, learning_rate, sft_loss, train_sft

HOST = torch.device("cpu")


@pytest.fixture
def config(tiny_model, instructions, tmp_path):
    return SftConfig(
        model=str(tiny_model),
        data=instructions,
        output=tmp_path / "out",
        device=HOST,
        steps=6,
        batch_size=2,
        max_length=96,
        learning_rate=3e-3,
        precision="f32",
    )


# --- data ----------------------------------------------------------------------------------


def test_loss_is_taken_on_the_answers_and_their_end_only(tokenizer):
    conversation = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"},
    ]
    example = encode_conversation(tokenizer, conversation)
    learnt = [label for label in example.labels if label != IGNORED]
    assert tokenizer.decode(learnt) == "two<|im_end|>four<|im_end|>"
    whole = tokenizer.apply_chat_template(conversation, tokenize=False)
    assert example.ids == tokenizer(whole)["input_ids"]


@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "ask", "input": "", "output": "say"},
        {"messages": [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "say"}]},
        {"conversations": [{"from": "human", "value": "ask"}, {"from": "gpt", "value": "say"}]},
        {
            "conversations": [{"from": "human", "value": "ask"}],
            "chosen": {"from": "gpt", "value": "say"},
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "value": "ask"}]},
                {"role": "assistant", "content": [{"type": "text", "value": "say"}]},
            ]
        },
    ],
)
def test_layouts_of_instruction_data(row, tmp_path):
    expected = [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "say"}]
    (tmp_path / "a.json").write_text(json.dumps([row]))
    (tmp_path / "b.jsonl").write_text(json.dumps(row) + "\n\n")
    assert read_conversations(tmp_path / "a.json") == [expected]
    assert read_conversations(tmp_path / "b.jsonl") == [expected]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('[{"question": "x"}]', "row 1 of"),
        ('[{"instruction": "x"}]', "row 1 of .*output"),
        ('[{"instruction": "x", "output": "y"}, {"messages": [{"role": "user"}]}]', "row 2 of"),
        ('{"a": ', "cannot be read"),
        ("{}", "no list of rows"),
        ("[]", "no rows"),
    ],
)
def test_unreadable_data_is_named(content, text, tmp_path):
    path = tmp_path / "data.json"
    path.write_text(content)
    with pytest.raises(LayerError, match=text) as error:
        read_conversations(path)
    assert str(path) in str(error.value)


def test_nothing_to_learn_is_an_error(tokenizer):
    with pytest.raises(LayerError, match="raise --max-length"):
        encode_all(tokenizer, [[{"role": "user", "content": "only a question"}]], 64)


def test_packed_rows_keep_examples_whole_and_use_each_once_an_epoch():
    examples = [Example([n] * (n + 2), [IGNORED] + [n] * (n + 1)) for n in range(12)]
    batches = Batches(examples, 1, 16, pad_id=99, seed=1, packed=True)
    rows = len(batches._rows_of(0))
    seen = [i for step in range(rows) for i in batches.batch(step).ids[0].tolist() if i != 99]
    assert sorted(seen) == sorted(i for example in examples for i in example.ids)
    assert rows < len(examples)
    assert not torch.equal(batches.batch(0).ids, batches.batch(rows).ids)  # shuffled anew
    again = Batches(examples, 1, 16, pad_id=99, seed=1, packed=True)
    assert torch.equal(again.batch(7).ids, batches.batch(7).ids)


def test_packing_and_padding_do_not_change_the_loss(tiny_model, tokenizer):
    torch.manual_seed(0)
    model = load_model(str(tiny_model), HOST, torch.float32)
    examples = [
        Example(ids, [IGNORED] * 3 + ids[3:])
        for ids in (torch.randint(0, 250, (n,)).tolist() for n in (9, 17, 6, 12))
    ]
    total, count = 0.0, 0
    for example in examples:
        labels = torch.tensor([example.labels])
        number = int((labels != IGNORED).sum())
        with torch.no_grad():
            loss = model(torch.tensor([example.ids]), labels=labels).loss.item()
        total, count = total + loss * number, count + number
    for packed, batch_size in ((True, 1), (False, 4)):
        batch = Batches(examples, batch_size, 64, pad_id=0, seed=0, packed=packed).batch(0)
        assert batch.targets_count == count and batch.tokens == 44
        with torch.no_grad():
            assert sft_loss(model, batch, HOST).item() == pytest.approx(total / count, rel=1e-5)


# --- training ------------------------------------------------------------------------------


def test_the_loss_goes_down_and_everything_is_written(config):
    result = train_sft(replace(config, steps=40, eval_examples=4))
    assert result.last_loss < 0.5 * result.first_loss
    assert result.eval_loss_after < 0.5 * result.eval_loss_before
    assert result.examples == 26
    lines = [json.loads(line) for line in (config.output / "metrics.jsonl").open()]
    assert [line["step"] for line in lines] == list(range(1, 41))
    assert (config.output / "loss.png").read_bytes().startswith(b"\x89PNG")
    trained = load_model(result.model, HOST, torch.float32)
    assert trained.lm_head.weight is trained.model.embed_tokens.weight  # still tied
    size = (config.output / "final" / "model.safetensors").stat().st_size
    assert size == pytest.approx((config_size := weight_bytes(config.model)), rel=0.02), config_size


def weight_bytes(model):
    return sum(t.numel() * 4 for t in load_file(f"{model}/model.safetensors").values())


@pytest.mark.parametrize("precision", ["bf16", "bf16-autocast"])
def test_other_precisions_train(config, precision):
    result = train_sft(replace(config, steps=20, precision=precision))
    assert result.last_loss < result.first_loss


def test_a_resumed_training_equals_an_uninterrupted_one_bit_for_bit(config, tmp_path):
    whole = train_sft(replace(config, output=tmp_path / "whole"))
    broken = replace(config, output=tmp_path / "broken", save_every=2)

    def stop_after_3(record):
        if record.step == 3:
            raise RuntimeError("the machine went away")

    with pytest.raises(RuntimeError):
        train_sft(broken, stop_after_3)
    assert [p.name for p in checkpoint.checkpoints(broken.output)] == ["checkpoint-000002"]
    resumed = train_sft(replace(broken, resume=True))
    want = load_file(f"{whole.model}/model.safetensors")
    got = load_file(f"{resumed.model}/model.safetensors")
    assert want.keys() == got.keys()
    assert all(torch.equal(want[name], got[name]) for name in want)
    losses = [
        [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").open()]
        for folder in (tmp_path / "whole", broken.output)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 6


def test_ctrl_c_ends_after_the_step_with_a_whole_checkpoint(config):
    def interrupt(record):
        if record.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    result = train_sft(replace(config, save_every=2), interrupt)
    assert result.interrupted and result.model is None and result.steps in (3, 4)
    assert signal.getsignal(signal.SIGINT) == before
    assert result.checkpoint == str(checkpoint.checkpoints(config.output)[-1])
    assert train_sft(replace(config, save_every=2, resume=True)).steps == 6


def test_a_kill_while_a_checkpoint_is_written_leaves_the_last_one(config, monkeypatch):
    real = torch.save

    def save(state, path):
        if state["step"] == 4:
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        real(state, path)

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(KeyboardInterrupt):
        train_sft(replace(config, save_every=2))
    monkeypatch.undo()
    found = checkpoint.checkpoints(config.output)
    assert [p.name for p in found] == ["checkpoint-000002"]
    assert [p for p in config.output.iterdir() if p.name.startswith(".partial")] == []
    assert train_sft(replace(config, save_every=2, resume=True)).steps == 6


def test_what_a_killed_process_left_is_cleaned_up(tmp_path):
    (tmp_path / ".partial-place-abc").mkdir()
    with whole_folder(tmp_path / "place") as folder:
        (folder / "a").write_text("1")
    assert [p.name for p in tmp_path.iterdir()] == ["place"]


def test_other_settings_and_an_unwanted_continuation_are_refused(config):
    train_sft(replace(config, save_every=2))
    with pytest.raises(LayerError, match="--resume"):
        train_sft(config)
    with pytest.raises(LayerError, match="seed was 0 and is 7"):
        train_sft(replace(config, resume=True, seed=7))


def test_an_unreadable_checkpoint_is_named(config):
    train_sft(replace(config, save_every=2))
    last = checkpoint.checkpoints(config.output)[-1]
    (last / "trainer.pt").write_bytes(b"PK half a file")
    with pytest.raises(LayerError, match=f"{last.name}.*delete it"):
        train_sft(replace(config, resume=True))


def test_nan_stops_with_the_step_and_the_first_layer(config, tmp_path, monkeypatch):
    real = sft.load_model

    def poisoned(*arguments):
        model = real(*arguments)
        with torch.no_grad():
            model.model.layers[1].mlp.up_proj.weight[3, 3] = float("nan")
        return model

    monkeypatch.setattr(sft, "load_model", poisoned)
    with pytest.raises(LayerError, match=r"step 1: .* 'model\.layers\.1\.mlp\.up_proj'"):
        train_sft(config)


def test_a_gradient_that_is_not_finite_is_named(config, monkeypatch):
    real = sft.load_model

    def poisoned(*arguments):
        model = real(*arguments)
        model.model.layers[2].mlp.down_proj.weight.register_hook(lambda grad: grad * float("inf"))
        return model

    monkeypatch.setattr(sft, "load_model", poisoned)
    with pytest.raises(LayerError, match=r"step 1: .*belongs to 'model\.layers\.2\.mlp\.down_proj"):
        train_sft(config)


def test_an_unwritable_output_fails_before_anything_is_loaded(config, tmp_path, monkeypatch):
    blocked = tmp_path / "a-file"
    blocked.write_text("x")
    monkeypatch.setattr(sft, "load_model", lambda *a: pytest.fail("the model was loaded"))
    with pytest.raises(LayerError, match=r"cannot be written .*--output"):
        train_sft(replace(config, output=blocked / "out"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"precision": "f8"}, "unknown precision 'f8'"),
        ({"schedule": "step"}, "unknown schedule"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"max_length": 1}, "max_length"),
        ({"learning_rate": float("nan")}, "learning rate"),
    ],
)
def test_bad_settings(config, change, text):
    with pytest.raises(LayerError, match=text):
        train_sft(replace(config, **change))


def test_schedules(config):
    rates = {
        name: [learning_rate(replace(config, steps=100, schedule=name), s) for s in range(100)]
        for name in sft.SCHEDULES
    }
    for name, values in rates.items():
        assert values[0] == pytest.approx(3e-3 / 5) and max(values) == pytest.approx(3e-3)
        assert name == "constant" or values[-1] < 1e-4
