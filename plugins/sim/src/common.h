// SPDX-License-Identifier: Apache-2.0
// What every file of the simulated chip shares: names of functions, text, the call being made.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "chipset/chipset.h"
#include "operands.h"  // csrc/runtime: which memory each function reads and writes
#include "per_thread.h"

namespace chipset::sim {

using runtime::Access;
using runtime::Fn;
using runtime::Operand;
using runtime::Operands;
using runtime::Tag;

// What the core gave chipset_plugin; set before any other call.
extern const chipset_host* g_host;

const char* name_of(Fn function);

template <class... T>
std::string text(const T&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

inline std::uintptr_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

// The call of the interface that this thread is inside of. Calls are numbered over the process.
struct Call {
  Fn function = Fn::kCount;
  std::uint64_t number = 0;
};
Call& current_call();
std::uint64_t calls_made();
std::uint64_t next_call_number();
// "pointwise (call 17)"
std::string text_of(const Call& call);

}  // namespace chipset::sim
