// SPDX-License-Identifier: Apache-2.0
// Optional functions made from required ones, for plugins that lack them or answer UNSUPPORTED.
// They work through the device's own table, in the caller's stream, with memory of the caching
// allocator. They answer UNSUPPORTED when a function that they need does; by then something may
// have been written to the outputs, never to the inputs.
#pragma once

#include "interpose.h"

namespace chipset::runtime {

chipset_status composed(Tag<Fn::mem_copy_peer>, Plugin& plugin, chipset_stream stream,
                        void* destination, const void* source, std::int32_t source_device,
                        std::uint64_t bytes);

}  // namespace chipset::runtime
