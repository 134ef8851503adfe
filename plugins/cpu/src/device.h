// SPDX-License-Identifier: Apache-2.0
// The devices (the host itself, once or, with option `devices`, several times) and their memory.
#pragma once

#include <cstdint>

#include "chipset/chipset.h"

namespace chipset::cpu {

int32_t device_total();
// OK, or INVALID with a text for an index out of range.
chipset_status check_device(const char* function, int32_t device);

chipset_status cpu_device_count(int32_t* count);
chipset_status cpu_device_info(int32_t device, chipset_device_info* info);
chipset_status cpu_device_memory(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes);
chipset_status cpu_device_sync(int32_t device);
chipset_status cpu_mem_alloc(int32_t device, int32_t kind, uint64_t bytes, void** pointer);
chipset_status cpu_mem_free(int32_t device, void* pointer);
chipset_status cpu_mem_copy(chipset_stream stream, void* destination, const void* source,
                            uint64_t bytes, int32_t kind);
chipset_status cpu_mem_fill(chipset_stream stream, void* destination, int32_t value,
                            uint64_t bytes);
chipset_status cpu_mem_copy_peer(chipset_stream stream, void* destination, const void* source,
                                 int32_t source_device, uint64_t bytes);

}  // namespace chipset::cpu
