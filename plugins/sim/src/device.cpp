// SPDX-License-Identifier: Apache-2.0
// Devices and their memory.
#include <algorithm>
#include <cstring>

#include "config.h"
#include "functions.h"

namespace chipset::sim {

std::string device_fault(std::int32_t device) {
  if (device >= 0 && device < config().devices) return "";
  return text("STA-001: ", text_of(current_call()), ": there is no device ", device, "; ",
              config().devices, " present, numbered from 0 (option devices makes more)");
}

chipset_status device_count(std::int32_t* count) {
  if (count == nullptr) return fail(CHIPSET_STATUS_INVALID, "device_count: count is NULL");
  *count = config().devices;
  return CHIPSET_STATUS_OK;
}

chipset_status device_info(std::int32_t device, chipset_device_info* info) {
  if (const std::string f = device_fault(device); !f.empty())
    return fail(CHIPSET_STATUS_INVALID, f);
  if (info == nullptr || info->struct_size < sizeof(std::uint32_t))
    return fail(CHIPSET_STATUS_INVALID,
                "device_info: info is NULL or its struct_size is not set (VER-002)");
  chipset_device_info all{};
  all.struct_size = info->struct_size;
  const auto put = [](char (&field)[CHIPSET_NAME_SIZE], const std::string& value) {
    std::strncpy(field, value.c_str(), sizeof field - 1);
  };
  put(all.name, "strict simulated chip (" + config().chip.name + ")");
  put(all.vendor, "Chipset");
  put(all.architecture, "sim");
  put(all.driver, text("scheduler mode=", mode_name(config().mode), " seed=", config().seed));
  all.capabilities =
      CHIPSET_CAPABILITY_EMULATED | CHIPSET_CAPABILITY_HOST_ASYNC | CHIPSET_CAPABILITY_CAPTURE;
  if (config().devices > 1) all.capabilities |= CHIPSET_CAPABILITY_PEER;
  all.total_memory = all.max_allocation = config().memory;
  chipset_device_info inner{};
  inner.struct_size = sizeof inner;
  if (borrowed().device_info(0, &inner) == CHIPSET_STATUS_OK) {
    all.dtypes = inner.dtypes;
    all.preferred_vector_bytes = inner.preferred_vector_bytes;
    all.compute_units = inner.compute_units;
  }
  all.alignment = 64;
  std::memcpy(info, &all, std::min<std::size_t>(info->struct_size, sizeof all));
  return CHIPSET_STATUS_OK;
}

chipset_status device_memory(std::int32_t device, std::uint64_t* free, std::uint64_t* total) {
  if (const std::string f = device_fault(device); !f.empty())
    return fail(CHIPSET_STATUS_INVALID, f);
  if (free == nullptr || total == nullptr)
    return fail(CHIPSET_STATUS_INVALID, "device_memory: an out parameter is NULL");
  Lock lock(simulator_mutex());
  *total = config().memory;
  *free = config().memory - used_bytes(device);
  return CHIPSET_STATUS_OK;
}

chipset_status device_sync(std::int32_t device) {
  if (const std::string f = device_fault(device); !f.empty()) return fault(f);
  Lock lock(simulator_mutex());
  const auto streams = streams_of(device);
  for (const auto& stream : streams)
    if (stream->capture != nullptr) return spoil(*stream);
  std::vector<std::shared_ptr<Point>> ends;
  for (const auto& stream : streams) ends.push_back(present_end(stream));
  drive(lock, ends);
  host_passes(ends);
  check_red_zones(device, true);
  chipset_status status = lost_status(device);
  for (const auto& stream : streams)
    if (status == CHIPSET_STATUS_OK) status = surface(*stream);
  return status;
}

chipset_status mem_alloc(std::int32_t device, std::int32_t kind, std::uint64_t bytes, void** out) {
  if (out == nullptr) return fail(CHIPSET_STATUS_INVALID, "mem_alloc: pointer is NULL");
  *out = nullptr;
  if (const std::string f = device_fault(device); !f.empty()) return fault(f);
  if (kind != CHIPSET_MEMORY_KIND_DEVICE && kind != CHIPSET_MEMORY_KIND_HOST)
    return fail(CHIPSET_STATUS_INVALID, text("mem_alloc: kind ", kind, " is no memory kind"));
  if (bytes == 0) return CHIPSET_STATUS_OK;
  Lock lock(simulator_mutex());
  install_handler();
  return allocate(device, kind, bytes, out);
}

chipset_status mem_free(std::int32_t device, void* pointer) {
  if (const std::string f = device_fault(device); !f.empty()) return fault(f);
  if (pointer == nullptr) return CHIPSET_STATUS_OK;
  Lock lock(simulator_mutex());
  Allocation* a = find(address(pointer));
  const std::string what = text("MEM-002: ", text_of(current_call()), ": ", pointer);
  if (a == nullptr) return fault(what + " was never allocated by this chip");
  if (a->freed != 0) return fault(what + " is freed for the second time: " + text_of(*a));
  if (a->base != address(pointer)) return fault(what + " is not the start of " + text_of(*a));
  if (a->device != device)
    return fault(text(what, " is not of sim:", device, ", but ", text_of(*a)));
  std::shared_ptr<Stream> user;
  if (const auto use = pending_use(a->base, a->end(), &user);
      use != nullptr && !device_at(user->device).lost)
    return fault(text(what, ", ", text_of(*a), ", is freed while ", text_of(use->call),
                      " of stream ", user->number,
                      " has yet to use it; synchronise with that stream first, or tell the "
                      "allocator of it (record_stream)"));
  if (const std::string flight = flight_text(a->base, a->end());
      !flight.empty() && !device_at(device).lost)
    return fault(text(what, ", ", text_of(*a), ", is freed while it is used by ", flight));
  release(*a);
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::sim
