"""``chipset demo``: the whole road on one chip, in a few minutes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from chipset.commands.chat import stream_answer
from chipset.commands.generate import make_engine
from chipset.commands.options import (
    DEFAULT_DEVICE,
    DEFAULT_MODEL,
    DeviceName,
    Json,
    ran_on,
    select_device,
)
from chipset.commands.report import Reporter, reporting

DATA, TEXT = "alpaca-en", "wiki"
HELD_OUT = 6  # examples whose loss is measured before and after
QUESTION = "Give three tips for staying healthy."


def demo(
    device: DeviceName = DEFAULT_DEVICE,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Keep the results here, not in a temporary place."),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help="Fine-tuning steps.")] = 16,
    eval_tokens: Annotated[int, typer.Option("--eval-tokens", help="Tokens scored.")] = 2048,
    json: Json = False,
) -> None:
    """Fetch a real model, fine-tune it, compress it to int8, and let it answer."""
    with reporting(json) as out:
        with tempfile.TemporaryDirectory() as scratch:
            run = Demo(device, output or Path(scratch), out)
            run.stage("fetch", run.fetch)
            run.stage("fine-tune", lambda: run.tune(steps))
            run.stage("compress", lambda: run.compress(eval_tokens))
            run.stage("chat", run.chat)
            out.result({"stages": run.rows, "output": str(output) if output else None})
        if not json:
            out.console.print(run.table())


class Demo:
    """The stages of the demonstration; each returns what it achieved, in words and numbers."""

    def __init__(self, device: str, output: Path, out: Reporter) -> None:
        self.out = out
        self.output = output
        self.device_name = device
        self.rows: list[dict[str, Any]] = []

    def stage(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        self.out.note(f"— {name}")
        started = time.perf_counter()
        self.chip = select_device(self.device_name)
        row = work()
        seconds = round(time.perf_counter() - started, 1)
        self.rows.append({"stage": name, **row, "seconds": seconds, **ran_on(self.chip)})
        self.out.note(f"  {row['result']} ({seconds:.0f} s)")

    def fetch(self) -> dict[str, Any]:
        from chipset.fetch.datasets import resolve_data
        from chipset.fetch.models import resolve_model

        self.model = resolve_model(DEFAULT_MODEL)
        self.data, self.text = resolve_data(DATA), resolve_data(TEXT)
        return {"result": f"{DEFAULT_MODEL}, data sets {DATA} and {TEXT}"}

    def tune(self, steps: int) -> dict[str, Any]:
        from chipset_layers.training.sft import SftConfig, train_sft

        config = SftConfig(
            model=self.model,
            data=self.data,
            output=self.output / "sft",
            device=self.chip.torch,
            steps=steps,
            max_length=256,
            learning_rate=1e-4,
            eval_examples=HELD_OUT,
        )
        with self.out.progress("loss") as bar:
            task = bar.add_task("fine-tuning", total=steps, loss="")
            result = train_sft(
                config,
                lambda r: bar.update(task, completed=r.step, loss=f"loss {r.loss:.3f}"),
            )
        if result.interrupted or result.model is None:
            raise KeyboardInterrupt
        self.tuned = result.model
        losses = f"held-out loss {result.eval_loss_before:.3f} → {result.eval_loss_after:.3f}"
        speed = f"{result.tokens_per_second:.0f} tok/s"
        return {
            "result": f"{losses} in {steps} steps, {speed}",
            "first_loss": result.first_loss,
            "last_loss": result.last_loss,
            "eval_loss_before": result.eval_loss_before,
            "eval_loss_after": result.eval_loss_after,
        }

    def compress(self, eval_tokens: int) -> dict[str, Any]:
        from chipset_layers.compression.compress import CompressConfig, compress_model
        from chipset_layers.compression.perplexity import held_out

        config = CompressConfig(
            model=self.tuned,
            output=self.output / "int8",
            device=self.chip.torch,
            eval_text=held_out(self.text.read_text(encoding="utf-8")),
            eval_tokens=eval_tokens,
        )
        with self.out.progress() as bar:
            tasks = {
                when: bar.add_task(f"perplexity {when}", total=1) for when in ("before", "after")
            }
            result = compress_model(
                config,
                lambda when, done, total: bar.update(tasks[when], completed=done, total=total),
            )
        self.compressed = result.output
        return {
            "result": (
                f"{result.bytes_f32 / 1e6:.0f} MB in f32 → {result.bytes_after / 1e6:.0f} MB in "
                f"int8 ({result.ratio:.0%}); perplexity {result.perplexity_before:.2f} → "
                f"{result.perplexity_after:.2f} on {result.eval_tokens} tokens"
            ),
            **result.to_dict(),
        }

    def chat(self) -> dict[str, Any]:
        from chipset_layers.inference.sequence import SamplingParams

        engine = make_engine(self.chip, self.compressed, "bf16", cache_tokens=512)
        self.out.note(f"> {QUESTION}")
        messages = [{"role": "user", "content": QUESTION}]
        answer = stream_answer(engine, messages, SamplingParams(max_new_tokens=96), self.out)
        speed = engine.timing.to_dict()["decode_tokens_per_second"]
        captured = ", captured" if engine.runner.uses_graphs else ""
        return {"result": f"int8 answer at {speed:.0f} tok/s{captured}", "answer": answer}

    def table(self) -> Table:
        table = Table("stage", "result", "chip", "host fallbacks", "seconds")
        for row in self.rows:
            table.add_row(
                row["stage"],
                row["result"],
                f"{row['device']} ({row['torch_device']})",
                str(row["fallback_calls"]),
                f"{row['seconds']:.0f}",
            )
        total = sum(row["seconds"] for row in self.rows)
        table.add_section()
        table.add_row(
            "all", "", "", str(sum(r["fallback_calls"] for r in self.rows)), f"{total:.0f}"
        )
        return table
