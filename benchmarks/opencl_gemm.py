"""The F32 matrix product of an OpenCL processor beside oneDNN, on the shapes of a language model.

Both sides multiply the same numbers, interleaved, each on all cores; a time is that of one product
when several are enqueued and waited for together; medians over rounds. The linear layers of
SmolLM2-135M: d[rows, N] = a[rows, K] @ b[K, N], b stored transposed as weights are. Bar: oneDNN's
time is at least 0.85 of ours. Without --onednn the other side is torch.mm, which in F32 is MKL.

    python benchmarks/opencl_gemm.py [--onednn PATH/libdnnl.so] [--device opencl] [--rows 128 512]
        [--cpu-time] [--json]

With --cpu-time the processor's time is counted instead of the wall's, for a busy machine.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from cpu_kernels import LAYERS, sgemm

import chipset

ROWS = [128, 512, 1024]
ROUNDS = 7
SPAN = 30e-3  # seconds that are timed together, at 200 GFLOP/s
BAR = 0.85

clock = time.perf_counter

Call = Callable[[], object]


def product(driver: Any, a: torch.Tensor, b: torch.Tensor, out: Any) -> Call:
    """The chip's call, its arguments made once."""
    left, right = driver.array(a.numpy()), driver.array(np.ascontiguousarray(b.T.numpy()))
    args = driver.arguments("gemm", a=left, b=right.transpose(), d=out, alpha=1.0)

    def call() -> None:
        driver.invoke("gemm", driver.stream, ctypes.addressof(args))
        assert left is not None and right is not None  # keeps them alive

    return call


def timed(call: Call, times: int, wait: Call) -> float:
    start = clock()
    for _ in range(times):
        call()
    wait()
    return (clock() - start) / times


def compare(driver: Any, onednn: Any, rows: int, depth: int, columns: int) -> dict[str, Any]:
    a, b = torch.randn(rows, depth), torch.randn(columns, depth).T
    expected, out = torch.empty(rows, columns), driver.empty((rows, columns))
    ours = product(driver, a, b, out)
    other = sgemm(onednn, a, b, expected) if onednn else lambda: torch.mm(a, b, out=expected)
    flops = 2.0 * rows * depth * columns
    times = max(1, round(SPAN * 200e9 / flops))
    sides: list[tuple[Call, Call]] = [(ours, driver.synchronize), (other, lambda: None)]
    taken: list[list[float]] = [[], []]
    for round_number in range(ROUNDS + 1):
        for side, (call, wait) in enumerate(sides):
            seconds = timed(call, times, wait)
            if round_number > 0:  # the first one compiles and tunes
                taken[side].append(seconds)
    np.testing.assert_allclose(out.numpy(), expected.numpy(), rtol=1e-3, atol=1e-2)
    chip, reference = (statistics.median(side) for side in taken)
    return {
        "rows": rows,
        "K": depth,
        "N": columns,
        "chip_gflops": round(flops / chip / 1e9),
        "other_gflops": round(flops / reference / 1e9),
        "ratio": round(reference / chip, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="opencl", help="an OpenCL chip, such as opencl:0")
    parser.add_argument("--onednn", help="a libdnnl.so to compare with")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS, help="rows of a")
    parser.add_argument("--cpu-time", action="store_true", help="count the processor's time")
    options = parser.parse_args()
    if options.cpu_time:
        global clock
        clock = time.process_time
    torch.manual_seed(0)
    driver = chipset.select(options.device).driver
    onednn = ctypes.CDLL(options.onednn) if options.onednn else None
    results = [
        compare(driver, onednn, rows, depth, columns)
        for rows in options.rows
        for depth, columns in LAYERS
    ]
    overall = statistics.median(result["ratio"] for result in results)
    if options.json:
        json.dump({"products": results, "median_ratio": overall}, sys.stdout, indent=2)
        print()
        return
    name = "oneDNN" if onednn else "torch.mm"
    print(f"{'rows':>6}{'K':>6}{'N':>7}{'chip GFLOP/s':>14}{name + ' GFLOP/s':>18}{'ratio':>8}")
    for r in results:
        print(
            f"{r['rows']:>6}{r['K']:>6}{r['N']:>7}{r['chip_gflops']:>14}"
            f"{r['other_gflops']:>18}{r['ratio']:>8}"
        )
    print(f"median ratio {overall} (bar {BAR})")


if __name__ == "__main__":
    main()
