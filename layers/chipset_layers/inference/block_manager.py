"""Hands out the fixed-size blocks of the key/value cache."""

from __future__ import annotations

from chipset_layers.inference.sequence import Sequence


class BlockManager:
    """A free list of ``num_blocks`` blocks of ``block_size`` token slots each."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    def missing(self, sequence: Sequence, length: int) -> int:
        """How many more blocks ``sequence`` needs to hold ``length`` tokens."""
        return max(0, -(-length // self.block_size) - len(sequence.blocks))

    def grow(self, sequence: Sequence, length: int) -> bool:
        """Give ``sequence`` room for ``length`` tokens; False, and nothing taken, if none is."""
        need = self.missing(sequence, length)
        if need > len(self._free):
            return False
        sequence.blocks.extend(self._free.pop() for _ in range(need))
        return True

    def release(self, sequence: Sequence) -> None:
        """Take all blocks of ``sequence`` back; its cached tokens are gone."""
        self._free.extend(reversed(sequence.blocks))
        sequence.blocks.clear()
        sequence.cached = 0
