// SPDX-License-Identifier: Apache-2.0
#include "ops_float.h"

namespace chipset::cpu::CPU_ISA {

constexpr OpTable kTable = float_table<float>();
const OpTable kOpsF32 = kTable;

}  // namespace chipset::cpu::CPU_ISA
