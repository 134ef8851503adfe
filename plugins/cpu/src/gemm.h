// SPDX-License-Identifier: Apache-2.0
// A matrix product with every tensor taken apart, as the kernels of isa/gemm.cpp want it.
#pragma once

#include <cstdint>

namespace chipset::cpu {

// d = activation(alpha * a @ b + beta * c + bias); strides in elements.
struct GemmProblem {
  int64_t m, n, k;
  const void* a;
  int64_t a_m, a_k;
  const void* b;
  int64_t b_k, b_n;
  const void* c;  // NULL: beta counts as zero
  int64_t c_m, c_n;
  void* d;
  int64_t d_m, d_n;
  const void* bias;  // along n, or NULL
  int64_t bias_n;
  double alpha, beta;
  int32_t activation;
  int32_t dtype;  // of a and b
  int32_t c_dtype, d_dtype, bias_dtype;
};

struct GemmKernels {
  // False when there was no working memory; nothing was written then.
  bool (*gemm)(const GemmProblem& problem, bool parallel);
};

namespace generic {
extern const GemmKernels gemm_kernels;
}
namespace avx2 {
extern const GemmKernels gemm_kernels;
}
namespace avx512 {
extern const GemmKernels gemm_kernels;
}

}  // namespace chipset::cpu
