"""One call of a compute function: place the operands, call, see what changed and what came.

    trial = Trial(context, "softmax")
    x = trial.give("x", values, Dtype.F16, layout="transposed")
    y = trial.take("y", x.shape, Dtype.F16)
    trial.call(dim=1, input=x, output=y)
    trial.expect(y, oracle(x.values))

``call`` fails unless the surroundings of every operand and the elements of every input are as they
were. A failure carries a script that repeats the call without the suite.
"""

from __future__ import annotations

import base64
import ctypes
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chipset import _runtime
from chipset._interface import Dtype, Status
from chipset.driver import DeviceArray, Driver
from chipset_conformance.case import CaseFailure, Unsupported
from chipset_conformance.context import Context
from chipset_conformance.layouts import Operand, Shape, describe
from chipset_conformance.numerics import HOST, Array, Bounded, is_float, judge, name_of, wide

SHOWN = 3  # wrong elements that a message lists
LITERAL_LIMIT = 48  # elements that a reproducer spells out; more are packed


@dataclass(frozen=True)
class Address:
    """An operand in a field that takes a bare device address."""

    operand: Operand


@dataclass(frozen=True)
class View:
    """Another view of an operand's memory: what a function that restrides is given."""

    operand: Operand
    shape: Shape
    strides: Shape
    dtype: Dtype | None = None

    def device(self) -> DeviceArray:
        base = self.operand.device
        dtype = base.dtype if self.dtype is None else self.dtype
        return DeviceArray(base.memory, dtype, self.shape, self.strides, base.offset)


@dataclass(frozen=True)
class Null:
    """A descriptor without data, which only gives a shape."""

    chip: Driver
    shape: Shape
    dtype: Dtype

    def device(self) -> DeviceArray:
        return DeviceArray(self.chip.empty((0,), self.dtype).memory, self.dtype, self.shape)


class Trial:
    """One call and its operands."""

    def __init__(
        self, context: Context, function: str, label: str = "", operation: str = ""
    ) -> None:
        """``operation``: of the function (an opcode's name), for the table of worst errors."""
        context.need(function)
        self.ulp_name = f"{function}.{operation}" if operation else function
        self.context = context
        self.function = function
        self.label = label
        self.operands: list[Operand] = []
        self.fields: dict[str, Any] = {}
        self._now: dict[int, Array] = {}

    # ---- operands ------------------------------------------------------------------------------

    def give(
        self,
        name: str,
        values: Any,
        dtype: Dtype,
        layout: str = "contiguous",
        written: bool = False,
    ) -> Operand:
        """An input; ``written``: it is an output too (in place)."""
        values = np.asarray(values)
        operand = Operand(
            self.context.chip, name, values, values.shape, dtype, layout, written=written
        )
        self.operands.append(operand)
        return operand

    def take(
        self, name: str, shape: Sequence[int], dtype: Dtype, layout: str = "contiguous"
    ) -> Operand:
        """An output, filled with a pattern."""
        shape = tuple(shape)
        operand = Operand(self.context.chip, name, None, shape, dtype, layout, written=True)
        self.operands.append(operand)
        return operand

    @staticmethod
    def spread(operand: Operand, shape: Sequence[int]) -> View:
        """An operand repeated to a larger shape of the same rank, by strides of zero."""
        strides = tuple(
            0 if have == 1 else stride
            for have, stride in zip(operand.shape, operand.strides, strict=True)
        )
        return View(operand, tuple(shape), strides)

    # ---- the call ------------------------------------------------------------------------------

    def call(self, **fields: Any) -> None:
        """Calls and waits; raises Unsupported, or CaseFailure for any other status but OK."""
        status, text = self.attempt(**fields)
        if status == Status.UNSUPPORTED:
            raise Unsupported(f"{self.function}{self._where()}: {text or 'no text'}")
        if status != Status.OK:
            self.fail(f"answered {status.name}: {text!r}")

    def refuse(self, *statuses: Status, **fields: Any) -> None:
        """Calls with arguments that must be refused: with a text, nothing written (ERR-002)."""
        status, _ = self.attempt(**fields)
        if status not in statuses:
            names = " or ".join(s.name for s in statuses)
            self.fail(f"answered {status.name}, not {names}", refused=names)

    def attempt(self, **fields: Any) -> tuple[Status, str]:
        """Calls, waits, and checks what is true of every answer; returns the status and text."""
        self.fields = fields
        self._now = {}
        _runtime.take_error()
        status, text = self._run(fields)
        if status not in (Status.OK, Status.NOT_READY) and not text:
            self.fail(f"answered {status.name} without a text (ERR-001)")
        self._check_untouched(status)
        return status, text

    def _run(self, fields: dict[str, Any]) -> tuple[Status, str]:
        chip = self.context.chip
        arguments = chip.arguments(self.function, **{k: _device(v) for k, v in fields.items()})
        status = Status(chip.status(self.function, chip.stream, ctypes.addressof(arguments)))
        text = _runtime.take_error()
        if status == Status.OK:  # an asynchronous fault surfaces here (ERR-003)
            status = Status(chip.status("stream_sync", chip.stream))
            text = _runtime.take_error()
        return status, text

    def _check_untouched(self, status: Status) -> None:
        for operand in self.operands:
            now = self._now[id(operand)] = operand.fetch()
            # OUT_OF_RANGE is found while the work runs, when part of it is done (ERR-003).
            may_write = operand.written and status in (Status.OK, Status.OUT_OF_RANGE)
            if may_write:
                at = operand.strayed(now)
            else:
                differ = np.flatnonzero(now != operand.before)
                at = int(differ[0]) if len(differ) else None
            if at is None:
                continue
            element = at // operand.size - operand.placement.offset
            what = (
                "wrote outside the view of"
                if may_write
                else "changed the input"
                if not operand.written
                else f"answered {status.name} but wrote to (ERR-002)"
            )
            self.fail(
                f"{what} {operand.name}: element {element} from its start (byte {at})",
                [_byte_check(self, operand, at)],
            )

    def result(self, operand: Operand) -> Array:
        """An output's elements after the call."""
        return operand.view_of(self._now[id(operand)])

    # ---- what came -----------------------------------------------------------------------------

    def expect(
        self,
        operand: Operand,
        exact: Bounded,
        signed_zero: bool = False,
        flush: bool = False,
        known: Array | None = None,
    ) -> None:
        """Holds a float output against exact values within their bound.

        Args:
            signed_zero, flush, known: see :func:`chipset_conformance.numerics.judge`.
        """
        actual = self.result(operand)
        verdict = judge(actual, exact, operand.dtype, signed_zero, flush, known)
        self.context.record_ulp(verdict.worst_ulp, self.ulp_name, name_of(operand.dtype))
        if np.any(verdict.wrong):
            self._fail_at(operand, verdict.wrong, actual, exact.value, (verdict.low, verdict.high))

    def expect_bits(self, operand: Operand, expected: Any, known: Array | None = None) -> None:
        """Holds an output against values that leave no room: integers, bool, moved bits.

        NaN equals any NaN, since arithmetic may change its payload.
        """
        actual = self.result(operand)
        expected = np.broadcast_to(np.asarray(expected), operand.shape)
        if is_float(operand.dtype) or expected.dtype.kind == "c":
            same = (wide_or_same(actual) == wide_or_same(expected)) | (
                _isnan(actual) & _isnan(expected)
            )
            if expected.dtype.kind != "c":
                signs = np.signbit(wide_or_same(actual)) == np.signbit(wide_or_same(expected))
                same &= signs | _isnan(actual)
        else:
            same = actual == expected
        if operand.dtype == Dtype.BOOL:  # only 0 and 1 are written
            raw = actual.view(np.uint8)
            same = raw == expected.astype(np.uint8)
        wrong = ~np.asarray(same) if known is None else ~np.asarray(same) & known
        if np.any(wrong):
            self._fail_at(operand, wrong, actual, expected, None)

    def expect_untouched(self, operand: Operand) -> None:
        """The output must still be what it was."""
        differ = np.flatnonzero(self._now[id(operand)] != operand.before)
        if len(differ):
            self.fail(
                f"wrote to {operand.name}, which it should leave alone",
                [_byte_check(self, operand, int(differ[0]))],
            )

    # ---- failing -------------------------------------------------------------------------------

    def _where(self) -> str:
        return f" ({self.label})" if self.label else ""

    def _fail_at(
        self,
        operand: Operand,
        wrong: Array,
        actual: Array,
        expected: Array,
        interval: tuple[Array, Array] | None,
    ) -> None:
        found = np.argwhere(wrong)
        lines = [f"{len(found)} of {wrong.size} elements of {operand.name} are wrong"]
        for index in map(tuple, found[:SHOWN]):
            line = f"  {operand.name}{list(map(int, index))} = {actual[index]!s}"
            line += f", not {expected[index]!s}"
            if interval is not None:
                line += f" (accepted: {interval[0][index]!s} to {interval[1][index]!s})"
            same_shape = [o for o in self.operands if not o.written and o.shape == operand.shape]
            if same_shape:
                given = ", ".join(f"{o.name} = {o.values[index]!s}" for o in same_shape)
                line += f"; from {given}"
            lines.append(line)
        first = tuple(map(int, found[0]))
        bounds = None if interval is None else (interval[0][first], interval[1][first])
        accepted = _accepted(actual[first], expected[first], bounds)
        self.fail("\n".join(lines), [_element_check(self, operand, first, accepted)])

    def fail(self, message: str, checks: Sequence[str] = (), refused: str = "") -> None:
        """Raises CaseFailure with the call's operands and a script that repeats it.

        Args:
            checks: lines of the script that fail as the case did, after the call.
            refused: instead: how the call must be refused.
        """
        operands = "\n".join(f"  {o.name}: {describe(o)}" for o in self.operands)
        text = f"{self.function}{self._where()}: {message}\nwith\n{operands}"
        raise CaseFailure(text, reproducer(self, checks, refused))


def _isnan(values: Array) -> Array:
    return np.isnan(wide_or_same(values))


def wide_or_same(values: Array) -> Array:
    """Floats in a type that NumPy compares; complex as it is."""
    return values if values.dtype.kind == "c" else wide(values)


def _device(value: Any) -> Any:
    if isinstance(value, Operand):
        return value.device
    if isinstance(value, Address):
        return value.operand.device.address
    if isinstance(value, View):
        return value.device()
    if isinstance(value, Null):
        return value.device()
    if isinstance(value, list):
        return [_device(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_device(item) for item in value)
    return value


def together(checks: Sequence[tuple[str, Callable[[], object]]]) -> None:
    """Runs several checks of one case; what is unsupported is told after the others have run.

    Raises:
        CaseFailure: the first failure, at once.
        Unsupported: some were; the text names them.
    """
    refused: list[str] = []
    for label, check in checks:
        try:
            check()
        except Unsupported as reason:
            refused.append(f"{label}: {reason}")
    if refused:
        raise Unsupported(f"{len(refused)} of {len(checks)} not supported; {refused[0]}")


# ---- reproducers ---------------------------------------------------------------------------------


def unpack(text: str, dtype: str, shape: Shape) -> Array:
    """An array out of a reproducer's text; see :func:`pack`."""
    raw = zlib.decompress(base64.b85decode(text))
    return np.frombuffer(raw, dtype).reshape(shape)


def pack(values: Array) -> str:
    return base64.b85encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 9)).decode()


def reproducer(trial: Trial, checks: Sequence[str] = (), refused: str = "") -> str:
    """About ten lines of Python that repeat a trial's call with the driver alone.

    The script fails where the chip is wrong: by the call's own error, by one of the ``checks``, or
    because nothing refused the call.
    """
    names = _names(trial)
    device = trial.context.device
    lines = [
        "import numpy as np, chipset",
        "from chipset._interface import Dtype",
        "from chipset.driver import DeviceArray",
    ]
    if any(len(o.before) // o.size > LITERAL_LIMIT * 4 for o in trial.operands):
        lines.append("from chipset_conformance.trial import unpack")
    lines.append(f"chip = chipset.select({f'{device.name}:{trial.context.chip.local}'!r}).driver")
    for operand in trial.operands:
        bits = operand.before
        few = len(bits) // operand.size <= LITERAL_LIMIT * 4
        data = (
            f"np.frombuffer(bytes.fromhex({bits.tobytes().hex()!r}), np.uint8)"
            if few
            else f"unpack({pack(bits)!r}, 'uint8', ({len(bits)},))"
        )
        lines.append(
            f"{names[id(operand)]} = DeviceArray(chip.array({data}).memory, "
            f"Dtype.{operand.dtype.name}, {operand.shape}, "
            f"{operand.placement.strides}, {operand.placement.offset})"
        )
    fields = ", ".join(f"{k}={_spell(v, names)}" for k, v in trial.fields.items())
    call = f"chip.call({trial.function!r}, {fields})"
    if refused:
        lines += ["try:", f"    {call}", "except RuntimeError as error:", "    print(error)"]
        lines += ["else:", f"    raise AssertionError('answered OK, not {refused}')"]
    else:
        lines.append(call)
    for operand in trial.operands:
        if operand.written:
            host = HOST[operand.dtype]
            view = "" if host.kind != "V" else f".view({host.name!r})"
            lines.append(f"print({names[id(operand)]}.numpy(){view})")
    lines += checks
    if any(HOST[o.dtype].kind == "V" for o in trial.operands):
        lines[0] += ", ml_dtypes"
    return "\n".join(lines) + "\n"


def _names(trial: Trial) -> dict[int, str]:
    return {id(o): _identifier(o.name, i) for i, o in enumerate(trial.operands)}


def _accepted(actual: Any, expected: Any, bounds: tuple[Any, Any] | None) -> str:
    """A condition on ``x`` that the expected element meets and the actual one does not."""
    if isinstance(expected, (complex, np.complexfloating)):
        return f"x == {complex(expected)!r}"
    if not isinstance(expected, (float, np.floating)) and np.asarray(expected).dtype.kind != "V":
        return f"x == {int(expected)}"
    if np.isnan(float(expected)):
        return "np.isnan(x)"
    if bounds is not None and not bounds[0] <= float(actual) <= bounds[1]:
        return f"{_spell(float(bounds[0]), {})} <= x <= {_spell(float(bounds[1]), {})}"
    value = float(expected)
    return f"x == {_spell(value, {})} and np.signbit(x) == {bool(np.signbit(value))}"


def _element_check(trial: Trial, operand: Operand, index: tuple[int, ...], accepted: str) -> str:
    name, host = _names(trial)[id(operand)], HOST[operand.dtype]
    view = "'uint8'" if operand.dtype == Dtype.BOOL else repr(host.name)
    kind = {"c": "complex", "f": "float", "V": "float"}.get(host.kind, "int")
    element = f"x = {kind}({name}.numpy().view({view})[{index}]); "
    return f"{element}assert {accepted}, f'{operand.name}{list(index)} is {{x}}'"


def _byte_check(trial: Trial, operand: Operand, at: int) -> str:
    """The byte must be what it was."""
    whole = f"DeviceArray({_names(trial)[id(operand)]}.memory, Dtype.U8, ({len(operand.before)},))"
    before = int(operand.before[at])
    return (
        f"x = int({whole}.numpy()[{at}]); "
        f"assert x == {before}, f'byte {at} of {operand.name} is {{x}}, was {before}'"
    )


def _identifier(name: str, index: int) -> str:
    return name if name.isidentifier() else f"t{index}"


def _spell(value: Any, names: dict[int, str]) -> str:
    if isinstance(value, Operand):
        return names[id(value)]
    if isinstance(value, Address):
        return f"{names[id(value.operand)]}.address"
    if isinstance(value, View):
        name = names[id(value.operand)]
        dtype = value.operand.dtype if value.dtype is None else value.dtype
        place = f"{value.shape}, {value.strides}, {name}.offset"
        return f"DeviceArray({name}.memory, Dtype.{dtype.name}, {place})"
    if isinstance(value, Null):
        return f"DeviceArray(chip.empty((0,)).memory, Dtype.{value.dtype.name}, {value.shape})"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_spell(item, names) for item in value)
        return f"[{inner}]"
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        return f"float({str(float(value))!r})"
    if isinstance(value, (bool, int, np.integer)):
        return str(int(value))
    return repr(value)
