"""Formats, rounding, and how far a computed number may lie from the exact one.

A tolerance is never chosen. Every oracle works with a :class:`Bounded`: the exact value (in a type
wider than the one judged) and a bound on the error that a correct implementation can make, which
follows from the unit roundoff of the type computed in and the operations of the formula. A result
is right if it lies between the roundings of ``value - error`` and ``value + error`` to the
output's dtype; rounding is monotone, so this is exact, and an error of 0 demands the very bits.

Sources (see ``docs/conformance-numerics.md``): N. J. Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., lemma 3.1 (gamma_n) and section 3.3 (running error analysis); J.-M. Muller,
On the definition of ulp(x), 2005; Khronos, OpenCL numerical compliance, full profile (ULPS).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from chipset._interface import Dtype

Array = NDArray[Any]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        precision: bits of the significand, the hidden one included.
        emin: exponent of the smallest normal number.
        largest: the largest finite number.
        infinities: whether it has them; without, conversion saturates (NUM-002).
    """

    precision: int
    emin: int
    largest: float
    infinities: bool = True

    @property
    def unit(self) -> float:
        """Unit roundoff u = 2^-precision: the largest relative error of one rounding."""
        return float(2.0**-self.precision)

    @property
    def smallest_normal(self) -> float:
        return float(2.0**self.emin)

    @property
    def smallest(self) -> float:
        """The smallest positive number, a subnormal."""
        return float(np.ldexp(1.0, self.emin - self.precision + 1))


FORMATS: dict[Dtype, Format] = {
    Dtype.F16: Format(11, -14, 65504.0),
    Dtype.BF16: Format(8, -126, float(np.ldexp(255.0, 120))),
    Dtype.F32: Format(24, -126, float(np.finfo(np.float32).max)),
    Dtype.F64: Format(53, -1022, float(np.finfo(np.float64).max)),
    Dtype.F8E4M3: Format(4, -6, 448.0, infinities=False),
    Dtype.F8E5M2: Format(3, -14, 57344.0),
}
# The NumPy type of a host array of each dtype. I4 is kept packed, by the byte.
HOST: dict[Dtype, Any] = {
    Dtype.BOOL: np.dtype(np.bool_),
    Dtype.U8: np.dtype(np.uint8),
    Dtype.I8: np.dtype(np.int8),
    Dtype.I16: np.dtype(np.int16),
    Dtype.I32: np.dtype(np.int32),
    Dtype.I64: np.dtype(np.int64),
    Dtype.F16: np.dtype(np.float16),
    Dtype.BF16: np.dtype(ml_dtypes.bfloat16),
    Dtype.F32: np.dtype(np.float32),
    Dtype.F64: np.dtype(np.float64),
    Dtype.F8E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    Dtype.F8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    Dtype.I4: np.dtype(np.uint8),
    Dtype.OPAQUE8: np.dtype(np.uint8),
    Dtype.OPAQUE16: np.dtype(np.uint16),
    Dtype.OPAQUE32: np.dtype(np.uint32),
    Dtype.OPAQUE64: np.dtype(np.uint64),
    Dtype.OPAQUE128: np.dtype(np.complex128),
}
FLOATS = (Dtype.F16, Dtype.BF16, Dtype.F32, Dtype.F64)
EIGHT_BIT_FLOATS = (Dtype.F8E4M3, Dtype.F8E5M2)
SIGNED = (Dtype.I8, Dtype.I16, Dtype.I32, Dtype.I64)
INTEGERS = (Dtype.U8, *SIGNED)
OPAQUES = (Dtype.OPAQUE8, Dtype.OPAQUE16, Dtype.OPAQUE32, Dtype.OPAQUE64, Dtype.OPAQUE128)
# Largest error of each function in ULP of its result (F32 and wider); correctly rounded ones are
# not in the table. Of the last three OpenCL says "implementation-defined": they get what it gives
# other special functions, and a perturbed argument besides (see Bounded.special).
ULPS: dict[str, float] = {
    "div": 2.5, "reciprocal": 2.5, "sqrt": 3, "rsqrt": 2,
    "exp": 3, "exp2": 3, "expm1": 3, "log": 3, "log2": 3, "log10": 3, "log1p": 2, "pow": 16,
    "sin": 4, "cos": 4, "tan": 5, "asin": 4, "acos": 4, "atan": 5, "atan2": 6,
    "sinh": 4, "cosh": 4, "tanh": 5, "asinh": 4, "acosh": 4, "atanh": 5,
    "erf": 16, "erfc": 16, "hypot": 4,
    "erfinv": 16, "lgamma": 16, "digamma": 16, "i0": 16,
}  # fmt: skip
CORRECT_IN_F64 = ("div", "reciprocal", "sqrt")


def name_of(dtype: Dtype) -> str:
    """As in case ids: ``f16``."""
    return dtype.name.lower()


def is_float(dtype: Dtype) -> bool:
    return dtype in FORMATS


def evaluated_in(dtype: Dtype) -> Dtype:
    """The dtype in which operations of a dtype are evaluated (NUM-001)."""
    return Dtype.F32 if dtype in (Dtype.F16, Dtype.BF16, *EIGHT_BIT_FLOATS) else dtype


def unit_of(dtype: Dtype) -> float:
    """Unit roundoff of the type in which operations of a dtype are evaluated."""
    return FORMATS[evaluated_in(dtype)].unit


def wide(values: Array) -> Array:
    """The same numbers in a type wider than theirs: F64 for F32 and narrower, else longdouble.

    longdouble has 64 bits of significand on x86-64 and 113 on AArch64; where it is no wider than
    F64 the oracle itself may be wrong by its own rounding, and F64 results are judged with it.
    """
    values = np.asarray(values)
    if values.dtype in (np.float64, np.int64, np.uint64, np.longdouble):
        return values.astype(np.longdouble)
    with np.errstate(invalid="ignore"):  # signalling NaN among arbitrary bits
        return values.astype(np.float64)


def gamma(n: float | Array, unit: float) -> Any:
    """gamma_n = n*u / (1 - n*u), the relative error of n roundings in a row (Higham, lemma 3.1)."""
    product = np.asarray(n, np.float64) * unit
    if np.any(product >= 0.5):
        raise ValueError(f"gamma_n is of no use for n = {n} with u = {unit}")
    return product / (1.0 - product)


def ulp(values: Array, dtype: Dtype) -> Array:
    """Distance between neighbouring numbers of a dtype around each value (F64)."""
    form = FORMATS[dtype]
    magnitude = np.minimum(np.abs(np.asarray(values, np.longdouble)), form.largest)
    magnitude = np.where(np.isnan(magnitude), form.smallest_normal, magnitude)
    exponent = np.frexp(magnitude)[1] - 1
    exponent = np.where(magnitude == 0, form.emin, np.maximum(exponent, form.emin))
    return np.asarray(np.ldexp(np.ones(exponent.shape), exponent - form.precision + 1))


def round_to(values: Array, dtype: Dtype) -> Array:
    """Rounds to nearest even, once, from whatever width, as the dtype's host array (NUM-002)."""
    values = np.asarray(values)
    form = FORMATS[dtype]
    if dtype == Dtype.F64:
        return values.astype(np.float64)
    if dtype in (Dtype.F16, Dtype.F32) and values.dtype != np.longdouble:
        with np.errstate(all="ignore"):
            return values.astype(HOST[dtype])
    exponent = np.frexp(values)[1] - 1
    exponent = np.where(values == 0, form.emin, np.maximum(exponent, form.emin))
    shift = exponent - form.precision + 1
    with np.errstate(all="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(values, -shift)), shift)
    finite = np.isfinite(values)
    rounded = np.where(finite, rounded, values)
    beyond = finite & (np.abs(rounded) > form.largest)
    if form.infinities:
        rounded = np.where(beyond, np.copysign(np.inf, values), rounded)
    else:
        beyond |= np.isinf(values)
        rounded = np.where(beyond, np.copysign(form.largest, values), rounded)
    with np.errstate(all="ignore"):
        return np.asarray(rounded, np.float64).astype(HOST[dtype])


class Bounded:
    """Exact values, each with a bound on the error that computing it may have made.

    Arithmetic on them performs running error analysis (Higham, section 3.3): an operation passes
    the errors of its operands on and adds its own rounding, ``unit * |result|`` (functions:
    ``2 * unit * ULPS``), and half the smallest number for underflow.

    Attributes:
        value: F64 or longdouble.
        error: like value.
        dtype: F32 or F64, the type whose arithmetic is bounded.
        over: where a number on the way is too large for the dtype: the formula evaluated in it
            gives an infinity or NaN there, whatever the exact result is.
    """

    def __init__(self, value: Any, dtype: Dtype, error: Any = 0.0, over: Any = False) -> None:
        self.value: Array = wide(np.asarray(value))
        self.dtype = evaluated_in(dtype)
        self.error: Array = np.broadcast_to(np.asarray(error, self.value.dtype), self.value.shape)
        self.over: Array = np.broadcast_to(np.asarray(over), self.value.shape)

    def _new(self, value: Array, passed_on: Array, ulps: float, over: Array) -> Bounded:
        form = FORMATS[self.dtype]
        with np.errstate(all="ignore"):
            own = 2 * ulps * form.unit * np.abs(value)
            error = passed_on + np.where(np.isfinite(own), own, 0)
            error = error + np.asarray(form.smallest, value.dtype) * max(ulps, 0.5)
            over = over | (np.isfinite(value) & (np.abs(value) > form.largest))
        return Bounded(value, self.dtype, np.where(np.isnan(error), np.inf, error), over)

    def _other(self, other: Any) -> Bounded:
        if isinstance(other, Bounded):
            return other
        constant = np.asarray(other, self.value.dtype)
        rounding = np.abs(constant - wide(round_to(constant, self.dtype)))
        return Bounded(constant, self.dtype, np.where(np.isfinite(rounding), rounding, 0))

    def __add__(self, other: Any) -> Bounded:
        o = self._other(other)
        with np.errstate(all="ignore"):
            return self._new(self.value + o.value, self.error + o.error, 0.5, self.over | o.over)

    def __sub__(self, other: Any) -> Bounded:
        return self + -self._other(other)

    def __rsub__(self, other: Any) -> Bounded:
        return self._other(other) + -self

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.dtype, self.error, self.over)

    def __mul__(self, other: Any) -> Bounded:
        o = self._other(other)
        with np.errstate(all="ignore"):
            passed = np.abs(self.value) * o.error + np.abs(o.value) * self.error
            passed = passed + self.error * o.error
            passed = np.where(np.isnan(passed), 0, passed)
            return self._new(self.value * o.value, passed, 0.5, self.over | o.over)

    def __truediv__(self, other: Any) -> Bounded:
        o = self._other(other)
        with np.errstate(all="ignore"):
            value = self.value / o.value
            passed = (self.error + np.abs(value) * o.error) / (np.abs(o.value) - o.error)
            passed = np.where((o.error == 0) & (self.error == 0), 0, np.abs(passed))
            # A divisor that overflows in the dtype gives 0 where the exact quotient is not.
            over = np.isfinite(o.value) & (np.abs(o.value) > FORMATS[self.dtype].largest)
            passed = np.where(over | o.over, np.abs(value), passed)
            return self._new(value, passed, ulps_of("div", self.dtype), self.over)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rtruediv__(self, other: Any) -> Bounded:
        return self._other(other) / self

    def apply(self, name: str, function: Callable[[Array], Array]) -> Bounded:
        """A function of ULPS. The argument's error is passed on by looking at both its ends."""
        with np.errstate(all="ignore"):
            value = function(self.value)
            passed = np.zeros(value.shape, self.value.dtype)
            if np.any(self.error):
                passed = self._passed_on(name, function, value)
            # A subnormal on the way may have been flushed to zero.
            tiny = np.abs(value) - passed < FORMATS[self.dtype].smallest_normal
            passed = np.where(tiny, np.maximum(passed, np.abs(value)), passed)
        return self._new(value, passed, ulps_of(name, self.dtype), self.over)

    def _passed_on(self, name: str, function: Callable[[Array], Array], value: Array) -> Array:
        """How far the result moves when the argument moves by its error."""
        if name == "exp":
            passed = np.abs(value) * np.expm1(self.error)
        elif name in ("sin", "cos"):  # their ends may meet after a period
            passed = np.minimum(self.error, 2)
        else:
            ends = [np.abs(function(self.value + s * self.error) - value) for s in (-1, 1)]
            passed = np.maximum(*ends)
        return np.where(np.isnan(passed), 0, passed)

    def special(
        self, name: str, function: Callable[[Array], Array], absolute: float = 0.0
    ) -> Bounded:
        """A function that is only mixed stable (Higham, section 1.5).

        The result is nearly the function of nearly the argument, four roundings away: near a zero
        or a pole of lgamma no evaluation in the dtype does better.

        Args:
            absolute: units of roundoff that the evaluation adds whatever the result's size.
        """
        form = FORMATS[self.dtype]
        with np.errstate(all="ignore"):
            nearby = self.error + 4 * form.unit * np.abs(self.value)
        out = Bounded(self.value, self.dtype, nearby, self.over).apply(name, function)
        return Bounded(out.value, self.dtype, out.error + absolute * form.unit, out.over)

    def sum(self, axis: int, keepdims: bool = False) -> Bounded:
        """A sum of n terms in any order: gamma_(n-1) * sum |x| (Higham, (4.4))."""
        n = self.value.shape[axis]
        with np.errstate(all="ignore"):
            value = self.value.sum(axis, keepdims=keepdims)
            own = gamma(max(0, n - 1), FORMATS[self.dtype].unit)
            total = (np.abs(self.value) + self.error).sum(axis, keepdims=keepdims)
            error = self.error.sum(axis, keepdims=keepdims) + own * total
        error = np.where(np.isfinite(error), error, 0)
        return Bounded(value, self.dtype, error, self.over.any(axis, keepdims=keepdims))

    def rounded(self, dtype: Dtype) -> Bounded:
        """After a rounding to a narrower dtype that an implementation may make on the way."""
        with np.errstate(all="ignore"):
            own = FORMATS[dtype].unit * np.abs(self.value) + FORMATS[dtype].smallest / 2
        return Bounded(self.value, self.dtype, self.error + own, self.over)

    def __getitem__(self, index: Any) -> Bounded:
        return Bounded(self.value[index], self.dtype, self.error[index], self.over[index])

    def where(self, condition: Array, other: Any) -> Bounded:
        """This where the condition holds, else the other; choosing makes no error."""
        o = self._other(other)
        return Bounded(
            np.where(condition, self.value, o.value),
            self.dtype,
            np.where(condition, self.error, o.error),
            np.where(condition, self.over, o.over),
        )

    def reordered(self) -> Bounded:
        """The bound for any order of evaluation of the same formula: twice the running error."""
        return Bounded(self.value, self.dtype, 2 * self.error, self.over)


def ulps_of(name: str, dtype: Dtype) -> float:
    """Largest error of a function in ULP; half of one where it is correctly rounded."""
    if dtype == Dtype.F64 and name in CORRECT_IN_F64:
        return 0.5
    return ULPS.get(name, 0.5)


@dataclass(frozen=True)
class Verdict:
    """What comparing a result gave.

    Attributes:
        wrong: bool, of the result's shape.
        worst_ulp: the largest error of a finite element in ULP of the output's dtype.
        low, high: what would have been accepted.
    """

    wrong: Array
    worst_ulp: float
    low: Array
    high: Array


def judge(
    actual: Array,
    exact: Bounded,
    dtype: Dtype,
    signed_zero: bool = False,
    flush: bool = False,
    known: Array | None = None,
) -> Verdict:
    """Holds a float result against the exact values and their bounds.

    NaN is wanted exactly where the exact value is NaN; an infinity where it is one, or where the
    rounding of an end of the interval is.

    Args:
        signed_zero: an exact zero must have its sign.
        flush: a result below the smallest normal number of the type evaluated in may be 0 instead.
        known: False where the specification leaves the result open.
    """
    with np.errstate(all="ignore"):
        # Results in F64: the oracle's longdouble is not twice as wide and has rounded, too. (F64
        # is, for products of what is narrower; there a tie must stay one.)
        own: Any = 0.0
        if exact.value.dtype == np.longdouble:
            own = np.finfo(np.longdouble).eps / 2 * np.abs(exact.value)
        error = np.where(np.isfinite(exact.value), exact.error + own, 0)
        below, above = exact.value - error, exact.value + error
        if flush:
            tiny = np.abs(exact.value) - error < FORMATS[exact.dtype].smallest_normal
            below = np.where(tiny, np.minimum(below, 0), below)
            above = np.where(tiny, np.maximum(above, 0), above)
        low, high = round_to(below, dtype), round_to(above, dtype)
        got = wide(actual)
        nan = np.isnan(exact.value)
        inside = (got >= wide(low)) & (got <= wide(high))
        wrong = np.where(nan, ~np.isnan(got), ~inside)
        if signed_zero:
            zero = (exact.value == 0) & (got == 0)
            wrong = wrong | (zero & (np.signbit(got) != np.signbit(exact.value)))
        usable = np.isfinite(got) & np.isfinite(exact.value)
        if known is not None:
            wrong, usable = wrong & known, usable & known
        if flush:
            usable = usable & ~tiny
        units = np.abs(got - exact.value) / ulp(exact.value, dtype)
        worst = float(np.max(units, initial=0.0, where=usable))
    return Verdict(np.asarray(wrong), worst, low, high)
