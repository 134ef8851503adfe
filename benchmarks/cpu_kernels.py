"""The CPU chip's kernels beside PyTorch's own CPU, and beside what the processor can do at most.

Both sides work on the same memory in this process, interleaved; numbers are medians over rounds.
"of peak" compares the chip with the measured roofline: the larger of its FLOP/s over a loop of
multiply-adds in registers, and its bytes/s (each operand moved once) over a stream of memory.
Operands that fit a cache can exceed the memory's rate.

    python benchmarks/cpu_kernels.py [--only gemm,softmax] [--threads 2] [--all] [--json]
        [--onednn PATH/libdnnl.so]

With --onednn the GEMM in F32 is also timed against that library's dnnl_sgemm.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROUNDS = 15
BURST = 4e-3  # seconds that are timed together
DTYPES = {"f32": "float32", "bf16": "bfloat16"}
# (K, N) of the linear layers of SmolLM2-135M, and of its output.
LAYERS = [(576, 576), (576, 192), (576, 1536), (1536, 576), (576, 49152)]
ROWS = [1, 16, 128, 1024]

Call = Callable[[], object]


@dataclass
class Case:
    """One measurement: the same work by the chip and by others."""

    group: str
    name: str
    chip: Chip
    others: dict[str, Call]
    flops: float = 0
    bytes: float = 0
    results: dict[str, float] = field(default_factory=dict)


class Chip:
    """A call of the CPU chip's table on memory of torch tensors."""

    def __init__(self, function: str, struct: str, **fields: Any) -> None:
        import torch

        from chipset import _interface

        self.driver = driver()
        self.args = getattr(_interface, struct)(struct_size=0)
        self.args.struct_size = ctypes.sizeof(self.args)
        self.keep: list[Any] = []
        for name, value in fields.items():
            if isinstance(value, torch.Tensor):
                self.keep += [value, tensor(value)]
                setattr(self.args, name, ctypes.addressof(self.keep[-1]))
            elif isinstance(value, list) and isinstance(value[0], torch.Tensor):
                array = (_interface.Tensor * len(value))(*[tensor(v) for v in value])
                self.keep += [value, array]
                pointer = getattr(self.args, name)
                if isinstance(pointer, ctypes.Array):
                    for i in range(len(value)):
                        pointer[i] = ctypes.addressof(array[i])
                else:
                    setattr(self.args, name, ctypes.addressof(array))
            else:
                setattr(self.args, name, value)
        self.address: int = getattr(self.driver.api, function)
        self.function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(
            self.address
        )
        self.name = function

    def __call__(self) -> None:
        status = self.function(self.driver.stream, ctypes.addressof(self.args))
        if status != 0:
            raise RuntimeError(f"{self.name} answered status {status}")


def driver() -> Any:
    import chipset

    return chipset.select("cpu:0").driver


def tensor(value: Any) -> Any:
    from chipset import _interface

    names = {"float32": "F32", "bfloat16": "BF16", "int8": "I8", "int32": "I32", "int64": "I64"}
    view = _interface.Tensor(struct_size=ctypes.sizeof(_interface.Tensor))
    view.dtype = _interface.Dtype[names[str(value.dtype).removeprefix("torch.")]]
    view.rank, view.data = value.dim(), value.data_ptr()
    for d in range(value.dim()):
        view.shape[d], view.stride[d] = value.shape[d], value.stride(d)
    return view


def size_of(*tensors: Any) -> float:
    return float(sum(t.numel() * t.element_size() for t in tensors))


def gemms(every: bool, onednn: Any) -> Iterator[Case]:
    import torch

    for dtype_name, torch_name in DTYPES.items():
        dtype = getattr(torch, torch_name)
        for k, n in LAYERS:
            for m in ROWS:
                for layout in ("nt", "nn", "tn", "tt") if every else ("nt", "nn", "tn"):
                    if layout == "tn" and not every and m != 1024:
                        continue
                    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
                    if layout[0] == "t":
                        a = a.t().contiguous().t()
                    if layout[1] == "t":
                        b = b.t().contiguous().t()
                    d, e = torch.empty(m, n, dtype=dtype), torch.empty(m, n, dtype=dtype)
                    chip = Chip("gemm", "GemmArgs", a=a, b=b, d=d, alpha=1.0)
                    others: dict[str, Call] = {"torch": lambda a=a, b=b, e=e: torch.mm(a, b, out=e)}
                    if onednn is not None and dtype_name == "f32":
                        others["onednn"] = sgemm(onednn, a, b, torch.empty(m, n))
                    yield Case(
                        "gemm", f"{dtype_name} {m}x{k}x{n} {layout}", chip, others,
                        2.0 * m * k * n, size_of(a, b, d),
                    )  # fmt: skip


def sgemm(library: Any, a: Any, b: Any, out: Any) -> Call:
    """dnnl_sgemm, row-major."""
    flags = [b"N" if t.stride(1) == 1 else b"T" for t in (a, b)]
    leading = [max(t.stride(0), t.stride(1)) for t in (a, b)]
    size, real, where = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
    (m, k), n = a.shape, b.shape[1]
    arguments = [
        ctypes.c_char(flags[0]), ctypes.c_char(flags[1]), size(m), size(n), size(k), real(1),
        where(a.data_ptr()), size(leading[0]), where(b.data_ptr()), size(leading[1]), real(0),
        where(out.data_ptr()), size(n),
    ]  # fmt: skip

    def call() -> None:
        assert all(x is not None for x in (a, b, out))  # keeps them alive
        assert library.dnnl_sgemm(*arguments) == 0

    return call


def pointwise() -> Iterator[Case]:
    import torch

    from chipset._interface import Dtype as D
    from chipset._interface import PointwiseOp, Scalar

    F = torch.nn.functional
    operations: list[tuple[str, int, Callable[..., Any]]] = [
        ("ADD", 2, lambda x, y: torch.add(x, y)),
        ("MUL", 2, lambda x, y: torch.mul(x, y)),
        ("EXP", 1, lambda x: torch.exp(x)),
        ("SILU", 1, lambda x: F.silu(x)),
        ("GELU_TANH", 1, lambda x: F.gelu(x, approximate="tanh")),
    ]
    for dtype_name, torch_name in DTYPES.items():
        for op, arity, other in operations:
            for n in (1 << 20,):
                x = [torch.randn(n).to(getattr(torch, torch_name)) for _ in range(arity)]
                y = torch.empty_like(x[0])
                params = (Scalar * 4)(Scalar(1.0, 1))
                chip = Chip(
                    "pointwise", "PointwiseArgs", op=PointwiseOp[op],
                    compute_dtype=D[dtype_name.upper()], num_inputs=arity, output=y, input=x,
                    param=params,
                )  # fmt: skip
                yield Case(
                    "pointwise", f"{op.lower()} {dtype_name} {n}", chip,
                    {"torch": lambda f=other, x=x: f(*x)}, 0, size_of(*x, y),
                )  # fmt: skip


def reduces() -> Iterator[Case]:
    import torch

    from chipset._interface import Dtype as D
    from chipset._interface import ReduceOp

    for dtype_name, torch_name in DTYPES.items():
        for dims, axes in ((2, 1), (1, 0)):
            x = torch.randn(1024, 1536).to(getattr(torch, torch_name))
            y = torch.empty_like(x.sum(axes, keepdim=True))
            chip = Chip(
                "reduce", "ReduceArgs", op=ReduceOp.SUM, compute_dtype=D[dtype_name.upper()],
                dims=dims, input=x, output=y,
            )  # fmt: skip
            others: dict[str, Call] = {"torch": lambda x=x, axes=axes: torch.sum(x, axes)}
            yield Case("reduce", f"sum {dtype_name} dim {axes}", chip, others, 0, size_of(x))


def rows() -> Iterator[Case]:
    import torch

    F = torch.nn.functional
    for dtype_name, torch_name in DTYPES.items():
        dtype = getattr(torch, torch_name)
        x = torch.randn(1024, 1024).to(dtype)
        y = torch.empty_like(x)
        chip = Chip("softmax", "SoftmaxArgs", dim=1, input=x, output=y)
        others: dict[str, Call] = {"torch": lambda x=x: torch.softmax(x, 1)}
        yield Case("softmax", f"{dtype_name} 1024x1024", chip, others, 0, size_of(x, y))
        x, w = torch.randn(1024, 576).to(dtype), torch.randn(576).to(dtype)
        y, rstd = torch.empty_like(x), torch.empty(1024)
        chip = Chip("norm", "NormArgs", kind=0, eps=1e-5, x=x, weight=w, y=y, rstd=rstd)
        others = {"torch": lambda x=x, w=w: F.rms_norm(x, (576,), w, 1e-5)}
        yield Case("norm", f"rms {dtype_name} 1024x576", chip, others, 0, size_of(x, y))


def attentions() -> Iterator[Case]:
    import torch

    for dtype_name, torch_name in DTYPES.items():
        dtype = getattr(torch, torch_name)
        heads, tokens, size = 9, 1024, 64
        q, k, v, dout = (torch.randn(1, heads, tokens, size).to(dtype) for _ in range(4))
        out, dq, dk, dv = (torch.empty_like(q) for _ in range(4))
        lse = torch.empty(1, heads, tokens)
        fields: dict[str, Any] = {
            "flags": 1, "q": q, "k": k, "v": v, "out": out, "lse": lse, "scale": size**-0.5,
            "causal_offset": 0, "window_left": -1, "window_right": -1,
        }  # fmt: skip
        forward = Chip("attention", "AttentionArgs", **fields)
        flops = 2.0 * heads * tokens * tokens * size  # half of the scores, two products

        def run(q: Any = q, k: Any = k, v: Any = v) -> Any:
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, 0.0, is_causal=True
            )

        name = f"{dtype_name} {heads} heads, {tokens} tokens, causal"
        yield Case("attention", "forward " + name, forward, {"torch": run}, flops, size_of(q) * 4)
        forward()
        saved = run()

        def back(q: Any = q, k: Any = k, v: Any = v, dout: Any = dout, saved: Any = saved) -> Any:
            backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
            return backward(dout, q, k, v, saved[0], saved[1], 0.0, True)

        chip = Chip("attention_backward", "AttentionArgs", dout=dout, dq=dq, dk=dk, dv=dv, **fields)
        yield Case("attention", "backward " + name, chip, {"torch": back}, 2.5 * flops, 0)


def optimizers() -> Iterator[Case]:
    import torch

    sizes = [576 * 1536] * 3 + [576 * 576] * 4
    param, grad, first, second = ([torch.rand(n) * 1e-2 + 1e-3 for n in sizes] for _ in range(4))
    step = [torch.tensor(3.0) for _ in sizes]
    chip = Chip(
        "adamw", "AdamwArgs", num_tensors=len(sizes), param=param, grad=grad, exp_avg=first,
        exp_avg_sq=second, step=step, lr=1e-4, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1,
        decoupled=1,
    )  # fmt: skip

    def other() -> None:
        torch._fused_adamw_(
            param, grad, first, second, [], step, lr=1e-4, beta1=0.9, beta2=0.99,
            weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

    moved = size_of(*param) * 7  # four read, three written
    yield Case("adamw", f"f32, {sum(sizes):,} numbers", chip, {"torch": other}, 0, moved)


def quantized() -> Iterator[Case]:
    import torch

    for dtype_name, torch_name in DTYPES.items():
        dtype = getattr(torch, torch_name)
        for k, n in ((576, 1536), (1536, 576), (576, 49152)):
            x = torch.randn(1, k).to(dtype)
            w = torch.randint(-127, 128, (n, k), dtype=torch.int8)
            scale, d = torch.rand(n, 1) * 1e-2, torch.empty(1, n, dtype=dtype)
            wide = (w * scale).to(dtype).t()
            chip = Chip("gemm_quantized", "GemmQuantizedArgs", x=x, w=w, w_scale=scale, d=d)
            others: dict[str, Call] = {"torch, not quantised": lambda x=x, w=wide: torch.mm(x, w)}
            yield Case(
                "gemm_quantized", f"int8, {dtype_name} 1x{k}x{n}", chip, others, 2.0 * k * n,
                size_of(w),
            )  # fmt: skip
    for k, n in LAYERS:
        for m in ROWS:  # torch multiplies int8 through the oneDNN that it carries, without scales
            x, w = (torch.randint(-127, 128, size, dtype=torch.int8) for size in ((m, k), (n, k)))
            d, product = torch.empty(m, n), torch.empty(m, n, dtype=torch.int32)
            chip = Chip(
                "gemm_quantized", "GemmQuantizedArgs", x=x, x_scale=torch.rand(m), w=w,
                w_scale=torch.rand(n, 1), d=d,
            )  # fmt: skip
            others = {
                "torch._int_mm": lambda x=x, w=w, out=product: torch._int_mm(x, w.t(), out=out)
            }
            yield Case(
                "gemm_quantized", f"int8 x int8 {m}x{k}x{n}", chip, others, 2.0 * m * k * n,
                size_of(x, w, d),
            )  # fmt: skip


def small(native: Any) -> list[tuple[str, float]]:
    """Nanoseconds of the smallest calls, without Python."""
    import torch

    from chipset._interface import Dtype as D
    from chipset._interface import PointwiseOp, ReduceOp, Scalar

    x, y, z = (torch.rand(16) for _ in range(3))
    a, b, d = (torch.rand(16, 16) for _ in range(3))
    one = torch.empty(1)
    calls = {
        "add, 16 numbers": Chip(
            "pointwise", "PointwiseArgs", op=PointwiseOp.ADD, compute_dtype=D.F32, num_inputs=2,
            output=z, input=[x, y], param=(Scalar * 4)(Scalar(1.0, 1)),
        ),
        "exp, 16 numbers": Chip(
            "pointwise", "PointwiseArgs", op=PointwiseOp.EXP, compute_dtype=D.F32, num_inputs=1,
            output=z, input=[x],
        ),
        "sum, 16 numbers": Chip(
            "reduce", "ReduceArgs", op=ReduceOp.SUM, compute_dtype=D.F32, dims=1, input=x,
            output=one,
        ),
        "gemm, 16 x 16 x 16": Chip("gemm", "GemmArgs", a=a, b=b, d=d, alpha=1.0),
    }  # fmt: skip
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            arguments = ctypes.c_void_p(ctypes.addressof(call.args))
            stream = ctypes.c_void_p(call.driver.stream)
            rounds[name].append(
                native.call_ns(ctypes.c_void_p(call.address), stream, arguments, 20000)
            )
    return [(name, statistics.median(times)) for name, times in rounds.items()]


clock: Callable[[], float] = time.perf_counter


def seconds(call: Call, calls: int) -> float:
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls


def measure(case: Case) -> None:
    """Fills case.results: median seconds per call of each side."""
    sides = {"chip": case.chip, **case.others}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for call in sides.values():
        call()
    calls = max(1, int(BURST / max(seconds(case.chip, 1), 1e-7)))
    for _ in range(ROUNDS if calls > 1 else 5):
        for name, call in sides.items():
            times[name].append(seconds(call, min(calls, 2000)))
    case.results = {name: statistics.median(values) for name, values in times.items()}


def native_library(folder: str, cpu_time: bool) -> Any:
    source = Path(__file__).with_name("roofline.cpp")
    target = Path(folder) / "libroofline.so"
    compiler = os.environ.get("CXX", "c++")
    subprocess.run(
        [compiler, "-std=c++20", "-O3", "-march=native", "-ffp-contract=fast", "-shared",
         "-fPIC", "-pthread",
         *(["-DCPU_TIME"] if cpu_time else []), str(source), "-o", str(target)],
        check=True,
    )  # fmt: skip
    library = ctypes.CDLL(str(target))
    for name in ("peak_flops", "stream_bandwidth", "call_ns"):
        getattr(library, name).restype = ctypes.c_double
    library.call_ns.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64]
    return library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="groups, separated by commas")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--all", action="store_true", help="every layout of every GEMM")
    parser.add_argument("--onednn", help="a libdnnl.so to compare the F32 GEMM with")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="count the processor's time instead of the wall's, on one thread; for a busy machine",
    )
    options = parser.parse_args()
    if options.cpu_time:
        global clock
        clock, options.threads = time.process_time, 1
    os.environ["CHIPSET_CPU_THREADS"] = str(options.threads)
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    onednn = ctypes.CDLL(options.onednn) if options.onednn else None
    groups: dict[str, Callable[[], Iterator[Case]]] = {
        "gemm": lambda: gemms(options.all, onednn), "pointwise": pointwise, "reduce": reduces,
        "rows": rows, "attention": attentions, "adamw": optimizers, "gemm_quantized": quantized,
    }  # fmt: skip
    wanted = [g for g in options.only.split(",") if g] or [*groups, "small"]
    if unknown := set(wanted) - {*groups, "small"}:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join([*groups, 'small'])}")

    report = sys.stderr if options.json else sys.stdout
    with tempfile.TemporaryDirectory() as folder:
        native = native_library(folder, options.cpu_time)
        flops = native.peak_flops(options.threads)
        bandwidth = native.stream_bandwidth(options.threads)
        print(
            f"{options.threads} threads, torch {torch.__version__}; peak {flops / 1e9:.0f} GFLOP/s "
            f"(F32), stream {bandwidth / 1e9:.1f} GB/s\n",
            file=report,
        )
        head = "| kernel | chip | other | chip over other | rate of the chip | of peak |"
        print(head + "\n|---|---|---|---|---|---|", file=report)
        done: list[dict[str, Any]] = []
        for group in wanted:
            for case in groups[group]() if group != "small" else ():
                measure(case)
                chip = case.results["chip"]
                compute, stream = case.flops / chip / flops, case.bytes / chip / bandwidth
                rate = (
                    f"{case.flops / chip / 1e9:.0f} GFLOP/s" if compute >= stream
                    else f"{case.bytes / chip / 1e9:.1f} GB/s"
                )  # fmt: skip
                for name in case.others:
                    other = case.results[name]
                    print(
                        f"| {case.group} {case.name} | {chip * 1e6:,.1f} µs | {name} "
                        f"{other * 1e6:,.1f} µs | {chip / other:.2f} | {rate} "
                        f"| {max(compute, stream):.2f} |",
                        file=report, flush=True,
                    )  # fmt: skip
                done.append({"group": case.group, "name": case.name, **case.results,
                             "of_peak": max(compute, stream)})  # fmt: skip
        latencies = small(native) if "small" in wanted else []
        for name, nanoseconds in latencies:
            print(f"small call: {name}: {nanoseconds:.0f} ns", file=report)
    if options.json:
        print(json.dumps({"peak_flops": flops, "stream": bandwidth, "threads": options.threads,
                          "cases": done, "small_ns": dict(latencies)}))  # fmt: skip


if __name__ == "__main__":
    main()
