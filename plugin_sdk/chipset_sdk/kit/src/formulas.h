// SPDX-License-Identifier: Apache-2.0
// The operations of pointwise as formulas of the dialect, in x, y, z and p0 to p3; functions.h has
// the functions that they name. An empty formula: UNSUPPORTED in that class.
#pragma once

#include <chipset/chipset.h>

#include <cstdint>

namespace chipset::kit {

// What a formula gives.
enum Result : uint8_t {
  kValue,  // of the class computed in
  kTruth,  // a comparison
};

struct Formula {
  int32_t op;
  int arity;
  Result result;
  // One element at a time: it loops, or PoCL 3.1's vector form is wrong (sin, cos and tan of small
  // elements beside very large ones; pow, and fmod in f64, of elements beside zeros or subnormals).
  bool looping;
  const char* of_floats;
  const char* of_integers;
};

// clang-format off
#define F(NAME, arity, floats, integers) \
  {CHIPSET_POINTWISE_OP_##NAME, arity, kValue, false, floats, integers}
#define L(NAME, arity, floats, integers) \
  {CHIPSET_POINTWISE_OP_##NAME, arity, kValue, true, floats, integers}
#define T(NAME, arity, floats, integers) \
  {CHIPSET_POINTWISE_OP_##NAME, arity, kTruth, false, floats, integers}
inline constexpr Formula kFormulas[] = {
  F(COPY, 1, "x", "x"),
  F(FILL, 0, "p0", "p0"),
  F(ARANGE, 0, "p0 + p1 * INDEX", "ADDW(p0, MULW(p1, INDEX))"),
  F(ADD, 2, "x + p0 * y", "ADDW(x, MULW(p0, y))"),
  F(SUB, 2, "x - p0 * y", "SUBW(x, MULW(p0, y))"),
  F(MUL, 2, "x * y", "MULW(x, y)"),
  F(DIV, 2, "x / y", ""),
  L(DIV_FLOOR, 2, "div_floor(x, y)", "div_floor(x, y)"),
  F(DIV_TRUNC, 2, "trunc(x / y)", "quotient(x, y)"),
  L(REMAINDER, 2, "remainder_(x, y)", "remainder_(x, y)"),
  L(FMOD, 2, "fmod(x, y)", "rest(x, y)"),
  L(POW, 2, "pow(x, y)", "power(x, y)"),
  F(MAXIMUM, 2, "largest(x, y)", "largest(x, y)"),
  F(MINIMUM, 2, "least(x, y)", "least(x, y)"),
  F(FMAX, 2, "(y != y || x > y ? x : y)", "largest(x, y)"),
  F(FMIN, 2, "(y != y || x < y ? x : y)", "least(x, y)"),
  F(ATAN2, 2, "atan2(x, y)", ""),
  F(HYPOT, 2, "hypot(x, y)", ""),
  F(COPYSIGN, 2, "copysign(x, y)", ""),
  T(EQ, 2, "x == y", "x == y"),
  T(NE, 2, "x != y", "x != y"),
  T(LT, 2, "x < y", "x < y"),
  T(LE, 2, "x <= y", "x <= y"),
  T(GT, 2, "x > y", "x > y"),
  T(GE, 2, "x >= y", "x >= y"),
  T(LOGICAL_AND, 2, "x != K(0) && y != K(0)", "x != K(0) && y != K(0)"),
  T(LOGICAL_OR, 2, "x != K(0) || y != K(0)", "x != K(0) || y != K(0)"),
  T(LOGICAL_XOR, 2, "(x != K(0)) != (y != K(0))", "(x != K(0)) != (y != K(0))"),
  T(LOGICAL_NOT, 1, "x == K(0)", "x == K(0)"),
  F(BITWISE_AND, 2, "", "x & y"),
  F(BITWISE_OR, 2, "", "x | y"),
  F(BITWISE_XOR, 2, "", "x ^ y"),
  F(BITWISE_NOT, 1, "", "~x"),
  F(SHIFT_LEFT, 2, "", "shift_left(x, y)"),
  F(SHIFT_RIGHT, 2, "", "shift_right(x, y)"),
  F(NEG, 1, "-x", "negative(x)"),
  F(ABS, 1, "fabs(x)", "(x < K(0) ? negative(x) : x)"),
  F(SIGN, 1, "(x > K(0) ? (vc)(K(1)) : (x < K(0) ? (vc)(K(-1)) : (vc)(K(0))))",
    "(x > K(0) ? (vc)(K(1)) : (x < K(0) ? (vc)(K(-1)) : (vc)(K(0))))"),
  F(CEIL, 1, "ceil(x)", "x"),
  F(FLOOR, 1, "floor(x)", "x"),
  F(ROUND, 1, "rint(x)", "x"),
  F(TRUNC, 1, "trunc(x)", "x"),
  F(FRAC, 1, "x - trunc(x)", "(vc)(K(0))"),
  F(EXP, 1, "exp(x)", ""),
  F(EXP2, 1, "exp2(x)", ""),
  F(EXPM1, 1, "(x == K(0) ? x : expm1(x))", ""),
  F(LOG, 1, "log(x)", ""),
  F(LOG2, 1, "log2(x)", ""),
  F(LOG10, 1, "log10(x)", ""),
  F(LOG1P, 1, "log1p(x)", ""),
  F(SQRT, 1, "sqrt(x)", ""),
  F(RSQRT, 1, "K(1) / sqrt(x)", ""),
  F(RECIPROCAL, 1, "K(1) / x", ""),
  L(SIN, 1, "sin(x)", ""),
  L(COS, 1, "cos(x)", ""),
  L(TAN, 1, "tan(x)", ""),
  F(ASIN, 1, "asin(x)", ""),
  F(ACOS, 1, "acos(x)", ""),
  F(ATAN, 1, "atan(x)", ""),
  F(SINH, 1, "sinh(x)", ""),
  F(COSH, 1, "cosh(x)", ""),
  F(TANH, 1, "tanh(x)", ""),
  F(ASINH, 1, "asinh(x)", ""),
  F(ACOSH, 1, "acosh(x)", ""),
  F(ATANH, 1, "atanh(x)", ""),
  F(ERF, 1, "erf(x)", ""),
  F(ERFC, 1, "erfc(x)", ""),
  L(ERFINV, 1, "erfinv_(x)", ""),
  L(LGAMMA, 1, "lgamma(x)", ""),
  L(DIGAMMA, 1, "digamma_(x)", ""),
  F(SIGMOID, 1, "sigmoid_(x)", ""),
  F(RELU, 1, "(x < K(0) ? (vc)(K(0)) : x)", "(x < K(0) ? (vc)(K(0)) : x)"),
  F(SILU, 1, "x / (K(1) + exp(-x))", ""),
  F(GELU_ERF, 1, "K(0.5) * x * erfc(K(-0.70710678118654752) * x)", ""),
  F(GELU_TANH, 1, "gelu_tanh(x)", ""),
  F(SOFTPLUS, 1, "softplus_(x, p0, p1)", ""),
  F(ELU, 1, "(x <= K(0) ? expm1(x * p2) * p0 * p1 : x * p1)", ""),
  F(LEAKY_RELU, 1, "(x > K(0) ? x : x * p0)", ""),
  F(HARDTANH, 1, "clamp_(x, p0, p1)", "clamp_(x, p0, p1)"),
  F(HARDSIGMOID, 1, "hardsigmoid_(x)", ""),
  F(HARDSWISH, 1, "x * clamp_(x + K(3), (vc)(K(0)), (vc)(K(6))) / K(6)", ""),
  F(LOGSIGMOID, 1, "(x > K(0) ? (vc)(K(0)) : x) - log1p(exp(-fabs(x)))", ""),
  F(MISH, 1, "x * mish_ratio(x)", ""),
  F(THRESHOLD, 1, "(x > p0 || x != x ? x : p1)", "(x > p0 ? x : p1)"),
  T(ISNAN, 1, "x != x", "x != x"),
  T(ISINF, 1, "fabs(x) == K(INFINITY)", "x != x"),
  T(ISFINITE, 1, "fabs(x) < K(INFINITY)", "x == x"),
  T(SIGNBIT, 1, "BITS(x) < 0", "x < K(0)"),
  F(CLAMP, 1, "clamp_(x, p0, p1)", "clamp_(x, p0, p1)"),
  F(CLAMP_TENSOR, 3, "least(largest(x, y), z)", "least(largest(x, y), z)"),
  F(WHERE, 3, "CHOOSE(x, y, z)", "CHOOSE(x, y, z)"),
  F(LERP, 3, "lerp_(x, y, z)", ""),
  F(ADDCMUL, 3, "x + p0 * y * z", "ADDW(x, MULW(p0, MULW(y, z)))"),
  F(ADDCDIV, 3, "x + p0 * y / z", "ADDW(x, quotient(MULW(p0, y), z))"),
  F(NAN_TO_NUM, 1, "nan_to_num(x, p0, p1, p2)", "x"),
  F(XLOGY, 2, "xlogy_(x, y)", ""),
  F(SIGMOID_BACKWARD, 2, "x * (K(1) - y) * y", ""),
  F(TANH_BACKWARD, 2, "x * (K(1) - y * y)", ""),
  F(SILU_BACKWARD, 2, "x * sigmoid_(y) * (K(1) + y * (K(1) - sigmoid_(y)))", ""),
  F(GELU_ERF_BACKWARD, 2, "gelu_erf_backward(x, y)", ""),
  F(GELU_TANH_BACKWARD, 2, "gelu_tanh_backward(x, y)", ""),
  F(SOFTPLUS_BACKWARD, 2, "(y * p0 > p1 ? x : x * sigmoid_(y * p0))", ""),
  F(THRESHOLD_BACKWARD, 2, "(y > p0 || y != y ? x : (vc)(K(0)))", "(y > p0 ? x : (vc)(K(0)))"),
  F(LEAKY_RELU_BACKWARD, 2, "(y > K(0) ? x : p0 * x)", ""),
  F(ELU_BACKWARD, 2, "elu_backward(x, y, p0, p1, p2, p3)", ""),
  F(HARDTANH_BACKWARD, 2, "(y > p0 && y < p1 ? x : (vc)(K(0)))", ""),
  F(HARDSIGMOID_BACKWARD, 2, "(y > K(-3) && y < K(3) ? x / K(6) : (vc)(K(0)))", ""),
  F(HARDSWISH_BACKWARD, 2,
    "(y <= K(-3) ? (vc)(K(0)) : (y < K(3) ? x * (y / K(3) + K(0.5)) : x))", ""),
  F(LOGSIGMOID_BACKWARD, 2, "x * sigmoid_(-y)", ""),
  F(MISH_BACKWARD, 2, "mish_backward(x, y)", ""),
  F(SWIGLU, 2, "x / (K(1) + exp(-x)) * y", ""),
  F(MSE, 2, "(x - y) * (x - y)", "MULW(SUBW(x, y), SUBW(x, y))"),
  F(SINC, 1, "(x == K(0) ? (vc)(K(1)) : sinpi(x) / (K(3.14159265358979324) * x))", ""),
  F(LOGADDEXP, 2, "logaddexp_(x, y)", ""),
  F(LOGADDEXP2, 2, "logaddexp2_(x, y)", ""),
  F(SMOOTH_L1, 2, "smooth_l1(x, y, p0)", ""),
  F(HUBER, 2, "huber_(x, y, p0)", ""),
  L(GCD, 2, "", "divisor(x, y)"),
  L(LCM, 2, "", "multiple(x, y)"),
  L(NEXTAFTER, 2, "nextafter(x, y)", ""),
  F(HEAVISIDE, 2, "(x == K(0) ? y : (x > K(0) ? (vc)(K(1)) : (vc)(K(0))))",
    "(x == K(0) ? y : (x > K(0) ? (vc)(K(1)) : (vc)(K(0))))"),
  L(I0, 1, "bessel_i0(x)", ""),
};
// clang-format on
#undef F
#undef L
#undef T
static_assert(sizeof kFormulas / sizeof *kFormulas == CHIPSET_POINTWISE_OP_I0 + 1);

}  // namespace chipset::kit
