"""Write docs/measurements/layers.md: every number in it comes from a run of this script.

    python benchmarks/layers.py --device cpu        (about fifteen minutes on two idle cores)

Each section is one ``chipset … --json`` command, both sides in one run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

STEP_BARS = {"bf16": (1.0, 0.7), "f32": (0.7, 0.5)}  # bar and goal, device over host
NOTES = {
    "int8": "Bars: 30 % of the bytes, 1 % of the perplexity.",
    "int4": "Linear layers in groups of 32, rounded to the nearest; the embedding stays bf16. No "
    "bar: a model this small pays for four bits.",
}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "layers.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of a training step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--eval-tokens", type=int, default=None, help="default: all held-out text")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    device = ["--device", options.device]
    rounds = ["--rounds", str(options.rounds)]
    parts = [heading(options.device)]
    for dtype in ("bf16", "f32"):
        tokens = ["--tokens", str(options.tokens)]
        parts.append(step(run("bench", "step", *device, *rounds, *tokens, "--dtype", dtype)))
    parts.append(decode(run("bench", "decode", *device, *rounds)))
    with tempfile.TemporaryDirectory() as folder:
        limit = [] if options.eval_tokens is None else ["--eval-tokens", str(options.eval_tokens)]
        for weights in ("int8", "int4"):
            where = ["--output", f"{folder}/{weights}", "--weights", weights]
            parts.append(size(run("compress", *device, *where, *limit)))
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(options.page)


def run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "chipset.cli", *arguments, "--json"]
    print("+ chipset", *arguments, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"failed: {' '.join(command)}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def heading(device: str) -> str:
    import torch

    load = os.getloadavg()[1]
    return (
        f"# Layers, measured on `--device {device}`\n\n"
        "Written by `python benchmarks/layers.py`. Model: SmolLM2-135M-Instruct. "
        f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__}, "
        f"{datetime.date.today()}, commit {commit()}; the machine's "
        f"5-minute load before the run was {load:.1f}. Only a ratio within one run counts."
    )


def processor() -> str:
    """As Linux names it, with the numbers of its family: a virtual machine may hide the name."""
    found = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        found[key.strip()] = value.strip()
    name = found.get("model name", platform.machine())
    return f"{name} (family {found.get('cpu family', '?')}, model {found.get('model', '?')})"


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=PAGE.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def step(found: dict[str, Any]) -> str:
    bar, goal = STEP_BARS[found["precision"]]
    rows = [
        f"| {name} (`{side['torch_device']}`) | {side['median_seconds']:.3f} | "
        f"{side['tokens_per_second']:.0f} | {side['first_loss']:.5f} |"
        for name, side in found["sides"].items()
    ]
    return "\n".join(
        [
            f"## Fine-tuning step, {found['precision']}, 1 × {found['tokens']} tokens",
            "",
            "| side | seconds (median) | tok/s | first loss |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Time of the device over the host's: **{found['ratio']:.3f}** "
            f"(bar {bar}, goal {goal}); host fallbacks: {found['fallback_calls']}.",
        ]
    )


def decode(found: dict[str, Any]) -> str:
    rows = [
        f"| {name} | {side['tokens_per_second']:.1f} | **{side['ratio']:.2f}** | "
        f"{'yes' if side['captured'] else 'no'} | {side['equal_tokens']} |"
        for name, side in found["sides"].items()
    ]
    return "\n".join(
        [
            f"## Greedy decode, batch 1, bf16, {found['new_tokens']} new tokens",
            "",
            "| side | tok/s (median) | ratio | captured | leading tokens equal |",
            "|---|---|---|---|---|",
            *rows,
            "",
            f"`transformers` is `generate` on PyTorch's CPU (bars: 1.5, int8 2.5); host fallbacks: "
            f"{found['fallback_calls']}.",
        ]
    )


def size(found: dict[str, Any]) -> str:
    change = found["perplexity_after"] / found["perplexity_before"] - 1
    return "\n".join(
        [
            f"## {found['weights']} weights",
            "",
            "| | before | after |",
            "|---|---|---|",
            f"| bytes (f32 → file) | {found['bytes_f32']:,} | {found['bytes_after']:,} "
            f"(**{found['ratio']:.1%}**) |",
            f"| perplexity, {found['eval_tokens']:,} held-out tokens of `wiki` (bf16) | "
            f"{found['perplexity_before']:.4f} | {found['perplexity_after']:.4f} "
            f"(**{change:+.2%}**) |",
            "",
            NOTES[found["weights"]],
        ]
    )


if __name__ == "__main__":
    main()
