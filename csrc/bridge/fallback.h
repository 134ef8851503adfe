// SPDX-License-Identifier: Apache-2.0
// What the host did in the place of the chip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace chipset::bridge {

struct FallbackCount {
  uint64_t count = 0;
  uint64_t bytes = 0;  // read and written by the host for it
};

enum class FallbackMode { kAllow, kWarn, kError };
void set_fallback_mode(FallbackMode mode);
FallbackMode fallback_mode();

std::map<std::string, FallbackCount> fallback_counts();
void reset_fallback_counts();

// Notes one fallback of the operator; `detail` says on what (dtypes, shapes). Throws in mode kError
// and while a graph is captured.
void count_fallback(const std::string& name, size_t bytes, const std::string& detail);

}  // namespace chipset::bridge
