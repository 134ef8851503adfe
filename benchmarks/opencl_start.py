"""How long a fresh process takes to its first result on an OpenCL device and on the CPU chip.

Each process imports torch, takes the chip, and makes one forward and one backward pass of a small
Llama; kernel caches are warm, as the first pair is not counted. Processes alternate; medians of
wall time in seconds. Bar: 1 second over the CPU chip's.

    python benchmarks/opencl_start.py [--device opencl] [--rounds 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

BAR = 1.0
WORK = """
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
import chipset

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2,
)
device = chipset.select(sys.argv[1]).torch
model = LlamaForCausalLM(config).to(device)
tokens = torch.arange(32, device=device)[None]
loss = model(tokens, labels=tokens).loss
loss.backward()
print(loss.item())
"""


def started(device: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", WORK, device], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="opencl", help="an OpenCL chip, such as opencl:0")
    parser.add_argument("--rounds", type=int, default=5, help="processes a side")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    times: dict[str, list[float]] = {"cpu": [], options.device: []}
    first = {name: started(name) for name in times}
    for _ in range(options.rounds):
        for name, taken in times.items():
            taken.append(started(name))
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    over = medians[options.device] - medians["cpu"]
    if options.json:
        json.dump({"first_s": first, "warm_s": medians, "over_s": over}, sys.stdout, indent=2)
        print()
        return
    print(f"{'seconds':<12}{'first':>8}{'warm':>8}")
    for name, taken in medians.items():
        print(f"{name:<12}{first[name]:>8.2f}{taken:>8.2f}")
    print(f"{options.device} over cpu, warm: {over:.2f} s (bar {BAR} s)")


if __name__ == "__main__":
    main()
