"""The layers on the reference chip, through the bridge, against plain PyTorch."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import chipset
from chipset_layers.compression.compress import CompressConfig, compress_model
from chipset_layers.compression.storage import SCHEMES
from chipset_layers.inference.engine import Engine, EngineConfig
from chipset_layers.inference.sequence import SamplingParams
from chipset_layers.models import load_model
from chipset_layers.training.sft import SftConfig, train_sft

HOST = torch.device("cpu")
PROMPTS = [[5, 6, 7], [40, 41, 42, 43, 44, 45, 46, 47, 48], [9], list(range(60, 95))]


@pytest.fixture(scope="module")
def chip(pytestconfig: pytest.Config) -> torch.device:
    return chipset.select(pytestconfig.getoption("--chip")).torch


def generate(model, device, params, **changes):
    settings = {"dtype": torch.float32, "cache_tokens": 512, "block_size": 4} | changes
    engine = Engine(EngineConfig(str(model), device, **settings))
    return [sequence.generated for sequence in engine.generate(PROMPTS, params)], engine


@pytest.mark.parametrize("which", ["tiny_model", "untied_model"])
def test_greedy_tokens_equal_those_of_torch(which, request, chip):
    model = request.getfixturevalue(which)
    params = SamplingParams(max_new_tokens=20, ignore_eos=True)
    want, _ = generate(model, HOST, params)
    chipset.reset_fallbacks()
    got, engine = generate(model, chip, params)
    assert got == want
    assert engine.runner.uses_graphs == torch.get_device_module(chip).graphs_supported(chip)
    assert chipset.fallbacks() == {}


def test_a_seed_draws_the_same_tokens_as_on_torch(tiny_model, chip):
    params = SamplingParams(max_new_tokens=12, temperature=0.8, top_k=40, seed=5, ignore_eos=True)
    assert generate(tiny_model, chip, params)[0] == generate(tiny_model, HOST, params)[0]


@pytest.mark.parametrize("weights", SCHEMES)
def test_compressed_weights_give_the_tokens_of_torch(weights, tiny_model, chip, tmp_path):
    result, reference = (
        compress_model(CompressConfig(str(tiny_model), tmp_path / name, device, weights=weights))
        for name, device in (("q", chip), ("r", HOST))
    )
    stored, expected = (load_file(f"{r.output}/model.safetensors") for r in (result, reference))
    assert all(torch.equal(stored[name], expected[name]) for name in expected)
    params = SamplingParams(max_new_tokens=12, ignore_eos=True)
    want, _ = generate(result.output, HOST, params)
    assert generate(result.output, chip, params)[0] == want


def config_for(model, data, output, device):
    return SftConfig(
        model=str(model),
        data=data,
        output=output,
        device=device,
        steps=6,
        batch_size=2,
        max_length=96,
        learning_rate=3e-3,
        precision="f32",
    )


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").open()]


def test_the_training_curve_is_that_of_torch(tiny_model, instructions, chip, tmp_path):
    chipset.reset_fallbacks()
    train_sft(config_for(tiny_model, instructions, tmp_path / "chip", chip))
    assert chipset.fallbacks() == {}
    train_sft(config_for(tiny_model, instructions, tmp_path / "host", HOST))
    assert losses(tmp_path / "chip") == pytest.approx(losses(tmp_path / "host"), rel=1e-4)
    trained = load_model(str(tmp_path / "chip" / "final"), HOST, torch.float32)
    assert trained.lm_head.weight is trained.model.embed_tokens.weight


@pytest.mark.parametrize("precision", ["bf16", "bf16-autocast"])
def test_other_precisions_train(tiny_model, instructions, chip, tmp_path, precision):
    config = config_for(tiny_model, instructions, tmp_path, chip)
    result = train_sft(replace(config, steps=16, precision=precision))
    assert result.last_loss < result.first_loss


def test_a_resumed_training_is_exact(tiny_model, instructions, chip, tmp_path):
    whole = train_sft(config_for(tiny_model, instructions, tmp_path / "whole", chip))
    broken = replace(config_for(tiny_model, instructions, tmp_path / "b", chip), save_every=2)

    def stop_after_3(record):
        if record.step == 3:
            raise RuntimeError("the machine went away")

    with pytest.raises(RuntimeError):
        train_sft(broken, stop_after_3)
    resumed = train_sft(replace(broken, resume=True))
    want, got = (load_file(f"{r.model}/model.safetensors") for r in (whole, resumed))
    assert all(torch.equal(want[name], got[name]) for name in want)
    assert losses(tmp_path / "whole") == losses(tmp_path / "b")


def test_every_operator_of_the_dispatch_benchmark_runs_on_the_chip(chip):
    """A host fallback there would measure the host."""
    from chipset_layers.measure.dispatch import cases

    chipset.reset_fallbacks()
    with torch.inference_mode():
        for name, call in cases(chip).items():
            result = call()
            for tensor in result if isinstance(result, tuple) else [result]:
                assert tensor.device == chip, name
    assert chipset.fallbacks() == {}


@pytest.mark.parametrize(
    ("qweight", "scale", "message"),
    [
        (
            torch.zeros(4, 16, dtype=torch.int8),
            torch.ones(4, 2),
            r"uint8 \[N, K / 2\], but",
        ),
        (torch.zeros(4, 15, dtype=torch.uint8), torch.ones(4, 2), "does not fit qweight"),
        (torch.zeros(4, 16, dtype=torch.uint8), torch.ones(4, 3), "G a divisor of K = 32"),
        (torch.zeros(4, 16, dtype=torch.uint8), torch.ones(4), r"float32 \[N, G\] with N = 4"),
    ],
)
def test_int4_weights_that_do_not_fit_are_refused(qweight, scale, message, chip):
    x = torch.ones(2, 32)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.chipset.linear_int4(x.to(chip), qweight.to(chip), scale.to(chip), None)
