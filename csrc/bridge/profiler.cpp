// SPDX-License-Identifier: Apache-2.0
// Device time of operators for torch's profiler: an event before and one after each.
#include <torch/csrc/profiler/stubs/base.h>

#include <chrono>
#include <functional>
#include <memory>

#include "state.h"

namespace chipset::bridge {
namespace {

using Stamp = torch::profiler::impl::ProfilerVoidEventStub;

struct Event {
  chipset_event event;
  int device;
  ~Event() {
    if (!in_bad_fork()) runtime::release_event(device, CHIPSET_EVENT_FLAG_TIMING, event);
  }
};

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, Stamp* stamp, int64_t* cpu_ns) const override {
    const int index = current_device();
    if (device != nullptr) *device = static_cast<c10::DeviceIndex>(index);
    const chipset_event event = guarded(
        "profiler", [&] { return runtime::acquire_event(index, CHIPSET_EVENT_FLAG_TIMING); });
    *stamp = std::shared_ptr<void>(new Event{event, index},
                                   [](void* e) { delete static_cast<Event*>(e); });
    if (cpu_ns != nullptr) {
      *cpu_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
    }
    check(device_api[index]->event_record(event, current_stream(index)), "event_record");
  }
  float elapsed(const Stamp* begin, const Stamp* end) const override {
    const auto* from = static_cast<const Event*>(begin->get());
    const auto* to = static_cast<const Event*>(end->get());
    const chipset_api* api = device_api[from->device];
    if (api->event_elapsed == nullptr) return 0;
    check(api->event_query(to->event, CHIPSET_WAIT_FOREVER), "event_query");
    double milliseconds = 0;
    check(api->event_elapsed(from->event, to->event, &milliseconds), "event_elapsed");
    return static_cast<float>(milliseconds * 1000);  // microseconds
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
