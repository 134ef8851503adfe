// SPDX-License-Identifier: Apache-2.0
// GEMM for devices that are processors.
#pragma once

#include <chipset_kit.hpp>

#include "device.h"

namespace chipset::opencl {

// False, with nothing enqueued, for what it does not do: dtypes other than F16, BF16, F32 and F64.
// The shape of its register tile is measured once for a device and kept in the kernel cache.
bool cpu_gemm(kit::Kit& kit, chipset_stream stream, const chipset_gemm_args& args);

}  // namespace chipset::opencl
