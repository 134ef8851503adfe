// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

// All arguments are checked. Working memory is on the stack.
struct CrossEntropyKernels {
  void (*forward)(const chipset_cross_entropy_args& args);
  void (*backward)(const chipset_cross_entropy_args& args);
};

namespace generic {
extern const CrossEntropyKernels cross_entropy_kernels;
}
namespace avx2 {
extern const CrossEntropyKernels cross_entropy_kernels;
}
namespace avx512 {
extern const CrossEntropyKernels cross_entropy_kernels;
}

}  // namespace chipset::cpu
