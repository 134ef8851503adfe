"""hello_chip: small, behind its own memory, right through the driver and through torch."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 500  # lines of its own C and C++, without blanks and comments

DRIVER = """
import numpy as np, chipset
from chipset._interface import Activation, Dtype
chip = chipset.select("hello").driver
rng = np.random.default_rng(0)
for dtype, bound in ((np.float16, 2e-3), (np.float32, 2e-5), (np.float64, 1e-12)):
    for m, n, k in ((1, 1, 1), (7, 33, 385), (64, 96, 500)):  # around the units' sizes
        a, b = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(n, k)).astype(dtype)
        c, bias = rng.normal(size=(m, n)).astype(dtype), rng.normal(size=n).astype(dtype)
        d = chip.array(np.zeros((m, n), dtype))
        chip.call("gemm", a=chip.array(a), b=chip.array(b).transpose(), c=chip.array(c), d=d,
                  bias=chip.array(bias), alpha=0.5, beta=2.0, activation=Activation.RELU)
        wide = [t.astype(np.float64) for t in (a, b, c, bias)]
        expected = np.maximum(0.5 * wide[0] @ wide[1].T + 2 * wide[2] + wide[3], 0)
        np.testing.assert_allclose(d.numpy(), expected, rtol=bound, atol=bound * k ** 0.5)
x = chip.array(np.arange(6, dtype=np.float32).reshape(2, 3))
out = chip.empty((2, 1))
chip.call("reduce", op=0, dims=2, compute_dtype=Dtype.F32, input=x, output=out)
assert out.numpy().tolist() == [[3], [12]]
small = [chip.array(np.full(3, i, np.float32)) for i in range(64)]
for i in range(0, 64, 2):
    small[i] = None  # its neighbours in the same page keep theirs
assert all((small[i].numpy() == i).all() for i in range(1, 64, 2))
"""
REFUSALS = """
import numpy as np, pytest, chipset
from chipset import _runtime
from chipset._interface import Status
chip = chipset.select("hello").driver
square = chip.array(np.ones((2, 2), np.int32))
with pytest.raises(_runtime.Error, match="the matrix unit has no i32") as caught:
    chip.call("gemm", a=square, b=square, d=square, alpha=1.0)
assert caught.value.status == Status.UNSUPPORTED
with pytest.raises(_runtime.Error, match="no free block of .* bytes") as caught:
    chip.array(np.zeros(1 << 21, np.float32))
assert caught.value.status == Status.OUT_OF_MEMORY
assert (square.numpy() == 1).all()
"""
PEEK = """
import ctypes, numpy as np, chipset
chip = chipset.select("hello").driver
x = chip.array(np.ones(4, np.float32))
print("dereferencing", flush=True)
ctypes.c_float.from_address(x.address).value
"""
FAMILY = """
import chipset
device = chipset.select("hello").torch
import torch
from chipset_conformance import families
ids = families.prompt()
expected = families.train(families.model_of("{family}"), ids, 3)
found = families.train(families.model_of("{family}").to(device), ids.to(device), 3)
assert max(abs(f - e) for f, e in zip(found, expected)) < 1e-5, (found, expected)
model = families.model_of("{family}")
tokens = families.generate(model, ids, do_sample=False)
assert families.generate(model.to(device), ids.to(device), do_sample=False) == tokens
assert chipset.fallbacks() == {{}}, chipset.fallbacks()
"""


def lines_of_code(text: str) -> int:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return sum(bool(line.partition("//")[0].strip()) for line in text.splitlines())


def test_it_is_as_small_as_it_says() -> None:
    files = sorted((ROOT / "examples" / "hello_chip" / "src").iterdir())
    assert {path.suffix for path in files} <= {".cpp", ".hpp"}
    lines = sum(lines_of_code(path.read_text()) for path in files)
    print(f"hello_chip: {lines} lines")
    assert 100 < lines <= BUDGET


@pytest.mark.parametrize("checked", ["0", "1"], ids=["plain", "checked"])
def test_numbers(on_hello, checked: str) -> None:
    done = on_hello(DRIVER, env={"CHIPSET_CHECK": checked})
    assert done.returncode == 0, done.stderr


def test_refusals(on_hello) -> None:
    done = on_hello(REFUSALS, env={"CHIPSET_HELLO_MEMORY_MIB": "1"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [("MEMORY_MIB", "lots", "need a whole number"), ("DEVICES", "65", "need 0 to 64")],
)
def test_a_bad_option_is_named(on_hello, option: str, value: str, words: str) -> None:
    done = on_hello(
        "import chipset; chipset.select('hello').driver.empty((1,))",
        env={f"CHIPSET_HELLO_{option}": value},
    )
    assert done.returncode == 1
    assert value in done.stderr and words in done.stderr, done.stderr


def test_the_host_cannot_follow_its_pointers(on_hello) -> None:
    done = on_hello(PEEK)
    assert done.stdout == "dereferencing\n" and done.returncode == -signal.SIGSEGV


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_model_trains_and_generates_without_the_host(on_hello, family: str) -> None:
    done = on_hello(FAMILY.format(family=family), env={"CHIPSET_FALLBACK": "error"})
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_certified(on_hello, tmp_path: Path) -> None:
    """Levels 0 to 3, and a tiny model's cases of level 4."""
    certify = ["-m", "chipset.cli", "certify", "hello"]
    arguments = ["--jobs", "1", "--json", "--out", str(tmp_path)]
    done = on_hello(*certify, "--level", "3", *arguments, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert json.loads(done.stdout)["level_reached"] == 3
    learns = ["--level", "4", "--only", "learns/llama/*", *arguments]
    done = on_hello(*certify, *learns, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
