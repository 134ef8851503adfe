// SPDX-License-Identifier: Apache-2.0
// Which instruction set the kernels of src/isa run with. Every file there is compiled once per
// instruction set into namespace chipset::cpu::CPU_ISA (generic, avx2, avx512; files named
// *_vnni.cpp also avx512vnni) and exposes a table of function pointers; CPU_SELECT picks the table.
#pragma once

namespace chipset::cpu {

enum class Isa { kGeneric, kAvx2, kAvx512, kAvx512Vnni };

// The best one that this machine and the option `isa` (generic, avx2, avx512, avx512vnni) allow.
Isa isa();
const char* isa_name();

}  // namespace chipset::cpu

// CPU_SELECT(table): a reference to `table` of the namespace of the chosen instruction set.
#define CPU_SELECT(table)                                                \
  (::chipset::cpu::isa() >= ::chipset::cpu::Isa::kAvx512 ? avx512::table \
   : ::chipset::cpu::isa() == ::chipset::cpu::Isa::kAvx2 ? avx2::table   \
                                                         : generic::table)
#define CPU_SELECT_VNNI(table)                                                   \
  (::chipset::cpu::isa() == ::chipset::cpu::Isa::kAvx512Vnni ? avx512vnni::table \
                                                             : CPU_SELECT(table))
