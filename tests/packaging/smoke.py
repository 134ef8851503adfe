"""Installs a wheel in a fresh virtual environment and uses it as a stranger would.

Usage: python tests/packaging/smoke.py chipset-….whl

Run by .ci/run. The environment sees nothing of the source tree: its own folder, no PYTHONPATH. Two
plugins are built there from the wheel alone: the scaffold's, and one whose kernels are the kit's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

# What the wheel must hold beside Python modules: the start and end of each name.
ARTEFACTS = [
    ("chipset/_runtime", ".so"),
    ("chipset/_bridge", ".so"),
    ("chipset/lib/libchipset_runtime", ".so"),
    ("chipset/include/chipset/chipset", ".h"),
    ("chipset/cmake/chipsetConfig", ".cmake"),
    ("chipset_cpu/libchipset_cpu", ".so"),
    ("chipset_conformance/lib/libchipset_mutants", ".so"),
    ("chipset_sdk/lib/libchipset_python", ".so"),
    ("chipset_sdk/include/chipset_sdk", ".hpp"),
    ("chipset_sdk/scaffold/src/plugin.cpp", ".jinja"),
    ("chipset_sdk/kit/chipset_kit", ".cmake"),
    ("chipset_sdk/kit/kernels/gemm", ".c"),
    ("chipset_sdk/kit/src/kit", ".cpp"),
]
FORBIDDEN = (".cpp", ".cc", ".o", ".a")
OPENCL = Path(__file__).resolve().parents[2] / "plugins" / "opencl"
VENDORS_SOURCES = "chipset_sdk/kit/"  # compiled into a vendor's plugin

CHECKS = {
    "importing chipset leaves torch out": """
import sys, chipset
assert "torch" not in sys.modules
""",
    "importing torch without a device does nothing": """
import torch
assert not torch._C._get_privateuse1_backend_name() == "chip"
""",
    "a tensor computes on the device without the host": """
import chipset, torch
device = chipset.select("cpu:0").torch
assert str(device) == "chip:0", device
x = torch.arange(12.0, device=device).reshape(3, 4)
assert torch.equal((x @ x.T).cpu(), x.cpu() @ x.cpu().T)
assert chipset.fallbacks() == {}, chipset.fallbacks()
""",
    "CHIPSET_DEVICE makes import torch enough": """
import os
os.environ["CHIPSET_DEVICE"] = "cpu"
import torch
assert torch.ones(2, device="chip").sum().item() == 2
""",
    "a model trains one step": """
import chipset, torch
device = chipset.select("cpu").torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.SiLU(), torch.nn.Linear(16, 1))
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
x = torch.randn(32, 8, device=device)
losses = []
for _ in range(20):
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses
""",
    "a vendor finds the header and the CMake package": """
import pathlib, chipset
assert pathlib.Path(chipset.include_dir(), "chipset/chipset.h").is_file()
assert pathlib.Path(chipset.cmake_dir(), "chipsetConfig.cmake").is_file()
""",
}


def check_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    missing = [
        f"{start}*{end}"
        for start, end in ARTEFACTS
        if not any(name.startswith(start) and name.endswith(end) for name in names)
    ]
    extra = [
        name
        for name in names
        if (name.endswith(FORBIDDEN) and not name.startswith(VENDORS_SOURCES)) or "tests/" in name
    ]
    if missing or extra:
        raise SystemExit(f"{wheel.name}: missing {missing}, and should not hold {extra}")


def vendors_first_hour(folder: Path, run: Callable[..., str]) -> None:
    """A plugin from nothing but the wheel: one command, then its own CI workflow."""
    chipset = folder / "bin" / "chipset"
    started = time.perf_counter()
    run(chipset, "new-plugin", "outside", "--install")
    print(f"ok: a new plugin boots, {time.perf_counter() - started:.0f} s after the command")
    package = folder / "chipset-outside"
    workflow = (package / ".github" / "workflows" / "conformance.yml").read_text()
    commands = re.findall(r"run: (.*)$", workflow, re.MULTILINE)
    assert len(commands) == 4 and commands[0].startswith("pip install"), commands
    bin_first = f"export PATH={folder / 'bin'}:$PATH; cd {package}; "
    for command in commands[1:3]:  # installing the plugin, its tests; the last may fail
        run("bash", "-ec", bin_first + command)
        print(f"ok: the plugin's workflow: {command}")


# What a kit of the wheel must compute: a product, a reduction, a fused row function.
KIT_COMPUTES = """
import numpy as np, chipset
chip = chipset.select("outsidecl:0").driver
a = np.random.default_rng(0).standard_normal((60, 60)).astype(np.float32)
d, y = chip.empty((60, 60)), chip.empty((60, 60))
chip.call("gemm", a=chip.array(a), b=chip.array(a), d=d, alpha=1.0)
np.testing.assert_allclose(d.numpy(), a @ a, rtol=1e-4, atol=1e-4)
chip.call("softmax", input=d, output=y, dim=1)
np.testing.assert_allclose(y.numpy().sum(1), 1, rtol=1e-5)
"""


def kit_route(folder: Path, run: Callable[..., str]) -> None:
    """A plugin whose kernels are the kit's, from the wheel alone: OpenCL's, under another name."""
    package = folder / "chipset-outsidecl"
    shutil.copytree(OPENCL, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (package / "chipset_opencl").rename(package / "chipset_outsidecl")
    for file in [*package.glob("*.t*"), *package.glob("*/*.py"), package / "src" / "api.cpp"]:
        text = re.sub(r"chipset([-_])opencl", r"chipset\1outsidecl", file.read_text())
        text = text.replace("\nopencl = ", "\noutsidecl = ")
        file.write_text(text.replace('"opencl"', '"outsidecl"'))
    started = time.perf_counter()
    python = folder / "bin" / "python"
    environment = f"export PATH={folder / 'bin'}:$PATH; cd {package}; "
    install = "python -m pip install --quiet --no-build-isolation --no-deps ."
    run("bash", "-ec", environment + install)
    print(f"ok: the kit is compiled into a plugin, {time.perf_counter() - started:.0f} s")
    if not list(Path("/etc/OpenCL/vendors").glob("*.icd")):
        print("left out: computing with it, which needs an OpenCL driver")
        return
    run(python, "-c", KIT_COMPUTES)
    out = folder / "outsidecl"
    told = json.loads(
        run(
            folder / "bin" / "chipset",
            "certify",
            "outsidecl",
            "--level",
            "0",
            "--out",
            out,
            "--json",
        )
    )
    assert told["reached"], told["failures"]
    print("ok: it computes, and level 0 is reached")


def certify(run: Callable[..., str], python: Path, folder: Path) -> None:
    """The conformance suite judges an installed plugin with no source tree at hand."""
    chipset, out = python.with_name("chipset"), folder / "certificate"
    told = json.loads(run(chipset, "certify", "cpu", "--level", "1", "--out", out, "--json"))
    assert told["reached"] and told["level_reached"] == 1, told["failures"]
    assert {path.name for path in out.iterdir()} >= {"certificate.json", "junit.xml", "report.html"}
    verified = json.loads(run(chipset, "certify", "--verify", out / "certificate.json", "--json"))
    assert verified["hash_matches"] and not verified["differences"], verified
    print("ok: the CPU chip is certified to level 1, and the certificate holds")
    caught = json.loads(run(chipset, "certify", "--self-test", "--only", "fill", "--json"))
    assert caught["mutants"] and not caught["missed"], caught
    print(f"ok: the judge is judged: {caught['caught']} mutants caught")
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "chipset_conformance"]
    passed = run(python, *tests, "--chip", "cpu", "--chip-level", "0")
    assert " passed" in passed and "failed" not in passed, passed
    print("ok: the suite runs under pytest")


def main() -> None:
    wheel = Path(sys.argv[1]).resolve()
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        environment = {
            name: value
            for name, value in os.environ.items()
            if name != "PYTHONPATH" and not name.startswith("CHIPSET_")
        }

        def run(*command: str | Path) -> str:
            done = subprocess.run(
                [str(part) for part in command],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise SystemExit(f"failed with status {done.returncode}: {command}\n{done.stdout}")
            return done.stdout

        # As the README's install does: this torch first, so that pip looks for no other.
        run(python, "-m", "pip", "install", "--quiet", "torch==2.13.0")
        run(python, "-m", "pip", "install", "--quiet", f"{wheel}[sdk,conformance]")
        for name, code in CHECKS.items():
            run(python, "-c", code)
            print(f"ok: {name}")
        rows = json.loads(run(Path(folder, "bin", "chipset"), "devices", "--json"))
        rows = rows["devices"] if isinstance(rows, dict) else rows
        cpu = next(row for row in rows if row["name"] == "cpu")
        assert cpu["available"] and cpu["count"] >= 1, cpu
        print("ok: chipset devices lists the CPU chip")
        bench = run(Path(folder, "bin", "chipset"), "bench", "dispatch", "--only", "add", "--json")
        assert json.loads(bench)["operators"][0]["ratio"] > 0
        print("ok: chipset bench dispatch measures both sides")
        certify(run, python, Path(folder))
        vendors_first_hour(Path(folder), run)
        kit_route(Path(folder), run)


if __name__ == "__main__":
    main()
