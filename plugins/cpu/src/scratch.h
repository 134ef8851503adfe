// SPDX-License-Identifier: Apache-2.0
// Working memory of kernels: a few buffers per thread that grow and are kept for the next call,
// since fresh pages cost more than most kernels.
#pragma once

#include <cstddef>

namespace chipset::cpu {

enum ScratchSlot {
  kScratchA,
  kScratchB,
  kScratchC,
  kScratchD,
  kScratchE,
  kScratchF,
  kScratchSlots
};

// At least `bytes` of the calling thread's buffer `slot`, aligned to 64, contents undefined, valid
// until the thread asks for the same slot again. NULL when there is no memory.
void* scratch(ScratchSlot slot, size_t bytes);

}  // namespace chipset::cpu
