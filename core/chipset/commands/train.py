"""``chipset train sft``."""

from __future__ import annotations

from typing import Annotated

import typer

from chipset.commands.options import (
    DEFAULT_DEVICE,
    DEFAULT_MODEL,
    Data,
    DeviceName,
    Json,
    Model,
    Output,
    Seed,
    ran_on,
    select_device,
)
from chipset.commands.report import reporting

app = typer.Typer(help="Train a model.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Train a model."""


@app.command("sft")
def sft(
    output: Output,
    device: DeviceName = DEFAULT_DEVICE,
    model: Model = DEFAULT_MODEL,
    data: Data = "alpaca-en",
    steps: Annotated[int, typer.Option("--steps", help="Optimizer steps.")] = 100,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Rows in a step.")] = 1,
    max_length: Annotated[int, typer.Option("--max-length", help="Tokens in a row.")] = 1024,
    lr: Annotated[float, typer.Option("--lr", help="Peak learning rate.")] = 5e-5,
    schedule: Annotated[str, typer.Option("--schedule", help="cosine, linear, constant.")] = (
        "cosine"
    ),
    warmup: Annotated[float, typer.Option("--warmup", help="Fraction of the steps.")] = 0.05,
    weight_decay: Annotated[float, typer.Option("--weight-decay")] = 0.0,
    dtype: Annotated[
        str, typer.Option("--dtype", help="bf16, f32, or bf16-autocast (f32 weights).")
    ] = "bf16",
    packing: Annotated[
        bool, typer.Option("--packing/--no-packing", help="Share rows between examples.")
    ] = True,
    seed: Seed = 0,
    save_every: Annotated[
        int, typer.Option("--save-every", help="Steps between checkpoints; 0 for none.")
    ] = 0,
    eval_examples: Annotated[
        int, typer.Option("--eval-examples", help="Hold out so many; their loss before and after.")
    ] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --output.")
    ] = False,
    json: Json = False,
) -> None:
    """Fine-tune a model on instructions or conversations; loss only on the answers."""
    with reporting(json) as out:
        from chipset.fetch.datasets import resolve_data
        from chipset.fetch.models import resolve_model
        from chipset_layers.files import prepare_output
        from chipset_layers.training.sft import SftConfig, StepRecord, train_sft

        prepare_output(output)
        chip = select_device(device)
        config = SftConfig(
            model=resolve_model(model),
            data=resolve_data(data),
            output=output,
            device=chip.torch,
            steps=steps,
            batch_size=batch_size,
            max_length=max_length,
            learning_rate=lr,
            weight_decay=weight_decay,
            schedule=schedule,
            warmup=warmup,
            precision=dtype,
            packed=packing,
            seed=seed,
            save_every=save_every,
            eval_examples=eval_examples,
            resume=resume,
        )
        with out.progress("loss", "speed") as bar:
            task = bar.add_task("fine-tuning", total=steps, loss="", speed="")

            def show(record: StepRecord) -> None:
                speed = record.tokens / record.seconds
                bar.update(
                    task,
                    completed=record.step,
                    loss=f"loss {record.loss:.3f}",
                    speed=f"{speed:.0f} tok/s",
                )

            result = train_sft(config, show)
        out.result(result.to_dict() | ran_on(chip))
        if result.interrupted:
            kept = result.checkpoint or "no checkpoint was written"
            out.note(f"stopped after step {result.steps} of {steps}; {kept}; go on with --resume")
            raise typer.Exit(130)
        if result.eval_loss_before is not None and result.eval_loss_after is not None:
            out.note(
                f"loss on {eval_examples} held-out examples "
                f"{result.eval_loss_before:.4f} → {result.eval_loss_after:.4f}"
            )
        if not json:
            out.note(
                f"loss {result.first_loss:.3f} → {result.last_loss:.3f} in {result.steps} steps, "
                f"{result.tokens_per_second:.0f} tok/s\nmodel      {result.model}\n"
                f"loss curve {result.loss_curve}"
            )
