"""The layers name their device: nothing depends on the one that is current, which is another."""

from __future__ import annotations

from pathlib import Path

ON_CHIP = Path(__file__).parent / "test_on_chip.py"


def test_layers_run_on_the_second_device(run_python) -> None:
    options = ["--chip", "cpu:1", "--devices", "2"]
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(ON_CHIP)]
    done = run_python(*command, *options, timeout=280, cwd=ON_CHIP.parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
