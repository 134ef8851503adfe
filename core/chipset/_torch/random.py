"""Random numbers: one Philox generator per chip, of which a state is seed and offset (16 bytes).

The numbers are defined bit by bit, so the same seed gives the same numbers on every chip.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import torch
from torch import Tensor

from chipset import _bridge
from chipset._torch.target import Target, index_of


class _Generators(Sequence[torch.Generator]):
    """The default generator of each device; a view, since devices may be launched later."""

    def __len__(self) -> int:
        count: int = _bridge.device_count()
        return count

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> list[torch.Generator]: ...
    def __getitem__(self, index: int | slice) -> torch.Generator | list[torch.Generator]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"chip:{index} does not exist: {len(self)} devices are present")
        generator: torch.Generator = _bridge.default_generator(index % len(self))
        return generator

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[i] for i in range(len(self)))


default_generators = _Generators()


def _generator(device: Target) -> torch.Generator:
    return default_generators[index_of(device)]


def get_rng_state(device: Target = "chip") -> Tensor:
    """The state of the device's generator: 16 bytes on the host, seed then offset."""
    return _generator(device).get_state()


def set_rng_state(new_state: Tensor, device: Target = "chip") -> None:
    _generator(device).set_state(new_state.clone(memory_format=torch.contiguous_format))


def get_rng_state_all() -> list[Tensor]:
    return [generator.get_state() for generator in default_generators]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Sets the seed of the current device's generator."""
    _generator(None).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Sets the seed of every device's generator; torch.manual_seed calls it."""
    for generator in default_generators:
        generator.manual_seed(seed)


def seed() -> int:
    """A seed from the system's entropy for the current device."""
    return _generator(None).seed()


def seed_all() -> None:
    for generator in default_generators:
        generator.seed()


def initial_seed() -> int:
    return _generator(None).initial_seed()
