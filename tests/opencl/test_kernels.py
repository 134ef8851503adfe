"""Every kernel of the kit is run, in each of the forms that it has, and judged against float64.

The kit compiles a kernel in another form for processors with wide and with narrow vectors, for
little local memory, and for devices with many work-items a group. PoCL takes all of them when it
is made to say that it is such a device. The cases are the conformance suite's.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNEL_FILES = ROOT / "plugin_sdk" / "chipset_sdk" / "kit" / "kernels"
CASES = """
    adamw/f32/options
    attention/f32/sizes attention/f32/flashmask
    attention_backward/f32/heads attention_backward/f32/windows attention_backward/f32/flashmask
    attention_paged/f32/sequences
    cross_entropy/f32/classes cross_entropy_backward/f32/classes
    dequantize/f32/i4 dequantize/bf16/f8e4m3
    gather/f32/layouts gather/f32/i64-indices
    gemm/f32/sizes gemm/bf16/layouts gemm/f32/activations
    gemm_quantized/f32/i4
    norm/f32/lengths norm_backward/f32/lengths
    pointwise/add/i64/layouts pointwise/digamma/f32/values pointwise/erf/f32/layouts
    pointwise/where/f16/layouts
    quantize/f32/i8 quantize/f32/f8e5m2
    random/bits/i64/sizes random/normal/f32/sizes random/bernoulli/f32/layouts
    reduce/argmax/f32/lengths reduce/max/i32/layouts reduce/mean/bf16/dims reduce/norm/f32/lengths
    reduce/sum/f32/layouts reduce/sum/f32/long reduce/var/f32/lengths
    rotary/f32/sizes
    scan/logsumexp/f32/lengths scan/max/f32/layouts scan/sum/f32/lengths
    scatter/add/f32/duplicates scatter/set/f32/layouts
    softmax/f32/lengths softmax_backward/f32/lengths
    sort/f32/lengths sort/f32/top-k sort/i64/ties
"""
FORMS = {
    "processor": {},
    "narrow processor": {"SHIM_VECTOR_WIDTH": "4", "SHIM_LOCAL_MEMORY": "32768"},
    "many lanes": {"CHIPSET_OPENCL_GENERIC": "1", "SHIM_LOCAL_MEMORY": "49152"},
}
PROGRAM = """
import json, sys
import chipset
from chipset_conformance.case import load
from chipset_conformance.execution import execute

wanted = sys.argv[1].split()
known = {case.id: case for case in load([2])}
device = chipset.select("opencl:0")
records = [execute(device, known[name], seed=0) for name in wanted]
print(json.dumps([[r.id, r.outcome.value, r.message, r.seconds] for r in records]))
"""


def kernels_of(file: Path) -> set[str]:
    return set(re.findall(r"^KERNEL\((\w+)\)", file.read_text(), re.MULTILINE))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", list(FORMS))
def test_every_kernel_runs(run_python: Any, shim: Path, tmp_path: Path, form: str) -> None:
    launched = tmp_path / "launched"
    env = {
        "CHIPSET_OPENCL_LOADER": str(shim),
        "CHIPSET_KERNEL_CACHE": str(tmp_path / "kernels"),
        "SHIM_LAUNCHED": str(launched),
        **FORMS[form],
    }
    done = run_python("-c", PROGRAM, CASES, env=env, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    records = json.loads(done.stdout)
    bad = [f"{name}: {how}: {why}" for name, how, why, _ in records if how != "passed"]
    assert not bad, "\n".join(bad)

    # A device has one of the two matrix products; it runs every other kernel that there is.
    other = "gemm_processor.c" if "CHIPSET_OPENCL_GENERIC" in env else "gemm.c"
    written = set.union(*(kernels_of(f) for f in KERNEL_FILES.glob("*.c") if f.name != other))
    ran = set(launched.read_text().split())
    assert ran == written, f"never launched: {written - ran}; not of this form: {ran - written}"
