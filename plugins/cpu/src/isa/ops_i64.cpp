// SPDX-License-Identifier: Apache-2.0
#include "ops_int.h"

namespace chipset::cpu::CPU_ISA {

constexpr OpTable kTable = int_table<int64_t>();
const OpTable kOpsI64 = kTable;

}  // namespace chipset::cpu::CPU_ISA
