"""A plugin in Python: a class whose methods fill the interface's table through callbacks.

For a prototype in an afternoon: NumPy, or a vendor's own Python bindings, in the place of
kernels. The base class is a whole device with host memory and calls that have completed when they
return, and computes nothing; a subclass adds functions, each named as in ``docs/interfaces.md``::

    class Toy(PythonDevice):
        name = "toy"

        def gemm(self, a, b, c, d, bias, alpha, beta, **rest):
            d[...] = alpha * (a @ b) + (0 if c is None else beta * c)

    plugin = Toy().plugin()  # what the entry point in chipset.plugins names

A function that takes an argument struct gets its fields by name: tensors as NumPy arrays (views of
the device's memory; BF16 and F8 as their bits in uint16 and uint8 unless ``ml_dtypes`` is
installed), absent ones as None, `chipset_scalar` as :class:`chipset._interface.Scalar`. It may
raise :class:`Unsupported`, and the core then composes the call or the host does it; ValueError
answers INVALID and IndexError OUT_OF_RANGE, as NumPy means them. Every call crosses into Python:
correct, slow, and good enough to find out what a chip needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from chipset import _interface
from chipset._interface import (
    FUNCTIONS,
    Api,
    Capability,
    CopyKind,
    Dtype,
    Function,
    MemoryKind,
    Status,
    Tensor,
)
from chipset.driver import NUMPY_DTYPES, itemsize
from chipset.hookspec import PluginDescription

LIBRARY = Path(__file__).with_name("lib") / "libchipset_python.so"
_ALIGNMENT = 64
_DESCRIBED: list[PythonDevice] = []  # the core may call their tables until the process ends
# What NumPy raises for shapes that do not fit and for indices beyond the end.
_STATUS_OF = {ValueError: Status.INVALID, IndexError: Status.OUT_OF_RANGE}
_C_TYPES: dict[str, Any] = {
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "double": ctypes.c_double,
}


class StatusError(Exception):
    """Answers a call with a status other than OK; the text explains it."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


class Unsupported(StatusError):
    """The legal answer to a dtype, layout or option that the chip does not do."""

    def __init__(self, text: str) -> None:
        super().__init__(Status.UNSUPPORTED, text)


def _numpy_dtype(dtype: Dtype) -> np.dtype[Any]:
    names = {Dtype.BF16: "bfloat16", Dtype.F8E4M3: "float8_e4m3fn", Dtype.F8E5M2: "float8_e5m2"}
    if dtype in names:
        with contextlib.suppress(ImportError):
            import ml_dtypes

            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, names[dtype]))
            return found
    return np.dtype(NUMPY_DTYPES[dtype])


def view(tensor: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """A NumPy view of the memory that a descriptor names, with its shape and strides."""
    if tensor.dtype == Dtype.I4:
        raise Unsupported("NumPy has no packed 4-bit integers")
    dtype = _numpy_dtype(Dtype(tensor.dtype))
    size = itemsize(Dtype(tensor.dtype))
    shape = list(tensor.shape[: tensor.rank])
    if 0 in shape:
        return np.empty(shape, dtype)
    strides = [s * size for s in tensor.stride[: tensor.rank]]
    extent = size + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory = (ctypes.c_char * extent).from_address(tensor.data)
    return np.ndarray(shape, dtype, memory, strides=strides)


class PythonDevice:
    """A device whose functions are this object's methods.

    Attributes:
        name: of the plugin, as in ``--device NAME``.
        version: of the plugin.
        memory_bytes: that ``mem_alloc`` gives in all.
        capabilities: bits of :class:`chipset._interface.Capability`. Not UNIFIED, although the host
            could read this memory: so nobody comes to rely on it.
    """

    name = "python"
    version = "0.1.0"
    memory_bytes = 1 << 32
    capabilities = Capability.EMULATED | Capability.INLINE

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[Any, int]] = {}  # address: buffer, bytes of device memory
        self._used = 0
        self._handles = 0
        self._host = ctypes.c_void_p()
        self._text = b""
        self._keep: list[Any] = [self.name.encode(), self.version.encode(), b"chipset_sdk, Python"]
        name, version, build = self._keep
        self._api = Api(
            struct_size=ctypes.sizeof(Api),
            major=_interface.MAJOR,
            minor=_interface.MINOR,
            name=name,
            version=version,
            build_info=build,
        )
        for function in FUNCTIONS:
            method = getattr(self, function.name, None)
            if method is None and function.required:
                method = self._absent(function)
            if method is not None:
                callback = self._callback(function, method)
                self._keep.append(callback)
                address = ctypes.cast(callback, ctypes.c_void_p).value
                setattr(self._api, function.name, address)

    def plugin(self) -> PluginDescription:
        """The description for the entry point. The object then lives as long as the process."""
        _DESCRIBED.append(self)
        table = f"{ctypes.addressof(self._api):x}:{ctypes.addressof(self._host):x}"
        return PluginDescription(
            name=self.name,
            library=LIBRARY,
            version=self.version,
            emulated=bool(self.capabilities & Capability.EMULATED),
            options={"table": table},
        )

    # ---- the device itself: host memory, calls that have completed when they return --------------

    def device_count(self) -> int:
        """Devices; indices run from 0."""
        return 1

    def device_info(self, device: int) -> dict[str, Any]:
        """Fields of chipset_device_info."""
        self._check_device(device)
        return {
            "compute_units": 1,
            "name": f"{self.name} (Python)",
            "vendor": "chipset_sdk",
            "architecture": "numpy",
            "driver": np.__version__,
            "capabilities": int(self.capabilities),
            "total_memory": self.memory_bytes,
            "max_allocation": self.memory_bytes,
            "dtypes": sum(
                1 << dtype for dtype in Dtype if dtype < Dtype.OPAQUE8 and dtype != Dtype.I4
            ),
            "alignment": _ALIGNMENT,
            "preferred_vector_bytes": 4,
        }

    def device_memory(self, device: int) -> tuple[int, int]:
        """Bytes free and in all."""
        self._check_device(device)
        return self.memory_bytes - self._used, self.memory_bytes

    def device_sync(self, device: int) -> None:
        """Waits for every stream."""
        self._check_device(device)

    def mem_alloc(self, device: int, kind: int, size: int) -> int:
        """The address of new memory; 0 for no bytes."""
        self._check_device(device)
        if kind not in (MemoryKind.DEVICE, MemoryKind.HOST):
            raise StatusError(Status.INVALID, f"memory kind {kind} does not exist")
        if size == 0:
            return 0
        taken = size if kind == MemoryKind.DEVICE else 0
        if self._used + taken > self.memory_bytes:
            raise StatusError(
                Status.OUT_OF_MEMORY,
                f"{size} bytes are not free: {self._used} of {self.memory_bytes} are in use",
            )
        try:
            buffer = (ctypes.c_char * (size + _ALIGNMENT))()
        except OverflowError:
            raise MemoryError from None
        start = -(-ctypes.addressof(buffer) // _ALIGNMENT) * _ALIGNMENT
        self._blocks[start] = buffer, taken
        self._used += taken
        return start

    def mem_free(self, device: int, pointer: int) -> None:
        """Frees what mem_alloc gave."""
        if not pointer:
            return
        if pointer not in self._blocks:
            raise StatusError(Status.INVALID, f"{pointer:#x} is no allocation of this device")
        _, taken = self._blocks.pop(pointer)
        self._used -= taken

    def mem_copy(self, stream: int, destination: int, source: int, size: int, kind: int) -> None:
        """Copies bytes."""
        if not any(kind == known for known in CopyKind):
            raise StatusError(Status.INVALID, f"copy kind {kind} does not exist")
        ctypes.memmove(destination, source, size)

    def mem_fill(self, stream: int, destination: int, value: int, size: int) -> None:
        """Sets bytes."""
        if size:
            ctypes.memset(destination, value & 0xFF, size)

    def stream_create(self, device: int, priority: int) -> int:
        """A handle, not 0."""
        self._check_device(device)
        return self._new_handle()

    def stream_destroy(self, stream: int) -> None:
        """Ends a stream."""

    def stream_sync(self, stream: int) -> None:
        """Waits for a stream."""

    def stream_wait(self, stream: int, event: int) -> None:
        """Orders a stream after an event."""

    def event_create(self, device: int, flags: int) -> int:
        """A handle, not 0."""
        self._check_device(device)
        return self._new_handle()

    def event_destroy(self, event: int) -> None:
        """Ends an event."""

    def event_record(self, event: int, stream: int) -> None:
        """Sets an event's point."""

    def event_query(self, event: int, timeout_ns: int) -> None:
        """Returns once the point was passed."""

    # ---- from methods to C functions -------------------------------------------------------------

    def _new_handle(self) -> int:
        self._handles += 16  # looks like an address, and is none
        return self._handles

    def _check_device(self, device: int) -> None:
        if not 0 <= device < self.device_count():
            raise StatusError(
                Status.INVALID, f"device {device} does not exist; there are {self.device_count()}"
            )

    def _absent(self, function: Function) -> Callable[..., None]:
        def answer(*_: Any, **__: Any) -> None:
            raise Unsupported(f"{self.name} has no {function.name} yet")

        return answer

    def _callback(self, function: Function, method: Callable[..., Any]) -> Any:
        """A C function that calls the method and writes its results where the caller wants them."""
        types = [parameter.type for parameter in function.params]
        outputs = [i for i, c_type in enumerate(types) if _is_output(c_type)]
        struct = next((i for i, c_type in enumerate(types) if c_type.endswith("_args*")), None)
        takes_stream = "stream" in inspect.signature(method).parameters

        def run(arguments: tuple[Any, ...]) -> None:
            if struct is not None:
                fields = _fields(types[struct], arguments[struct])
                if takes_stream:
                    fields["stream"] = arguments[0]
                method(**fields)
                return
            for i in outputs:
                if types[i] == "void**":  # NULL unless OK
                    _write(types[i], arguments[i], None)
            inputs = [a or 0 for i, a in enumerate(arguments) if i not in outputs]
            result = method(*inputs)
            if function.name == "device_info":
                _fill_info(arguments[1], result)
                return
            results = result if isinstance(result, tuple) else (result,)
            for i, value in zip(outputs, results, strict=bool(outputs)):
                _write(types[i], arguments[i], value)

        def callback(*arguments: Any) -> int:
            try:
                run(arguments)
            except StatusError as error:
                self._set_error(str(error))
                return int(error.status)
            except MemoryError:
                self._set_error("the host has no memory left")
                return int(Status.OUT_OF_MEMORY)
            except Exception as error:
                self._set_error(f"{type(self).__name__}.{function.name}: {error!r}")
                return int(_STATUS_OF.get(type(error), Status.INTERNAL))
            return int(Status.OK)

        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int32, *(_C_TYPES.get(c_type, ctypes.c_void_p) for c_type in types)
        )
        return prototype(callback)

    def _set_error(self, text: str) -> None:
        self._text = text.encode()
        host = _interface.Host.from_address(self._host.value or 0)
        ctypes.CFUNCTYPE(None, ctypes.c_char_p)(host.set_error)(self._text)


def _is_output(c_type: str) -> bool:
    return c_type.endswith("*") and not c_type.startswith("const") and c_type != "void*"


def _write(c_type: str, address: int, value: Any) -> None:
    element = c_type.removesuffix("*")
    pointer = ctypes.cast(address, ctypes.POINTER(_C_TYPES.get(element, ctypes.c_void_p)))
    pointer[0] = value or (None if element not in _C_TYPES else 0)


def _fill_info(address: int, values: dict[str, Any]) -> None:
    """Fills only what the caller's struct has room for (VER-002)."""
    room = ctypes.c_uint32.from_address(address).value
    info = _interface.DeviceInfo(struct_size=room)
    for key, value in values.items():
        setattr(info, key, value.encode()[:63] if isinstance(value, str) else value)
    ctypes.memmove(address, ctypes.addressof(info), min(room, ctypes.sizeof(info)))


def _fields(c_type: str, address: int) -> dict[str, Any]:
    """The fields of an argument struct by name, tensors as views."""
    name = c_type.removeprefix("const chipset_").removesuffix("*")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    structure = getattr(_interface, class_name)
    args = structure()
    room = ctypes.c_uint32.from_address(address).value
    ctypes.memmove(ctypes.addressof(args), address, min(room, ctypes.sizeof(args)))
    tensors = _interface.TENSOR_FIELDS[name]
    many = args.num_tensors if name == "adamw_args" else 0

    def convert(pointer: int | None) -> Any:
        if pointer is None:
            return None
        if many:
            return [view(t) for t in (Tensor * many).from_address(pointer)]
        tensor = Tensor.from_address(pointer)
        # Of scatter: no data, but a shape.
        return view(tensor) if tensor.data or 0 in tensor.shape[: tensor.rank] else tensor

    fields: dict[str, Any] = {}
    for field in args._fields_:
        value = getattr(args, field[0])
        if field[0] in tensors:
            value = [convert(p) for p in value] if hasattr(value, "_length_") else convert(value)
        elif hasattr(value, "_length_"):
            value = list(value)
        fields[field[0]] = value
    fields.pop("struct_size")
    return fields
