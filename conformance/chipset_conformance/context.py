"""What a case works with: the device, its random numbers, handles that close by themselves."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import chipset
from chipset import _runtime
from chipset._interface import Capability, MemoryKind, Status
from chipset.device import Device
from chipset.driver import Driver
from chipset_conformance.case import Case, CaseFailure, Unsupported
from chipset_conformance.results import Measurement


class Context:
    """One run of one case on one device.

    Attributes:
        device: the launched device; ``device.info`` is what it says about itself.
        chip: its functions with NumPy arrays (:class:`chipset.driver.Driver`): ``chip.array``,
            ``chip.empty``, ``chip.call``, ``chip.status``.
        case, seed: what runs, and the run's seed.
        rng: seeded from (seed, case id), so that a case alone gives what it gave in the run.
    """

    def __init__(self, device: Device, case: Case, seed: int) -> None:
        self.device = device
        self.case = case
        self.seed = seed
        self.chip: Driver = device.driver
        digest = hashlib.sha256(f"{seed}/{case.id}".encode()).digest()
        self.rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        self.notes: list[str] = []
        self.ulps: dict[str, float] = {}
        self.measurements: list[Measurement] = []
        self.counts: dict[str, int] = {}
        self._closing = contextlib.ExitStack()

    # ---- what a case reports ---------------------------------------------------------------

    def record_ulp(
        self, worst: float, function: str | None = None, dtype: str | None = None
    ) -> None:
        """Keeps the worst error in units in the last place of the function and dtype."""
        key = f"{function or self.case.functions[0]}/{dtype or self.case.dtype or 'any'}"
        self.ulps[key] = max(worst, self.ulps.get(key, 0.0))

    def note(self, text: str) -> None:
        """Adds a sentence to the case's record; it does not change the verdict."""
        self.notes.append(text)

    def measure(
        self,
        name: str,
        value: float,
        unit: str,
        x: float | None = None,
        x_label: str = "",
        limit: float | None = None,
        limit_is: str = "",
    ) -> None:
        """Keeps a figure, and the limit of the device's own roofline that it is held against."""
        self.measurements.append(
            Measurement(
                name=name,
                value=value,
                unit=unit,
                x=x,
                x_label=x_label,
                limit=limit,
                limit_is=limit_is,
            )
        )

    def count(self, what: str, number: int = 1) -> None:
        """Adds to a counter of the case, such as operators that fell back to the host."""
        self.counts[what] = self.counts.get(what, 0) + number

    def check(self, condition: bool, message: str, reproducer: str = "") -> None:
        """Fails the case unless the condition holds."""
        if not condition:
            raise CaseFailure(message, reproducer)

    # ---- what the chip can do ----------------------------------------------------------------

    def can(self, capability: Capability) -> bool:
        return bool(self.device.info.capabilities & capability)

    def need(self, *functions: str) -> None:
        """Raises Unsupported unless the table has every one of the functions."""
        for name in functions:
            if not self.chip.has(name):
                raise Unsupported(f"the table has no {name}")

    def other_device(self) -> Device:
        """Another device of the same plugin; Unsupported if it has but one."""
        for number in range(_runtime.device_count()):
            entry = _runtime.device(number)
            if entry["plugin"] == self.device.name and number != self.device.number:
                return chipset.select(f"{self.device.name}:{entry['local']}")
        raise Unsupported(f"plugin '{self.device.name}' has one device only")

    # ---- raw calls ----------------------------------------------------------------------------

    def expect(self, wanted: Status, function: str, *arguments: Any) -> None:
        """Calls a function and fails unless it answers so; any but OK must come with a text.

        Raises:
            Unsupported: OK was wanted, and the chip does not do this call.
        """
        _runtime.take_error()
        status = Status(self.chip.status(function, *arguments))
        text = _runtime.take_error()
        if status == Status.UNSUPPORTED and wanted == Status.OK and text:
            raise Unsupported(f"{function}: {text}")
        if status != wanted:
            raise CaseFailure(f"{function} answered {status.name} ({text!r}), not {wanted.name}")
        if status not in (Status.OK, Status.NOT_READY) and not text:
            raise CaseFailure(f"{function} answered {status.name} without a text (ERR-001)")

    def out(self, function: str, *arguments: Any) -> int:
        """Calls a function whose last parameter is a pointer to a handle or address; returns it."""
        value = ctypes.c_void_p()
        self.chip.invoke(function, *arguments, ctypes.addressof(value))
        return value.value or 0

    def stream(self, priority: int = 0) -> int:
        """A stream of its own, destroyed when the case ends."""
        handle = self.out("stream_create", self.chip.local, priority)
        self._closing.callback(self.chip.status, "stream_destroy", handle)
        return handle

    def event(self, flags: int = 0) -> int:
        """An event, destroyed when the case ends."""
        handle = self.out("event_create", self.chip.local, flags)
        self._closing.callback(self.chip.status, "event_destroy", handle)
        return handle

    def memory(self, size: int, kind: MemoryKind = MemoryKind.DEVICE) -> int:
        """Memory straight from the plugin, without the caching allocator; freed at the end."""
        address = self.out("mem_alloc", self.chip.local, int(kind), size)
        self._closing.callback(self.chip.status, "mem_free", self.chip.local, address)
        return address

    def close(self) -> None:
        """Ends a case that went well: what it left enqueued must end well, too.

        Raises:
            CaseFailure: the device answers its next synchronisation with a fault (ERR-003).
        """
        if self.chip.has("device_sync"):
            self.expect(Status.OK, "device_sync", self.chip.local)
        self.abandon()

    def abandon(self) -> None:
        """Frees what the case made, in reverse order, whatever the device answers."""
        if self.chip.has("device_sync"):
            self.chip.status("device_sync", self.chip.local)
        self._closing.close()

    @classmethod
    @contextlib.contextmanager
    def opened(cls, device: Device, case: Case, seed: int) -> Iterator[Context]:
        """A context that closes."""
        context = cls(device, case, seed)
        try:
            yield context
            context.close()
        finally:
            context.abandon()
