// SPDX-License-Identifier: Apache-2.0
// What the driver of pointwise knows about each operation, in the order of chipset_pointwise_op.
#pragma once

#include <cstdint>

#include "chipset/chipset.h"
#include "kernels.h"

namespace chipset::cpu {

struct OpInfo {
  const char* name;
  int arity;
  int64_t grain;  // elements that are worth a thread's while
};

inline constexpr int64_t kCheap = 32768;
inline constexpr int64_t kCostly = 8192;

inline constexpr OpInfo kOpInfo[] = {
    {"COPY", 1, kCheap},
    {"FILL", 0, kCheap},
    {"ARANGE", 0, kCheap},
    {"ADD", 2, kCheap},
    {"SUB", 2, kCheap},
    {"MUL", 2, kCheap},
    {"DIV", 2, kCheap},
    {"DIV_FLOOR", 2, kCostly},
    {"DIV_TRUNC", 2, kCostly},
    {"REMAINDER", 2, kCostly},
    {"FMOD", 2, kCostly},
    {"POW", 2, kCostly},
    {"MAXIMUM", 2, kCheap},
    {"MINIMUM", 2, kCheap},
    {"FMAX", 2, kCheap},
    {"FMIN", 2, kCheap},
    {"ATAN2", 2, kCostly},
    {"HYPOT", 2, kCostly},
    {"COPYSIGN", 2, kCheap},
    {"EQ", 2, kCheap},
    {"NE", 2, kCheap},
    {"LT", 2, kCheap},
    {"LE", 2, kCheap},
    {"GT", 2, kCheap},
    {"GE", 2, kCheap},
    {"LOGICAL_AND", 2, kCheap},
    {"LOGICAL_OR", 2, kCheap},
    {"LOGICAL_XOR", 2, kCheap},
    {"LOGICAL_NOT", 1, kCheap},
    {"BITWISE_AND", 2, kCheap},
    {"BITWISE_OR", 2, kCheap},
    {"BITWISE_XOR", 2, kCheap},
    {"BITWISE_NOT", 1, kCheap},
    {"SHIFT_LEFT", 2, kCheap},
    {"SHIFT_RIGHT", 2, kCheap},
    {"NEG", 1, kCheap},
    {"ABS", 1, kCheap},
    {"SIGN", 1, kCheap},
    {"CEIL", 1, kCheap},
    {"FLOOR", 1, kCheap},
    {"ROUND", 1, kCheap},
    {"TRUNC", 1, kCheap},
    {"FRAC", 1, kCheap},
    {"EXP", 1, kCostly},
    {"EXP2", 1, kCostly},
    {"EXPM1", 1, kCostly},
    {"LOG", 1, kCostly},
    {"LOG2", 1, kCostly},
    {"LOG10", 1, kCostly},
    {"LOG1P", 1, kCostly},
    {"SQRT", 1, kCheap},
    {"RSQRT", 1, kCheap},
    {"RECIPROCAL", 1, kCheap},
    {"SIN", 1, kCostly},
    {"COS", 1, kCostly},
    {"TAN", 1, kCostly},
    {"ASIN", 1, kCostly},
    {"ACOS", 1, kCostly},
    {"ATAN", 1, kCostly},
    {"SINH", 1, kCostly},
    {"COSH", 1, kCostly},
    {"TANH", 1, kCostly},
    {"ASINH", 1, kCostly},
    {"ACOSH", 1, kCostly},
    {"ATANH", 1, kCostly},
    {"ERF", 1, kCostly},
    {"ERFC", 1, kCostly},
    {"ERFINV", 1, kCostly},
    {"LGAMMA", 1, kCostly},
    {"DIGAMMA", 1, kCostly},
    {"SIGMOID", 1, kCostly},
    {"RELU", 1, kCheap},
    {"SILU", 1, kCostly},
    {"GELU_ERF", 1, kCostly},
    {"GELU_TANH", 1, kCostly},
    {"SOFTPLUS", 1, kCostly},
    {"ELU", 1, kCostly},
    {"LEAKY_RELU", 1, kCheap},
    {"HARDTANH", 1, kCheap},
    {"HARDSIGMOID", 1, kCheap},
    {"HARDSWISH", 1, kCheap},
    {"LOGSIGMOID", 1, kCostly},
    {"MISH", 1, kCostly},
    {"THRESHOLD", 1, kCheap},
    {"ISNAN", 1, kCheap},
    {"ISINF", 1, kCheap},
    {"ISFINITE", 1, kCheap},
    {"SIGNBIT", 1, kCheap},
    {"CLAMP", 1, kCheap},
    {"CLAMP_TENSOR", 3, kCheap},
    {"WHERE", 3, kCheap},
    {"LERP", 3, kCheap},
    {"ADDCMUL", 3, kCheap},
    {"ADDCDIV", 3, kCheap},
    {"NAN_TO_NUM", 1, kCheap},
    {"XLOGY", 2, kCostly},
    {"SIGMOID_BACKWARD", 2, kCheap},
    {"TANH_BACKWARD", 2, kCheap},
    {"SILU_BACKWARD", 2, kCostly},
    {"GELU_ERF_BACKWARD", 2, kCostly},
    {"GELU_TANH_BACKWARD", 2, kCostly},
    {"SOFTPLUS_BACKWARD", 2, kCostly},
    {"THRESHOLD_BACKWARD", 2, kCheap},
    {"LEAKY_RELU_BACKWARD", 2, kCheap},
    {"ELU_BACKWARD", 2, kCostly},
    {"HARDTANH_BACKWARD", 2, kCheap},
    {"HARDSIGMOID_BACKWARD", 2, kCheap},
    {"HARDSWISH_BACKWARD", 2, kCheap},
    {"LOGSIGMOID_BACKWARD", 2, kCostly},
    {"MISH_BACKWARD", 2, kCostly},
    {"SWIGLU", 2, kCostly},
    {"MSE", 2, kCheap},
    {"SINC", 1, kCostly},
    {"LOGADDEXP", 2, kCostly},
    {"LOGADDEXP2", 2, kCostly},
    {"SMOOTH_L1", 2, kCheap},
    {"HUBER", 2, kCheap},
    {"GCD", 2, kCostly},
    {"LCM", 2, kCostly},
    {"NEXTAFTER", 2, kCostly},
    {"HEAVISIDE", 2, kCheap},
    {"I0", 1, kCostly},
};
inline constexpr int kOpCount = sizeof(kOpInfo) / sizeof(kOpInfo[0]);
static_assert(kOpCount == CHIPSET_POINTWISE_OP_I0 + 1);
static_assert(kOpCount <= kOpSquare, "the plugin's own operations need slots of their own");

// Operations that write 0 or 1.
inline bool is_predicate(int op) {
  return (op >= CHIPSET_POINTWISE_OP_EQ && op <= CHIPSET_POINTWISE_OP_LOGICAL_NOT) ||
         (op >= CHIPSET_POINTWISE_OP_ISNAN && op <= CHIPSET_POINTWISE_OP_SIGNBIT);
}

}  // namespace chipset::cpu
