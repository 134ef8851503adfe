"""Decides which sequences the next step runs: prompts first, then one token for each."""

from __future__ import annotations

from collections import deque

from chipset_layers.errors import LayerError
from chipset_layers.inference.block_manager import BlockManager
from chipset_layers.inference.sequence import Sequence


class Scheduler:
    """First come, first served, bounded by sequences, tokens in a step and cache blocks."""

    def __init__(self, blocks: BlockManager, max_sequences: int, max_step_tokens: int) -> None:
        self.blocks = blocks
        self.max_sequences = max_sequences
        self.max_step_tokens = max_step_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        capacity = self.blocks.num_blocks * self.blocks.block_size
        if sequence.length + sequence.params.max_new_tokens > capacity:
            raise LayerError(
                f"a prompt of {sequence.length} tokens and {sequence.params.max_new_tokens} new "
                f"ones exceed the key/value cache of {capacity} tokens; ask for fewer new tokens, "
                "shorten the prompt or enlarge the cache"
            )
        self.waiting.append(sequence)

    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def next_prefill(self) -> list[Sequence]:
        """Waiting sequences that fit into one step; they become running."""
        chosen: list[Sequence] = []
        tokens = 0
        while self.waiting and len(self.running) < self.max_sequences:
            sequence = self.waiting[0]
            if chosen and tokens + sequence.length > self.max_step_tokens:
                break
            if not self.blocks.grow(sequence, sequence.length + 1):
                break
            tokens += sequence.length
            chosen.append(self.waiting.popleft())
            self.running.append(sequence)
        return chosen

    def next_decode(self) -> list[Sequence]:
        """All running sequences, each with room for its next token.

        When the cache is full the youngest gives its blocks back and starts again later.
        """
        for sequence in list(self.running):
            while sequence in self.running and not self.blocks.grow(sequence, sequence.length):
                self._preempt(self.running[-1])
        return list(self.running)

    def finish(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.blocks.release(sequence)

    def _preempt(self, sequence: Sequence) -> None:
        self.finish(sequence)
        self.waiting.appendleft(sequence)
