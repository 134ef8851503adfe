"""Drives a plugin with NumPy arrays alone: bring-up without torch.

    device = chipset.select("mychip:0").driver
    x = device.array(np.ones((2, 3), np.float32))
    y = device.empty((2, 3), Dtype.F32)
    device.pointwise("EXP", y, x)
    device.call("softmax", dim=1, input=x, output=y)
    print(y.numpy())

``call`` builds the function's argument struct from keywords; what it may hold is in
``docs/interfaces.md``. Everything runs in one stream, the device's default one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chipset import _interface, _runtime
from chipset._interface import FUNCTIONS, Api, CopyKind, Dtype, PointwiseOp, Scalar, Tensor
from chipset.errors import ChipsetError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# NumPy's dtype for each that NumPy has; the others travel as unsigned integers of their size.
NUMPY_DTYPES: dict[Dtype, str] = {
    Dtype.BOOL: "bool",
    Dtype.U8: "uint8",
    Dtype.I8: "int8",
    Dtype.I16: "int16",
    Dtype.I32: "int32",
    Dtype.I64: "int64",
    Dtype.F16: "float16",
    Dtype.BF16: "uint16",
    Dtype.F32: "float32",
    Dtype.F64: "float64",
    Dtype.F8E4M3: "uint8",
    Dtype.F8E5M2: "uint8",
    Dtype.OPAQUE8: "uint8",
    Dtype.OPAQUE16: "uint16",
    Dtype.OPAQUE32: "uint32",
    Dtype.OPAQUE64: "uint64",
    Dtype.OPAQUE128: "complex128",
}
# First choice for an array whose dtype says it all.
OF_NUMPY: dict[str, Dtype] = {
    "bool": Dtype.BOOL,
    "uint8": Dtype.U8,
    "int8": Dtype.I8,
    "int16": Dtype.I16,
    "int32": Dtype.I32,
    "int64": Dtype.I64,
    "float16": Dtype.F16,
    "float32": Dtype.F32,
    "float64": Dtype.F64,
    "complex64": Dtype.OPAQUE64,
    "complex128": Dtype.OPAQUE128,
}
_SCALARS: dict[str, Any] = {
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "double": ctypes.c_double,
}
_PARAMETERS = {f.name: f.params for f in FUNCTIONS}


def _argument_type(c_type: str) -> Any:
    return _SCALARS.get(c_type, ctypes.c_void_p)


_PROTOTYPES = {
    f.name: ctypes.CFUNCTYPE(ctypes.c_int32, *(_argument_type(p.type) for p in f.params))
    for f in FUNCTIONS
}


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


class DeviceArray:
    """A strided view of device memory. Views share the memory; the last one frees it.

    Attributes:
        dtype: a :class:`chipset._interface.Dtype`.
        shape, strides: in elements.
        offset: of element (0, 0, …) from the start of the memory, in elements.
    """

    def __init__(
        self,
        memory: _Memory,
        dtype: Dtype,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        offset: int = 0,
    ) -> None:
        self.memory = memory
        self.dtype = dtype
        self.shape = tuple(int(n) for n in shape)
        self.strides = _contiguous(self.shape) if strides is None else tuple(strides)
        self.offset = offset

    @property
    def address(self) -> int:
        """Address of element (0, 0, …)."""
        return self.memory.address + self.offset * itemsize(self.dtype)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def view(
        self, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0
    ) -> DeviceArray:
        """Another view of the same memory; ``offset`` in elements beyond this view's."""
        return DeviceArray(self.memory, self.dtype, shape, strides, self.offset + offset)

    def transpose(self, *axes: int) -> DeviceArray:
        """The axes in another order; reversed if none are given."""
        order = axes or tuple(reversed(range(len(self.shape))))
        shape = [self.shape[a] for a in order]
        return self.view(shape, [self.strides[a] for a in order])

    def broadcast_to(self, shape: Sequence[int]) -> DeviceArray:
        """A view with strides of zero where this one is repeated."""
        missing = len(shape) - len(self.shape)
        strides = []
        for axis, wanted in enumerate(shape):
            have = 1 if axis < missing else self.shape[axis - missing]
            if have not in (1, wanted):
                raise ChipsetError(f"cannot broadcast shape {self.shape} to {tuple(shape)}")
            repeated = axis < missing or (have == 1 and wanted != 1)
            strides.append(0 if repeated else self.strides[axis - missing])
        return self.view(shape, strides)

    def tensor(self) -> Tensor:
        """The descriptor; valid as long as this object is."""
        out = Tensor(struct_size=ctypes.sizeof(Tensor), dtype=int(self.dtype), rank=len(self.shape))
        for axis, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            out.shape[axis] = n
            out.stride[axis] = stride
        out.data = self.address if self.memory.address else None
        return out

    def numpy(self) -> NDArray[Any]:
        """A copy on the host, in this view's shape; BF16 and F8 as their bits."""
        driver = self.memory.driver
        raw = np.empty(self.memory.bytes, np.uint8)
        driver.copy_to_host(raw, self.memory.address)
        size = itemsize(self.dtype)
        start = self.offset * size
        flat = raw[start : start + (len(raw) - start) // size * size].view(NUMPY_DTYPES[self.dtype])
        if self.size == 0:
            return np.empty(self.shape, NUMPY_DTYPES[self.dtype])
        byte_strides = [s * size for s in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, byte_strides).copy()


class _Memory:
    """Device memory, freed with its last view."""

    def __init__(self, driver: Driver, size: int) -> None:
        self.driver = driver
        self.bytes = size
        self.address: int = _runtime.allocate(driver.number, size, driver.stream)

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            _runtime.deallocate(self.address)


class Driver:
    """The functions of one device's table.

    Attributes:
        number: of the device over all launched plugins.
        local: its index within the plugin, which functions without a stream take.
        stream: handle of the default stream.
        api: the table, wrapped as CHIPSET_CHECK and the like ask.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.local: int = _runtime.device(number)["local"]
        self.stream: int = _runtime.default_stream(number)
        self.api = Api.from_address(_runtime.api_address(number))

    def has(self, function: str) -> bool:
        """Whether the table has the function, the plugin's own or composed."""
        return getattr(self.api, function, None) is not None

    def function(self, name: str) -> Callable[..., int]:
        """A function of the table as it is, for loops that look it up once: it returns its status.

        Raises:
            ChipsetError: the table has no such function.
        """
        if name not in _PROTOTYPES:
            raise ChipsetError(f"the interface has no function '{name}'")
        address = getattr(self.api, name)
        if address is None:
            raise ChipsetError(f"this plugin has no function '{name}' (VER-003)")
        return _PROTOTYPES[name](address)

    def status(self, function: str, *arguments: Any) -> int:
        """Calls a function with plain arguments; returns its chipset_status.

        Raises:
            ChipsetError: the table has no such function.
        """
        return int(self.function(function)(*arguments))

    def invoke(self, function: str, *arguments: Any) -> None:
        """Calls a function with plain arguments; raises ``_runtime.Error`` unless OK."""
        _runtime.check(self.status(function, *arguments), function)

    def call(self, function: str, **fields: Any) -> None:
        """Calls a function that takes a stream and an argument struct.

        Args:
            fields: of the struct. DeviceArrays for tensors (or None), numbers for scalars and
                integers, names for enums (``op="ADD"``), sequences for array fields.
        """
        arguments = self.arguments(function, **fields)  # a name keeps it alive during the call
        self.invoke(function, self.stream, ctypes.addressof(arguments))

    def arguments(self, function: str, **fields: Any) -> ctypes.Structure:
        """The argument struct of a function, filled; it keeps what it points to alive."""
        c_type = _PARAMETERS[function][1].type
        name = c_type.removeprefix("const chipset_").rstrip("*")
        args: Any = getattr(_interface, _camel(name))()
        args.struct_size = ctypes.sizeof(args)
        args.alive = []
        kinds = dict(args._fields_)
        for key, value in fields.items():
            if key not in kinds:
                raise ChipsetError(f"{name} has no field '{key}'; it has {', '.join(kinds)}")
            _fill(args, key, kinds[key], value)
        return args  # type: ignore[no-any-return]

    def pointwise(
        self,
        op: str,
        output: DeviceArray,
        *operands: DeviceArray | float,
        params: Sequence[float] = (),
        compute: Dtype | None = None,
    ) -> None:
        """One elementwise operation; operands are broadcast, numbers are immediates."""
        inputs = [
            x.broadcast_to(output.shape) if isinstance(x, DeviceArray) else None for x in operands
        ]
        arrays = [x for x in operands if isinstance(x, DeviceArray)]
        default = arrays[-1].dtype if arrays else output.dtype
        self.call(
            "pointwise",
            op=PointwiseOp[op],
            compute_dtype=default if compute is None else compute,
            num_inputs=len(operands),
            output=output,
            input=inputs,
            immediate=[0 if isinstance(x, DeviceArray) else x for x in operands],
            param=list(params) or ([1] if op in ("ADD", "SUB", "ADDCMUL", "ADDCDIV") else []),
        )

    def empty(self, shape: Sequence[int], dtype: Dtype = Dtype.F32) -> DeviceArray:
        """Device memory with undefined contents."""
        count = int(np.prod(shape, dtype=np.int64))
        size = (count + 1) // 2 if dtype == Dtype.I4 else count * itemsize(dtype)
        return DeviceArray(_Memory(self, size), dtype, shape)

    def array(self, values: ArrayLike, dtype: Dtype | None = None) -> DeviceArray:
        """A copy of a NumPy array. ``dtype`` reinterprets its bits (BF16 given as uint16)."""
        host = np.ascontiguousarray(values)
        if dtype is None:
            if host.dtype.name not in OF_NUMPY:
                raise ChipsetError(f"no chipset dtype for NumPy's {host.dtype}")
            dtype = OF_NUMPY[host.dtype.name]
        out = DeviceArray(_Memory(self, host.nbytes), dtype, np.shape(values))
        if host.nbytes:
            self.invoke(
                "mem_copy",
                self.stream,
                out.address,
                host.ctypes.data,
                host.nbytes,
                int(CopyKind.HOST_TO_DEVICE),
            )
            self.synchronize()  # the host copy may be page-locked for all we know (ASY-002)
        return out

    def copy_to_host(self, destination: NDArray[Any], address: int) -> None:
        """Copies ``destination.nbytes`` bytes from device memory and waits."""
        if destination.nbytes == 0:
            return
        self.invoke(
            "mem_copy",
            self.stream,
            destination.ctypes.data,
            address,
            destination.nbytes,
            int(CopyKind.DEVICE_TO_HOST),
        )
        self.synchronize()

    def synchronize(self) -> None:
        """Waits for the stream."""
        self.invoke("stream_sync", self.stream)


def itemsize(dtype: Dtype) -> int:
    """Bytes of an element; I4 counts as one, its arrays are handled by the byte."""
    return 1 if dtype == Dtype.I4 else np.dtype(NUMPY_DTYPES[dtype]).itemsize


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return tuple(strides)


def scalar(value: float) -> Scalar:
    """A number as both fields of chipset_scalar."""
    if isinstance(value, (int, np.integer, bool)):
        return Scalar(float(value), max(-(2**63), min(2**63 - 1, int(value))))
    whole = int(value) if np.isfinite(value) else 0
    return Scalar(float(value), max(-(2**63), min(2**63 - 1, whole)))


def _fill(args: Any, key: str, kind: Any, value: Any) -> None:
    """Sets one field, turning DeviceArrays into descriptors that stay alive with the struct."""

    def convert(item: Any) -> Any:
        if isinstance(item, DeviceArray):
            descriptor = item.tensor()
            args.alive += [descriptor, item]
            return ctypes.addressof(descriptor)
        if isinstance(item, list):  # of tensors: an array of descriptors (adamw)
            array = (Tensor * len(item))(*(x.tensor() for x in item))
            args.alive += [array, item]
            return ctypes.addressof(array)
        return item

    if hasattr(kind, "_length_"):
        target = getattr(args, key)
        for i, item in enumerate(value):
            target[i] = scalar(item) if kind._type_ is Scalar else convert(item)
        return
    setattr(args, key, convert(value))
