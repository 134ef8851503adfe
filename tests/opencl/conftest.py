"""The first OpenCL device, and child processes in which something about OpenCL is spoilt."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chipset

HERE = Path(__file__).resolve().parent


def missing() -> str:
    """Why the tests cannot run; empty if they can."""
    try:
        library = ctypes.CDLL("libOpenCL.so.1")
    except OSError as error:
        return f"needs an OpenCL driver (Debian: pocl-opencl-icd): {error}"
    count = ctypes.c_uint32()
    library.clGetPlatformIDs(0, None, ctypes.byref(count))
    return "" if count.value else "the OpenCL loader knows no platform"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    if reason:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def chip() -> Any:
    return chipset.select("opencl:0").driver


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OpenCL library that spoils what its environment variables name (shim.c)."""
    library = tmp_path_factory.mktemp("shim") / "libshim.so"
    linked = ["-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl"]
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "shim.c", *linked], check=True)
    return library


PRELUDE = """
import ctypes
import numpy as np
import chipset
from chipset._interface import Dtype, Status
def chip():
    return chipset.select("opencl:0").driver
def multiply(d, dtype=np.float32):
    a = d.array(np.ones((64, 64), dtype))
    out = d.array(np.zeros((64, 64), dtype))
    d.call("gemm", a=a, b=a, d=out, alpha=1.0)
    return out
def refused(function, *arguments, **fields):
    try:
        function(*arguments, **fields)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it was not refused")
"""

Spoilt = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def spoilt(run_python: Any, shim: Path, tmp_path: Path) -> Spoilt:
    """``spoilt("print(refused(chip))", SHIM_SVM="0")``: a child with its own kernel cache."""

    def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "CHIPSET_OPENCL_LOADER": str(shim),
            "CHIPSET_KERNEL_CACHE": str(tmp_path / "kernels"),
            **env,
        }
        return run_python(PRELUDE + code, env=settings)  # type: ignore[no-any-return]

    return run
