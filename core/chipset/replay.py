"""``python -m chipset.replay FILE --device NAME``: runs a recording of CHIPSET_RECORD again.

A bug report without the model: the calls, the host data that went in, and what came out. Replaying
on the same device shows whether the fault is there; on another, whether the results agree.
"""

from __future__ import annotations

import argparse
import bisect
import ctypes
import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import chipset
from chipset import _interface, _runtime
from chipset._interface import FUNCTIONS, CopyKind, Tensor
from chipset.device import Device
from chipset.errors import ChipsetError

MAGIC = b"CHIPREC1"
_TENSOR_SIZE = ctypes.sizeof(Tensor)
_POINTER = struct.Struct("<Q")
_PARAMETERS = {f.name: f.params for f in FUNCTIONS}
# Fields that hold plain device addresses, by function.
_ADDRESS_FIELDS: dict[str, tuple[int, ...]] = {
    "adamw": (
        _interface.AdamwArgs.lr_tensor.offset,
        _interface.AdamwArgs.grad_scale.offset,
        _interface.AdamwArgs.found_inf.offset,
    ),
    "random": (_interface.RandomArgs.seed_offset.offset,),
}


@dataclass
class Call:
    """One recorded call. ``arguments`` hold (letter, value) as csrc/runtime/record.cpp writes."""

    function: str
    plugin: int
    status: int
    arguments: list[tuple[str, Any]]


@dataclass
class Outcome:
    """What a replay found.

    Attributes:
        calls: that were made.
        faults: calls whose status differs from the recorded one, as text.
        differences: copies to the host whose bytes differ, as text.
        skipped: calls by name that could not be replayed.
    """

    calls: int = 0
    compared: int = 0
    faults: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)


def read(path: Path) -> Iterator[Call]:
    """The calls of a recording.

    Raises:
        ChipsetError: the file is no recording, or of another major version of the interface.
    """
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise ChipsetError(f"'{path}' is not a recording of CHIPSET_RECORD")
    end = data.index(b"\n")
    head = json.loads(data[len(MAGIC) : end])
    if head["major"] != _interface.MAJOR:
        raise ChipsetError(
            f"'{path}' was recorded with interface version {head['major']}.{head['minor']}; "
            f"this is {_interface.MAJOR}.{_interface.MINOR}"
        )
    at = end + 1
    while at + 4 <= len(data):
        (size,) = struct.unpack_from("<I", data, at)
        if at + 4 + size > len(data):
            return  # the run was killed while it wrote
        yield _call(data[at + 4 : at + 4 + size], head["functions"])
        at += 4 + size


def _call(data: bytes, functions: list[str]) -> Call:
    function, plugin, status = struct.unpack_from("<HHi", data)
    at = 8
    arguments: list[tuple[str, Any]] = []

    def number() -> int:
        nonlocal at
        (value,) = _POINTER.unpack_from(data, at)
        at += 8
        return int(value)

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return data[at - size : at]

    while at < len(data):
        letter = chr(data[at])
        at += 1
        if letter in "ihmp":
            arguments.append((letter, number()))
        elif letter == "d":
            arguments.append((letter, take(number())))
        elif letter == "s":
            arguments.append((letter, (take(number()), [])))
        else:
            offset, count = number(), number()
            arguments[-1][1][1].append((offset, take(count * _TENSOR_SIZE)))
    return Call(functions[function], plugin, status, arguments)


class _Addresses:
    """Recorded addresses and what stands for them now."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.memory: dict[int, tuple[int, int]] = {}  # recorded base: bytes, base now
        self.handles: dict[int, int] = {0: 0}

    def add(self, recorded: int, size: int, now: int) -> None:
        if recorded not in self.memory:
            bisect.insort(self.bases, recorded)
        self.memory[recorded] = (size, now)

    def remove(self, recorded: int) -> None:
        if self.memory.pop(recorded, None) is not None:
            self.bases.remove(recorded)

    def find(self, recorded: int) -> int | None:
        """The present address; None if it lies in no recorded allocation."""
        if recorded in self.handles:
            return self.handles[recorded]
        position = bisect.bisect_right(self.bases, recorded) - 1
        if position < 0:
            return None
        base = self.bases[position]
        size, now = self.memory[base]
        return now + recorded - base if recorded < base + size else None


def replay(path: Path, device: Device) -> Outcome:
    """Makes the recorded calls again on a device and compares what came out."""
    driver = device.driver
    addresses = _Addresses()
    outcome = Outcome()
    for call in read(path):
        if call.function not in _PARAMETERS or not driver.has(call.function):
            outcome.skipped[call.function] = outcome.skipped.get(call.function, 0) + 1
            continue
        _make(call, driver, addresses, outcome)
    return outcome


def _make(call: Call, driver: Any, addresses: _Addresses, outcome: Outcome) -> None:
    arguments: list[Any] = []
    alive: list[Any] = []
    made: list[tuple[int, ctypes.c_uint64]] = []
    expected: bytes | None = None
    target: Any = None
    names_device = _PARAMETERS[call.function][0].name == "device"
    to_host = call.function == "mem_copy" and call.arguments[-1][1] == CopyKind.DEVICE_TO_HOST
    for position, (letter, value) in enumerate(call.arguments):
        if letter == "i":
            arguments.append(driver.local if names_device and position == 0 else _signed(value))
        elif letter == "h":
            now = addresses.find(value)
            if now is None:
                outcome.skipped[call.function] = outcome.skipped.get(call.function, 0) + 1
                return
            arguments.append(now)
        elif letter == "m":
            slot = ctypes.c_uint64(0)
            made.append((value, slot))
            arguments.append(ctypes.addressof(slot))
        elif letter == "s":
            block = _struct(call.function, value, addresses, alive)
            arguments.append(ctypes.addressof(block))
        elif to_host:
            size = value if letter == "p" else len(value)
            expected = None if letter == "p" else value
            target = np.empty(size, np.uint8)
            arguments.append(target.ctypes.data)
        else:
            host = np.frombuffer(value, np.uint8).copy()
            alive.append(host)
            arguments.append(host.ctypes.data)
    if call.function == "mem_free":
        addresses.remove(call.arguments[1][1])
    status = driver.status(call.function, *arguments)
    text = _runtime.take_error()
    outcome.calls += 1
    if alive and call.function == "mem_copy":
        driver.status("stream_sync", arguments[0])  # host memory lives only here
    if status != call.status:
        was, now_is = _runtime.status_name(call.status), _runtime.status_name(status)
        outcome.faults.append(
            f"call {outcome.calls}, {call.function}: recorded {was}, now {now_is}"
            + (f": {text}" if text else "")
        )
    if status != 0:
        return
    for recorded, slot in made:
        if call.function == "mem_alloc":
            addresses.add(recorded, call.arguments[2][1], slot.value)
        else:
            addresses.handles[recorded] = slot.value
    if target is not None:
        driver.status("stream_sync", arguments[0])
        if expected is not None:
            _compare(expected, target, outcome)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _struct(
    function: str,
    value: tuple[bytes, list[tuple[int, bytes]]],
    addresses: _Addresses,
    alive: list[Any],
) -> Any:
    """The argument struct with its pointers set to descriptors of today."""
    data, tensors = value
    block = ctypes.create_string_buffer(data, len(data))
    alive.append(block)
    for offset, raw in tensors:
        pointer = 0
        if raw:
            array = (Tensor * (len(raw) // _TENSOR_SIZE)).from_buffer_copy(raw)
            for tensor in array:
                tensor.data = addresses.find(tensor.data) if tensor.data else None
            alive.append(array)
            pointer = ctypes.addressof(array)
        _POINTER.pack_into(block, offset, pointer)
    for offset in _ADDRESS_FIELDS.get(function, ()):
        (recorded,) = _POINTER.unpack_from(block, offset)
        _POINTER.pack_into(block, offset, addresses.find(recorded) or 0)
    return block


def _compare(expected: bytes, found: Any, outcome: Outcome) -> None:
    outcome.compared += 1
    before = np.frombuffer(expected, np.uint8)
    different = np.nonzero(before != found)[0]
    if different.size:
        outcome.differences.append(
            f"call {outcome.calls}, mem_copy to the host: {different.size} of {before.size} bytes "
            f"differ, the first at {different[0]}"
        )


def main(arguments: list[str] | None = None) -> int:
    """The command; 0 if every status and every byte that came out is as recorded."""
    parser = argparse.ArgumentParser(
        prog="python -m chipset.replay", description="Run a recording of CHIPSET_RECORD again."
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default=None, help="NAME[:INDEX]; default CHIPSET_DEVICE, cpu")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    try:
        outcome = replay(options.file, chipset.select(options.device))
    except (ChipsetError, OSError) as error:
        print(f"chipset: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(vars(outcome)))
    else:
        for line in [*outcome.faults, *outcome.differences]:
            print(line)
        for name, count in outcome.skipped.items():
            print(f"skipped {name}, {count} times")
        print(
            f"{outcome.calls} calls, {len(outcome.faults)} with another status; "
            f"{outcome.compared} results compared, {len(outcome.differences)} differ"
        )
    return 1 if outcome.faults or outcome.differences else 0


if __name__ == "__main__":
    sys.exit(main())
