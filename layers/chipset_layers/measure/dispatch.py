"""What one small operator costs on a device, beside PyTorch's own CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from chipset_layers.errors import LayerError

HOST = torch.device("cpu")
BURST = 200  # calls that are timed together
ROUNDS = 60  # bursts per side

Call = Callable[[], object]


def measure_dispatch(device: torch.device, only: list[str] | None = None) -> list[dict[str, Any]]:
    """Medians over short bursts of the time of one call, Python included, on one thread.

    The sides take turns. ``only`` names the operators; default: all of ``cases``.

    Returns:
        Per operator ``cpu_us`` and ``chip_us``, microseconds per call, and their ``ratio``, the
        device over the CPU (less is faster).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            return _measure(device, only)
    finally:
        torch.set_num_threads(threads)


def _measure(device: torch.device, only: list[str] | None) -> list[dict[str, Any]]:
    sides = [cases(HOST), cases(device)]
    unknown = set(only or []) - sides[0].keys()
    if unknown:
        raise LayerError(
            f"no such operator in this benchmark: {', '.join(sorted(unknown))}; "
            f"there are {', '.join(sides[0])}"
        )
    rows: list[dict[str, Any]] = []
    for name in only or sides[0]:
        times: list[list[float]] = [[], []]
        for side in (0, 1):
            burst(sides[side][name])  # warm up
        for _ in range(ROUNDS):
            for side in (0, 1):
                times[side].append(burst(sides[side][name]))
            if device.type != HOST.type:
                torch.accelerator.synchronize(device)
        cpu, chip = (statistics.median(side) for side in times)
        rows.append(
            {
                "operator": name,
                "cpu_us": round(cpu, 3),
                "chip_us": round(chip, 3),
                "ratio": round(chip / cpu, 3),
            }
        )
    return rows


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
