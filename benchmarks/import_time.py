"""What importing chipset and registering a chip with torch cost, in fresh processes.

    python benchmarks/import_time.py [--device cpu] [--rounds 11]

Bars: ``import chipset`` 0.3 s (torch stays out); with torch already imported, ``chipset.select``
up to the first tensor on the chip 0.3 s. For comparison: ``import torch``. The sides take turns;
wall time as each process measures it itself, medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

TIMED = """
import time
{before}
start = time.perf_counter()
{timed}
print(time.perf_counter() - start)
"""
SIDES = {
    "import chipset": ("", "import chipset"),
    "import torch": ("", "import torch"),
    "select, with torch imported": (
        "import torch, chipset",
        "chipset.select({device!r}).torch",
    ),
    "select and a first tensor": (
        "import torch, chipset",
        "torch.zeros(2, device=chipset.select({device!r}).torch)",
    ),
}


def seconds(before: str, timed: str) -> float:
    environment = {**os.environ, "CHIPSET_DEVICE": ""}
    program = TIMED.format(before=before, timed=timed)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    sides = {
        name: (before, timed.format(device=options.device))
        for name, (before, timed) in SIDES.items()
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for counted in range(options.rounds + 1):  # the first round fills the file cache
        for name, (before, timed) in sides.items():
            taken = seconds(before, timed)
            if counted:
                times[name].append(taken)
    print(f"{'':<32}{'median s':>10}{'least':>8}{'most':>8}")
    for name, values in times.items():
        print(f"{name:<32}{statistics.median(values):>10.3f}{min(values):>8.3f}{max(values):>8.3f}")


if __name__ == "__main__":
    main()
