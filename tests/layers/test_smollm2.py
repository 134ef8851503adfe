"""The bars of the layers on the real model, SmolLM2-135M-Instruct, on the reference chip."""

from __future__ import annotations

import pytest
import torch

import chipset
from chipset.fetch.datasets import resolve_data
from chipset.fetch.models import resolve_model
from chipset_layers.compression.compress import CompressConfig, compress_model
from chipset_layers.compression.perplexity import held_out
from chipset_layers.inference.engine import Engine, EngineConfig
from chipset_layers.inference.sequence import SamplingParams
from chipset_layers.models import load_model, load_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def model() -> str:
    return resolve_model("smollm2-135m")


@pytest.mark.parametrize("device", ["torch:cpu", "cpu"])
def test_greedy_tokens_equal_those_of_transformers(model, device):
    reference = load_model(model, torch.device("cpu"), torch.float32)
    tokenizer = load_tokenizer(model)
    engine = Engine(EngineConfig(model, chipset.select(device).torch, torch.float32))
    prompts = [
        engine.encode_chat([{"role": "user", "content": text}])
        for text in ("Why is the sky blue?", "Write a haiku about rivers.", "What is 17 + 25?")
    ]
    params = SamplingParams(max_new_tokens=40)
    for prompt, sequence in zip(prompts, engine.generate(prompts, params), strict=True):
        inputs = torch.tensor([prompt])
        with torch.inference_mode():
            out = reference.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=40,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
            )
        assert sequence.generated == out[0, len(prompt) :].tolist()


def test_int8_is_small_and_as_good(model, tmp_path):
    text = held_out(resolve_data("wiki").read_text(encoding="utf-8"))
    chip = chipset.select("cpu").torch
    config = CompressConfig(model, tmp_path / "q", chip, eval_text=text, eval_tokens=4096)
    result = compress_model(config)
    assert result.ratio <= 0.30
    assert abs(result.perplexity_after / result.perplexity_before - 1) <= 0.01
