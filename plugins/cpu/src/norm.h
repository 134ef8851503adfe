// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rows.h"

namespace chipset::cpu {

// One norm call taken apart. A vector is data, stride, dtype; data NULL: absent.
struct NormVector {
  void* data;
  int64_t stride;
  int32_t dtype;
};
struct NormProblem {
  bool layer;  // else RMS
  double eps, weight_offset;
  Rows rows;  // forward: x, y. backward: x, dy, dx (data NULL: not wanted)
  NormVector weight, bias, mean, rstd, dweight, dbias;
};
struct NormKernels {
  // False when there was no working memory.
  bool (*forward)(const NormProblem& problem);
  bool (*backward)(const NormProblem& problem);
};

namespace generic {
extern const NormKernels norm_kernels;
}
namespace avx2 {
extern const NormKernels norm_kernels;
}
namespace avx512 {
extern const NormKernels norm_kernels;
}

}  // namespace chipset::cpu
