// SPDX-License-Identifier: Apache-2.0
#include "scratch.h"

#include <cstdlib>

namespace chipset::cpu {
namespace {

// A buffer above this size is given back as soon as a much smaller one is asked for.
constexpr size_t kKeep = size_t{64} << 20;

// Nothing destroys it: kernels may still run when the thread's other variables are gone (a process
// that ends may run pending work), and then buffers are made anew.
struct Buffers {
  void* data[kScratchSlots];
  size_t size[kScratchSlots];
};
thread_local constinit Buffers buffers{};

struct FreeAtEnd {
  ~FreeAtEnd() {
    for (void* p : buffers.data) std::free(p);
    buffers = {};
  }
};

}  // namespace

void* scratch(ScratchSlot slot, size_t bytes) {
  thread_local const FreeAtEnd end;
  (void)&end;
  Buffers& b = buffers;
  const bool oversized = b.size[slot] > kKeep && bytes < b.size[slot] / 8;
  if (bytes > b.size[slot] || b.data[slot] == nullptr || oversized) {
    std::free(b.data[slot]);
    const size_t rounded = (bytes + 4096) / 4096 * 4096;
    b.data[slot] = std::aligned_alloc(64, rounded);
    b.size[slot] = b.data[slot] == nullptr ? 0 : rounded;
  }
  return b.data[slot];
}

}  // namespace chipset::cpu
