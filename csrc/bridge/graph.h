// SPDX-License-Identifier: Apache-2.0
// Graph capture, as far as kernels see it.
#pragma once

#include "generator.h"

namespace chipset::bridge {

// Where random numbers come from: a seed and an offset, or, in a captured graph, two numbers in
// device memory that each replay sets anew.
struct RandomSource {
  PhiloxState state;
  const void* device_state = nullptr;
};
RandomSource random_source(ChipGenerator* generator, int64_t elements);

}  // namespace chipset::bridge
