// SPDX-License-Identifier: Apache-2.0
// The runtime: loads plugins, numbers their devices, and keeps what every chip needs above the
// interface (caching allocators, stream and event pools, error text). It knows no framework.
//
// Everything here may be called from any thread. Functions report failure by throwing Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "chipset/chipset.h"

#define CHIPSET_RUNTIME_API __attribute__((visibility("default")))

namespace chipset::runtime {

// ---- errors ---------------------------------------------------------------------------------

// what() reads "plugin: function: text".
struct CHIPSET_RUNTIME_API Error : std::runtime_error {
  Error(chipset_status s, const std::string& text) : std::runtime_error(text), status(s) {}
  chipset_status status;
};

[[noreturn]] CHIPSET_RUNTIME_API void fail(chipset_status status, const char* function);

// Throws unless OK, with the text that the plugin gave through set_error in this thread.
inline void check(chipset_status status, const char* function) {
  if (status != CHIPSET_STATUS_OK) [[unlikely]]
    fail(status, function);
}

// Returns the calling thread's last error text and forgets it. For callers that handle a status.
CHIPSET_RUNTIME_API std::string take_error();
// "INVALID", "UNSUPPORTED", …
CHIPSET_RUNTIME_API const char* status_name(chipset_status status);

// ---- plugins and devices --------------------------------------------------------------------

struct PluginSpec {
  std::string name;                            // as in `--device NAME`
  std::string library;                         // path of the shared library
  std::map<std::string, std::string> options;  // answered by host->option
};

struct Device {
  int index;               // chip:N, over all launched plugins
  int local;               // index within the plugin
  const chipset_api* api;  // complete: as large as this header's; absent functions are NULL.
                           // May be wrapped (composed functions, check, trace, record).
  chipset_device_info info;
  std::string plugin;
};

// What trying a plugin found. `available` is false with a reason that names fault and way out.
struct Probe {
  bool available = false;
  std::string reason;
  std::string version;
  std::string build_info;
  int major = 0;
  int minor = 0;
  std::vector<chipset_device_info> devices;
};

// Loads the plugin and looks at its devices without launching it. Never throws for a bad plugin.
CHIPSET_RUNTIME_API Probe probe(const PluginSpec& spec);

// Makes the devices of these plugins available, in this order, after those launched before. A
// plugin launched before with the same library and options is left as it is. A plugin that cannot
// be loaded, or has no device, throws and changes nothing.
CHIPSET_RUNTIME_API void launch(const std::vector<PluginSpec>& plugins);
CHIPSET_RUNTIME_API int device_count();
CHIPSET_RUNTIME_API Device& device(int index);
// Global index of the plugin's device; throws when it is not launched or out of range.
CHIPSET_RUNTIME_API int find_device(const std::string& plugin, int local);
// Device that made the stream (any live stream made through a Device's api).
CHIPSET_RUNTIME_API Device& device_of(chipset_stream stream);
// True in a child process forked after launch, where no device can be used: use spawn.
CHIPSET_RUNTIME_API bool in_bad_fork();

// True if the function is there: inside struct_size and not NULL.
template <class Member>
inline bool has(const chipset_api* api, Member chipset_api::* member) {
  const auto offset =
      reinterpret_cast<const char*>(&(api->*member)) - reinterpret_cast<const char*>(api);
  return static_cast<std::size_t>(offset) + sizeof(Member) <= api->struct_size &&
         api->*member != nullptr;
}

// ---- device memory: the caching allocator ---------------------------------------------------

// Stream ordered: the block belongs to `stream`; after deallocate it is given again at once to
// work of that stream, and to other streams only when they cannot touch it early. Zero bytes give
// NULL. Throws Error(OUT_OF_MEMORY) with a memory map after freeing the cache and trying again.
CHIPSET_RUNTIME_API void* allocate(int device, std::size_t bytes, chipset_stream stream);
CHIPSET_RUNTIME_API void deallocate(void* pointer);
// The same, and faster: the handle saves the search for the pointer. Either way may free.
struct Allocation {
  void* pointer;
  void* handle;
};
CHIPSET_RUNTIME_API Allocation allocate_block(int device, std::size_t bytes, chipset_stream stream);
CHIPSET_RUNTIME_API void deallocate_block(void* handle);
// What a handle stands for, for those who account memory. Bytes after rounding.
struct Extent {
  void* pointer;
  std::size_t bytes;
  int device;
};
CHIPSET_RUNTIME_API Extent extent_of(const void* handle);
// Work of another stream uses the block: it is not given again before that stream has passed the
// point at which it is deallocated.
CHIPSET_RUNTIME_API void record_stream(void* pointer, chipset_stream stream);
// Usable bytes of the block that begins at pointer (at least what was asked), 0 if unknown.
CHIPSET_RUNTIME_API std::size_t block_size(const void* pointer);
// Device whose allocator owns the address (anywhere inside a block), or -1.
CHIPSET_RUNTIME_API int owner_of(const void* pointer);
// Gives cached memory that nothing uses back to the device.
CHIPSET_RUNTIME_API void empty_cache(int device);

// Graph capture: from begin to end every allocation of the device comes from the pool `id`. Its
// memory stays reserved, so that the addresses in the graph remain valid, until release.
CHIPSET_RUNTIME_API void begin_private_pool(int device, std::uint64_t id);
CHIPSET_RUNTIME_API void end_private_pool(int device, std::uint64_t id);
CHIPSET_RUNTIME_API void release_private_pool(int device, std::uint64_t id);

struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  // total increase
  std::int64_t freed = 0;      // total decrease
};

// As torch.accelerator.memory_stats names them; index 0 all, 1 small pool, 2 large pool.
struct MemoryStats {
  Stat allocation[3];      // blocks given to callers
  Stat segment[3];         // pieces of memory taken from the device
  Stat active[3];          // given, or waiting for a stream to pass
  Stat inactive_split[3];  // free parts of segments that are in use
  Stat allocated_bytes[3];
  Stat reserved_bytes[3];
  Stat active_bytes[3];
  Stat inactive_split_bytes[3];
  Stat requested_bytes[3];  // before rounding
  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;
};
CHIPSET_RUNTIME_API MemoryStats memory_stats(int device);
CHIPSET_RUNTIME_API void reset_peak_memory_stats(int device);
CHIPSET_RUNTIME_API void reset_accumulated_memory_stats(int device);
// The text that an out-of-memory error carries: totals, segments, largest free piece.
CHIPSET_RUNTIME_API std::string memory_map(int device);

// ---- page-locked host memory ----------------------------------------------------------------

// Cached; a block that streams use (record_host) is given again only after they passed that point.
CHIPSET_RUNTIME_API void* allocate_host(int device, std::size_t bytes);
CHIPSET_RUNTIME_API void deallocate_host(void* pointer);
// An asynchronous copy enqueued in the stream uses the block that holds this address. False when
// the address is in no such block.
CHIPSET_RUNTIME_API bool record_host(const void* pointer, chipset_stream stream);
// True anywhere inside a block of allocate_host.
CHIPSET_RUNTIME_API bool is_pinned(const void* pointer);
CHIPSET_RUNTIME_API void empty_host_cache();

// ---- streams and events ---------------------------------------------------------------------

constexpr int kStreamsPerPriority = 8;
CHIPSET_RUNTIME_API chipset_stream default_stream(int device);
// Stream number i (taken modulo kStreamsPerPriority) of a priority (0, or negative: urgent).
CHIPSET_RUNTIME_API chipset_stream pool_stream(int device, int priority, int i);
// Events with the given chipset_event_flag bits; release gives one back for reuse.
CHIPSET_RUNTIME_API chipset_event acquire_event(int device, std::uint32_t flags);
CHIPSET_RUNTIME_API void release_event(int device, std::uint32_t flags, chipset_event event);

// ---- what happened --------------------------------------------------------------------------

// Calls of optional functions that the core composed from others, by "plugin.function".
CHIPSET_RUNTIME_API std::map<std::string, std::uint64_t> composed_counts();
CHIPSET_RUNTIME_API void reset_composed_counts();
// Adds one finished span to the trace of CHIPSET_TRACE (for example a host fallback); does nothing
// when no trace runs. Times from trace_now().
CHIPSET_RUNTIME_API bool tracing();
CHIPSET_RUNTIME_API double trace_now();  // microseconds
CHIPSET_RUNTIME_API void trace_span(const char* category, const char* name, double start,
                                    double end, const char* arguments_json);
// Writes out what trace and record hold so far; also done at exit.
CHIPSET_RUNTIME_API void flush();

}  // namespace chipset::runtime
