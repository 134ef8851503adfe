"""What each operation of pointwise gives: one entry per opcode of the interface table.

Three kinds of entry. *Exact* operations are evaluated by NumPy in the type that NUM-001 names (F32
for F16, BF16 and F32; F64), so that not a bit may differ. *Bounded* ones are formulas over
:class:`Bounded`, which gives value and tolerance at once. *Predicates* give truth values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from chipset._interface import Dtype, PointwiseOp
from chipset_conformance.numerics import Array, Bounded
from chipset_conformance.oracles import special

Params = tuple[float, ...]
Evaluate = Callable[..., Any]  # (operands, params) -> Array or Bounded
Mask = Callable[[list[Array], Params], Array]

FLOAT, NUMBER, INTEGER, BITWISE = "float", "number", "integer", "bitwise"


@dataclass(frozen=True)
class Op:
    """One opcode.

    Attributes:
        arity: operands.
        kind: ``exact``, ``bounded`` or ``predicate``.
        of: FLOAT; NUMBER (floats and integers); INTEGER; BITWISE (integers and BOOL).
        evaluate: ``f(operands, params)``: host arrays, or Bounded ones if bounded.
        params: sets of p0... to try.
        integer: the same in I64 arithmetic, where that is another formula.
        open: elements of which the specification does not say what they give.
        composite: built of others, so that an infinity may give NaN where a limit exists.
        signed_zero: the sign of an exact zero counts.
    """

    arity: int
    kind: str
    of: str
    evaluate: Evaluate
    params: tuple[Params, ...] = ((),)
    integer: Evaluate | None = None
    open: Mask | None = None
    composite: bool = False
    signed_zero: bool = False


# ---- pieces of formulas --------------------------------------------------------------------------

SQRT_HALF = math.sqrt(0.5)
GELU_K = math.sqrt(2 / math.pi)
GELU_C = 0.044715


def _pi(x: Bounded) -> Array:
    return 4 * np.arctan(np.ones((), x.value.dtype))


def exp(x: Bounded) -> Bounded:
    return x.apply("exp", np.exp)


def log1p(x: Bounded) -> Bounded:
    return x.apply("log1p", np.log1p)


def tanh(x: Bounded) -> Bounded:
    return x.apply("tanh", np.tanh)


def sigmoid(x: Bounded) -> Bounded:
    return 1 / (1 + exp(-x))


def softplus(x: Bounded) -> Bounded:
    """max(x, 0) + log1p(exp(-|x|)), which does not overflow."""
    positive = Bounded(np.maximum(x.value, 0), x.dtype, x.error, x.over)
    magnitude = Bounded(np.abs(x.value), x.dtype, x.error, x.over)
    return positive + log1p(exp(-magnitude))


def silu(x: Bounded) -> Bounded:
    return x / (1 + exp(-x))


def gelu_erf(x: Bounded) -> Bounded:
    return 0.5 * x * (1 + (x * SQRT_HALF).apply("erf", special.erf))


def gelu_tanh(x: Bounded) -> Bounded:
    return 0.5 * x * (1 + tanh(GELU_K * (x + GELU_C * x * x * x)))


def mish(x: Bounded) -> Bounded:
    return x * tanh(softplus(x))


def _mish_backward(v: list[Bounded], p: Params) -> Bounded:
    x, y = v
    t = tanh(softplus(y))
    return x * (t + y * sigmoid(y) * (1 - t * t))


def _silu_backward(v: list[Bounded], p: Params) -> Bounded:
    x, y = v
    s = sigmoid(y)
    return x * s * (1 + y * (1 - s))


def _gelu_erf_backward(v: list[Bounded], p: Params) -> Bounded:
    x, y = v
    cdf = 0.5 * (1 + (y * SQRT_HALF).apply("erf", special.erf))
    pdf = exp(-0.5 * y * y) * (1 / math.sqrt(2 * math.pi))
    return x * (cdf + y * pdf)


def _gelu_tanh_backward(v: list[Bounded], p: Params) -> Bounded:
    x, y = v
    t = tanh(GELU_K * (y + GELU_C * y * y * y))
    slope = GELU_K * (1 + 3 * GELU_C * y * y)
    return x * (0.5 * (1 + t) + 0.5 * y * (1 - t * t) * slope)


def _softplus(v: list[Bounded], p: Params) -> Bounded:
    (x,) = v
    scaled = x * p[0]
    return (log1p(exp(scaled)) / p[0]).where(~(scaled.value > p[1]), x)


def _softplus_backward(v: list[Bounded], p: Params) -> Bounded:
    x, y = v
    scaled = y * p[0]
    return (x * sigmoid(scaled)).where(~(scaled.value > p[1]), x)


def _elu(v: list[Bounded], p: Params) -> Bounded:
    (x,) = v
    low = (x * p[2]).apply("expm1", np.expm1) * (p[0] * p[1])
    return low.where(~(x.value > 0), x * p[1])


def _elu_backward(v: list[Bounded], p: Params) -> Bounded:
    x, y = v
    if p[3]:
        low = x * p[2] * (y + p[0] * p[1])
    else:
        low = x * p[2] * (p[0] * p[1]) * exp(y * p[2])
    return low.where(~(y.value > 0), x * p[1])


def _clip(x: Bounded, low: float, high: float) -> Bounded:
    return Bounded(np.minimum(np.maximum(x.value, low), high), x.dtype, x.error, x.over)


def _hardswish_backward(v: list[Bounded], p: Params) -> Bounded:
    x, y = v
    middle = x * (y / 3 + 0.5)
    return Bounded(np.zeros(x.value.shape), x.dtype).where(
        y.value <= -3, middle.where(y.value < 3, x)
    )


def _smooth_l1(v: list[Bounded], p: Params) -> Bounded:
    d = v[0] - v[1]
    z = Bounded(np.abs(d.value), d.dtype, d.error, d.over)
    return (0.5 * z * z / p[0]).where(z.value < p[0], z - 0.5 * p[0])


def _huber(v: list[Bounded], p: Params) -> Bounded:
    d = v[0] - v[1]
    z = Bounded(np.abs(d.value), d.dtype, d.error, d.over)
    return (0.5 * z * z).where(z.value <= p[0], p[0] * (z - 0.5 * p[0]))


def _sinc(v: list[Bounded], p: Params) -> Bounded:
    (x,) = v
    scaled = x * _pi(x)
    return (scaled.apply("sin", np.sin) / scaled).where(x.value != 0, 1.0)


def _log_add(name: str, base: float) -> Evaluate:
    def evaluate(v: list[Bounded], p: Params) -> Bounded:
        x, y = v
        with np.errstate(all="ignore"):
            larger = x.where(x.value >= y.value, y)
            gap = np.abs(x.value - y.value)
        gap = np.where(np.isnan(gap) & ~np.isnan(x.value) & ~np.isnan(y.value), 0, gap)
        distance = Bounded(gap, x.dtype, 2.0**-24 * gap if x.dtype == Dtype.F32 else 0.0)
        power = (-distance).apply(*(("exp", np.exp) if base == math.e else ("exp2", np.exp2)))
        tail = log1p(power) * (1.0 if base == math.e else 1 / np.log(np.longdouble(2)))
        total = larger + tail
        same = np.isinf(x.value) & (x.value == y.value)
        return x.where(same, total)

    return evaluate


def _lerp(v: list[Bounded], p: Params) -> Bounded:
    x, y, z = v
    far = y - (y - x) * (1 - z)
    return far.where(np.abs(z.value) >= 0.5, x + z * (y - x))


def _xlogy(v: list[Bounded], p: Params) -> Bounded:
    x, y = v
    product = x * y.apply("log", np.log)
    zero = (x.value == 0) & ~np.isnan(y.value)
    return Bounded(np.zeros(x.value.shape), x.dtype).where(zero, product)


def _remainder(v: list[Array], p: Params) -> Bounded:
    """Python's: fmod, which is exact, then one addition where the signs differ."""
    x, y = v
    r = np.fmod(x, y).astype(np.longdouble)
    turn = (r != 0) & (np.signbit(r) != np.signbit(y))
    dtype = Dtype.F64 if x.dtype == np.float64 else Dtype.F32
    unit = 2.0**-53 if dtype == Dtype.F64 else 2.0**-24
    return Bounded(np.where(turn, r + y, r), dtype, np.where(turn, unit * np.abs(y), 0.0))


def _rounded_quotient(function: Callable[[Array], Array]) -> Evaluate:
    def evaluate(v: list[Bounded], p: Params) -> Bounded:
        quotient = v[0] / v[1]
        error = np.where(np.isfinite(quotient.error), quotient.error, 0.0)
        with np.errstate(all="ignore"):
            below, above = function(quotient.value - error), function(quotient.value + error)
        middle = function(quotient.value)
        spread = np.maximum(above - middle, middle - below)
        return Bounded(middle, quotient.dtype, np.nan_to_num(spread))

    return evaluate


def _near_integer_quotient(v: list[Array], p: Params) -> Array:
    """Where x/y is so large or so near to an integer that its rounding decides the remainder."""
    with np.errstate(all="ignore"):
        quotient = v[0].astype(np.longdouble) / v[1]
        off = np.abs(quotient - np.rint(quotient))
        near = (off != 0) & (off < 1e-5 * np.abs(quotient))
        return np.asarray(near | (np.abs(quotient) > 1e4) | np.isinf(v[1]))


def _doubling_overflows(v: list[Array], p: Params) -> Array:
    """Where p0*y overflows and x + p0*y need not, so that fused and separate rounding differ."""
    if v[0].dtype.kind != "f":
        return np.zeros(v[0].shape, bool)
    return np.asarray(np.isinf(v[1] * v[1].dtype.type(p[0])) & np.isfinite(v[1]))


def _nan_operand(which: int) -> Mask:
    return lambda v, p: np.isnan(v[which])


def _function(name: str, f: Callable[[Array], Array]) -> Op:
    return Op(1, "bounded", FLOAT, lambda v, p: v[0].apply(name, f))


def _special(name: str, f: Callable[[Array], Array], **more: Any) -> Op:
    return Op(1, "bounded", FLOAT, lambda v, p: v[0].special(name, f), **more)


def _binary(name: str, f: Callable[[Array, Array], Array], **more: Any) -> Op:
    def evaluate(v: list[Bounded], p: Params) -> Bounded:
        with np.errstate(all="ignore"):
            joined = Bounded(f(v[0].value, v[1].value), v[0].dtype)
        return joined.apply(name, lambda x: x)

    return Op(2, "bounded", FLOAT, evaluate, **more)


def _compare(f: Callable[[Array, Array], Array]) -> Op:
    return Op(2, "predicate", NUMBER, lambda v, p: f(v[0], v[1]))


def _logical(f: Callable[[Array, Array], Array]) -> Op:
    return Op(2, "predicate", NUMBER, lambda v, p: f(v[0] != 0, v[1] != 0))


def _bitwise(f: Callable[[Array, Array], Array]) -> Op:
    return Op(2, "exact", BITWISE, lambda v, p: f(v[0], v[1]))


def _formula(arity: int, f: Evaluate, *params: Params, **more: Any) -> Op:
    return Op(arity, "bounded", FLOAT, f, params or ((),), composite=True, **more)


def _fused(f: Callable[[Bounded, Bounded], Bounded]) -> Evaluate:
    """x + p0*(y op z), the factor applied before or after: either may overflow on its way."""

    def evaluate(v: list[Bounded], p: Params) -> Bounded:
        late, early = p[0] * f(v[1], v[2]), f(p[0] * v[1], v[2])
        late.over = late.over | early.over
        return v[0] + late

    return evaluate


def _scaled(sign: int) -> Evaluate:
    """x ± p0*y, exact for p0 = ±1 and powers of two."""

    def evaluate(v: list[Array], p: Params) -> Array:
        factor = v[0].dtype.type(sign * p[0])
        return np.asarray(v[0] + factor * v[1])

    return evaluate


def _integer_floor_divide(v: list[Array], p: Params) -> Array:
    return np.floor_divide(v[0], v[1])


def _integer_trunc_divide(v: list[Array], p: Params) -> Array:
    quotient = np.abs(v[0].astype(object)) // np.abs(v[1].astype(object))
    signed = np.where((v[0] < 0) != (v[1] < 0), -quotient, quotient)
    wrapped = np.array([int(q) & (2**64 - 1) for q in signed.ravel()], np.uint64)
    return wrapped.view(np.int64).reshape(v[0].shape)


def _integer_power(v: list[Array], p: Params) -> Array:
    powers = [pow(int(a), int(b)) & (2**64 - 1) for a, b in zip(v[0].ravel(), v[1].ravel())]
    return np.array(powers, np.uint64).view(np.int64).reshape(v[0].shape)


# ---- the table -----------------------------------------------------------------------------------

_O = PointwiseOp
OPS: dict[PointwiseOp, Op] = {
    _O.ADD: Op(2, "exact", NUMBER, _scaled(1), ((1,), (-1,), (2,)), signed_zero=True,
               open=_doubling_overflows),
    _O.SUB: Op(2, "exact", NUMBER, _scaled(-1), ((1,), (-1,), (2,)), signed_zero=True,
               open=_doubling_overflows),
    _O.MUL: Op(2, "exact", NUMBER, lambda v, p: v[0] * v[1], signed_zero=True),
    _O.DIV: Op(2, "bounded", FLOAT, lambda v, p: v[0] / v[1]),
    _O.DIV_FLOOR: Op(
        2, "bounded", NUMBER, _rounded_quotient(np.floor), integer=_integer_floor_divide,
        open=lambda v, p: np.isinf(v[0]) | np.isinf(v[1]) | (v[1] == 0),
    ),
    _O.DIV_TRUNC: Op(
        2, "bounded", NUMBER, _rounded_quotient(np.trunc), integer=_integer_trunc_divide,
    ),
    _O.REMAINDER: Op(
        2, "exact", NUMBER, _remainder, integer=lambda v, p: np.mod(v[0], v[1]),
        open=_near_integer_quotient,
    ),
    _O.FMOD: Op(2, "exact", NUMBER, lambda v, p: np.fmod(v[0], v[1])),
    _O.POW: _binary("pow", np.power),
    _O.MAXIMUM: Op(2, "exact", NUMBER, lambda v, p: np.maximum(v[0], v[1])),
    _O.MINIMUM: Op(2, "exact", NUMBER, lambda v, p: np.minimum(v[0], v[1])),
    _O.FMAX: Op(2, "exact", NUMBER, lambda v, p: np.fmax(v[0], v[1])),
    _O.FMIN: Op(2, "exact", NUMBER, lambda v, p: np.fmin(v[0], v[1])),
    _O.ATAN2: _binary("atan2", np.arctan2),
    _O.HYPOT: _binary("hypot", np.hypot),
    _O.COPYSIGN: Op(
        2, "exact", FLOAT, lambda v, p: np.copysign(v[0], v[1]), signed_zero=True,
        open=_nan_operand(1),
    ),
    _O.EQ: _compare(np.equal),
    _O.NE: _compare(np.not_equal),
    _O.LT: _compare(np.less),
    _O.LE: _compare(np.less_equal),
    _O.GT: _compare(np.greater),
    _O.GE: _compare(np.greater_equal),
    _O.LOGICAL_AND: _logical(np.logical_and),
    _O.LOGICAL_OR: _logical(np.logical_or),
    _O.LOGICAL_XOR: _logical(np.logical_xor),
    _O.LOGICAL_NOT: Op(1, "predicate", NUMBER, lambda v, p: v[0] == 0),
    _O.BITWISE_AND: _bitwise(np.bitwise_and),
    _O.BITWISE_OR: _bitwise(np.bitwise_or),
    _O.BITWISE_XOR: _bitwise(np.bitwise_xor),
    _O.BITWISE_NOT: Op(1, "exact", BITWISE, lambda v, p: np.invert(v[0])),
    _O.SHIFT_LEFT: Op(2, "exact", INTEGER, lambda v, p: np.left_shift(v[0], v[1])),
    _O.SHIFT_RIGHT: Op(2, "exact", INTEGER, lambda v, p: np.right_shift(v[0], v[1])),
    _O.NEG: Op(1, "exact", NUMBER, lambda v, p: -v[0], signed_zero=True),
    _O.ABS: Op(1, "exact", NUMBER, lambda v, p: np.abs(v[0]), signed_zero=True),
    _O.SIGN: Op(1, "exact", NUMBER, lambda v, p: np.sign(v[0]), open=_nan_operand(0)),
    _O.CEIL: Op(1, "exact", FLOAT, lambda v, p: np.ceil(v[0])),
    _O.FLOOR: Op(1, "exact", FLOAT, lambda v, p: np.floor(v[0])),
    _O.ROUND: Op(1, "exact", FLOAT, lambda v, p: np.rint(v[0])),
    _O.TRUNC: Op(1, "exact", FLOAT, lambda v, p: np.trunc(v[0])),
    _O.FRAC: Op(
        1, "exact", FLOAT, lambda v, p: v[0] - np.trunc(v[0]), open=lambda v, p: np.isinf(v[0])
    ),
    _O.EXP: _function("exp", np.exp),
    _O.EXP2: _function("exp2", np.exp2),
    _O.EXPM1: _function("expm1", np.expm1),
    _O.LOG: _function("log", np.log),
    _O.LOG2: _function("log2", np.log2),
    _O.LOG10: _function("log10", np.log10),
    _O.LOG1P: _function("log1p", np.log1p),
    _O.SQRT: _function("sqrt", np.sqrt),
    _O.RSQRT: _function("rsqrt", lambda x: 1 / np.sqrt(x)),
    _O.RECIPROCAL: _function("reciprocal", lambda x: 1 / x),
    _O.SIN: _function("sin", np.sin),
    _O.COS: _function("cos", np.cos),
    _O.TAN: _function("tan", np.tan),
    _O.ASIN: _function("asin", np.arcsin),
    _O.ACOS: _function("acos", np.arccos),
    _O.ATAN: _function("atan", np.arctan),
    _O.SINH: _function("sinh", np.sinh),
    _O.COSH: _function("cosh", np.cosh),
    _O.TANH: _function("tanh", np.tanh),
    _O.ASINH: _function("asinh", np.arcsinh),
    _O.ACOSH: _function("acosh", np.arccosh),
    _O.ATANH: _function("atanh", np.arctanh),
    _O.ERF: _function("erf", special.erf),
    _O.ERFC: _function("erfc", special.erfc),
    _O.ERFINV: _special("erfinv", special.erfinv),
    _O.LGAMMA: _special("lgamma", special.lgamma),
    # The recurrence up to 16 adds numbers that reach log(16), with a rounding each.
    _O.DIGAMMA: Op(
        1, "bounded", FLOAT,
        lambda v, p: v[0].special("digamma", special.digamma, 16 * math.log(16)),
        open=lambda v, p: v[0] == -np.inf,
    ),
    _O.SIGMOID: _formula(1, lambda v, p: sigmoid(v[0])),
    _O.RELU: Op(1, "exact", FLOAT, lambda v, p: np.maximum(v[0], 0)),
    _O.SILU: _formula(1, lambda v, p: silu(v[0])),
    _O.GELU_ERF: _formula(1, lambda v, p: gelu_erf(v[0])),
    _O.GELU_TANH: _formula(1, lambda v, p: gelu_tanh(v[0])),
    _O.SOFTPLUS: _formula(1, _softplus, (1, 20), (2, 7)),
    _O.ELU: _formula(1, _elu, (1, 1, 1), (0.5, 2, 0.25)),
    _O.LEAKY_RELU: Op(
        1, "exact", FLOAT,
        lambda v, p: np.where(v[0] > 0, v[0], v[0] * v[0].dtype.type(p[0])), ((0.125,), (0.25,)),
    ),
    _O.HARDTANH: Op(
        1, "exact", FLOAT, lambda v, p: np.minimum(np.maximum(v[0], p[0]), p[1]), ((-1, 1), (0, 6))
    ),
    _O.HARDSIGMOID: _formula(1, lambda v, p: _clip(v[0] + 3, 0, 6) / 6),
    _O.HARDSWISH: _formula(1, lambda v, p: v[0] * _clip(v[0] + 3, 0, 6) / 6),
    _O.LOGSIGMOID: _formula(1, lambda v, p: -softplus(-v[0])),
    _O.MISH: _formula(1, lambda v, p: mish(v[0])),
    _O.THRESHOLD: Op(
        1, "exact", FLOAT, lambda v, p: np.where(v[0] > p[0], v[0], p[1]), ((0.5, -7), (0, 0)),
        open=_nan_operand(0),
    ),
    _O.ISNAN: Op(1, "predicate", FLOAT, lambda v, p: np.isnan(v[0])),
    _O.ISINF: Op(1, "predicate", FLOAT, lambda v, p: np.isinf(v[0])),
    _O.ISFINITE: Op(1, "predicate", FLOAT, lambda v, p: np.isfinite(v[0])),
    _O.SIGNBIT: Op(
        1, "predicate", NUMBER, lambda v, p: np.signbit(v[0]),
        integer=lambda v, p: v[0] < 0, open=_nan_operand(0),
    ),
    _O.CLAMP: Op(
        1, "exact", NUMBER, lambda v, p: np.minimum(np.maximum(v[0], p[0]), p[1]),
        ((-1, 2), (3, 1)),
    ),
    _O.CLAMP_TENSOR: Op(
        3, "exact", NUMBER, lambda v, p: np.minimum(np.maximum(v[0], v[1]), v[2])
    ),
    _O.WHERE: Op(3, "exact", NUMBER, lambda v, p: np.where(v[0] != 0, v[1], v[2]),
                 signed_zero=True),
    _O.LERP: _formula(3, _lerp),
    _O.ADDCMUL: Op(
        3, "bounded", NUMBER, _fused(lambda y, z: y * z), ((1,), (-2,), (0.3,)), composite=True,
        integer=lambda v, p: v[0] + np.int64(p[0]) * v[1] * v[2],
    ),
    _O.ADDCDIV: Op(
        3, "bounded", FLOAT, _fused(lambda y, z: y / z), ((1,), (-2,), (0.3,)), composite=True
    ),
    _O.NAN_TO_NUM: Op(
        1, "exact", FLOAT,
        lambda v, p: np.where(
            np.isnan(v[0]), p[0], np.where(np.isinf(v[0]), np.where(v[0] > 0, p[1], p[2]), v[0])
        ),
        ((0, 1, -1), (3, 448, -224)), signed_zero=True,
    ),
    _O.XLOGY: _formula(2, _xlogy),
    _O.SIGMOID_BACKWARD: _formula(2, lambda v, p: v[0] * (1 - v[1]) * v[1]),
    _O.TANH_BACKWARD: _formula(2, lambda v, p: v[0] * (1 - v[1] * v[1])),
    _O.SILU_BACKWARD: _formula(2, _silu_backward),
    _O.GELU_ERF_BACKWARD: _formula(2, _gelu_erf_backward),
    _O.GELU_TANH_BACKWARD: _formula(2, _gelu_tanh_backward),
    _O.SOFTPLUS_BACKWARD: _formula(2, _softplus_backward, (1, 20), (2, 7)),
    _O.THRESHOLD_BACKWARD: Op(
        2, "exact", FLOAT, lambda v, p: np.where(v[1] <= p[0], 0, v[0]), ((0.5,), (0,)),
    ),
    _O.LEAKY_RELU_BACKWARD: Op(
        2, "exact", FLOAT,
        lambda v, p: np.where(v[1] > 0, v[0], v[0] * v[0].dtype.type(p[0])), ((0.125,), (0.25,)),
        open=_nan_operand(1),
    ),
    _O.ELU_BACKWARD: _formula(
        2, _elu_backward, (1, 1, 1, 0), (0.5, 2, 0.25, 0), (1, 1, 1, 1), (0.5, 2, 0.25, 1),
        open=_nan_operand(1),
    ),
    _O.HARDTANH_BACKWARD: Op(
        2, "exact", FLOAT, lambda v, p: np.where((v[1] > p[0]) & (v[1] < p[1]), v[0], 0),
        ((-1, 1), (0, 6)), open=_nan_operand(1),
    ),
    _O.HARDSIGMOID_BACKWARD: _formula(
        2, lambda v, p: (v[0] / 6).where((v[1].value > -3) & (v[1].value < 3), 0.0),
        open=_nan_operand(1),
    ),
    _O.HARDSWISH_BACKWARD: _formula(
        2, _hardswish_backward,
        open=lambda v, p: np.isnan(v[0]) | np.isnan(v[1]) | (np.abs(v[1]) == 3),
    ),
    _O.LOGSIGMOID_BACKWARD: _formula(2, lambda v, p: v[0] / (1 + exp(v[1]))),
    _O.MISH_BACKWARD: _formula(2, _mish_backward),
    _O.SWIGLU: _formula(2, lambda v, p: silu(v[0]) * v[1]),
    _O.MSE: _formula(2, lambda v, p: (v[0] - v[1]) * (v[0] - v[1])),
    _O.SINC: _formula(1, _sinc),
    _O.LOGADDEXP: _formula(2, _log_add("exp", math.e)),
    _O.LOGADDEXP2: _formula(2, _log_add("exp2", 2.0)),
    _O.SMOOTH_L1: _formula(2, _smooth_l1, (1,), (0.25,)),
    _O.HUBER: _formula(2, _huber, (1,), (0.25,)),
    _O.GCD: Op(2, "exact", INTEGER, lambda v, p: np.gcd(v[0], v[1])),
    _O.LCM: Op(2, "exact", INTEGER, lambda v, p: np.lcm(v[0], v[1])),
    _O.NEXTAFTER: Op(2, "exact", FLOAT, lambda v, p: np.nextafter(v[0], v[1])),
    _O.HEAVISIDE: Op(
        2, "exact", FLOAT, lambda v, p: np.where(v[0] == 0, v[1], np.where(v[0] < 0, 0, 1)),
        open=_nan_operand(0),
    ),
    _O.I0: _special("i0", special.i0),
}  # fmt: skip
# Flushing subnormal numbers to zero is no fault of arithmetic, but moves keep every bit.
ARITHMETIC = (PointwiseOp.ADD, PointwiseOp.SUB, PointwiseOp.MUL)
# Made by functions of their own in levels: they take no operand of their dtype, or any dtype.
OWN_CASES = (PointwiseOp.COPY, PointwiseOp.FILL, PointwiseOp.ARANGE)
