"""What may be wrong with a driver or a device: told with its reason, the process goes on."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest


def said(done: Any) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout + done.stderr)


def test_no_loader_names_the_library_and_the_way_out(spoilt: Any) -> None:
    text = said(spoilt("print(refused(chip))", CHIPSET_OPENCL_LOADER="/nowhere/libOpenCL.so"))
    assert "/nowhere/libOpenCL.so" in text and "pocl-opencl-icd" in text


def test_a_library_that_is_no_loader_is_refused(spoilt: Any) -> None:
    text = said(spoilt("print(refused(chip))", CHIPSET_OPENCL_LOADER="libm.so.6"))
    assert "'libm.so.6' has no clGetPlatformIDs" in text


def test_no_platform(spoilt: Any, tmp_path: Path) -> None:
    text = said(spoilt("print(refused(chip))", OCL_ICD_VENDORS=str(tmp_path)))
    assert "no platform" in text and "no device is present" in text


def test_a_device_without_shared_virtual_memory_is_left_out(spoilt: Any) -> None:
    text = said(spoilt("print(refused(chip))", SHIM_SVM="0"))
    assert "CL_DEVICE_SVM_CAPABILITIES=0" in text and "no device is present" in text


def test_the_plugins_list_survives_all_of_it(run_python: Any) -> None:
    done = run_python(
        "-m", "chipset.cli", "devices", env={"CHIPSET_OPENCL_LOADER": "/nowhere/libOpenCL.so"}
    )
    assert done.returncode == 0 and "cpu" in done.stdout


def test_a_device_is_chosen_by_name(spoilt: Any) -> None:
    text = said(spoilt("print(refused(chip))", CHIPSET_OPENCL_DEVICE="no such name"))
    assert "'no such name'" in text


def test_without_fp64_only_f64_is_unsupported(spoilt: Any) -> None:
    code = """
d = chip()
a = d.array(np.ones((8, 8)))
args = d.arguments("gemm", a=a, b=a, d=d.empty((8, 8), Dtype.F64), alpha=1.0)
assert d.status("gemm", d.stream, ctypes.addressof(args)) == Status.UNSUPPORTED
assert multiply(d).numpy()[0, 0] == 64
"""
    said(spoilt(code, SHIM_NO_EXTENSION="cl_khr_fp64"))


def test_without_fp64_torch_s_doubles_are_the_host_s_and_counted(spoilt: Any) -> None:
    code = """
import torch
device = chipset.select("opencl:0").torch
x = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
for compute in (lambda t: t + t, lambda t: t.softmax(1), lambda t: t @ t.T, lambda t: t.cumsum(1)):
    before = sum(each["count"] for each in chipset.fallbacks().values())
    torch.testing.assert_close(compute(x.to(device)).cpu(), compute(x))
    assert sum(each["count"] for each in chipset.fallbacks().values()) > before
"""
    said(spoilt(code, SHIM_NO_EXTENSION="cl_khr_fp64"))


def test_without_fp64_the_certificate_says_so(spoilt: Any, tmp_path: Path) -> None:
    out = tmp_path / "certificate"
    code = f"""
from chipset import cli
import sys
sys.argv[1:] = ["certify", "opencl", "--level", "2", "--only", "softmax_backward/*"]
sys.argv += ["--out", {str(out)!r}]
cli.main()
"""
    said(spoilt(code, SHIM_NO_EXTENSION="cl_khr_fp64"))
    cases = json.loads((out / "certificate.json").read_text())["cases"]
    ran = {case["id"]: case for case in cases if case["outcome"] != "not_run"}
    assert {case["dtype"] for case in ran.values()} == {"f16", "bf16", "f32", "f64"}
    for case in ran.values():
        wanted = "unsupported" if case["dtype"] == "f64" else "passed"
        assert case["outcome"] == wanted, case
        assert wanted == "passed" or "no double precision" in case["message"]
    assert "no double precision" in (out / "junit.xml").read_text()
    row = re.search(r"<td>softmax_backward .*", (out / "report.html").read_text())
    assert row and row[0].count('class="cell unsupported"') == 1, row


def test_without_fp16_halves_are_computed_in_f32(spoilt: Any) -> None:
    code = "assert multiply(chip(), np.float16).numpy()[0, 0] == 64"
    said(spoilt(code, SHIM_NO_EXTENSION="cl_khr_fp16"))


def test_a_kernel_that_does_not_compile_shows_the_line_and_the_log(spoilt: Any) -> None:
    code = """
d = chip()
x = d.array(np.ones(8, np.float32))
print(refused(d.pointwise, "EXP", x, x))
assert multiply(d).numpy()[0, 0] == 64  # another kernel
"""
    text = said(spoilt(code, SHIM_SPOIL_SOURCE="GLOBAL TYPE(OUT) * out"))
    assert "kernel 'pointwise' does not compile" in text
    assert "error:" in text and "CL_BUILD_PROGRAM_FAILURE" in text  # the compiler's words
    assert re.search(r"\n  line \d+: .*KERNEL\(pointwise", text), text


def test_an_allocation_above_the_limit_names_it(spoilt: Any) -> None:
    code = "print(refused(chip().empty, (1 << 22,)))"
    text = said(spoilt(code, SHIM_MAX_ALLOCATION=str(4 << 20)))
    assert "at most 4194304 at once" in text and "out of memory" in text


def test_memory_that_runs_out_leaves_the_device_usable(spoilt: Any) -> None:
    code = """
d = chip()
print(refused(d.empty, (64 << 20,)))
assert multiply(d).numpy()[0, 0] == 64
"""
    assert "has no" in said(spoilt(code, SHIM_NO_MEMORY="1"))


def test_a_lost_device_says_so_for_ever_and_the_process_goes_on(spoilt: Any) -> None:
    code = """
d = chip()
out = multiply(d)
assert out.numpy()[0, 0] == 64
multiply(d)
print(refused(d.synchronize))
for again in (lambda: d.empty((1 << 20,)), lambda: multiply(d), d.synchronize, out.numpy):
    assert "was lost" in refused(again), refused(again)
print("alive")
"""
    text = said(spoilt(code, SHIM_LOSE_AFTER="2"))
    assert "was lost: clFinish answered CL_OUT_OF_RESOURCES" in text and "alive" in text


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_corrupt_kernel_cache_is_rebuilt(spoilt: Any, tmp_path: Path, damage: str) -> None:
    code = "assert multiply(chip()).numpy()[0, 0] == 64"
    said(spoilt(code))
    files = list((tmp_path / "kernels").iterdir())
    assert files
    before = {file: file.read_bytes() for file in files}
    for file, whole in before.items():
        spoil = {
            "cut": whole[: len(whole) // 2],
            "flip": whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:],
            "empty": b"",
        }
        file.write_bytes(spoil[damage])
    said(spoilt(code))
    for file, whole in before.items():
        assert len(file.read_bytes()) == pytest.approx(len(whole), rel=0.1)


def test_a_corrupt_choice_of_tile_is_measured_anew(spoilt: Any, tmp_path: Path) -> None:
    code = """
d = chip()
a = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
out = d.empty((512, 512))
d.call("gemm", a=d.array(a), b=d.array(a), d=out, alpha=1.0)
np.testing.assert_allclose(out.numpy(), a.astype("f8") @ a, 1e-4, 1e-3)
"""
    said(spoilt(code))
    (kept,) = [f for f in (tmp_path / "kernels").iterdir() if b"gemm's tile" in f.read_bytes()]
    whole, written = kept.read_bytes(), kept.stat().st_mtime_ns
    assert whole[-1] in (8, 12), whole[-1]  # rows of a tile
    said(spoilt(code))
    assert kept.stat().st_mtime_ns == written, "it was measured again although it was whole"
    for damaged in (whole[:-1], whole[:-1] + b"\x07", b""):
        kept.write_bytes(damaged)
        said(spoilt(code))
        now = kept.read_bytes()
        assert now[-1] in (8, 12) and len(now) == len(whole)
    assert not [file for file in kept.parent.iterdir() if file.suffix != ".bin"]


def test_two_processes_build_the_cache_at_once(spoilt: Any, tmp_path: Path) -> None:
    code = "assert multiply(chip()).numpy()[0, 0] == 64"
    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(spoilt, code) for _ in range(2)]:
            said(done.result())
    assert not [file for file in (tmp_path / "kernels").iterdir() if file.suffix != ".bin"]
