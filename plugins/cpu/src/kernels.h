// SPDX-License-Identifier: Apache-2.0
// The kernels of src/isa that pointwise, copy and the others call, and the types that they compute
// in. All work on contiguous elements; loads and stores do the strides and conversions.
#pragma once

#include <cstdint>

#include "chipset/chipset.h"
#include "dispatch.h"

namespace chipset::cpu {

// The types that operations are evaluated in. Smaller integers and bool are evaluated in I32; the
// store wraps them.
enum class Compute { kF32, kF64, kI32, kI64 };
inline constexpr int kComputeCount = 4;
inline constexpr int64_t kComputeSize[kComputeCount] = {4, 8, 4, 8};

// The type that a dtype is evaluated in, or -1 (I4, OPAQUE).
inline constexpr int8_t kComputeOf[] = {2, 2, 2, 2, 2, 3, 0, 0, 0, 1, 0, 0, -1, -1, -1, -1, -1, -1};

struct OpParams {
  double f[4];
  int64_t i[4];
};

// out[j] = op(in[0][j], ...) in the compute type; comparisons and predicates write bytes 0 or 1.
using OpKernel = void (*)(void* out, const void* const* in, int64_t n, const OpParams& params);
// n elements of a dtype, stride bytes apart, to contiguous elements of a compute type; and back.
using LoadKernel = void (*)(const void* source, int64_t stride, void* target, int64_t n);
using StoreKernel = void (*)(const void* source, void* target, int64_t stride, int64_t n);

inline constexpr int kOpSlots = 128;
// Operations beyond the interface's, chosen by pointwise.cpp for special operands.
inline constexpr int kOpSquare = 126;
inline constexpr int kOpCube = 127;

struct OpTable {
  OpKernel kernel[kOpSlots];
};
struct ConvertTable {
  LoadKernel load[kComputeCount][18];
  StoreKernel store[kComputeCount][18];
};

#define CPU_DECLARE_TABLES(isa_namespace) \
  namespace isa_namespace {               \
  extern const OpTable kOpsF32;           \
  extern const OpTable kOpsF64;           \
  extern const OpTable kOpsI32;           \
  extern const OpTable kOpsI64;           \
  extern const OpTable kOpsBf16;          \
  extern const ConvertTable kConvert;     \
  }
CPU_DECLARE_TABLES(generic)
CPU_DECLARE_TABLES(avx2)
CPU_DECLARE_TABLES(avx512)
#undef CPU_DECLARE_TABLES

inline const ConvertTable& convert_table() {
  static const ConvertTable& table = CPU_SELECT(kConvert);
  return table;
}

// The operations in a compute type; NULL where one is not defined in it.
inline const OpTable& op_table(Compute compute) {
  static const OpTable* const tables[kComputeCount] = {&CPU_SELECT(kOpsF32), &CPU_SELECT(kOpsF64),
                                                       &CPU_SELECT(kOpsI32), &CPU_SELECT(kOpsI64)};
  return *tables[static_cast<int>(compute)];
}

}  // namespace chipset::cpu
