"""Batch number ``n`` of a training, computed from the seed alone, so that resuming is exact."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from chipset_layers.training.conversations import IGNORED, Example

PAD_MULTIPLE = 8  # row lengths are rounded up to it, for the kernels' sake


@dataclass(frozen=True)
class Batch:
    """One step's input, on the host; all int64.

    Attributes:
        ids, positions: ``[B, S]``. Several examples may share a row; positions start at 0 with
            each, which is how ``transformers`` keeps their attention apart. Padding is one more
            example without labels.
        kept: ``[B, N]``, the places in a row whose next token has a label.
        targets: ``[B, N]``, those labels; rows with fewer are filled with -100.
        tokens: how many ids are not padding; targets_count: how many labels count.
    """

    ids: Tensor
    positions: Tensor
    kept: Tensor
    targets: Tensor
    tokens: int
    targets_count: int


class Batches:
    """Random access to batches; every epoch is shuffled, and packed anew."""

    def __init__(
        self,
        examples: list[Example],
        batch_size: int,
        max_length: int,
        pad_id: int,
        seed: int,
        packed: bool,
    ) -> None:
        self.examples = examples
        self.batch_size = batch_size
        self.max_length = max_length
        self.pad_id = pad_id
        self.seed = seed
        self.packed = packed
        self._epochs: list[list[list[int]]] = []  # epoch -> row -> example numbers

    def batch(self, step: int) -> Batch:
        """The batch of step ``step``, counted from 0."""
        first = step * self.batch_size
        return self._collate(
            [self._row(number) for number in range(first, first + self.batch_size)]
        )

    def _row(self, number: int) -> list[Example]:
        epoch = 0
        while number >= len(rows := self._rows_of(epoch)):
            number -= len(rows)
            epoch += 1
        return [self.examples[index] for index in rows[number]]

    def _rows_of(self, epoch: int) -> list[list[int]]:
        while epoch >= len(self._epochs):
            self._epochs.append(self._shuffled_rows(len(self._epochs)))
        return self._epochs[epoch]

    def _shuffled_rows(self, epoch: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order: list[int] = torch.randperm(len(self.examples), generator=generator).tolist()
        if not self.packed:
            return [[index] for index in order]
        rows: list[list[int]] = []
        room = 0
        for index in order:
            length = len(self.examples[index].ids)
            if length > room:
                rows.append([])
                room = self.max_length
            rows[-1].append(index)
            room -= length
        return rows

    def _collate(self, rows: list[list[Example]]) -> Batch:
        lengths = [sum(len(example.ids) for example in row) for row in rows]
        width = -(-max(lengths) // PAD_MULTIPLE) * PAD_MULTIPLE
        ids, positions, kept, targets = [], [], [], []
        for row, length in zip(rows, lengths, strict=True):
            padding = width - length
            ids.append([i for example in row for i in example.ids] + [self.pad_id] * padding)
            positions.append([p for example in row for p in range(len(example.ids))])
            positions[-1] += list(range(padding))
            # The first token of an example is never a target: it belongs to no prediction.
            labels = [label for e in row for label in [IGNORED, *e.labels[1:]]]
            kept.append([place - 1 for place, label in enumerate(labels) if label != IGNORED])
            targets.append([label for label in labels if label != IGNORED])
        most = max(len(places) for places in kept)
        return Batch(
            ids=torch.tensor(ids),
            positions=torch.tensor(positions),
            kept=torch.tensor([places + [0] * (most - len(places)) for places in kept]),
            targets=torch.tensor([t + [IGNORED] * (most - len(t)) for t in targets]),
            tokens=sum(lengths),
            targets_count=sum(len(t) for t in targets),
        )
