"""The C++ header, part by part: small programs, built with sanitizers and run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from chipset._interface import Dtype

ROOT = Path(__file__).resolve().parents[2]
NATIVE = Path(__file__).with_name("native")
CXX = os.environ.get("CXX", "g++")
FLAGS = ["-Wall", "-Wextra", "-Werror", "-g1", "-O1", "-pthread"]
FLAGS += [f"-I{ROOT / folder}" for folder in ("csrc/include", "plugin_sdk/chipset_sdk/include")]
MEMORY, THREADS = "address,undefined", "thread"
PROGRAMS = [
    ("tensor", "c++17", MEMORY),
    ("table", "c++17", MEMORY),
    ("queue", "c++17", THREADS),
    ("capture", "c++20", MEMORY),
    ("capture", "c++20", THREADS),
]


def build(folder: Path, name: str, standard: str, sanitizer: str) -> Path:
    program = folder / name
    command = [CXX, f"-std={standard}", *FLAGS, f"-fsanitize={sanitizer}"]
    command += ["-fno-sanitize-recover=all", str(NATIVE / f"{name}.cpp"), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.timeout(600)  # of the compiler, on a busy machine
@pytest.mark.parametrize(("name", "standard", "sanitizer"), PROGRAMS)
def test_program(tmp_path: Path, name: str, standard: str, sanitizer: str) -> None:
    program = build(tmp_path, name, standard, sanitizer)
    # QueuedDevice keeps its devices for the life of the process, as its comment says.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [program], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_missing_required_function_is_named_by_the_compiler() -> None:
    command = [CXX, "-std=c++17", *FLAGS, "-fsyntax-only", str(NATIVE / "lacking.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "the chip lacks the required function gemm" in done.stderr


# ---- conversions, against torch ------------------------------------------------------------------

FORMATS = {
    Dtype.F16: torch.float16,
    Dtype.BF16: torch.bfloat16,
    Dtype.F8E4M3: torch.float8_e4m3fn,
    Dtype.F8E5M2: torch.float8_e5m2,
}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("numbers"), "numbers", "c++17", MEMORY)


def converted(program: Path, mode: str, dtype: Dtype, values: np.ndarray) -> bytes:
    return subprocess.run(
        [program, mode, str(int(dtype))], input=values.tobytes(), capture_output=True, check=True
    ).stdout


def codes_of(dtype: Dtype) -> np.ndarray:
    wide = FORMATS[dtype].itemsize == 2
    return np.arange(1 << 16, dtype=np.uint16) if wide else np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda dtype: dtype.name)
def test_every_code_is_read_as_by_torch(numbers: Path, dtype: Dtype) -> None:
    codes = codes_of(dtype)
    found = np.frombuffer(converted(numbers, "decode", dtype, codes), np.float32)
    expected = torch.from_numpy(codes.copy()).view(FORMATS[dtype]).float().numpy()
    np.testing.assert_array_equal(found, expected)


def hard_values(dtype: Dtype, kind: type) -> np.ndarray:
    """Every value of the format, every middle between two, and a little to both sides of each."""
    codes = torch.from_numpy(codes_of(dtype).copy()).view(FORMATS[dtype])
    values = codes.double()
    values = values[values.isfinite()].sort().values.numpy()
    middles = (values[1:] + values[:-1]) / 2
    exact = np.concatenate([values, middles]).astype(kind)
    down, up = np.nextafter(exact, kind(-np.inf)), np.nextafter(exact, kind(np.inf))
    random = np.random.default_rng(0)
    spread = random.normal(size=20_000) * 10.0 ** random.integers(-12, 6, 20_000)
    everything = np.concatenate([exact, down, up, spread.astype(kind)])
    # Beyond the largest value formats differ from torch, see below.
    return everything[np.abs(everything) <= values[-1]]


@pytest.mark.parametrize("mode", ["encode", "encode64"])
@pytest.mark.parametrize("dtype", FORMATS, ids=lambda dtype: dtype.name)
def test_rounding_is_to_nearest_even_in_one_step(numbers: Path, dtype: Dtype, mode: str) -> None:
    kind = np.float32 if mode == "encode" else np.float64
    values = hard_values(dtype, kind)
    found = np.frombuffer(converted(numbers, mode, dtype, values), codes_of(dtype).dtype)
    if dtype == Dtype.F16:
        expected = values.astype(np.float16).view(np.uint16)  # NumPy rounds f64 once, torch twice
    else:
        expected = nearest_codes(dtype, values.astype(np.float64))
    wrong = values[found != expected]
    assert not wrong.size, f"{wrong.size} of {values.size}: {wrong[:5]}"


def sign_bit(dtype: Dtype) -> int:
    return 0x8000 if FORMATS[dtype].itemsize == 2 else 0x80


def nearest_codes(dtype: Dtype, values: np.ndarray) -> np.ndarray:
    """The code of the nearest value, of two equally near ones the even: by search."""
    codes = codes_of(dtype)
    codes = codes[codes < sign_bit(dtype)]
    known = torch.from_numpy(codes.copy()).view(FORMATS[dtype]).double().numpy()
    finite = np.isfinite(known)
    codes, known = codes[finite], known[finite]
    sizes = np.abs(values)
    above = np.clip(np.searchsorted(known, sizes), 1, len(known) - 1)
    low, high = known[above - 1], known[above]
    take_high = (sizes - low > high - sizes) | (
        (sizes - low == high - sizes) & (codes[above] % 2 == 0)
    )
    code = np.where(take_high, codes[above], codes[above - 1])
    return np.where(np.signbit(values), code | sign_bit(dtype), code).astype(codes.dtype)


@pytest.mark.parametrize("mode", ["encode", "encode64"])
def test_beyond_the_largest_value(numbers: Path, mode: str) -> None:
    """What has infinities overflows to them, F8E4M3 saturates (NUM-002); NaN stays NaN."""
    kind = np.float32 if mode == "encode" else np.float64
    values = np.array([1e38, -1e38, np.inf, -np.inf, np.nan], kind)
    inf, nan = np.inf, np.nan
    expected = {
        Dtype.F16: [inf, -inf, inf, -inf, nan],
        Dtype.F8E5M2: [inf, -inf, inf, -inf, nan],
        Dtype.F8E4M3: [448, -448, 448, -448, nan],
    }
    for dtype, numbers_expected in expected.items():
        codes = np.frombuffer(converted(numbers, mode, dtype, values), codes_of(dtype).dtype)
        found = torch.from_numpy(codes.copy()).view(FORMATS[dtype]).float().numpy()
        np.testing.assert_array_equal(found, numbers_expected)
