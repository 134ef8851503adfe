// SPDX-License-Identifier: Apache-2.0
// The functions of the interface that are the plugin's own; the kit's kernels are the rest. Each
// throws sdk::Error; chipset.h says what they do.
#pragma once

#include <chipset/chipset.h>

namespace chipset::opencl {

struct Driver {
  static void device_count(int32_t* count);
  static void device_info(int32_t device, chipset_device_info* info);
  static void device_memory(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes);
  static void device_sync(int32_t device);

  static void mem_alloc(int32_t device, int32_t kind, uint64_t bytes, void** pointer);
  static void mem_free(int32_t device, void* pointer);
  static void mem_copy(chipset_stream stream, void* destination, const void* source, uint64_t bytes,
                       int32_t kind);
  static void mem_fill(chipset_stream stream, void* destination, int32_t value, uint64_t bytes);

  static void stream_create(int32_t device, int32_t priority, chipset_stream* stream);
  static void stream_destroy(chipset_stream stream);
  static void stream_sync(chipset_stream stream);
  static void stream_wait(chipset_stream stream, chipset_event event);

  static void event_create(int32_t device, uint32_t flags, chipset_event* event);
  static void event_destroy(chipset_event event);
  static void event_record(chipset_event event, chipset_stream stream);
  static void event_query(chipset_event event, int64_t timeout_ns);
  static void event_elapsed(chipset_event start, chipset_event end, double* milliseconds);
};

}  // namespace chipset::opencl
