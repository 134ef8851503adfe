// SPDX-License-Identifier: Apache-2.0
// Devices, their memory, streams and events, and the faults of each.
#pragma once

#include <atomic>
#include <chipset_sdk.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cl.h"

namespace chipset::opencl {

struct Stream;

struct Allocation {
  uint64_t bytes;
  cl_mem pinned;  // of kind HOST: a buffer mapped for as long as it lives; NULL: of kind DEVICE
};

struct Device {
  int32_t index = 0;
  cl_device_id id = nullptr;
  cl_context context = nullptr;
  cl_command_queue service = nullptr;  // for mapping memory
  std::string name, vendor, platform, driver, version;
  bool is_cpu = false, fp16 = false, fp64 = false;
  uint32_t compute_units = 0, vector_width = 0;
  uint64_t total_memory = 0, max_allocation = 0, local_memory = 0, max_group = 0;

  std::mutex mutex;  // over the rest
  std::map<uintptr_t, Allocation> allocations;
  uint64_t allocated = 0;
  std::set<Stream*> streams;
  std::string lost;  // why; empty while the device works
  std::atomic<bool> is_lost{false};

  // Throws DEVICE_LOST once the device was lost.
  void check_alive();
  // Like opencl::check, and remembers a loss. `finished`: the call waited for work, so that lack of
  // resources means that the work failed.
  void check(cl_int error, const char* what, bool finished = false);
  // Whether the address lies in page-locked host memory.
  bool is_pinned(const void* address);
};

// The word that kernels set when an index lies outside its dimension (ERR-003).
struct Faults {
  Device* device;
  int32_t* word = nullptr;         // device memory
  std::atomic<bool> armed{false};  // a kernel that may set it was enqueued since the last look
  ~Faults();
};

struct Stream {
  Device* device;
  cl_command_queue queue;
  std::shared_ptr<Faults> faults;
  void* scratch =
      nullptr;  // device memory for the work of one call; in order, so reused by the next
  uint64_t scratch_bytes = 0;

  // Device memory of at least so many bytes, good until the stream's next call to this.
  void* get_scratch(uint64_t bytes);
};

struct Event {
  Device* device;
  uint32_t flags;
  std::mutex mutex;
  cl_event point = nullptr;  // NULL: never recorded
  std::shared_ptr<Faults> faults;
};

inline Stream* as_stream(chipset_stream handle) {
  if (handle == nullptr) sdk::fail(CHIPSET_STATUS_INVALID, "opencl: the stream is missing (NULL)");
  return reinterpret_cast<Stream*>(handle);
}
inline Event* as_event(chipset_event handle) {
  if (handle == nullptr) sdk::fail(CHIPSET_STATUS_INVALID, "opencl: the event is missing (NULL)");
  return reinterpret_cast<Event*>(handle);
}

// Every device with shared virtual memory, found once; others are named in a warning.
const std::vector<std::unique_ptr<Device>>& devices();
// Throws INVALID for a device that does not exist.
Device& device_at(int32_t index);

}  // namespace chipset::opencl
