"""``chipset generate``: complete a prompt."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from chipset.commands.options import (
    DEFAULT_DEVICE,
    DEFAULT_MODEL,
    DeviceName,
    Dtype,
    Json,
    Model,
    Seed,
    ran_on,
    select_device,
)
from chipset.commands.report import reporting

MaxNewTokens = Annotated[int, typer.Option("--max-new-tokens", help="Stop after so many.")]
Temperature = Annotated[float, typer.Option("--temperature", help="0 is greedy.")]
TopP = Annotated[float, typer.Option("--top-p", help="Nucleus sampling; 1 switches it off.")]
TopK = Annotated[int, typer.Option("--top-k", help="Keep the k likeliest; 0 switches it off.")]


def generate(
    prompt: Annotated[list[str], typer.Option("--prompt", help="Text to complete; repeatable.")],
    device: DeviceName = DEFAULT_DEVICE,
    model: Model = DEFAULT_MODEL,
    max_new_tokens: MaxNewTokens = 64,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    seed: Seed = 0,
    dtype: Dtype = "bf16",
    json: Json = False,
) -> None:
    """Complete one or more prompts as plain text, without a chat template."""
    with reporting(json) as out:
        from chipset_layers.inference.sequence import SamplingParams

        params = SamplingParams(max_new_tokens, temperature, top_p, top_k, seed)
        chip = select_device(device)
        engine = make_engine(chip, model, dtype)
        with out.progress() as bar:
            task = bar.add_task("tokens", total=max_new_tokens * len(prompt))
            sequences = engine.generate(
                [engine.encode(text) for text in prompt],
                params,
                lambda count: bar.advance(task, count),
            )
        results = [
            {
                "prompt": text,
                "text": engine.text_of(sequence),
                "tokens": sequence.generated,
                "prompt_tokens": len(sequence.prompt),
                "finish_reason": sequence.finish_reason,
            }
            for text, sequence in zip(prompt, sequences, strict=True)
        ]
        document = {"results": results, "captured": engine.runner.uses_graphs}
        out.result(document | engine.timing.to_dict() | ran_on(chip))
        if not json:
            for text, sequence in zip(prompt, sequences, strict=True):
                out.note(text + engine.text_of(sequence))


def make_engine(chip: Any, model: str, dtype: str, cache_tokens: int = 4096) -> Any:
    """The inference engine for a ``--model`` on a chip."""
    from chipset.fetch.models import resolve_model
    from chipset_layers.inference.engine import Engine, EngineConfig
    from chipset_layers.models import parse_dtype

    return Engine(
        EngineConfig(
            model=resolve_model(model),
            device=chip.torch,
            dtype=parse_dtype(dtype),
            cache_tokens=cache_tokens,
        )
    )
