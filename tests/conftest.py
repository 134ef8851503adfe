"""What every test shares: a clean environment and a way to run a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = [
    "core",
    "layers",
    "plugins/cpu",
    "plugins/opencl",
    "plugins/sim",
    "plugin_sdk",
    "conformance",
]

# A developer's own settings must not change what a test sees. The cache is kept: it holds
# downloads only, each verified by checksum.
for _name in [name for name in os.environ if name.startswith("CHIPSET_")]:
    if _name != "CHIPSET_CACHE":
        del os.environ[_name]
# Several test processes share the cores: idle OpenMP threads sleep, and each takes its share.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // _workers)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--chip", default="cpu", help="the device under the bridge's and layers' tests"
    )
    parser.addoption("--devices", help="how many devices the plugin of --chip shows")
    parser.addoption("--checked", action="store_true", help="hold every call against the header")
    parser.addoption(
        "--hide-unified",
        action="store_true",
        help="the CPU chip does not say that the host may read its memory",
    )
    parser.addoption(
        "--sim", default="", help="options of the simulated chip, as CHIPSET_SIM has them"
    )


def pytest_configure(config: pytest.Config) -> None:
    plugin = config.getoption("--chip").partition(":")[0]
    devices = config.getoption("--devices")
    if plugin == "sim":
        count = f"devices={devices}," if devices else ""
        os.environ["CHIPSET_SIM"] = count + config.getoption("--sim")
    elif devices:
        os.environ[f"CHIPSET_{plugin.upper()}_DEVICES"] = devices
    if config.getoption("--checked"):
        os.environ["CHIPSET_CHECK"] = "1"
    if config.getoption("--hide-unified"):
        os.environ["CHIPSET_CPU_UNIFIED"] = "0"


@pytest.fixture(autouse=True)
def nothing_found(pytestconfig: pytest.Config) -> Iterator[None]:
    """On the simulated chip, a test also fails of what the chip found."""
    if pytestconfig.getoption("--chip").partition(":")[0] != "sim":
        yield
        return
    import chipset
    import chipset_sim

    chipset.select("sim")
    chipset_sim.clear_findings()
    yield
    found = chipset_sim.findings()
    assert not found, "\n".join(f"{item.rule}: {item.text}\n{item.replay}" for item in found)


PythonRunner = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder that holds the whole source tree."""
    return ROOT


@pytest.fixture(scope="session")
def run_python() -> PythonRunner:
    """Run Python code, or ``-m module arguments``, in a fresh interpreter that sees the sources.

    ``run_python("print(1)")``, ``run_python("-m", "chipset.cli", "devices", env={...})``.
    ``env`` is added to the environment; ``timeout`` is in seconds. Never raises on a non-zero
    status: the caller asserts on ``returncode``, ``stdout`` and ``stderr``.
    """

    def run(
        *arguments: str,
        env: dict[str, str] | None = None,
        timeout: float = 120,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        roots = os.pathsep.join(str(ROOT / root) for root in SOURCE_ROOTS)
        command = [sys.executable, *arguments]
        if len(arguments) == 1:
            command = [sys.executable, "-c", arguments[0]]
        return subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": roots, **(env or {})},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
