// SPDX-License-Identifier: Apache-2.0
#include <c10/util/Exception.h>

#include "state.h"

namespace chipset::bridge {
namespace {
thread_local int captured_device = -1;  // -1: this thread captures nothing
}

bool capturing() noexcept { return captured_device >= 0; }

void refuse_capture(const char* what) {
  TORCH_CHECK(!capturing(), "chip: ", what,
              " cannot be recorded in a graph: only work that stays on the chip can. Move it out "
              "of the captured region");
}

}  // namespace chipset::bridge
