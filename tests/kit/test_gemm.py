"""The kit's tiled matrix product, for devices with many work-items a group, run on a processor.

The variant for processors is tested in tests/opencl/test_gemm.py.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

PROGRAM = """
import numpy as np
import chipset
chip = chipset.select("opencl:0").driver
rng = np.random.default_rng(0)
for m, n, k in ((100, 70, 33), (1, 5, 200), (130, 65, 64)):
    a, b = rng.standard_normal((2, m, k)), rng.standard_normal((2, k, n))
    a, b = a.astype(np.float32), b.astype(np.float32)
    d = chip.array(np.full((2, m, n), np.nan, np.float32))
    chip.call("gemm", a=chip.array(a), b=chip.array(b), d=d, alpha=1.0)
    error = np.abs(d.numpy() - a.astype("f8") @ b.astype("f8")).max()
    assert error <= 2.0**-23 * (k + 8) * 8, (m, n, k, error)
print("close")
"""


def test_tiled_product(run_python: Any) -> None:
    try:
        ctypes.CDLL("libOpenCL.so.1")
    except OSError as error:
        pytest.skip(f"needs an OpenCL driver (Debian: pocl-opencl-icd): {error}")
    done = run_python(PROGRAM, env={"CHIPSET_OPENCL_GENERIC": "1"})
    assert done.stdout.strip() == "close", done.stderr
