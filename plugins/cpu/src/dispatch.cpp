// SPDX-License-Identifier: Apache-2.0
#include "dispatch.h"

#include <cstring>

#include "error.h"

namespace chipset::cpu {
namespace {

const char* const kNames[] = {"generic", "avx2", "avx512", "avx512vnni"};

Isa machine() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
  const bool vnni =
      avx512 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  return vnni ? Isa::kAvx512Vnni : avx512 ? Isa::kAvx512 : avx2 ? Isa::kAvx2 : Isa::kGeneric;
}

Isa choose() {
  const Isa best = machine();
  const char* wanted = option("isa");
  if (wanted == nullptr) return best;
  for (int i = 0; i <= static_cast<int>(best); ++i) {
    if (std::strcmp(wanted, kNames[i]) == 0) return static_cast<Isa>(i);
  }
  if (g_host != nullptr && g_host->log != nullptr) {
    g_host->log(2,
                "cpu: option isa names no instruction set that this machine has "
                "(generic, avx2, avx512, avx512vnni); the best one is used");
  }
  return best;
}

}  // namespace

Isa isa() {
  static const Isa chosen = choose();
  return chosen;
}

const char* isa_name() { return kNames[static_cast<int>(isa())]; }

}  // namespace chipset::cpu
