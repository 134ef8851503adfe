// SPDX-License-Identifier: Apache-2.0
// The operations of pointwise on integers. Operands were extended from the compute dtype, and the
// store wraps to it, so that one width serves every smaller dtype. Overflow wraps (NUM-004), hence
// the unsigned arithmetic; division by zero gives 0.
#pragma once

#include "op_loops.h"

namespace chipset::cpu::CPU_ISA {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;
template <typename T>
CPU_INLINE T wrap_add(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <typename T>
CPU_INLINE T wrap_sub(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <typename T>
CPU_INLINE T wrap_mul(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
}
template <typename T>
CPU_INLINE T truncated_quotient(T a, T b) {  // the least integer over -1 overflows in hardware
  return b == 0 ? T(0) : (b == -1 ? wrap_sub(T(0), a) : static_cast<T>(a / b));
}
template <typename T>
CPU_INLINE T truncated_remainder(T a, T b) {
  return b == 0 || b == -1 ? T(0) : static_cast<T>(a % b);
}
template <typename T>
CPU_INLINE T power(T base, T exponent) {
  if (exponent < 0) {  // an integer only for 1 and -1
    return base == 1 ? T(1) : (base == -1 ? ((exponent & 1) != 0 ? T(-1) : T(1)) : T(0));
  }
  T result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = wrap_mul(result, base);
    base = wrap_mul(base, base);
  }
  return result;
}
template <typename T>
CPU_INLINE T greatest_divisor(T a, T b) {
  a = a < 0 ? wrap_sub(T(0), a) : a;
  b = b < 0 ? wrap_sub(T(0), b) : b;
  while (b != 0) {
    const T rest = truncated_remainder(a, b);
    a = b;
    b = rest;
  }
  return a;
}

CPU_OP(Add, return wrap_add(x, wrap_mul(p.p0, y));)
CPU_OP(Sub, return wrap_sub(x, wrap_mul(p.p0, y));)
CPU_OP(Mul, return wrap_mul(x, y);)
CPU_OP(DivTrunc, return truncated_quotient(x, y);)
CPU_OP(DivFloor, const T q = truncated_quotient(x, y); const T r = truncated_remainder(x, y);
       return static_cast<T>(r != 0 && (r < 0) != (y < 0) ? q - 1 : q);)
CPU_OP(Remainder, const T r = truncated_remainder(x, y);
       return static_cast<T>(r != 0 && (r < 0) != (y < 0) ? r + y : r);)
CPU_OP(Fmod, return truncated_remainder(x, y);)
CPU_OP(Pow, return power(x, y);)
CPU_OP(Square, return wrap_mul(x, x);)
CPU_OP(Cube, return wrap_mul(wrap_mul(x, x), x);)
CPU_OP(Maximum, return x > y ? x : y;)
CPU_OP(Minimum, return x < y ? x : y;)
CPU_OP(Eq, return x == y;)
CPU_OP(Ne, return x != y;)
CPU_OP(Lt, return x < y;)
CPU_OP(Le, return x <= y;)
CPU_OP(Gt, return x > y;)
CPU_OP(Ge, return x >= y;)
CPU_OP(LogicalAnd, return (x != 0) & (y != 0);)
CPU_OP(LogicalOr, return (x != 0) | (y != 0);)
CPU_OP(LogicalXor, return (x != 0) != (y != 0);)
CPU_OP(LogicalNot, return x == 0;)
CPU_OP(BitwiseAnd, return static_cast<T>(x & y);)
CPU_OP(BitwiseOr, return static_cast<T>(x | y);)
CPU_OP(BitwiseXor, return static_cast<T>(x ^ y);)
CPU_OP(BitwiseNot, return static_cast<T>(~x);)
// Amounts outside the width shift everything out.
CPU_OP(ShiftLeft, constexpr T kBits = sizeof(T) * 8;
       const T amount = static_cast<T>(y & (kBits - 1));
       const T shifted = static_cast<T>(static_cast<Unsigned<T>>(x) << amount);
       return y < 0 || y >= kBits ? T(0) : shifted;)
CPU_OP(ShiftRight, constexpr T kBits = sizeof(T) * 8;
       const T amount = y < 0 || y >= kBits ? static_cast<T>(kBits - 1) : y;
       return static_cast<T>(x >> amount);)
CPU_OP(Neg, return wrap_sub(T(0), x);)
CPU_OP(Abs, return x < 0 ? wrap_sub(T(0), x) : x;)
CPU_OP(Sign, return static_cast<T>((x > 0) - (x < 0));)
CPU_OP(Same, return x;)
CPU_OP(Zero, return T(0);)
CPU_OP(Relu, return x < 0 ? T(0) : x;)
CPU_OP(Clamp, T v = x < p.p0 ? p.p0 : x; return v > p.p1 ? p.p1 : v;)
CPU_OP(ClampTensor, const T v = x > y ? x : y; return v < z ? v : z;)
CPU_OP(Addcmul, return wrap_add(x, wrap_mul(p.p0, wrap_mul(y, z)));)
CPU_OP(Addcdiv, return wrap_add(x, truncated_quotient(wrap_mul(p.p0, y), z));)
CPU_OP(Threshold, return x > p.p0 ? x : p.p1;)
CPU_OP(ThresholdBackward, return y > p.p0 ? x : T(0);)
CPU_OP(Mse, const T d = wrap_sub(x, y); return wrap_mul(d, d);)
CPU_OP(Never, return false;)
CPU_OP(Always, return true;)
CPU_OP(Signbit, return x < 0;)
CPU_OP(Heaviside, return x == 0 ? y : (x > 0 ? T(1) : T(0));)
CPU_OP(Gcd, return greatest_divisor(x, y);)
CPU_OP(Lcm, const T g = greatest_divisor(x, y); if (g == 0) return T(0);
       const T m = wrap_mul(truncated_quotient(x, g), y); return m < 0 ? wrap_sub(T(0), m) : m;)

// clang-format off: it never settles on a list of macro calls
#define CPU_INT_OPS(V, B) \
  V(ADD, Add, 2) \
  V(SUB, Sub, 2) \
  V(MUL, Mul, 2) \
  V(DIV_FLOOR, DivFloor, 2) \
  V(DIV_TRUNC, DivTrunc, 2) \
  V(REMAINDER, Remainder, 2) \
  V(FMOD, Fmod, 2) \
  V(POW, Pow, 2) \
  V(MAXIMUM, Maximum, 2) \
  V(MINIMUM, Minimum, 2) \
  V(FMAX, Maximum, 2) \
  V(FMIN, Minimum, 2) \
  B(EQ, Eq, 2) \
  B(NE, Ne, 2) \
  B(LT, Lt, 2) \
  B(LE, Le, 2) \
  B(GT, Gt, 2) \
  B(GE, Ge, 2) \
  B(LOGICAL_AND, LogicalAnd, 2) \
  B(LOGICAL_OR, LogicalOr, 2) \
  B(LOGICAL_XOR, LogicalXor, 2) \
  B(LOGICAL_NOT, LogicalNot, 1) \
  V(BITWISE_AND, BitwiseAnd, 2) \
  V(BITWISE_OR, BitwiseOr, 2) \
  V(BITWISE_XOR, BitwiseXor, 2) \
  V(BITWISE_NOT, BitwiseNot, 1) \
  V(SHIFT_LEFT, ShiftLeft, 2) \
  V(SHIFT_RIGHT, ShiftRight, 2) \
  V(NEG, Neg, 1) \
  V(ABS, Abs, 1) \
  V(SIGN, Sign, 1) \
  V(CEIL, Same, 1) \
  V(FLOOR, Same, 1) \
  V(ROUND, Same, 1) \
  V(TRUNC, Same, 1) \
  V(FRAC, Zero, 1) \
  V(RELU, Relu, 1) \
  V(HARDTANH, Clamp, 1) \
  V(THRESHOLD, Threshold, 1) \
  B(ISNAN, Never, 1) \
  B(ISINF, Never, 1) \
  B(ISFINITE, Always, 1) \
  B(SIGNBIT, Signbit, 1) \
  V(CLAMP, Clamp, 1) \
  V(CLAMP_TENSOR, ClampTensor, 3) \
  V(ADDCMUL, Addcmul, 3) \
  V(ADDCDIV, Addcdiv, 3) \
  V(NAN_TO_NUM, Same, 1) \
  V(THRESHOLD_BACKWARD, ThresholdBackward, 2) \
  V(MSE, Mse, 2) \
  V(GCD, Gcd, 2) \
  V(LCM, Lcm, 2) \
  V(HEAVISIDE, Heaviside, 2)
// clang-format on

template <typename T>
constexpr OpTable int_table() {
  OpTable table = {};
#define CPU_VALUE(OP, NAME, ARITY) \
  table.kernel[CHIPSET_POINTWISE_OP_##OP] = op_kernel<NAME, ARITY, T, T>;
#define CPU_BYTE(OP, NAME, ARITY) \
  table.kernel[CHIPSET_POINTWISE_OP_##OP] = op_kernel<NAME, ARITY, T, uint8_t>;
  CPU_INT_OPS(CPU_VALUE, CPU_BYTE)
#undef CPU_VALUE
#undef CPU_BYTE
  table.kernel[CHIPSET_POINTWISE_OP_WHERE] = where_kernel<T>;
  table.kernel[kOpSquare] = op_kernel<Square, 1, T, T>;
  table.kernel[kOpCube] = op_kernel<Cube, 1, T, T>;
  return table;
}

}  // namespace chipset::cpu::CPU_ISA
