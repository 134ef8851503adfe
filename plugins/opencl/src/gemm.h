// SPDX-License-Identifier: Apache-2.0
// GEMM for devices that are processors.
#pragma once

#include <chipset_kit.hpp>

#include "device.h"

namespace chipset::opencl {

// Rows of a register tile and lanes of a vector: what the device is fastest with.
struct GemmTile {
  int rows = 8, lanes = 16;
};

// False, with nothing enqueued, for what it does not do: dtypes other than F16, BF16, F32 and F64.
bool cpu_gemm(kit::Kit& kit, chipset_stream stream, const chipset_gemm_args& args, GemmTile tile);

}  // namespace chipset::opencl
