// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace chipset::cpu {

// A piece of one tensor of an AdamW step, all dense with equal strides.
struct AdamwPiece {
  void* tensor[5];  // param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq (or NULL)
  int32_t dtype[5];
  int64_t begin, end;
  double step;  // the count of this step, from 1
  double lr, beta1, beta2, eps, weight_decay, grad_factor;
  bool decoupled;
};

struct AdamwKernels {
  void (*update)(const AdamwPiece& piece);
};

namespace generic {
extern const AdamwKernels adamw_kernels;
}
namespace avx2 {
extern const AdamwKernels adamw_kernels;
}
namespace avx512 {
extern const AdamwKernels adamw_kernels;
}

}  // namespace chipset::cpu
