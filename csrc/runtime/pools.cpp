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
    points_.push_back({index, stream});
    if (record(points_.back()) == CHIPSET_STATUS_DEVICE_LOST) drop_last();
  }
}

chipset_status Fence::record(Point& point) {
  if (find_device_of(point.stream) < 0) return CHIPSET_STATUS_DEVICE_LOST;  // passed by its end
  if (point.event == nullptr) {
    try {
      point.event = acquire_event(point.device, 0);
    } catch (const Error& error) {
      return error.status;
    }
  }
  const chipset_status status = device(point.device).api->event_record(point.event, point.stream);
  point.recorded = status == CHIPSET_STATUS_OK;
  if (!point.recorded) take_error();
  return status;
}

void Fence::drop_last() {
  release_event(points_.back().device, 0, points_.back().event);
  points_.pop_back();
}

bool Fence::passed() {
  while (!points_.empty()) {
    Point& point = points_.back();
    chipset_status status = point.recorded ? CHIPSET_STATUS_OK : record(point);
    if (status == CHIPSET_STATUS_OK) {
      status = device(point.device).api->event_query(point.event, 0);
      if (status == CHIPSET_STATUS_NOT_READY) return false;
      if (status != CHIPSET_STATUS_OK) take_error();
    }
    if (status != CHIPSET_STATUS_OK && status != CHIPSET_STATUS_DEVICE_LOST) return false;
    drop_last();
  }
  return true;
}

void Fence::wait() {
  while (!points_.empty()) {
    Point& point = points_.back();
    const chipset_api* api = device(point.device).api;
    chipset_status status = point.recorded ? CHIPSET_STATUS_OK : record(point);
    if (status != CHIPSET_STATUS_DEVICE_LOST)
      status = point.recorded ? api->event_query(point.event, CHIPSET_WAIT_FOREVER)
                              : api->stream_sync(point.stream);
    const bool lost = status == CHIPSET_STATUS_DEVICE_LOST;
    if (lost) take_error();
    if (lost || status == CHIPSET_STATUS_OK || status == CHIPSET_STATUS_OUT_OF_RANGE) drop_last();
    if (!lost) check(status, "event_query");
  }
}

}  // namespace chipset::runtime
