"""What one small operator costs on a chip, beside PyTorch's own CPU.

Both sides run in this process, interleaved, on one thread; each number is the median over many
short bursts of the time of one call, Python included. Bar: 1.15 times the CPU's cost for add, mul
and mm.

    python benchmarks/dispatch.py [--device cpu] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

import chipset

BARRED = {"add", "mul", "mm"}
BURST = 200  # calls that are timed together
ROUNDS = 60  # bursts per side

Call = Callable[[], object]


def cases(device: torch.device) -> dict[str, Call]:
    """Operators on 16 elements, matrices of 16 by 16."""
    torch.manual_seed(0)
    x, y, out = (torch.rand(16, device=device) for _ in range(3))
    a, b, bias = (torch.rand(16, 16, device=device) for _ in range(3))
    mask = torch.rand(16, device=device) > 0.5
    batch = torch.rand(2, 8, 8, device=device)
    weight = torch.rand(16, 16, device=device)
    linear = torch.nn.functional.linear
    return {
        "add": lambda: torch.add(x, y),
        "mul": lambda: torch.mul(x, y),
        "mm": lambda: torch.mm(a, b),
        "sub": lambda: torch.sub(x, y),
        "div": lambda: torch.div(x, y),
        "add number": lambda: torch.add(x, 1.5),
        "add out": lambda: torch.add(x, y, out=out),
        "add_": lambda: out.add_(y),
        "mul_": lambda: out.mul_(0.5),
        "exp": lambda: torch.exp(x),
        "neg": lambda: torch.neg(x),
        "rsqrt": lambda: torch.rsqrt(x),
        "silu": lambda: torch.nn.functional.silu(x),
        "sigmoid": lambda: torch.sigmoid(x),
        "relu": lambda: torch.relu(x),
        "pow 2": lambda: torch.pow(x, 2),
        "eq": lambda: torch.eq(x, y),
        "where": lambda: torch.where(mask, x, y),
        "broadcast add": lambda: torch.add(a, x),
        "sum": lambda: torch.sum(x),
        "mean": lambda: torch.mean(a, -1, keepdim=True),
        "max": lambda: torch.max(a, -1),
        "addmm": lambda: torch.addmm(bias, a, b),
        "bmm": lambda: torch.bmm(batch, batch),
        "linear": lambda: linear(a, weight, x),
        "empty": lambda: torch.empty(16, device=device),
        "view": lambda: a.view(256),
        "copy_": lambda: out.copy_(x),
    }


def burst(call: Call) -> float:
    """Microseconds per call of one burst."""
    start = time.perf_counter()
    for _ in range(BURST):
        call()
    return (time.perf_counter() - start) / BURST * 1e6


def measure(names: list[str], device: torch.device) -> list[dict[str, object]]:
    sides = [cases(torch.device("cpu")), cases(device)]
    rows: list[dict[str, object]] = []
    for name in names:
        times: list[list[float]] = [[], []]
        for side in (0, 1):
            burst(sides[side][name])  # warm up
        chipset.reset_fallbacks()
        for _ in range(ROUNDS):
            for side in (0, 1):
                times[side].append(burst(sides[side][name]))
            if device.type == "chip":
                torch.accelerator.synchronize(device)
        cpu, chip = (statistics.median(side) for side in times)
        rows.append(
            {
                "operator": name,
                "cpu_us": round(cpu, 3),
                "chip_us": round(chip, 3),
                "ratio": round(chip / cpu, 3),
                "fallbacks": sum(entry["count"] for entry in chipset.fallbacks().values()),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="chip, for example cpu:0 or opencl")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--only", nargs="*", help="names of operators")
    options = parser.parse_args()

    torch.set_num_threads(1)
    device = chipset.select(options.device).torch
    names = options.only or list(cases(torch.device("cpu")))
    with torch.inference_mode():
        rows = measure(names, device)
    if options.json:
        json.dump({"device": options.device, "operators": rows}, sys.stdout, indent=2)
        print()
        return
    print(f"{'operator':<16}{'torch cpu us':>14}{options.device + ' us':>14}{'ratio':>8}  host")
    for row in rows:
        bar = "  (bar 1.15)" if row["operator"] in BARRED else ""
        print(
            f"{row['operator']:<16}{row['cpu_us']:>14}{row['chip_us']:>14}{row['ratio']:>8}"
            f"  {row['fallbacks']}{bar}"
        )


if __name__ == "__main__":
    main()
