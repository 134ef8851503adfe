// SPDX-License-Identifier: Apache-2.0
// The operations of a bf16 training step whose operands and result are all bf16: converted in
// registers, where the general path converts through a buffer.
#include "ops_float.h"

namespace chipset::cpu::CPU_ISA {

// clang-format off: it never settles on a list of macro calls
// clang-format off: it never settles on a list of macro calls
#define CPU_HOT_OPS(V) \
  V(ADD, Add, 2) \
  V(SUB, Sub, 2) \
  V(MUL, Mul, 2) \
  V(DIV, Div, 2) \
  V(NEG, Neg, 1) \
  V(SILU, Silu, 1) \
  V(RELU, Relu, 1) \
  V(SIGMOID, Sigmoid, 1) \
  V(SILU_BACKWARD, SiluBackward, 2) \
  V(THRESHOLD_BACKWARD, ThresholdBackward, 2) \
  V(SWIGLU, Swiglu, 2) \
  V(ADDCMUL, Addcmul, 3) \
  V(MSE, Mse, 2) \
  V(EXP, Exp, 1) \
  V(SQRT, Sqrt, 1) \
  V(RSQRT, Rsqrt, 1)
// clang-format on
// clang-format on

constexpr OpTable bf16_table() {
  OpTable table = {};
#define CPU_VALUE(OP, NAME, ARITY) \
  table.kernel[CHIPSET_POINTWISE_OP_##OP] = op_kernel<NAME, ARITY, float, Bf16, Bf16>;
  CPU_HOT_OPS(CPU_VALUE)
#undef CPU_VALUE
  table.kernel[kOpSquare] = op_kernel<Square, 1, float, Bf16, Bf16>;
  return table;
}

constexpr OpTable kTable = bf16_table();
const OpTable kOpsBf16 = kTable;

}  // namespace chipset::cpu::CPU_ISA
