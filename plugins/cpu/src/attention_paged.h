// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "chipset/chipset.h"

namespace chipset::cpu {

struct PagedKernels {
  // All arguments are checked. False when there was no working memory.
  bool (*forward)(const chipset_attention_paged_args& args);
};

namespace generic {
extern const PagedKernels paged_kernels;
}
namespace avx2 {
extern const PagedKernels paged_kernels;
}
namespace avx512 {
extern const PagedKernels paged_kernels;
}

}  // namespace chipset::cpu
