// SPDX-License-Identifier: Apache-2.0
// A quantised linear layer taken apart, as the kernels of isa/gemm_quantized.cpp (float
// activations) and isa/gemm_i8_vnni.cpp (I8 activations) want it.
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

struct QuantizedProblem {
  int64_t rows, columns, inner;  // M, N, K
  int64_t group;                 // elements of a group, at least 1
  const chipset_gemm_quantized_args* args;
  const uint8_t* w;  // rows of w, each contiguous
  int64_t w_row;     // bytes from row to row
  bool is_i4;        // else one byte an element
  int64_t group_of(int64_t k) const { return k / group; }
  float scale(int64_t n, int64_t g) const {
    const chipset_tensor& t = *args->w_scale;
    return static_cast<const float*>(t.data)[n * t.stride[0] + g * t.stride[1]];
  }
  int32_t zero_point(int64_t n, int64_t g) const {
    if (args->w_zero_point == nullptr) return 0;
    const chipset_tensor& t = *args->w_zero_point;
    return static_cast<const int32_t*>(t.data)[n * t.stride[0] + g * t.stride[1]];
  }
};

// Both: false when there was no working memory (nothing was written).
struct GemmQuantizedKernels {
  bool (*gemm)(const QuantizedProblem& problem);
};
struct GemmI8Kernels {
  bool (*gemm)(const QuantizedProblem& problem);  // I8 x, I8 or I4 w
};

namespace generic {
extern const GemmQuantizedKernels gemm_quantized_kernels;
extern const GemmI8Kernels gemm_i8_kernels;
}  // namespace generic
namespace avx2 {
extern const GemmQuantizedKernels gemm_quantized_kernels;
extern const GemmI8Kernels gemm_i8_kernels;
}  // namespace avx2
namespace avx512 {
extern const GemmQuantizedKernels gemm_quantized_kernels;
extern const GemmI8Kernels gemm_i8_kernels;
}  // namespace avx512
namespace avx512vnni {
extern const GemmI8Kernels gemm_i8_kernels;
}

}  // namespace chipset::cpu
