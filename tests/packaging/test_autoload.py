"""The entry point that ``import torch`` calls can never break it."""

from __future__ import annotations

import pytest

# As torch does it: import the module, call the function, in the middle of torch's own import.
AUTOLOAD = """
import sys
from importlib.metadata import EntryPoint
EntryPoint("chipset", "chipset._autoload:autoload", "torch.backends").load()()
"""


def test_nothing_happens_without_a_device(run_python) -> None:
    code = AUTOLOAD + "print(sorted({'torch', 'chipset._runtime', 'numpy'} & set(sys.modules)))"
    done = run_python(code)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.parametrize("device", ["nonsense", "cpu:99", ":::", "cpu,nonsense"])
def test_a_bad_device_is_a_warning(run_python, device: str) -> None:
    done = run_python(AUTOLOAD + "print('went on')", env={"CHIPSET_DEVICE": device})
    assert (done.returncode, done.stdout.strip()) == (0, "went on"), done.stderr
    assert f"CHIPSET_DEVICE={device}: torch goes on without it" in done.stderr


def test_a_broken_installation_is_a_warning(run_python) -> None:
    code = "import sys; sys.modules['chipset._runtime'] = None\n" + AUTOLOAD + "print('went on')"
    done = run_python(code, env={"CHIPSET_DEVICE": "cpu"})
    assert (done.returncode, done.stdout.strip()) == (0, "went on"), done.stderr
    assert "torch goes on without it" in done.stderr


def test_pyproject_names_this_entry_point(repository) -> None:
    assert 'chipset = "chipset._autoload:autoload"' in (repository / "pyproject.toml").read_text()
