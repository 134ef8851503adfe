"""The trace and the recording of a run."""

from __future__ import annotations

import json
from pathlib import Path

PROGRAM = """
a = np.arange(6, dtype=np.float32).reshape(2, 3)
x, y = dev.array(a), dev.empty((2, 2))
dev.call("gemm", a=x, b=x.transpose(), d=y, alpha=1.0)
dev.pointwise("ADD", y, y, 1.0)
assert np.array_equal(y.numpy(), a @ a.T + 1)
"""
TOY_PACKAGE = """
import sys
import chipset
@chipset.hookimpl
def chipset_plugin():
    return chipset.PluginDescription(name="toy", library={library!r}, options={options!r})
plugin = sys.modules[__name__]
"""


def test_trace_has_every_call_with_bytes_and_flops(with_toy, tmp_path: Path):
    file = tmp_path / "trace.json"
    with_toy(PROGRAM, env={"CHIPSET_TRACE": str(file)})
    events = json.loads(file.read_text())["traceEvents"]
    by_name = {event["name"]: event for event in events}
    assert by_name["gemm"]["args"]["flops"] == 2 * 2 * 2 * 3
    assert by_name["gemm"]["args"]["bytes"] == 4 * (6 + 6 + 4)
    assert by_name["gemm"]["args"]["status"] == "OK"
    assert "a=f32[2, 3]" in by_name["gemm"]["args"]["operands"]
    assert by_name["pointwise"]["args"]["flops"] == 4
    assert by_name["mem_alloc"]["cat"] == "toy"
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)


def test_unwritable_trace_is_said_and_the_run_goes_on(toy, run_python):
    program = f"""
from chipset import _runtime as rt
rt.launch([("toy", {str(toy())!r}, {{}})])
print("ran")
"""
    done = run_python(program, env={"CHIPSET_TRACE": "/nowhere/trace.json"})
    assert "ran" in done.stdout
    assert "CHIPSET_TRACE: cannot write '/nowhere/trace.json'" in done.stderr


def _package(folder: Path, library: Path, **options: str) -> dict[str, str]:
    """A source folder in which the toy is an installed plugin; returns the environment."""
    folder.mkdir()
    (folder / "toy_package.py").write_text(
        TOY_PACKAGE.format(library=str(library), options=options)
    )
    info = folder / "toy_package-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-package\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[chipset.plugins]\ntoy = toy_package:plugin\n")
    return {"PYTHONPATH": str(folder)}


def test_replay_repeats_the_run(with_toy, toy, run_python, tmp_path: Path, repository: Path):
    file = tmp_path / "calls.rec"
    with_toy(PROGRAM, env={"CHIPSET_RECORD": str(file)})
    env = _package(tmp_path / "site", toy())
    env["PYTHONPATH"] += f":{repository / 'core'}"
    command = ["-m", "chipset.replay", str(file), "--device", "toy", "--json"]
    done = run_python(*command, env=env)
    assert done.returncode == 0, done.stderr + done.stdout
    outcome = json.loads(done.stdout)
    assert outcome["calls"] > 5
    assert outcome["compared"] == 1
    assert outcome["skipped"] == {}

    # A recording in which one result is another: the replay must see it.
    data = file.read_bytes()
    import struct

    right = struct.pack("<4f", 6, 15, 15, 51)
    assert data.count(right) == 1
    file.write_bytes(data.replace(right, struct.pack("<4f", 6, 15, 15, 52)))
    done = run_python(*command, env=env)
    assert done.returncode == 1
    assert "bytes differ" in json.loads(done.stdout)["differences"][0]


def test_replay_refuses_other_files(tmp_path: Path, run_python):
    other = tmp_path / "other.rec"
    other.write_bytes(b"something else\n")
    done = run_python("-m", "chipset.replay", str(other), "--device", "cpu")
    assert done.returncode == 1
    assert "chipset: " in done.stderr
