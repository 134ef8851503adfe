"""One request: its tokens, its cache blocks and how to sample from it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from chipset_layers.errors import LayerError


@dataclass(frozen=True)
class SamplingParams:
    """How to choose the next token and when to stop.

    ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 switch those filters off. Drawing
    happens on the host, so a ``seed`` gives the same tokens on every chip with equal logits.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise LayerError(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        if self.temperature < 0:
            raise LayerError(f"temperature must not be negative ({self.temperature}); 0 is greedy")
        if not 0 < self.top_p <= 1:
            raise LayerError(f"top_p must lie in (0, 1], not {self.top_p}")
        if self.top_k < 0:
            raise LayerError(f"top_k must not be negative ({self.top_k}); 0 switches it off")


@dataclass(eq=False)
class Sequence:
    """A prompt and what was generated so far.

    ``cached`` counts the tokens whose keys and values lie in ``blocks``.
    """

    index: int
    prompt: list[int]
    params: SamplingParams
    generated: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    cached: int = 0
    finish_reason: str | None = None
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.params.seed + self.index)

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.generated)

    def pending(self) -> list[int]:
        """The tokens that the model has not seen yet."""
        return (self.prompt + self.generated)[self.cached :]
