// SPDX-License-Identifier: Apache-2.0
// Faults of devices and memory.
#include <atomic>

#include "mutant.h"

namespace chipset::mutants {

namespace {

void mutate(List& list, const char* name, const char* functions, const char* fault,
            void (*seed)(chipset_api&)) {
  list.push_back({name, "0", functions, fault, seed});
}

using Alloc = chipset_status (*)(int32_t, int32_t, uint64_t, void**);

}  // namespace

void add_device(List& list) {
  mutate(list, "device-count-changes", "device_count", "each answer is one more",
         [](chipset_api& api) {
           api.device_count = [](int32_t* count) -> chipset_status {
             static int32_t calls = 0;
             const chipset_status status = good().device_count(count);
             *count += calls++;
             return status;
           };
         });
  mutate(list, "device-info-of-any-index", "device_info", "an index out of range is described",
         [](chipset_api& api) {
           api.device_info = [](int32_t, chipset_device_info* info) {
             return good().device_info(0, info);
           };
         });
  mutate(list, "device-info-writes-beyond", "device_info",
         "fields beyond the caller's struct_size are written (VER-002)", [](chipset_api& api) {
           api.device_info = [](int32_t device, chipset_device_info* info) -> chipset_status {
             chipset_device_info whole{};
             whole.struct_size = sizeof whole;
             const chipset_status status = good().device_info(device, &whole);
             const uint32_t size = info->struct_size;
             std::memcpy(info, &whole, sizeof whole);
             info->struct_size = size;
             return status;
           };
         });
  mutate(list, "device-info-without-name", "device_info", "the name is empty",
         [](chipset_api& api) {
           api.device_info = [](int32_t device, chipset_device_info* info) -> chipset_status {
             const chipset_status status = good().device_info(device, info);
             info->name[0] = 0;
             return status;
           };
         });
  mutate(list, "device-info-alignment", "device_info mem_alloc",
         "the alignment said is not the one given", [](chipset_api& api) {
           api.device_info = [](int32_t device, chipset_device_info* info) -> chipset_status {
             const chipset_status status = good().device_info(device, info);
             if (info->struct_size >= sizeof *info) info->alignment = 1u << 20;
             return status;
           };
         });
  mutate(list, "device-info-error-without-text", "device_info",
         "an index out of range is INVALID without a text (ERR-001)", [](chipset_api& api) {
           api.device_info = [](int32_t device, chipset_device_info* info) -> chipset_status {
             int32_t count = 0;
             good().device_count(&count);
             if (device < 0 || device >= count) return CHIPSET_STATUS_INVALID;
             return good().device_info(device, info);
           };
         });
  mutate(list, "device-memory-more-free-than-total", "device_memory",
         "more bytes are free than there are", [](chipset_api& api) {
           api.device_memory = [](int32_t device, uint64_t* free, uint64_t* total) {
             const chipset_status status = good().device_memory(device, free, total);
             *free = *total + 1;
             return status;
           };
         });
  mutate(list, "device-memory-never-changes", "device_memory mem_alloc",
         "allocations do not show in what is free", [](chipset_api& api) {
           api.device_memory = [](int32_t device, uint64_t* free, uint64_t* total) {
             const chipset_status status = good().device_memory(device, free, total);
             *free = *total;
             return status;
           };
         });
  mutate(list, "stream-create-of-any-device", "stream_create", "an index out of range is OK",
         [](chipset_api& api) {
           api.stream_create = [](int32_t, int32_t priority, chipset_stream* stream) {
             return good().stream_create(0, priority, stream);
           };
         });
  mutate(list, "device-sync-of-any-index", "device_sync", "an index out of range is OK",
         [](chipset_api& api) { api.device_sync = [](int32_t) { return CHIPSET_STATUS_OK; }; });

  mutate(list, "alloc-unaligned", "mem_alloc", "memory is not aligned (MEM-001)",
         [](chipset_api& api) {
           api.mem_alloc = [](int32_t device, int32_t kind, uint64_t bytes,
                              void** pointer) -> chipset_status {
             const chipset_status status = good().mem_alloc(device, kind, bytes + 64, pointer);
             if (status == CHIPSET_STATUS_OK && bytes > 0)
               *pointer = static_cast<char*>(*pointer) + 8;
             return status;
           };
           api.mem_free = [](int32_t device, void* pointer) -> chipset_status {
             if (pointer != nullptr) pointer = static_cast<char*>(pointer) - 8;
             return good().mem_free(device, pointer);
           };
         });
  mutate(list, "alloc-of-nothing", "mem_alloc", "zero bytes give a pointer", [](chipset_api& api) {
    api.mem_alloc = [](int32_t device, int32_t kind, uint64_t bytes, void** pointer) {
      return good().mem_alloc(device, kind, std::max<uint64_t>(bytes, 1), pointer);
    };
  });
  mutate(list, "alloc-twice-the-same", "mem_alloc", "two allocations share memory",
         [](chipset_api& api) {
           api.mem_alloc = [](int32_t device, int32_t kind, uint64_t bytes,
                              void** pointer) -> chipset_status {
             static void* last = nullptr;
             static uint64_t last_bytes = 0;
             if (kind == CHIPSET_MEMORY_KIND_DEVICE && bytes > 0 && bytes == last_bytes) {
               *pointer = last;
               last_bytes = 0;
               return CHIPSET_STATUS_OK;
             }
             const chipset_status status = good().mem_alloc(device, kind, bytes, pointer);
             last = *pointer;
             last_bytes = status == CHIPSET_STATUS_OK ? bytes : 0;
             return status;
           };
           api.mem_free = [](int32_t, void*) { return CHIPSET_STATUS_OK; };
         });
  mutate(list, "alloc-beyond-memory", "mem_alloc",
         "more than there is answers INTERNAL instead of OUT_OF_MEMORY", [](chipset_api& api) {
           api.mem_alloc = [](int32_t device, int32_t kind, uint64_t bytes,
                              void** pointer) -> chipset_status {
             const chipset_status status = good().mem_alloc(device, kind, bytes, pointer);
             return status == CHIPSET_STATUS_OUT_OF_MEMORY
                        ? refuse(CHIPSET_STATUS_INTERNAL, "the allocation failed")
                        : status;
           };
         });
  mutate(list, "alloc-fails-for-ever", "mem_alloc",
         "after OUT_OF_MEMORY nothing can be allocated any more", [](chipset_api& api) {
           api.mem_alloc = [](int32_t device, int32_t kind, uint64_t bytes,
                              void** pointer) -> chipset_status {
             static bool failed = false;
             *pointer = nullptr;
             if (failed && bytes > 0) return refuse(CHIPSET_STATUS_OUT_OF_MEMORY, "no memory left");
             const chipset_status status = good().mem_alloc(device, kind, bytes, pointer);
             failed = failed || status == CHIPSET_STATUS_OUT_OF_MEMORY;
             return status;
           };
         });
  mutate(list, "alloc-leaves-the-pointer", "mem_alloc",
         "a failed allocation does not clear the pointer", [](chipset_api& api) {
           api.mem_alloc = [](int32_t device, int32_t kind, uint64_t bytes,
                              void** pointer) -> chipset_status {
             void* const before = *pointer;
             const chipset_status status = good().mem_alloc(device, kind, bytes, pointer);
             if (status != CHIPSET_STATUS_OK)
               *pointer = before != nullptr ? before : reinterpret_cast<void*>(0x1000);
             return status;
           };
         });
  mutate(list, "free-leaks", "mem_free", "freed memory does not come back",
         [](chipset_api& api) { api.mem_free = [](int32_t, void*) { return CHIPSET_STATUS_OK; }; });
  mutate(list, "free-of-null", "mem_free", "NULL is called invalid", [](chipset_api& api) {
    api.mem_free = [](int32_t device, void* pointer) -> chipset_status {
      if (pointer == nullptr) return refuse(CHIPSET_STATUS_INVALID, "no pointer");
      return good().mem_free(device, pointer);
    };
  });
  mutate(list, "copy-one-byte-short", "mem_copy", "the last byte is not copied",
         [](chipset_api& api) {
           api.mem_copy = [](chipset_stream stream, void* to, const void* from, uint64_t bytes,
                             int32_t kind) {
             return good().mem_copy(stream, to, from, bytes - (bytes > 1), kind);
           };
         });
  mutate(list, "copy-in-words", "mem_copy", "addresses are rounded down to words",
         [](chipset_api& api) {
           api.mem_copy = [](chipset_stream stream, void* to, const void* from, uint64_t bytes,
                             int32_t kind) {
             const auto down = [](const void* p) {
               return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) & ~uintptr_t{3});
             };
             const bool to_device = kind != CHIPSET_COPY_KIND_DEVICE_TO_HOST;
             return good().mem_copy(stream, to_device ? down(to) : to, from, bytes, kind);
           };
         });
  mutate(list, "copy-of-nothing", "mem_copy", "a copy of zero bytes is called invalid",
         [](chipset_api& api) {
           api.mem_copy = [](chipset_stream stream, void* to, const void* from, uint64_t bytes,
                             int32_t kind) -> chipset_status {
             if (bytes == 0) return refuse(CHIPSET_STATUS_INVALID, "nothing to copy");
             return good().mem_copy(stream, to, from, bytes, kind);
           };
         });
  mutate(list, "fill-with-words", "mem_fill", "the value is written as a 32-bit number",
         [](chipset_api& api) {
           api.mem_fill = [](chipset_stream stream, void* to, int32_t value,
                             uint64_t bytes) -> chipset_status {
             const chipset_status status = good().mem_fill(stream, to, 0, bytes);
             for (uint64_t i = 0; status == CHIPSET_STATUS_OK && i + 4 <= bytes; i += 4)
               std::memcpy(static_cast<char*>(to) + i, &value, 4);
             return status;
           };
         });
  mutate(list, "fill-past-the-end", "mem_fill", "one byte too many is set", [](chipset_api& api) {
    api.mem_fill = [](chipset_stream stream, void* to, int32_t value, uint64_t bytes) {
      return good().mem_fill(stream, to, value, bytes + (bytes > 0));
    };
  });
}

}  // namespace chipset::mutants
