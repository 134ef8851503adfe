"""PythonDevice: a chip in NumPy boots, computes, fails in good order, and serves torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CALLS = """
import numpy as np, chipset
from chipset._interface import Dtype, Scalar
chip = chipset.select("toy").driver
rng = np.random.default_rng(0)

x, y = rng.normal(size=(2, 3, 4)).astype(np.float32)
out = chip.empty((3, 4))
chip.pointwise("ADD", out, chip.array(x), chip.array(y), params=[2.0])
np.testing.assert_allclose(out.numpy(), x + 2 * y, rtol=1e-6)
chip.pointwise("MUL", out, chip.array(x.T.copy()).transpose(), 3.0)  # strided, and a number
np.testing.assert_allclose(out.numpy(), 3 * x, rtol=1e-6)
chip.pointwise("EXP", out, chip.array(y[0]).broadcast_to((3, 4)))
np.testing.assert_allclose(out.numpy(), np.exp(y[0]) + np.zeros((3, 4)), rtol=1e-6)

for dtype, bound in ((np.float16, 2e-3), (np.float32, 1e-6), (np.float64, 1e-12)):
    a, b = rng.normal(size=(2, 5, 5)).astype(dtype)
    d = chip.array(np.zeros((5, 5), dtype))
    chip.call("gemm", a=chip.array(a), b=chip.array(b), d=d, alpha=0.5)
    np.testing.assert_allclose(
        d.numpy(), 0.5 * a.astype(np.float64) @ b.astype(np.float64), rtol=bound, atol=bound)
"""

REFUSALS = """
import numpy as np, pytest, chipset
from chipset import _runtime
from chipset._interface import Dtype, Status
chip = chipset.select("toy").driver
x = chip.array(np.ones((2, 3), np.float32))

def answers(status, words, function, **fields):
    with pytest.raises(_runtime.Error, match=words) as caught:
        chip.call(function, **fields)
    assert caught.value.status == status, caught.value.status

answers(Status.UNSUPPORTED, "no activation", "gemm", a=x, b=x.transpose(),
        d=chip.empty((2, 2)), alpha=1.0, activation=1)
answers(Status.INVALID, "ValueError", "gemm", a=x, b=x, d=chip.empty((2, 2)), alpha=1.0)
index = chip.array(np.array([[7] * 3] * 2))
answers(Status.OUT_OF_RANGE, "out of range for a dimension of size 2", "gather",
        output=chip.empty((2, 3)), input=x.view((2, 3), (0, 1)), num_indices=1, index=[index],
        indexed_size=[2], indexed_stride=[3])
assert (x.numpy() == 1).all()
"""

BROKEN = '''
from chipset_sdk import PythonDevice, Unsupported

class Broken(PythonDevice):
    """Forgets, raises, and runs out of memory."""
    name = "toy"
    memory_bytes = 1 << 16

    def pointwise(self, **rest):
        return {}["what the author forgot"]

    def gemm(self, **rest):
        raise Unsupported("not this week")

plugin = Broken().plugin()
'''
BROKEN_CALLS = """
import numpy as np, pytest, chipset
from chipset import _runtime
from chipset._interface import Status
chip = chipset.select("toy").driver
x = chip.array(np.ones(4, np.float32))
for function, status, words in [
    ("pointwise", Status.INTERNAL, "Broken.pointwise: KeyError"),
    ("reduce", Status.UNSUPPORTED, "toy has no reduce yet"),
]:
    fields = {"output": x, "input": [x] if function == "pointwise" else x}
    with pytest.raises(_runtime.Error, match=words) as caught:
        chip.call(function, **fields)
    assert caught.value.status == status
with pytest.raises(_runtime.Error, match="65536") as caught:
    chip.array(np.zeros(1 << 20, np.float32))
assert caught.value.status == Status.OUT_OF_MEMORY
assert (chip.array(x.numpy()).numpy() == 1).all()  # still there
"""

TORCH = """
import chipset
device = chipset.select("toy").torch
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.SiLU(), torch.nn.Linear(16, 1))
x = torch.randn(32, 8)

def train(model, x):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

import copy
expected = train(copy.deepcopy(model), x)
found = train(model.to(device), x.to(device))
torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
assert found[-1] < found[0]
"""


@pytest.mark.parametrize("checked", ["0", "1"], ids=["plain", "checked"])
def test_pointwise_and_gemm_are_numpys(on_python_chip, checked: str) -> None:
    done = on_python_chip(CALLS, env={"CHIPSET_CHECK": checked})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # nor anything at exit, when the interpreter that it runs in is gone


def test_refusals_have_a_status_and_a_text(on_python_chip) -> None:
    done = on_python_chip(REFUSALS)
    assert done.returncode == 0, done.stderr


def test_what_a_method_raises_reaches_the_caller(on_python_chip) -> None:
    done = on_python_chip(BROKEN_CALLS, chip=BROKEN)
    assert done.returncode == 0, done.stderr


def test_torch_trains_on_it(on_python_chip) -> None:
    done = on_python_chip(TORCH)
    assert done.returncode == 0, done.stderr


def test_it_boots_and_its_streams_are_right(on_python_chip, tmp_path: Path) -> None:
    """Levels 0 and 1 of the conformance suite."""
    arguments = ["certify", "toy", "--level", "1", "--jobs", "1", "--json", "--out", str(tmp_path)]
    done = on_python_chip("-m", "chipset.cli", *arguments, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["level_reached"] == 1
