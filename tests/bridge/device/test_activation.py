"""Making torch's device ``chip``: names, defaults, and what a prototype tripped over."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from chipset import _torch


def test_torch_knows_the_device(chip: torch.device) -> None:
    assert chip == torch.device("chip:0")
    assert torch.accelerator.current_accelerator() == torch.device("chip")
    assert torch.accelerator.is_available()
    assert torch.chip.device_count() == torch.accelerator.device_count() >= 1
    assert torch.empty(2, device=chip).is_chip
    assert torch.empty(2).chip().device == chip
    assert torch.get_device_module("chip") is torch.chip


def test_activation_is_idempotent(chip: torch.device) -> None:
    before = torch.chip.device_count()
    _torch.activate()
    _torch.activate()
    assert torch.chip.device_count() == before


def test_adding_the_device_before_torch_is_used(run_python) -> None:
    done = run_python(
        "import chipset; d = chipset.select('cpu').torch; import torch;"
        "print(torch.ones(2, device=d).sum().item())"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2.0"), done.stderr


def test_device_and_stream_contexts(chip: torch.device) -> None:
    with torch.device("chip"):
        assert torch.zeros(1).device == chip
    with torch.chip.device(0):
        assert torch.chip.current_device() == 0
    with torch.chip.device(None):
        assert torch.chip.current_device() == 0


@pytest.mark.parametrize("call", ["torch.chip.set_device(99)", "torch.zeros(1, device='chip:99')"])
def test_a_device_index_out_of_range(chip: torch.device, call: str) -> None:
    with pytest.raises((RuntimeError, IndexError), match="99"):
        eval(call)


def test_properties(chip: torch.device, pytestconfig: pytest.Config) -> None:
    properties = torch.chip.get_device_properties(chip)
    assert properties.plugin == pytestconfig.getoption("--chip").partition(":")[0]
    assert properties.total_memory > 0
    assert properties.name == torch.chip.get_device_name(chip)
    assert torch.float32 in torch.accelerator.get_device_capability(chip)["supported_dtypes"]


def test_tied_weights_stay_tied_and_parameters_stay_themselves(chip: torch.device) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(7, 4)
            self.head = torch.nn.Linear(4, 7, bias=False)
            self.head.weight = self.embedding.weight

    model = Tied()
    parameter = model.head.weight
    model.to(chip)
    assert model.head.weight is model.embedding.weight is parameter
    assert parameter.device == chip
    assert len(list(model.parameters())) == 1


def test_a_program_may_end_right_after_backward(run_python) -> None:
    program = (
        "import chipset; d = chipset.select('cpu').torch; import torch\n"
        "w = torch.randn(64, 64, requires_grad=True)\n"
        "x = torch.randn(8, 64).to(d)\n"
        "(x @ w.to(d)).sum().backward()\n"
    )
    for _ in range(5):
        done = run_python(program)
        assert done.returncode == 0, done.stderr


def test_registering_twice_under_another_name_is_a_clear_error(run_python) -> None:
    done = run_python(
        "import torch; torch.utils.rename_privateuse1_backend('other')\n"
        "import chipset; chipset.select('cpu').torch"
    )
    assert done.returncode != 0
    assert "'other' took it" in done.stderr


def test_the_chip_adds_little_to_importing_torch(run_python) -> None:
    # Asserts what is loaded, not a time: dynamo alone takes a second.
    done = run_python(
        "import torch, sys; before = set(sys.modules)\n"
        "import chipset; chipset.select('cpu').torch\n"
        "new = {m for m in sys.modules if m.startswith('torch.')} - before\n"
        "print(sorted(m for m in new if m.startswith('torch._dynamo')))"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_dynamo_knows_the_device(chip: torch.device, pytestconfig: pytest.Config) -> None:
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device("chip")
    assert interface.device_count() == torch.chip.device_count()
    plugin = pytestconfig.getoption("--chip").partition(":")[0]
    assert interface.get_device_properties(0).plugin == plugin


def test_a_child_made_by_fork_gets_a_clear_error(run_python) -> None:
    done = run_python(
        """
import os, chipset
d = chipset.select('cpu').torch
import torch
torch.ones(2, device=d)
child = os.fork()
if child == 0:
    try:
        torch.ones(2, device=d)
        os._exit(1)
    except RuntimeError as error:
        os._exit(0 if 'spawn' in str(error) and not torch.chip.is_available() else 2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


def test_import_torch_alone_makes_the_named_device(run_python, tmp_path: Path) -> None:
    # As an installed package's entry point: activation runs in the middle of torch's own import.
    info = tmp_path / "chipset_test-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chipset-test\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[torch.backends]\nchipset_test = chipset._autoload:autoload\n"
    )
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport torch\n"
    done = run_python(
        program + "print(torch.ones(3, device='chip').sum().item())", env={"CHIPSET_DEVICE": "cpu"}
    )
    assert (done.returncode, done.stdout.strip()) == (0, "3.0"), done.stderr
    done = run_python(program + "print('went on')", env={"CHIPSET_DEVICE": "nonsense"})
    assert (done.returncode, done.stdout.strip()) == (0, "went on"), done.stderr
    assert "nonsense" in done.stderr


def test_the_bridge_keeps_the_rules_of_the_interface(run_python) -> None:
    """Trains, switches streams, falls back and captures with every call checked."""
    done = run_python(
        """
import chipset
d = chipset.select('cpu').torch
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to(d)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    loss = model(torch.randn(5, 8, device=d)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
side, a = torch.chip.Stream(), torch.randn(100, device=d)
side.wait_stream(torch.chip.current_stream())
with side:
    b = a * 2
a.record_stream(side)
torch.chip.current_stream().wait_stream(side)
assert torch.equal((b - a).cpu(), a.cpu())
torch.special.airy_ai(a.t())
a.reshape(10, 10).t().contiguous().double().cpu().pin_memory().to(d, non_blocking=True).sum().item()
graph = torch.chip.Graph()
with torch.chip.graph(graph):
    c = a * 3
graph.replay()
assert torch.equal(c.cpu(), a.cpu() * 3)
print('ran')
""",
        env={"CHIPSET_CHECK": "1"},
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ran"), done.stderr
    assert "warning" not in done.stderr.lower()


def test_a_device_launched_for_numpy_is_none_of_torch_yet(run_python) -> None:
    done = run_python(
        """
import chipset
chipset.select("cpu").torch
import torch
chipset.select("sim").driver
torch.manual_seed(0)
assert torch.chip.device_count() == 1
device = chipset.select("sim").torch
torch.manual_seed(0)
assert torch.chip.device_count() == 2
assert torch.ones(2, device=device).sum().item() == 2
""",
        env={"CHIPSET_SIM": "devices=1"},
    )
    assert done.returncode == 0, done.stderr
