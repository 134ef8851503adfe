"""Performs: tokens in a second, of a small model whose tokens are counted and compared."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

from chipset_conformance.case import OPTIONAL, Case, Unsupported, cases
from chipset_conformance.context import Context

PROMPT, NEW = 16, 24
ROUNDS = 3


@cases(level="performs")
def token_cases() -> Iterator[Case]:
    yield Case(
        id="performs/tokens/llama-tiny",
        functions=(),
        tags=frozenset({OPTIONAL}),
        run=check_tokens,
        group="model",
        timeout_s=300.0,
    )


class Counter:
    """A streamer of ``generate``: what it is given, it counts."""

    def __init__(self) -> None:
        self.steps = 0

    def put(self, value: Any) -> None:
        self.steps += 1

    def end(self) -> None:
        pass


def check_tokens(context: Context) -> None:
    """Greedy tokens for prompts that no earlier run had; all must come, and be the reference's."""
    try:
        import torch
        from transformers import GenerationConfig

        from chipset_conformance import families
    except ImportError as error:
        raise Unsupported(f"needs torch and transformers ({error})") from None
    device = context.device.torch
    model = families.model_of("llama")
    reference = families.model_of("llama")
    model.to(device)
    config = GenerationConfig(
        max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=2
    )
    seed = secrets.randbits(31)
    context.note(f"prompts of this run: seed {seed}")
    draw = torch.Generator().manual_seed(seed)
    rates = []
    for _ in range(ROUNDS):
        prompts = torch.randint(3, 128, (1, PROMPT), generator=draw)
        counter = Counter()
        started = time.perf_counter()
        with torch.no_grad():
            found = model.generate(
                prompts.to(device), attention_mask=torch.ones_like(prompts).to(device),
                generation_config=config, streamer=counter,
            )  # fmt: skip
        tokens = found.tolist()[0]  # on the host: nothing is left to compute
        seconds = time.perf_counter() - started
        reported = counter.steps - 1  # the first is the prompt
        with torch.no_grad():
            expected = reference.generate(
                prompts, attention_mask=torch.ones_like(prompts), generation_config=config
            ).tolist()[0]
        context.check(
            reported == len(tokens) - PROMPT == NEW,
            f"{reported} tokens are reported and {len(tokens) - PROMPT} came; {NEW} were asked",
        )
        context.check(
            tokens == expected, f"inside the performance run: tokens {tokens}, not {expected}"
        )
        rates.append(NEW / seconds)
    context.measure("greedy tokens of a tiny Llama", sorted(rates)[ROUNDS // 2], "tokens/s")
