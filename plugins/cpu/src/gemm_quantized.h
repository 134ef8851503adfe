// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

// Few rows against I8 weights: the weights are streamed once and widened in registers.
struct GemmQuantizedKernels {
  // False when there was no working memory (nothing was written).
  bool (*few_rows)(const chipset_gemm_quantized_args& args);
};

namespace generic {
extern const GemmQuantizedKernels gemm_quantized_kernels;
}
namespace avx2 {
extern const GemmQuantizedKernels gemm_quantized_kernels;
}
namespace avx512 {
extern const GemmQuantizedKernels gemm_quantized_kernels;
}

}  // namespace chipset::cpu
