// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "dispatch.h"
#include "error.h"
#include "parallel.h"
#include "record.h"
#include "stream.h"

namespace chipset::cpu {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr int64_t kCopyGrain = int64_t{1} << 20;  // bytes

// Bytes of this process that lie in memory now; 0 when the system does not say.
uint64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0, resident = 0;
  if (!(file >> pages >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// The value in kilobytes of a line such as "MemAvailable:  123 kB", in bytes; 0 when absent.
uint64_t meminfo(const char* key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kilobytes = 0;
  std::string unit;
  while (file >> name >> kilobytes && std::getline(file, unit)) {
    if (name == key) return kilobytes * 1024;
  }
  return 0;
}

uint64_t number_in(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : 0;
}

// What the process may use: the machine's memory, or its control group's limit if that is less, or
// the option `memory_mib`.
uint64_t find_total_memory() {
  uint64_t total = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                   static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (const uint64_t limit = number_in(path); limit != 0) total = std::min(total, limit);
  }
  const long long mib = option_number("memory_mib", 0, 0, 1LL << 40);
  return mib > 0 ? static_cast<uint64_t>(mib) << 20 : total;
}

uint64_t total_memory() {
  static const uint64_t total = find_total_memory();
  return total;
}

// Without this capability callers copy instead of touching device memory, as with most chips.
bool unified() {
  static const bool value = option_number("unified", 1, 0, 1) != 0;
  return value;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return "x86-64 processor";
}

struct Allocation {
  int32_t device;
  uint64_t bytes;
};

struct Allocations {
  std::mutex mutex;
  std::unordered_map<void*, Allocation> live;
  uint64_t bytes = 0;
};

Allocations& allocations() {
  static auto* const all = new Allocations;  // outlives every static destructor
  return *all;
}

template <size_t Size>
void put_text(char (&field)[Size], const char* text) {
  std::snprintf(field, Size, "%s", text);
}

void copy_bytes(void* destination, const void* source, uint64_t bytes) {
  if (destination == source || bytes == 0) return;
  parallel_for(static_cast<int64_t>(bytes), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(destination) + begin, static_cast<const char*>(source) + begin,
                static_cast<size_t>(end - begin));
  });
}

struct CopyArgs {
  void* destination;
  const void* source;
  uint64_t bytes;
};
struct FillArgs {
  void* destination;
  int32_t value;
  uint64_t bytes;
};

chipset_status run_copy(chipset_stream, const void* args) {
  const auto& copy = *static_cast<const CopyArgs*>(args);
  copy_bytes(copy.destination, copy.source, copy.bytes);
  return CHIPSET_STATUS_OK;
}

chipset_status run_fill(chipset_stream, const void* args) {
  const auto& fill = *static_cast<const FillArgs*>(args);
  parallel_for(static_cast<int64_t>(fill.bytes), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(fill.destination) + begin, fill.value & 0xff,
                static_cast<size_t>(end - begin));
  });
  return CHIPSET_STATUS_OK;
}

// The rules that mem_copy, mem_copy_peer and mem_fill share.
chipset_status check_transfer(const char* function, Stream* stream, const void* a, const void* b,
                              uint64_t bytes) {
  if (stream == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "%s: the stream is missing (NULL)", function);
  }
  if (bytes > 0 && (a == nullptr || b == nullptr)) {
    return fail(CHIPSET_STATUS_INVALID, "%s: %" PRIu64 " bytes at address NULL", function, bytes);
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace

int32_t device_total() {
  static const auto total = static_cast<int32_t>(option_number("devices", 1, 1, 64));
  return total;
}

chipset_status check_device(const char* function, int32_t device) {
  if (device >= 0 && device < device_total()) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_INVALID,
              "%s: there is no device %d; the last one is %d (option devices=N makes more)",
              function, device, device_total() - 1);
}

chipset_status cpu_device_count(int32_t* count) {
  if (count == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "device_count: the out parameter is missing (NULL)");
  }
  *count = device_total();
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_device_info(int32_t device, chipset_device_info* info) {
  if (const chipset_status s = check_device("device_info", device); s != CHIPSET_STATUS_OK) {
    return s;
  }
  if (info == nullptr || info->struct_size < sizeof(uint32_t)) {
    return fail(CHIPSET_STATUS_INVALID,
                "device_info: info is missing or its struct_size is not set (VER-002)");
  }
  chipset_device_info all = {};
  all.struct_size = info->struct_size;
  all.compute_units = static_cast<uint32_t>(thread_count());
  static const std::string* const name = new std::string(processor_name());
  put_text(all.name, name->c_str());
  put_text(all.vendor, __builtin_cpu_is("intel") ? "Intel" : __builtin_cpu_is("amd") ? "AMD" : "");
  char architecture[64];
  std::snprintf(architecture, sizeof(architecture), "x86-64-%s", isa_name());
  put_text(all.architecture, architecture);
  put_text(all.driver, "");
  all.capabilities =
      CHIPSET_CAPABILITY_CAPTURE | CHIPSET_CAPABILITY_INLINE | CHIPSET_CAPABILITY_HOST_ASYNC;
  if (unified()) all.capabilities |= CHIPSET_CAPABILITY_UNIFIED;
  if (device_total() > 1) all.capabilities |= CHIPSET_CAPABILITY_PEER;
  all.total_memory = total_memory();
  all.max_allocation = total_memory();
  all.dtypes = (uint64_t{1} << (CHIPSET_DTYPE_OPAQUE128 + 1)) - 1;
  all.alignment = kAlignment;
  all.preferred_vector_bytes = isa() >= Isa::kAvx512 ? 64 : isa() == Isa::kAvx2 ? 32 : 16;
  std::memcpy(info, &all, std::min<size_t>(info->struct_size, sizeof(all)));
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_device_memory(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
  if (const chipset_status s = check_device("device_memory", device); s != CHIPSET_STATUS_OK) {
    return s;
  }
  if (free_bytes == nullptr || total_bytes == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "device_memory: an out parameter is missing (NULL)");
  }
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  const uint64_t total = total_memory();
  const uint64_t unused = total - std::min(total, all.bytes);
  // The system takes pages when they are first touched: what is allocated and not yet touched is
  // available to it, and free to nobody.
  const uint64_t untouched = all.bytes - std::min(all.bytes, resident_memory());
  const uint64_t available = meminfo("MemAvailable:");
  *free_bytes =
      available == 0 ? unused : std::min(unused, available - std::min(available, untouched));
  *total_bytes = total;
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_device_sync(int32_t device) { return check_device("device_sync", device); }

chipset_status cpu_mem_alloc(int32_t device, int32_t kind, uint64_t bytes, void** pointer) {
  if (pointer == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "mem_alloc: the out parameter is missing (NULL)");
  }
  *pointer = nullptr;
  if (const chipset_status s = check_device("mem_alloc", device); s != CHIPSET_STATUS_OK) return s;
  if (kind != CHIPSET_MEMORY_KIND_DEVICE && kind != CHIPSET_MEMORY_KIND_HOST) {
    return fail(CHIPSET_STATUS_INVALID, "mem_alloc: unknown memory kind %d", kind);
  }
  if (bytes == 0) return CHIPSET_STATUS_OK;
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  // malloc would promise more than there is, and the kernel would then end the process.
  const uint64_t total = total_memory();
  if (bytes > total || all.bytes > total - bytes) {
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY,
                "mem_alloc: %" PRIu64 " bytes wanted, %" PRIu64 " of %" PRIu64
                " are allocated (option memory_mib sets the limit)",
                bytes, all.bytes, total);
  }
  const uint64_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  void* made = nullptr;
  if (posix_memalign(&made, alignment, bytes) != 0) {
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "mem_alloc: the system has no %" PRIu64 " bytes left",
                bytes);
  }
  if (alignment == kHugePage) madvise(made, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  all.live.emplace(made, Allocation{device, bytes});
  all.bytes += bytes;
  *pointer = made;
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_mem_free(int32_t device, void* pointer) {
  if (const chipset_status s = check_device("mem_free", device); s != CHIPSET_STATUS_OK) return s;
  if (pointer == nullptr) return CHIPSET_STATUS_OK;
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  const auto found = all.live.find(pointer);
  if (found == all.live.end() || found->second.device != device) {
    return fail(CHIPSET_STATUS_INVALID,
                "mem_free: %p is not from mem_alloc of device %d, or was freed before", pointer,
                device);
  }
  all.bytes -= found->second.bytes;
  all.live.erase(found);
  std::free(pointer);
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_mem_copy(chipset_stream stream, void* destination, const void* source,
                            uint64_t bytes, int32_t kind) {
  Stream* s = as_stream(stream);
  if (const chipset_status status = check_transfer("mem_copy", s, destination, source, bytes);
      status != CHIPSET_STATUS_OK) {
    return status;
  }
  if (kind < CHIPSET_COPY_KIND_HOST_TO_DEVICE || kind > CHIPSET_COPY_KIND_DEVICE_TO_DEVICE) {
    return fail(CHIPSET_STATUS_INVALID, "mem_copy: unknown copy kind %d", kind);
  }
  if (s->capture != nullptr && kind != CHIPSET_COPY_KIND_DEVICE_TO_DEVICE) {
    return spoil_capture(*s, "mem_copy with host memory");
  }
  return run_or_record(stream, run_copy, CopyArgs{destination, source, bytes});
}

chipset_status cpu_mem_fill(chipset_stream stream, void* destination, int32_t value,
                            uint64_t bytes) {
  if (const chipset_status status =
          check_transfer("mem_fill", as_stream(stream), destination, destination, bytes);
      status != CHIPSET_STATUS_OK) {
    return status;
  }
  return run_or_record(stream, run_fill, FillArgs{destination, value, bytes});
}

chipset_status cpu_mem_copy_peer(chipset_stream stream, void* destination, const void* source,
                                 int32_t source_device, uint64_t bytes) {
  if (const chipset_status status =
          check_transfer("mem_copy_peer", as_stream(stream), destination, source, bytes);
      status != CHIPSET_STATUS_OK) {
    return status;
  }
  if (const chipset_status status = check_device("mem_copy_peer", source_device);
      status != CHIPSET_STATUS_OK) {
    return status;
  }
  return run_or_record(stream, run_copy, CopyArgs{destination, source, bytes});
}

}  // namespace chipset::cpu
