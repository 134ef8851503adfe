// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

struct RotaryKernels {
  // All arguments are checked. False when there was no working memory.
  bool (*rotate)(const chipset_rotary_args& args);
};

namespace generic {
extern const RotaryKernels rotary_kernels;
}
namespace avx2 {
extern const RotaryKernels rotary_kernels;
}
namespace avx512 {
extern const RotaryKernels rotary_kernels;
}

}  // namespace chipset::cpu
