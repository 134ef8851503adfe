"""Runs the transformers model over packed tokens and the paged cache.

Prompts run eagerly. A decode step reads and writes only tensors that stay in place, so that a
device that offers graphs captures it once per batch size and replays it without Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from chipset_layers.errors import LayerError
from chipset_layers.inference.attention import PagedStep
from chipset_layers.inference.graphs import capture, graphs_offered
from chipset_layers.inference.sampling import sample
from chipset_layers.inference.sequence import Sequence


class DecodeState:
    """The tensors of a decode step for ``batch`` sequences; all int64 unless said otherwise.

    Attributes:
        tokens, positions: ``[B]``, the token to run and its position.
        kv_len: int32 ``[B]``, cached tokens including the one to run.
        block_table: int32 ``[B, max_blocks]``.
        query_start: int32 ``[B + 1]``, constant: one token a sequence.
        logits: ``[B, V]``; best: ``[B]``, their arg-max; both written by the step.
    """

    def __init__(self, batch: int, max_blocks: int, vocabulary: int, like: Tensor) -> None:
        device = like.device
        self.tokens = torch.zeros(batch, dtype=torch.int64, device=device)
        self.positions = torch.zeros(batch, dtype=torch.int64, device=device)
        self.kv_len = torch.ones(batch, dtype=torch.int32, device=device)
        self.block_table = torch.zeros(batch, max_blocks, dtype=torch.int32, device=device)
        self.query_start = torch.arange(batch + 1, dtype=torch.int32, device=device)
        self.logits = torch.zeros(batch, vocabulary, dtype=like.dtype, device=device)
        self.best = torch.zeros(batch, dtype=torch.int64, device=device)
        self.members: list[Sequence] = []
        self.loaded_blocks: list[int] = []
        self.replay: Callable[[], None] | None = None

    def idle_on(self, block: int) -> None:
        """Point every row at ``block``, which no sequence owns: safe to run and throw away."""
        self.tokens.zero_()
        self.positions.zero_()
        self.kv_len.fill_(1)
        self.block_table.fill_(block)
        self.members = []

    def load(self, sequences: list[Sequence]) -> None:
        """Bring the tensors up to date, copying only what the last step did not leave there."""
        if sequences != self.members:
            self.tokens.copy_(torch.tensor([s.pending()[0] for s in sequences]))
            self.positions.copy_(torch.tensor([s.cached for s in sequences]))
            self.kv_len.copy_(torch.tensor([s.cached + 1 for s in sequences], dtype=torch.int32))
            self.members, self.loaded_blocks = list(sequences), []
        elif any(s.params.temperature > 0 for s in sequences):
            self.tokens.copy_(torch.tensor([s.pending()[0] for s in sequences]))
        blocks = [len(s.blocks) for s in sequences]
        if blocks != self.loaded_blocks:
            self.block_table.copy_(_table(sequences, self.block_table.shape[1]))
            self.loaded_blocks = blocks


class ModelRunner:
    """Owns the key/value cache of a model and runs prefill and decode steps."""

    def __init__(self, model: Any, num_blocks: int, block_size: int, max_blocks: int) -> None:
        config = model.config.get_text_config()
        self.model = model
        self.block_size = block_size
        self.max_blocks = max_blocks
        self.dtype, self.device = model.dtype, model.device
        self.vocabulary: int = config.vocab_size
        kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None)
        head_dim = head_dim or config.hidden_size // config.num_attention_heads
        # One more block than the manager hands out: a place for steps that are thrown away.
        self.spare_block = num_blocks
        shape = (num_blocks + 1, block_size, kv_heads, head_dim)
        layers = range(config.num_hidden_layers)
        like = {"dtype": self.dtype, "device": self.device}
        self.keys = [torch.zeros(shape, **like) for _ in layers]
        self.values = [torch.zeros(shape, **like) for _ in layers]
        self.uses_graphs = graphs_offered(self.device)
        self._states: dict[int, DecodeState] = {}

    def prefill(self, sequences: list[Sequence]) -> list[int]:
        """Run all pending tokens of ``sequences`` in one packed row; return their next tokens."""
        tokens = [token for s in sequences for token in s.pending()]
        positions = [p for s in sequences for p in range(s.cached, s.length)]
        slots = [slot for s in sequences for slot in self._slots(s)]
        counts = [s.length - s.cached for s in sequences]
        ends = torch.tensor([0, *counts]).cumsum(0)
        step = PagedStep(
            keys=self.keys,
            values=self.values,
            slots=torch.tensor(slots).to(self.device),
            block_table=_table(sequences, self.max_blocks).to(self.device),
            query_start=ends.to(torch.int32).to(self.device),
            kv_len=torch.tensor([s.length for s in sequences], dtype=torch.int32).to(self.device),
        )
        with torch.inference_mode():
            logits = self._forward(
                torch.tensor(tokens).to(self.device),
                torch.tensor(positions).to(self.device),
                step,
                (ends[1:] - 1).to(self.device),
            )
        for sequence in sequences:
            sequence.cached = sequence.length
        return self._choose(sequences, logits, logits.argmax(-1))

    def decode(self, sequences: list[Sequence]) -> list[int]:
        """Run one token of each sequence; return their next tokens."""
        with torch.inference_mode():
            state = self._state(len(sequences))
            state.load(sequences)
            if state.replay is not None:
                state.replay()
            else:
                longest = max(len(s.blocks) for s in sequences)
                self._decode_step(state, longest)
        for sequence in sequences:
            sequence.cached += 1
        return self._choose(sequences, state.logits, state.best)

    def _state(self, batch: int) -> DecodeState:
        state = self._states.get(batch)
        if state is None:
            state = DecodeState(batch, self.max_blocks, self.vocabulary, self.keys[0])
            if self.uses_graphs:
                state.idle_on(self.spare_block)
                step = state
                state.replay = capture(
                    self.device, lambda: self._decode_step(step, self.max_blocks)
                )
                state.idle_on(self.spare_block)
            self._states[batch] = state
        return state

    def _decode_step(self, state: DecodeState, width: int) -> None:
        """One token a sequence, entirely on the device; leaves ``state`` ready for the next."""
        block = (state.positions // self.block_size)[:, None]
        first = state.block_table.gather(1, block)[:, 0].to(torch.int64) * self.block_size
        step = PagedStep(
            keys=self.keys,
            values=self.values,
            slots=first + state.positions % self.block_size,
            block_table=state.block_table[:, :width],
            query_start=state.query_start,
            kv_len=state.kv_len,
        )
        state.logits.copy_(self._forward(state.tokens, state.positions, step, None))
        torch.argmax(state.logits, dim=-1, out=state.best)
        state.tokens.copy_(state.best)
        state.positions.add_(1)
        state.kv_len.add_(1)

    def _forward(
        self, tokens: Tensor, positions: Tensor, step: PagedStep, rows: Tensor | None
    ) -> Tensor:
        """Logits ``[rows, V]`` of the packed ``tokens [T]``; all of them if ``rows`` is None."""
        out = self.model(
            input_ids=tokens[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=0 if rows is None else rows,
            paged_step=step,
        )
        logits: Tensor = out.logits[0]
        return logits

    def _slots(self, sequence: Sequence) -> list[int]:
        size = self.block_size
        places = range(sequence.cached, sequence.length)
        if sequence.length > len(sequence.blocks) * size:
            raise LayerError(
                f"sequence {sequence.index} has {len(sequence.blocks)} blocks of {size} tokens "
                f"and {sequence.length} tokens"
            )
        return [sequence.blocks[place // size] * size + place % size for place in places]

    def _choose(self, sequences: list[Sequence], logits: Tensor, best: Tensor) -> list[int]:
        if all(s.params.temperature == 0 for s in sequences):
            chosen: list[int] = best.tolist()
            return chosen
        rows = logits.cpu()
        return [sample(row, s.params, s.generator) for row, s in zip(rows, sequences, strict=True)]


def _table(sequences: list[Sequence], width: int) -> Tensor:
    """The block table int32 ``[B, width]``, on the host; unused entries are 0."""
    rows = [s.blocks + [0] * (width - len(s.blocks)) for s in sequences]
    return torch.tensor(rows, dtype=torch.int32)
