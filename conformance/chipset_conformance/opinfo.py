"""PyTorch's OpInfo database on a chip, against torch's own CPU.

    python -m chipset_conformance.opinfo --device cpu --json out.json --list out.md

Every operator of ``op_db`` runs on float32 samples, forward and backward. Each is reported as
``native`` (the plugin's own functions), ``composed`` (the runtime built a missing function from
others), ``fallback`` (right, but the host computed some of it), ``wrong``, ``unsupported`` (raised
an error that torch's CPU does not raise) or ``crashed``. An operator is native only if none of its
samples was composed or fell back, forward or backward. Samples that torch's CPU refuses are not
counted; those whose values are random are compared by shape and dtype and counted apart. Operators
run in shards, each a subprocess, so that a crash costs one operator: its shard goes on with the
next.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

SAMPLES_RIGHT_PERCENT = 99.5
# Not about a chip: their results are uninitialised or random by nature.
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
             "new_empty_strided", "nn.functional.feature_alpha_dropout", "bernoulli"}  # fmt: skip
RANDOM = {"multinomial", "normal", "rand_like", "randint", "randint_like", "randn", "randn_like",
          "uniform", "cauchy", "exponential", "geometric", "log_normal", "poisson", "random",
          "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
          "nn.functional.alpha_dropout", "nn.functional.rrelu", "bernoulli",
          "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="NAME[:INDEX] of the chip")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    parser.add_argument("--list", type=Path, help="write the operators by status to this file")
    parser.add_argument(
        "--samples", type=int, default=12, help="most samples of an operator; 0: all"
    )
    parser.add_argument("--least", type=int, default=0, metavar="N",
                        help="fail if fewer operators than this do without the host")  # fmt: skip
    parser.add_argument("--shards", type=int, default=2, help="subprocesses at a time")
    parser.add_argument("--filter", default="", help="only operators whose name contains this")
    parser.add_argument("--shard", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.shard is not None:
        run_shard(options)
        return 0
    results = run_all(options)
    report = summary(results, options.device)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    if options.list:
        options.list.write_text(listing(report))
    print(json.dumps({k: v for k, v in report.items() if k != "operators"}, indent=1))
    missed = bars_missed(report, options.least)
    print("\n".join(missed), file=sys.stderr)
    return 1 if missed else 0


# ---- the parent ----------------------------------------------------------------------------


def run_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs all shards to their ends; a crashed one is started again behind what crashed."""
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"{i}.jsonl" for i in range(options.shards)]
        running = {i: start(options, i, logs[i]) for i in range(options.shards)}
        while running:
            for i, process in list(running.items()):
                process.wait()
                if process.returncode == 0:
                    del running[i]
                else:
                    mark_crash(logs[i], process.returncode)
                    running[i] = start(options, i, logs[i])
        return [record for log in logs for record in read(log)]


def start(options: argparse.Namespace, shard: int, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "chipset_conformance.opinfo", "--device", options.device,
               "--samples", str(options.samples), "--shards", str(options.shards),
               "--filter", options.filter, "--shard", str(shard), "--log", str(log)]  # fmt: skip
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def read(log: Path) -> list[dict[str, Any]]:
    """Finished operators; a begun one that never finished has status ``begun``."""
    records: dict[str, dict[str, Any]] = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        record = json.loads(line)
        records[record["name"]] = record
    return list(records.values())


def mark_crash(log: Path, code: int) -> None:
    begun = [r for r in read(log) if r["status"] == "begun"]
    if not begun:
        raise SystemExit(f"a shard ended with status {code} before its first operator: run it with "
                         "--shard 0 --log FILE to see why")  # fmt: skip
    record = begun[-1] | {"status": "crashed", "detail": f"the process ended with status {code}"}
    with log.open("a") as file:
        file.write(json.dumps(record) + "\n")


def summary(results: list[dict[str, Any]], device: str) -> dict[str, Any]:
    status = Counter(record["status"] for record in results)
    right = sum(record["right"] for record in results)
    samples = sum(record["samples"] for record in results)
    names = ("native", "composed", "fallback", "wrong", "unsupported", "crashed", "no samples")
    return {
        "device": device,
        "operators_total": len(results),
        "status": {name: status.get(name, 0) for name in names},
        "without_host_fallback": status.get("native", 0) + status.get("composed", 0),
        "samples": samples,
        "samples_right": right,
        "samples_compared_by_shape_only": sum(record.get("shape_only", 0) for record in results),
        "samples_right_percent": round(100 * right / max(samples, 1), 3),
        "operators": sorted(results, key=lambda record: record["name"]),
    }


def bars_missed(report: dict[str, Any], least: int) -> list[str]:
    """A line for each of: too few samples right, a crash, too few operators without the host."""
    missed = []
    if report["samples_right_percent"] < SAMPLES_RIGHT_PERCENT:
        missed.append(f"{report['samples_right_percent']} % of the samples are right; "
                      f"the bar is {SAMPLES_RIGHT_PERCENT} %")  # fmt: skip
    if report["status"]["crashed"]:
        crashed = [r["name"] for r in report["operators"] if r["status"] == "crashed"]
        missed.append(f"crashed: {', '.join(crashed)}")
    if report["without_host_fallback"] < least:
        missed.append(f"{report['without_host_fallback']} operators do without the host; "
                      f"at least {least} were asked for")  # fmt: skip
    return missed


def listing(report: dict[str, Any]) -> str:
    """The operators by status in Markdown, and what of each the host or nobody computed."""
    groups: dict[str, list[dict[str, Any]]] = {name: [] for name in report["status"]}
    for record in report["operators"]:
        groups[record["status"]].append(record)
    lines = [f"# PyTorch's OpInfo database on `--device {report['device']}`, by operator", ""]
    lines += [f"{report['operators_total']} entries with f32, {report['samples']} samples."]
    for status, records in groups.items():
        lines += ["", f"## {status}: {len(records)}", ""]
        if status in ("native", "composed", "no samples"):
            lines.append(", ".join(f"`{record['name']}`" for record in records) or "none")
            continue
        for record in records:
            why = ", ".join(f"`{name}`" for name in record.get("fallbacks", []))
            why = why if status == "fallback" else record.get("detail", "")
            right = f"{record['right']} of {record['samples']} right"
            lines.append(f"- `{record['name']}` ({right}): {why}")
    return "\n".join(lines) + "\n"


# ---- one shard -----------------------------------------------------------------------------


def run_shard(options: argparse.Namespace) -> None:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    import chipset

    os.environ.setdefault("PYTORCH_TESTING", "1")
    device = chipset.select(options.device).torch
    done = {record["name"] for record in read(options.log)}
    mine = [op for op in op_db if options.filter in op.name][options.shard :: options.shards]
    for op in mine:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if name in done or torch.float32 not in op.supported_dtypes("cpu"):
            continue
        record = {"name": name, "status": "begun", "samples": 0, "right": 0}
        write(options.log, record)
        write(options.log, record | run_operator(op, device, options.samples))
    sys.stdout.flush()
    os._exit(0)  # nothing to tear down: the log is written


def write(log: Path, record: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.write(json.dumps(record) + "\n")


def run_operator(op: Any, device: Any, most: int) -> dict[str, Any]:
    """Status, counts, the operators that fell back, and the first fault of one operator."""
    import torch

    import chipset

    chipset.reset_fallbacks()
    composed_before = chipset.composed()
    samples = right = shape_only = 0
    faults: list[str] = []
    status = ""
    backward = op.supports_autograd
    torch.manual_seed(0)
    try:
        every = op.sample_inputs("cpu", torch.float32, requires_grad=backward)
        inputs = list(itertools.islice(every, most or None))
    except Exception as error:
        return {"status": "no samples", "detail": str(error)[:200]}
    for sample in inputs:
        expected, expected_error = evaluate(op, sample, None)
        if expected_error is not None:
            continue  # torch's CPU refuses it: nothing to compare with, so nothing to count
        samples += 1
        found, error = evaluate(op, sample, device)
        if error is not None:
            status = status or "unsupported"
            faults.append(error)
        else:
            random = is_random(op, sample)
            shape_only += random
            fault = difference(expected, found, compare_values=not random)
            right += fault is None
            if fault is not None:
                status = "wrong"
                faults.append(fault)
    fallbacks = chipset.fallbacks()
    if samples == 0:
        status = "no samples"
    elif not status:
        composed = chipset.composed() != composed_before
        status = "fallback" if fallbacks else "composed" if composed else "native"
    return {
        "status": status,
        "samples": samples,
        "right": right,
        "shape_only": shape_only,
        "fallbacks": sorted(fallbacks),
        "detail": faults[0][:300] if faults else "",
    }


def evaluate(op: Any, sample: Any, device: Any) -> tuple[Any, str | None]:
    """The result and the gradients of one sample, on torch's CPU or on the device."""
    import torch

    def move(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if op.name == "tensor_split" and x.dtype == torch.int64:
                return x  # torch wants these indices on the CPU, whatever the device
            moved = x.detach().clone() if device is None else x.detach().to(device)
            return moved.requires_grad_(x.requires_grad)
        if device is not None and isinstance(x, torch.device | str) and str(x) == "cpu":
            return device
        return x

    try:
        torch.manual_seed(0)
        sample = sample.transform(move)
        result = op(sample.input, *sample.args, **sample.kwargs)
        if sample.output_process_fn_grad is not None:
            result = sample.output_process_fn_grad(result)
        flat = torch.utils._pytree.tree_leaves(result)
        leaves = [t for t in torch.utils._pytree.tree_leaves(
            (sample.input, sample.args, sample.kwargs))
            if isinstance(t, torch.Tensor) and t.requires_grad]  # fmt: skip
        outputs = [t for t in flat if isinstance(t, torch.Tensor) and t.requires_grad]
        grads: tuple[Any, ...] = ()
        if leaves and outputs:
            loss = [t.abs().sum() if t.is_complex() else t.sum() for t in outputs]
            grads = torch.autograd.grad(sum(loss[1:], loss[0]), leaves, allow_unused=True)
        return (flat, grads), None
    except Exception as error:
        return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def is_random(op: Any, sample: Any) -> bool:
    """True where no two runs give the same values."""
    if op.name == "nn.functional.multi_head_attention_forward":
        return bool(sample.kwargs.get("training", True))
    if op.name == "svd_lowrank":  # a random projection, exact only for matrices of the rank asked
        return sample.kwargs.get("M") is not None
    if op.name == "nn.functional.scaled_dot_product_attention":
        return bool(sample.kwargs.get("dropout_p", 0.0) > 0)
    return op.name in UNDEFINED | RANDOM


def difference(expected: Any, found: Any, compare_values: bool) -> str | None:
    """None if both agree: exactly in shape and dtype and, where asked, closely in value."""
    import torch

    for what, want, have in (("output", expected[0], found[0]), ("grad", expected[1], found[1])):
        if len(want) != len(have):
            return f"{what}: {len(have)} results instead of {len(want)}"
        for w, h in zip(want, have, strict=True):
            if not isinstance(w, torch.Tensor):
                continue
            if not isinstance(h, torch.Tensor):
                return f"{what}: {type(h).__name__} instead of a tensor"
            if w.shape != h.shape or w.dtype != h.dtype:
                return f"{what}: {h.dtype} {list(h.shape)}, not {w.dtype} {list(w.shape)}"
            if not compare_values or w.is_sparse:
                continue
            try:
                torch.testing.assert_close(h.detach().cpu(), w.detach(), rtol=1e-4, atol=1e-4,
                                           equal_nan=True, check_stride=False)  # fmt: skip
            except AssertionError as error:
                return f"{what}: {' '.join(str(error).split())}"
    return None


if __name__ == "__main__":
    sys.exit(main())
