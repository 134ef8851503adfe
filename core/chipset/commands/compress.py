"""``chipset compress``."""

from __future__ import annotations

from typing import Annotated

import typer

from chipset.commands.options import (
    DEFAULT_DEVICE,
    DEFAULT_MODEL,
    DeviceName,
    Dtype,
    Json,
    Model,
    Output,
    ran_on,
    select_device,
)
from chipset.commands.report import reporting


def compress(
    output: Output,
    device: DeviceName = DEFAULT_DEVICE,
    model: Model = DEFAULT_MODEL,
    weights: Annotated[str, typer.Option("--weights", help="The scheme: int8 or int4.")] = "int8",
    eval_text: Annotated[
        str,
        typer.Option(
            "--eval-text", help="A catalogue name or text file; its last fifth is scored; or none."
        ),
    ] = "wiki",
    eval_tokens: Annotated[
        int | None, typer.Option("--eval-tokens", help="Score at most so many tokens.")
    ] = None,
    dtype: Dtype = "bf16",
    json: Json = False,
) -> None:
    """Store a model with int8 or int4 weights; report size and perplexity before and after."""
    with reporting(json) as out:
        from chipset.fetch.datasets import resolve_data
        from chipset.fetch.models import resolve_model
        from chipset_layers.compression.compress import CompressConfig, compress_model
        from chipset_layers.compression.perplexity import held_out
        from chipset_layers.files import prepare_output
        from chipset_layers.models import parse_dtype

        prepare_output(output)
        folder = resolve_model(model)
        text = None
        if eval_text != "none":
            text = held_out(resolve_data(eval_text).read_text(encoding="utf-8"))
        chip = select_device(device)
        config = CompressConfig(
            model=folder,
            output=output,
            device=chip.torch,
            dtype=parse_dtype(dtype),
            weights=weights,
            eval_text=text,
            eval_tokens=eval_tokens,
        )
        with out.progress() as bar:
            tasks = {when: bar.add_task(f"perplexity {when}", total=1) for when in _phases(text)}

            def show(when: str, done: int, total: int) -> None:
                bar.update(tasks[when], completed=done, total=total)

            result = compress_model(config, show)
        out.result(result.to_dict() | ran_on(chip))
        if json:
            return
        out.note(
            f"{result.output}: {result.quantized_modules} modules in {weights}, "
            f"{result.bytes_after / 1e6:.1f} MB, {result.ratio:.1%} of f32 "
            f"({result.bytes_f32 / 1e6:.1f} MB)"
        )
        if result.perplexity_before is not None and result.perplexity_after is not None:
            change = result.perplexity_after / result.perplexity_before - 1
            out.note(
                f"perplexity {result.perplexity_before:.3f} → {result.perplexity_after:.3f} "
                f"({change:+.2%}) on {result.eval_tokens} held-out tokens"
            )


def _phases(text: str | None) -> list[str]:
    return [] if text is None else ["before", "after"]
