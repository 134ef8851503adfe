"""Other drivers than the first: Intel's runtime for processors, alone and beside another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

INTEL = Path(sys.prefix, "lib", "libintelocl.so")
OTHERS = Path("/etc/OpenCL/vendors")

pytestmark = pytest.mark.skipif(
    not INTEL.exists(), reason="needs the packages intel-opencl-rt and intel-cmplr-lib-rt"
)

NAMES = """
import ctypes
import numpy as np
import chipset
from chipset._interface import DeviceInfo, Dtype

def driver_of(chip):
    info = DeviceInfo(struct_size=ctypes.sizeof(DeviceInfo))
    chip.invoke("device_info", chip.local, ctypes.addressof(info))
    return info.driver.decode()
"""
WORKS = """
def works(chip):
    rng = np.random.default_rng(0)
    for dtype, bound in ((np.float64, 1e-12), (np.float32, 1e-4), (np.float16, 2e-2)):
        a, b = (rng.standard_normal((40, 40)).astype(dtype) for _ in range(2))
        out = chip.array(np.zeros_like(a))
        chip.call("gemm", a=chip.array(a), b=chip.array(b), d=out, alpha=1.0)
        np.testing.assert_allclose(out.numpy(), a.astype("f8") @ b.astype("f8"), bound, bound)
        chip.pointwise("MUL", out, chip.array(a), chip.array(b))
        np.testing.assert_allclose(out.numpy(), a.astype("f8") * b.astype("f8"), bound, bound)
    total = chip.empty((40, 1))
    x = rng.standard_normal((40, 3000)).astype(np.float32)
    chip.call("reduce", op=0, dims=2, compute_dtype=Dtype.F32, input=chip.array(x), output=total)
    np.testing.assert_allclose(total.numpy()[:, 0], x.astype("f8").sum(1), 1e-4, 1e-3)
"""


@pytest.fixture
def on_drivers(run_python: Any, tmp_path: Path) -> Any:
    """``on_drivers(code, path, …)``: a child whose loader knows the drivers at those paths."""

    def run(code: str, *drivers: str) -> str:
        vendors = tmp_path / "vendors"
        vendors.mkdir()
        for number, driver in enumerate(drivers):
            (vendors / f"{number}.icd").write_text(f"{driver}\n")
        env = {
            "OCL_ICD_VENDORS": f"{vendors}/",
            "CHIPSET_KERNEL_CACHE": str(tmp_path / "kernels"),
        }
        done = run_python(NAMES + WORKS + code, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    return run


def test_intels_runtime_computes(on_drivers: Any) -> None:
    code = "chip = chipset.select('opencl:0').driver; works(chip); print(driver_of(chip))"
    assert "Intel" in on_drivers(code, str(INTEL))


def test_two_platforms_are_two_devices(on_drivers: Any) -> None:
    others = [line for icd in OTHERS.glob("*.icd") for line in icd.read_text().split()]
    if not others:
        pytest.skip(f"needs a second driver, in {OTHERS}")
    code = """
for name in ("opencl:0", "opencl:1"):
    chip = chipset.select(name).driver
    works(chip)
    print(driver_of(chip))
"""
    names = on_drivers(code, str(INTEL), others[0]).splitlines()
    assert len(names) == 2 and len(set(names)) == 2
    assert sum("Intel" in name for name in names) == 1
