// SPDX-License-Identifier: Apache-2.0
// Functions that the kit does not have yet: the core composes them, or the host does the work.
#include "source.h"

namespace chipset::kit {
#define PENDING(name, args)                               \
  void Kit::name(chipset_stream, const chipset_##args&) { \
    unsupported("the kernel kit has no " #name " yet");   \
  }
PENDING(attention, attention_args)
PENDING(attention_backward, attention_args)
PENDING(attention_paged, attention_paged_args)
}  // namespace chipset::kit
