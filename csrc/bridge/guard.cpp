// SPDX-License-Identifier: Apache-2.0
// Devices, streams and events as torch's generic code (torch.accelerator, torch.Stream, autograd)
// asks for them.
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

#include "allocator.h"
#include "state.h"

namespace chipset::bridge {
namespace {

// What torch keeps as the opaque event.
struct Event {
  chipset_event event;
  int device;
  uint32_t flags;
};

std::atomic<uint32_t> next_stream[kMaxDevices][2];

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    const uint64_t dtypes =
        guarded("device", [&] { return runtime::device(index_of(device)).info.dtypes; });
    c10::DeviceCapability out;
    out.capability_data.capability_bits = 0;
    const auto add = [&](int32_t dtype, unsigned bit) {
      if (dtypes >> dtype & 1) out.capability_data.capability_bits |= uint64_t{1} << bit;
    };
    add(CHIPSET_DTYPE_U8, c10::kIndex_Byte);
    add(CHIPSET_DTYPE_I8, c10::kIndex_Char);
    add(CHIPSET_DTYPE_I16, c10::kIndex_Short);
    add(CHIPSET_DTYPE_I32, c10::kIndex_Int);
    add(CHIPSET_DTYPE_I64, c10::kIndex_Long);
    add(CHIPSET_DTYPE_F16, c10::kIndex_Half);
    add(CHIPSET_DTYPE_F32, c10::kIndex_Float);
    add(CHIPSET_DTYPE_F64, c10::kIndex_Double);
    add(CHIPSET_DTYPE_BOOL, c10::kIndex_Bool);
    add(CHIPSET_DTYPE_BF16, c10::kIndex_BFloat16);
    add(CHIPSET_DTYPE_F8E4M3, c10::kIndex_Float8_e4m3fn);
    add(CHIPSET_DTYPE_F8E5M2, c10::kIndex_Float8_e5m2);
    return out;
  }

  // ---- devices ----
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    if (device.index() != previous.index()) setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override { return chip(current_device()); }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) thread_state().device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    refuse_capture("a device synchronisation");
    const runtime::Device& d =
        guarded("device", [&]() -> runtime::Device& { return runtime::device(device); });
    check(d.api->device_sync(d.local), "device_sync");
  }

  // ---- streams ----
  c10::Stream getStream(c10::Device device) const override {
    return current_torch_stream(existing_index(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, chip(existing_index(device)), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool urgent) const override {
    const int index = existing_index(device);
    const auto number = next_stream[index][urgent ? 1 : 0]++ % runtime::kStreamsPerPriority;
    const auto id = 1 + (urgent ? runtime::kStreamsPerPriority : 0) + static_cast<int>(number);
    return c10::Stream(c10::Stream::UNSAFE, chip(index), id);
  }
  // Streams have no owner in torch, so they come from the pool, as CUDA's do.
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const int device = existing_index(stream.device_index());
    const c10::Stream previous = current_torch_stream(device);
    const chipset_stream handle = stream_of(stream);
    thread_state().streams[device] = {stream.id(), handle};
    return previous;
  }
  void* getStreamNativeHandle(c10::Stream stream) const override { return stream_of(stream); }
  bool queryStream(const c10::Stream& stream) const override {
    refuse_capture("a stream query");
    const int device = stream.device_index();
    const Event event{guarded("event", [&] { return runtime::acquire_event(device, 0); }), device,
                      0};
    check(device_api[device]->event_record(event.event, stream_of(stream)), "event_record");
    const bool passed = passed_now(event);
    runtime::release_event(device, 0, event.event);
    return passed;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    refuse_capture("a stream synchronisation");
    check(device_api[stream.device_index()]->stream_sync(stream_of(stream)), "stream_sync");
  }
  bool isStreamCapturing(const c10::Stream&) const override { return capturing(); }
  void recordDataPtrOnStream(const c10::DataPtr& pointer,
                             const c10::Stream& stream) const override {
    device_allocator()->recordStream(pointer, stream);
  }

  // ---- events ----
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag flag) const override {
    const int device = stream.device_index();
    if (*event == nullptr) {
      const uint32_t flags =
          flag == c10::EventFlag::BACKEND_DEFAULT ? CHIPSET_EVENT_FLAG_TIMING : 0;
      *event = new Event{guarded("event", [&] { return runtime::acquire_event(device, flags); }),
                         device, flags};
    }
    const Event* e = static_cast<Event*>(*event);
    TORCH_CHECK(e->device == device, "chip: an event of chip:", e->device,
                " cannot be recorded in a stream of chip:", device);
    check(device_api[device]->event_record(e->event, stream_of(stream)), "event_record");
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const Event* e = static_cast<Event*>(event);
    const int device = stream.device_index();
    if (runtime::device(e->device).plugin != runtime::device(device).plugin) {  // no shared events
      synchronizeEvent(event);
      return;
    }
    check(device_api[device]->stream_wait(stream_of(stream), e->event), "stream_wait");
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || passed_now(*static_cast<Event*>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    refuse_capture("an event synchronisation");
    const Event* e = static_cast<Event*>(event);
    check(device_api[e->device]->event_query(e->event, CHIPSET_WAIT_FOREVER), "event_query");
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event == nullptr || in_bad_fork()) return;
    const Event* e = static_cast<Event*>(event);
    try {
      runtime::release_event(e->device, e->flags, e->event);
    } catch (...) {  // a lost device; its events go with it
    }
    delete e;
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "chip: both events must be recorded before elapsed_time is asked");
    const Event* s = static_cast<Event*>(start);
    const Event* e = static_cast<Event*>(end);
    const chipset_api* api = device_api[s->device];
    TORCH_CHECK_NOT_IMPLEMENTED(api->event_elapsed != nullptr,
                                "chip: this plugin's events carry no time (event_elapsed)");
    double milliseconds = 0;
    check(api->event_elapsed(s->event, e->event, &milliseconds), "event_elapsed");
    return milliseconds;
  }

 private:
  static bool passed_now(const Event& event) {
    const chipset_status status = device_api[event.device]->event_query(event.event, 0);
    if (status == CHIPSET_STATUS_NOT_READY) return false;
    check(status, "event_query");
    return true;
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace chipset::bridge
