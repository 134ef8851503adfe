"""A tiny Llama with a byte tokenizer, made on the spot: no test here needs a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(folder: Path, *, tied: bool, **changes) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": tied,
        "initializer_range": 0.2,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    model = LlamaForCausalLM(LlamaConfig(**(settings | changes)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A Llama of three layers with tied embeddings, grouped queries, f32 weights."""
    return build_model(tmp_path_factory.mktemp("models") / "tiny", tied=True)


@pytest.fixture(scope="session")
def untied_model(tmp_path_factory) -> Path:
    """The same with an output layer of its own, and biases in attention."""
    folder = tmp_path_factory.mktemp("models") / "untied"
    return build_model(folder, tied=False, attention_bias=True)


@pytest.fixture
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="session")
def instructions(tmp_path_factory) -> Path:
    """Thirty short instructions with regular answers, so that a tiny model can learn them."""
    rows = [
        {"instruction": f"Count to {n}", "input": "", "output": " ".join(map(str, range(1, n + 1)))}
        for n in list(range(1, 11)) * 3
    ]
    path = tmp_path_factory.mktemp("data") / "count.json"
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture(scope="session")
def narrow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its MLP is no multiple of 32 wide."""
    folder = tmp_path_factory.mktemp("models") / "narrow"
    return build_model(folder, tied=True, intermediate_size=80)
