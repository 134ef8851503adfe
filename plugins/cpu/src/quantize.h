// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

// All arguments are checked. False when there was no working memory.
struct QuantizeKernels {
  bool (*quantize)(const chipset_quantize_args& args);
  bool (*dequantize)(const chipset_quantize_args& args);
};

namespace generic {
extern const QuantizeKernels quantize_kernels;
}
namespace avx2 {
extern const QuantizeKernels quantize_kernels;
}
namespace avx512 {
extern const QuantizeKernels quantize_kernels;
}

}  // namespace chipset::cpu
