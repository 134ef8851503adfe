"""Calls the CPU plugin's table directly on torch tensors, without core or bridge in between."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from chipset import _interface

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = Path(
    os.environ.get("CPU_LIBRARY_UNDER_TEST", ROOT / "plugins/cpu/chipset_cpu/libchipset_cpu.so")
)
DTYPES = {
    torch.bool: 0, torch.uint8: 1, torch.int8: 2, torch.int16: 3, torch.int32: 4, torch.int64: 5,
    torch.float16: 6, torch.bfloat16: 7, torch.float32: 8, torch.float64: 9,
    torch.float8_e4m3fn: 10, torch.float8_e5m2: 11,
}  # fmt: skip
I4 = 12
ARGS = {
    "gemm": "GemmArgs", "softmax": "SoftmaxArgs", "softmax_backward": "SoftmaxArgs",
    "norm": "NormArgs", "norm_backward": "NormArgs", "attention": "AttentionArgs",
    "attention_backward": "AttentionArgs", "attention_paged": "AttentionPagedArgs",
    "rotary": "RotaryArgs", "cross_entropy": "CrossEntropyArgs",
    "cross_entropy_backward": "CrossEntropyArgs", "adamw": "AdamwArgs",
    "quantize": "QuantizeArgs", "dequantize": "QuantizeArgs",
    "gemm_quantized": "GemmQuantizedArgs",
}  # fmt: skip


class Refused(Exception):
    """A status other than OK, with the plugin's text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"status {status}: {text}")
        self.status = status
        self.text = text


class PackedI4:
    """A tensor of nibbles [rows, K] in a uint8 tensor [rows, K/2]."""

    def __init__(self, data: torch.Tensor, columns: int) -> None:
        self.data = data
        self.columns = columns


def tensor_view(value: torch.Tensor | PackedI4) -> _interface.Tensor:
    view = _interface.Tensor(struct_size=ctypes.sizeof(_interface.Tensor))
    if isinstance(value, PackedI4):
        rows, half = value.data.shape
        view.dtype, view.rank, view.data = I4, 2, value.data.data_ptr()
        view.shape[0], view.shape[1] = rows, value.columns
        view.stride[0], view.stride[1] = 2 * half, 1
        return view
    view.dtype, view.rank, view.data = DTYPES[value.dtype], value.dim(), value.data_ptr()
    for d in range(value.dim()):
        view.shape[d], view.stride[d] = value.shape[d], value.stride(d)
    return view


class Table:
    """The plugin's functions by name: ``table.call("gemm", a=..., b=..., d=..., alpha=1)``."""

    def __init__(self, path: Path, options: dict[bytes, bytes] | None = None) -> None:
        self.text = ""
        self._options = options or {}
        library = ctypes.CDLL(str(path))
        self._keep_error = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(self._set_error)
        self._host = _interface.Host(struct_size=ctypes.sizeof(_interface.Host), major=1, minor=0)
        self._host.set_error = ctypes.cast(self._keep_error, ctypes.c_void_p).value
        self._keep_option = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(self._option)
        self._host.option = ctypes.cast(self._keep_option, ctypes.c_void_p).value
        library.chipset_plugin.restype = ctypes.POINTER(_interface.Api)
        self.api = library.chipset_plugin(ctypes.byref(self._host)).contents
        create = self.function(
            "stream_create", ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
        )
        self.stream = ctypes.c_void_p()
        assert create(0, 0, ctypes.byref(self.stream)) == 0, self.text

    def _set_error(self, text: bytes) -> None:
        self.text = text.decode()

    def _option(self, name: bytes) -> int | None:
        text = self._options.get(name)
        # ctypes keeps the bytes object, and with it its buffer, alive in self._options.
        return None if text is None else ctypes.cast(text, ctypes.c_void_p).value

    def function(self, name: str, *types: Any) -> Callable[..., int]:
        address = getattr(self.api, name)
        if not address:
            pytest.fail(f"the table has no {name}")
        return ctypes.CFUNCTYPE(ctypes.c_int32, *types)(address)

    def prepare(self, name: str, **fields: Any) -> Callable[[], int]:
        """The call with its arguments bound, for repeated (timed) use."""
        struct = getattr(_interface, ARGS[name])
        args = struct(struct_size=ctypes.sizeof(struct))
        keep: list[Any] = []
        for field, value in fields.items():
            if isinstance(value, torch.Tensor | PackedI4):
                view = tensor_view(value)
                keep += [view, value]
                setattr(args, field, ctypes.addressof(view))
            elif isinstance(value, list):
                views = (_interface.Tensor * len(value))(*[tensor_view(v) for v in value])
                keep += [views, value]
                setattr(args, field, ctypes.addressof(views))
            elif value is not None:
                setattr(args, field, value)
        function = self.function(name, ctypes.c_void_p, ctypes.c_void_p)
        stream, address = self.stream, ctypes.addressof(args)

        def run() -> int:
            assert keep is not None and args is not None
            return function(stream, address)

        return run

    def call(self, name: str, **fields: Any) -> None:
        status = self.prepare(name, **fields)()
        if status != 0:
            raise Refused(status, self.text)


def instruction_sets() -> list[str]:
    """What the library dispatches to on this machine: the least, the middle and the best."""
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    has_avx2 = {"avx2", "fma", "f16c", "bmi2"} <= set(flags)
    return ["generic", *(["avx2"] if has_avx2 else []), "best"]


@pytest.fixture(scope="session", params=instruction_sets())
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built; run 'make build'")
    # A copy: the same file would be the library that chipset has loaded, and would then report
    # chipset's errors to this table. One for each instruction set, which is chosen once.
    own = tmp_path_factory.mktemp("cpu") / LIBRARY.name
    options = {} if request.param == "best" else {b"isa": request.param.encode()}
    return Table(Path(shutil.copy(LIBRARY, own)), options)


@pytest.fixture(scope="session")
def refused() -> type[Refused]:
    return Refused


@pytest.fixture(scope="session")
def packed_i4() -> type[PackedI4]:
    return PackedI4
