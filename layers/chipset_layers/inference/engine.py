"""The engine: add prompts, step until done, stream tokens as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from chipset_layers.errors import LayerError
from chipset_layers.inference.attention import register_attention
from chipset_layers.inference.block_manager import BlockManager
from chipset_layers.inference.fuse import FuseCounts, fuse
from chipset_layers.inference.merge import merge_projections
from chipset_layers.inference.model_runner import ModelRunner
from chipset_layers.inference.scheduler import Scheduler
from chipset_layers.inference.sequence import SamplingParams, Sequence
from chipset_layers.models import load_model, load_tokenizer, stop_token_ids


@dataclass(frozen=True)
class EngineConfig:
    """Where and how to run.

    ``cache_tokens`` is the size of the key/value cache, shared by all sequences;
    ``max_step_tokens`` bounds the prompts that one step packs together.
    """

    model: str
    device: torch.device
    dtype: torch.dtype = torch.bfloat16
    cache_tokens: int = 4096
    block_size: int = 16
    max_sequences: int = 16
    max_step_tokens: int = 2048
    fused: bool = True


@dataclass
class Timing:
    """Seconds and tokens of the work so far, prompts and new tokens apart."""

    prefill_seconds: float = 0.0
    prefill_tokens: int = 0
    decode_seconds: float = 0.0
    decode_tokens: int = 0

    def to_dict(self) -> dict[str, float]:
        return {
            "prefill_tokens": self.prefill_tokens,
            "prefill_seconds": round(self.prefill_seconds, 4),
            "decode_tokens": self.decode_tokens,
            "decode_seconds": round(self.decode_seconds, 4),
            "decode_tokens_per_second": round(
                self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0, 2
            ),
        }


class Engine:
    """Generates text with one model on one device; several prompts share the steps."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.tokenizer = load_tokenizer(config.model)
        self.model = load_model(config.model, config.device, config.dtype, register_attention())
        limit = getattr(self.model.config, "max_position_embeddings", None) or config.cache_tokens
        self.max_length = min(limit, config.cache_tokens)
        self.fused = FuseCounts()
        if config.fused:
            self.fused = fuse(self.model)
            self.fused.projections = merge_projections(self.model)
        num_blocks = -(-config.cache_tokens // config.block_size)
        self.blocks = BlockManager(num_blocks, config.block_size)
        self.scheduler = Scheduler(self.blocks, config.max_sequences, config.max_step_tokens)
        max_blocks = -(-self.max_length // config.block_size)
        self.runner = ModelRunner(self.model, num_blocks, config.block_size, max_blocks)
        self.stop_ids = stop_token_ids(self.model, self.tokenizer)
        self.timing = Timing()
        self._added = 0

    def add(self, prompt: list[int], params: SamplingParams) -> Sequence:
        """Queue a prompt of token ids."""
        if not prompt:
            raise LayerError("the prompt is empty; give at least one token")
        if len(prompt) + params.max_new_tokens > self.max_length:
            raise LayerError(
                f"the prompt has {len(prompt)} tokens and {params.max_new_tokens} new ones are "
                f"asked for, but a sequence holds at most {self.max_length}; shorten the prompt "
                "or ask for fewer new tokens"
            )
        sequence = Sequence(self._added, list(prompt), params)
        self._added += 1
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> list[tuple[Sequence, int]]:
        """Run one step and return the new token of each sequence that took part."""
        started = time.perf_counter()
        sequences = self.scheduler.next_prefill()
        if sequences:
            count = sum(s.length - s.cached for s in sequences)
            tokens = self.runner.prefill(sequences)
            self.timing.prefill_tokens += count
            self.timing.prefill_seconds += time.perf_counter() - started
        else:
            sequences = self.scheduler.next_decode()
            tokens = self.runner.decode(sequences)
            self.timing.decode_tokens += len(tokens)
            self.timing.decode_seconds += time.perf_counter() - started
        produced = list(zip(sequences, tokens, strict=True))
        for sequence, token in produced:
            self._append(sequence, token)
        return produced

    def stream(self, prompt: list[int], params: SamplingParams) -> Iterator[int]:
        """Yield the new tokens of one prompt as they come, without the one that stops it."""
        sequence = self.add(prompt, params)
        while sequence.finish_reason is None:
            for produced, token in self.step():
                if produced is sequence and not self._stops(sequence, token):
                    yield token

    def generate(
        self,
        prompts: list[list[int]],
        params: SamplingParams,
        on_tokens: Callable[[int], None] = lambda _: None,
    ) -> list[Sequence]:
        """Run all prompts to their end and return their sequences in the same order.

        ``on_tokens`` is told after each step how many tokens it gave.
        """
        sequences = [self.add(prompt, params) for prompt in prompts]
        while self.scheduler.has_work():
            on_tokens(len(self.step()))
        return sequences

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text."""
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of a conversation in the model's chat template, ready for an answer."""
        if not self.tokenizer.chat_template:
            raise LayerError(
                f"model '{self.config.model}' has no chat template; use 'chipset generate' instead"
            )
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def text_of(self, sequence: Sequence) -> str:
        """The generated text, without the token that stopped it."""
        ids = [token for token in sequence.generated if not self._stops(sequence, token)]
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def _stops(self, sequence: Sequence, token: int) -> bool:
        return token in self.stop_ids and not sequence.params.ignore_eos

    def _append(self, sequence: Sequence, token: int) -> None:
        sequence.generated.append(token)
        if self._stops(sequence, token):
            sequence.finish_reason = "stop"
        elif len(sequence.generated) >= sequence.params.max_new_tokens:
            sequence.finish_reason = "length"
        if sequence.finish_reason is not None:
            self.scheduler.finish(sequence)


def stream_text(tokenizer: Any, tokens: Iterator[int]) -> Iterator[str]:
    """Turn a stream of tokens into pieces of text, never half a character."""
    ids: list[int] = []
    shown = ""
    for token in tokens:
        ids.append(token)
        text = tokenizer.decode(ids, skip_special_tokens=True)
        if not text.endswith("\ufffd"):
            yield text[len(shown) :]
            shown = text
    rest = tokenizer.decode(ids, skip_special_tokens=True)[len(shown) :]
    if rest:
        yield rest
