"""What a kernel launch costs on an OpenCL device, from torch down, beside bare OpenCL.

Both sides add 64 numbers in place, one launch after the other without waiting, and wait once at the
end of each burst: ``to.add_(from)`` through PyTorch, the bridge, the runtime, the plugin and the
kit; and clSetKernelArg with clEnqueueNDRangeKernel from C (opencl_launch.c). Same process, same
driver, interleaved; medians over bursts, in microseconds per launch. Bar: 2 times bare OpenCL.

    python benchmarks/opencl_launch.py [--device opencl] [--json]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import chipset

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parent / "plugins" / "opencl" / "third_party"
BURST = 500  # launches before the device is waited for
ROUNDS = 60  # bursts per side
BAR = 2.0


def bare(number: int, profiling: bool, folder: Path) -> tuple[Callable[[], None], ...]:
    """The burst and the wait of bare OpenCL on the device of that number."""
    library = folder / f"bare{profiling:d}.so"
    source = HERE / "opencl_launch.c"
    linked = ["-l:libOpenCL.so.1"]
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", f"-I{HEADERS}", source, "-o", library, *linked],
        check=True,
    )
    loaded = ctypes.CDLL(str(library))
    status = loaded.bare_open(number, profiling)
    if status != 0:
        raise SystemExit(f"bare OpenCL cannot use device {number} (step {status})")

    def burst() -> None:
        if loaded.bare_launch(BURST) != 0:
            raise SystemExit("bare OpenCL refused a launch")

    return burst, loaded.bare_finish


def whole(device: torch.device) -> tuple[Callable[[], None], ...]:
    """The burst and the wait of the whole stack."""
    to, source = torch.zeros(64, device=device), torch.ones(64, device=device)

    def burst() -> None:
        for _ in range(BURST):
            to.add_(source)

    return burst, lambda: torch.accelerator.synchronize(device)


def timed(burst: Callable[[], None], wait: Callable[[], None]) -> tuple[float, float]:
    """Microseconds per launch: until the last was enqueued, and until it was done."""
    start = time.perf_counter()
    burst()
    enqueued = time.perf_counter()
    wait()
    done = time.perf_counter()
    return (enqueued - start) / BURST * 1e6, (done - start) / BURST * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="opencl", help="an OpenCL chip, such as opencl:0")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    device = chipset.select(options.device)
    number = int(options.device.partition(":")[2] or 0)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        sides = {
            "bare": bare(number, False, Path(folder)),
            "bare, profiling queue": bare(number, True, Path(folder)),
            "whole stack": whole(device.torch),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for side in sides.values():
            timed(*side)  # compiles
        for _ in range(ROUNDS):
            for name, side in sides.items():
                times[name].append(timed(*side))
    medians = {
        name: tuple(statistics.median(column) for column in zip(*rows, strict=True))
        for name, rows in times.items()
    }
    ratio = medians["whole stack"][1] / medians["bare"][1]
    if options.json:
        json.dump({"device": options.device, "us": medians, "ratio": ratio}, sys.stdout, indent=2)
        print()
        return
    print(f"{'us per launch':<24}{'enqueued':>10}{'done':>10}")
    for name, (enqueued, done) in medians.items():
        print(f"{name:<24}{enqueued:>10.2f}{done:>10.2f}")
    print(f"whole stack / bare: {ratio:.2f} (bar {BAR})")


if __name__ == "__main__":
    main()
