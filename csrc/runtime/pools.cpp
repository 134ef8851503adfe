// SPDX-License-Identifier: Apache-2.0
// Streams and events that are made once and used again.
#include "pools.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "plugin.h"

namespace chipset::runtime {
namespace {

struct DevicePools {
  std::mutex mutex;
  std::atomic<chipset_stream> default_stream{nullptr};
  std::array<std::array<chipset_stream, kStreamsPerPriority>, 2> streams{};
  std::map<std::uint32_t, std::vector<chipset_event>> events;
};
DevicePools& pools(int device) {
  static auto* all = new std::array<DevicePools, kMaxDevices>;
  return (*all)[static_cast<std::size_t>(device)];
}

chipset_stream make_stream(const Device& device, int priority) {
  chipset_stream stream = nullptr;
  check(device.api->stream_create(device.local, priority, &stream), "stream_create");
  return stream;
}

}  // namespace

chipset_stream default_stream(int device) {
  Device& d = runtime::device(device);
  DevicePools& p = pools(device);
  chipset_stream stream = p.default_stream.load(std::memory_order_acquire);
  if (stream != nullptr) [[likely]]
    return stream;
  std::lock_guard lock(p.mutex);
  stream = p.default_stream.load();
  if (stream == nullptr) {
    stream = make_stream(d, 0);
    p.default_stream.store(stream, std::memory_order_release);
  }
  return stream;
}

chipset_stream pool_stream(int device, int priority, int i) {
  Device& d = runtime::device(device);
  DevicePools& p = pools(device);
  const auto index = static_cast<std::size_t>(((i % kStreamsPerPriority) + kStreamsPerPriority) %
                                              kStreamsPerPriority);
  std::lock_guard lock(p.mutex);
  chipset_stream& stream = p.streams[priority < 0 ? 1 : 0][index];
  if (stream == nullptr) stream = make_stream(d, priority < 0 ? -1 : 0);
  return stream;
}

chipset_event acquire_event(int device, std::uint32_t flags) {
  Device& d = runtime::device(device);
  DevicePools& p = pools(device);
  {
    std::lock_guard lock(p.mutex);
    auto& free = p.events[flags];
    if (!free.empty()) {
      chipset_event event = free.back();
      free.pop_back();
      return event;
    }
  }
  chipset_event event = nullptr;
  check(d.api->event_create(d.local, flags, &event), "event_create");
  return event;
}

void release_event(int device, std::uint32_t flags, chipset_event event) {
  if (event == nullptr || retired()) return;
  DevicePools& p = pools(device);
  std::lock_guard lock(p.mutex);
  p.events[flags].push_back(event);
}

Fence::Fence(const std::vector<chipset_stream>& streams) {
  for (chipset_stream stream : streams) {
    const int index = find_device_of(stream);
    if (index < 0) continue;
    chipset_event event = acquire_event(index, 0);
    events_.emplace_back(index, event);
    // A refusal means that the device is lost: then nothing is left to wait for.
    if (device(index).api->event_record(event, stream) != CHIPSET_STATUS_OK) take_error();
  }
}

bool Fence::passed() {
  while (!events_.empty()) {
    const auto [index, event] = events_.back();
    const chipset_status status = device(index).api->event_query(event, 0);
    if (status == CHIPSET_STATUS_NOT_READY) return false;
    if (status != CHIPSET_STATUS_OK) take_error();
    release_event(index, 0, event);
    events_.pop_back();
  }
  return true;
}

void Fence::wait() {
  for (const auto& [index, event] : events_) {
    if (device(index).api->event_query(event, CHIPSET_WAIT_FOREVER) != CHIPSET_STATUS_OK)
      take_error();
    release_event(index, 0, event);
  }
  events_.clear();
}

}  // namespace chipset::runtime
