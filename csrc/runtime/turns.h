// SPDX-License-Identifier: Apache-2.0
// One thread at a time inside a stream (THR-001). Callers of the runtime share streams freely, as
// PyTorch's threads share a device's default stream; plugins need not expect it.
#pragma once

#include "plugin.h"

namespace chipset::runtime {

// Puts a turn around each function of plugin.base that works in a stream.
void take_turns(Plugin& plugin);

}  // namespace chipset::runtime
