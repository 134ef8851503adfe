"""``chipset bench dispatch|step|decode``: a device beside PyTorch's own CPU."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from chipset.commands.options import (
    DEFAULT_DEVICE,
    DEFAULT_MODEL,
    DeviceName,
    Dtype,
    Json,
    Model,
    ran_on,
    select_device,
)
from chipset.commands.report import Reporter, reporting

app = typer.Typer(help="Measure a device beside PyTorch's own CPU.", no_args_is_help=True)

Rounds = Annotated[int, typer.Option("--rounds", help="Measurements a side; medians are shown.")]


@app.command("dispatch")
def dispatch(
    device: DeviceName = DEFAULT_DEVICE,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="One operator; may be given several times.")
    ] = None,
    json: Json = False,
) -> None:
    """Microseconds per small operator call, both sides and the ratio."""
    with reporting(json) as out:
        from chipset_layers.measure.dispatch import measure_dispatch

        chip = select_device(device)
        rows = measure_dispatch(chip.torch, only)
        ran = ran_on(chip)
        out.result({"operators": rows} | ran)
        if not json:
            _print_dispatch(rows, out)
            out.note(f"host fallbacks: {ran['fallback_calls']}")


@app.command("step")
def step(
    device: DeviceName = DEFAULT_DEVICE,
    model: Model = DEFAULT_MODEL,
    dtype: Annotated[str, typer.Option("--dtype", help="bf16, f32, bf16-autocast.")] = "bf16",
    tokens: Annotated[int, typer.Option("--tokens", help="Tokens in the one row.")] = 1024,
    rounds: Rounds = 5,
    json: Json = False,
) -> None:
    """Seconds per fine-tuning step, both sides and the ratio."""
    with reporting(json) as out:
        from chipset.fetch.models import resolve_model
        from chipset_layers.measure.step import measure_step

        chip = select_device(device)
        found = measure_step(resolve_model(model), chip.torch, dtype, tokens, rounds)
        out.result(found | ran_on(chip))
        if json:
            return
        table = Table("side", "seconds (median)", "tok/s", "first loss", title=f"SFT step, {dtype}")
        for name, side in found["sides"].items():
            table.add_row(
                f"{name} ({side['torch_device']})",
                f"{side['median_seconds']:.3f}",
                f"{side['tokens_per_second']:.0f}",
                f"{side['first_loss']:.5f}",
            )
        out.console.print(table)
        out.note(f"device / host: {found['ratio']:.3f} × the time")


@app.command("decode")
def decode(
    device: DeviceName = DEFAULT_DEVICE,
    model: Model = DEFAULT_MODEL,
    dtype: Dtype = "bf16",
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens")] = 64,
    rounds: Rounds = 3,
    int8: Annotated[bool, typer.Option("--int8/--no-int8", help="Also with int8 weights.")] = True,
    json: Json = False,
) -> None:
    """Tokens per second of greedy decoding at batch 1, beside transformers on the CPU."""
    with reporting(json) as out:
        from chipset.fetch.models import resolve_model
        from chipset_layers.measure.decode import measure_decode
        from chipset_layers.models import parse_dtype

        chip = select_device(device)
        found = measure_decode(
            resolve_model(model), chip.torch, parse_dtype(dtype), max_new_tokens, rounds, int8
        )
        out.result(found | ran_on(chip))
        if not json:
            _print_decode(found, dtype, out)


def _print_dispatch(rows: list[dict[str, Any]], out: Reporter) -> None:
    table = Table("operator", "torch CPU µs", "chip µs", "ratio")
    table.title = "one small call, median"
    for row in rows:
        table.add_row(
            row["operator"],
            f"{row['cpu_us']:.2f}",
            f"{row['chip_us']:.2f}",
            f"{row['ratio']:.2f} ×",
        )
    out.console.print(table)


def _print_decode(found: dict[str, Any], dtype: str, out: Reporter) -> None:
    table = Table("side", "tok/s (median)", "ratio", "captured", "equal tokens")
    table.title = f"greedy decode, batch 1, {dtype}, {found['new_tokens']} new tokens"
    for name, side in found["sides"].items():
        table.add_row(
            name,
            f"{side['tokens_per_second']:.1f}",
            f"{side['ratio']:.2f} ×",
            "yes" if side["captured"] else "no",
            f"{side['equal_tokens']} of {found['new_tokens']}",
        )
    out.console.print(table)
