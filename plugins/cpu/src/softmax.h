// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rows.h"

namespace chipset::cpu {

struct SoftmaxKernels {
  // Tensors of `rows`: input, output. False when there was no working memory.
  bool (*forward)(const Rows& rows, bool log);
  // Tensors of `rows`: gradient of the result, result, gradient of the input (output).
  bool (*backward)(const Rows& rows, bool log);
};

namespace generic {
extern const SoftmaxKernels softmax_kernels;
}
namespace avx2 {
extern const SoftmaxKernels softmax_kernels;
}
namespace avx512 {
extern const SoftmaxKernels softmax_kernels;
}

}  // namespace chipset::cpu
