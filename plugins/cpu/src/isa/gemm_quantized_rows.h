// SPDX-License-Identifier: Apache-2.0
// The end of a quantised product: bias, activation and the result's dtype.
#pragma once

#include "gemm_quantized.h"
#include "isa/activation.h"
#include "isa/lanes.h"

namespace chipset::cpu::CPU_ISA {

// `sums` are the products of row m with columns [n0, n0 + n), and are overwritten.
inline void finish_row(const QuantizedProblem& p, int64_t m, int64_t n0, int64_t n, float* sums) {
  const chipset_gemm_quantized_args& args = *p.args;
  if (args.bias != nullptr) {
    constexpr int64_t kPiece = 64;
    float bias[kPiece];
    const int64_t step = args.bias->stride[0];
    for (int64_t j = 0; j < n; j += kPiece) {
      const int64_t count = n - j < kPiece ? n - j : kPiece;
      read_row(args.bias->dtype, args.bias->data, (n0 + j) * step, step, count, bias);
      for (int64_t i = 0; i < count; ++i) sums[j + i] += bias[i];
    }
  }
  if (args.activation != CHIPSET_ACTIVATION_NONE) {
    for_vectors<float>(n, [&](int64_t j, auto w) {
      store(sums + j, activate<float>(args.activation, load(sums + j, w)), w);
    });
  }
  const chipset_tensor& d = *args.d;
  const int64_t step = p.columns == 1 ? 1 : d.stride[1];
  write_row(d.dtype, d.data, m * d.stride[0] + n0 * step, step, n, sums);
}

}  // namespace chipset::cpu::CPU_ISA
