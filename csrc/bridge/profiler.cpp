// SPDX-License-Identifier: Apache-2.0
// Device time of operators for torch's profiler without Kineto: events before and after each. With
// Kineto, profiler_rows.cpp shows the calls themselves.
#include <torch/csrc/profiler/stubs/base.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "state.h"

namespace chipset::bridge {
namespace {

using Stamp = torch::profiler::impl::ProfilerVoidEventStub;

// A point of every device's current stream: torch does not say of which device an operator is.
struct Point {
  struct Event {
    chipset_event event;
    int device;
  };
  std::vector<Event> events;

  Point() {
    for (int device = 0; device < device_count(); ++device) {
      events.push_back(
          {guarded("profiler",
                   [&] { return runtime::acquire_event(device, CHIPSET_EVENT_FLAG_TIMING); }),
           device});
      check(device_api[device]->event_record(events.back().event, current_stream(device)),
            "event_record");
    }
  }
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;
  ~Point() {
    if (in_bad_fork()) return;
    for (const Event& e : events) {
      runtime::release_event(e.device, CHIPSET_EVENT_FLAG_TIMING, e.event);
    }
  }
};

double elapsed_ms(const Point::Event& begin, const Point::Event& end) {
  const chipset_api* api = device_api[begin.device];
  if (api->event_elapsed == nullptr) return 0;
  check(api->event_query(end.event, CHIPSET_WAIT_FOREVER), "event_query");
  double milliseconds = 0;
  check(api->event_elapsed(begin.event, end.event, &milliseconds), "event_elapsed");
  return milliseconds;
}

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, Stamp* stamp, int64_t* cpu_ns) const override {
    if (device != nullptr) *device = static_cast<c10::DeviceIndex>(current_device());
    if (cpu_ns != nullptr) {
      *cpu_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
    }
    *stamp = std::make_shared<Point>();
  }
  // The longest of the devices' times: an operator runs on one.
  float elapsed(const Stamp* begin, const Stamp* end) const override {
    const auto& from = static_cast<const Point*>(begin->get())->events;
    const auto& to = static_cast<const Point*>(end->get())->events;
    double longest = 0;
    for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
      longest = std::max(longest, elapsed_ms(from[i], to[i]));
    }
    return static_cast<float>(longest * 1000);  // microseconds
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> body) const override {
    for (int device = 0; device < device_count(); ++device) body(device);
  }
  void synchronize() const override {
    for (int device = 0; device < device_count(); ++device) {
      check(device_api[device]->device_sync(runtime::device(device).local), "device_sync");
    }
  }
};

Stubs stubs;
[[maybe_unused]] const bool registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
  return true;
}();

}  // namespace
}  // namespace chipset::bridge
