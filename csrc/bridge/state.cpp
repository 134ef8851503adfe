// SPDX-License-Identifier: Apache-2.0
#include "state.h"

#include <c10/util/Exception.h>

namespace chipset::bridge {

const chipset_api* device_api[kMaxDevices] = {};
uint64_t device_capabilities[kMaxDevices] = {};
int adopted_devices = 0;

ThreadState& thread_state() noexcept {
  static thread_local ThreadState state;
  return state;
}

void adopt_devices() {
  const int count = runtime::device_count();
  TORCH_CHECK(count <= kMaxDevices, "chipset: ", count, " devices were launched, and at most ",
              kMaxDevices, " can be used in one process; choose fewer with CHIPSET_DEVICE");
  for (int i = 0; i < count; ++i) {
    device_api[i] = runtime::device(i).api;
    device_capabilities[i] = runtime::device(i).info.capabilities;
  }
  adopted_devices = count;
}

int device_count() noexcept { return in_bad_fork() ? 0 : adopted_devices; }

void set_device(int device) {
  if (in_bad_fork()) raise_bad_fork();
  thread_state().device = existing_index(device);
}

void raise_no_device(int device) {
  const int count = adopted_devices;
  TORCH_CHECK(false, "chip:", device, " does not exist: ", count,
              count == 1 ? " device is" : " devices are",
              " present, chip:0 onwards; 'chipset devices' lists what this machine has");
}

// ---- streams --------------------------------------------------------------------------------

// StreamId of a pool stream: 1 + (urgent ? kStreamsPerPriority : 0) + number.
chipset_stream stream_of(const c10::Stream& stream) {
  const int device = stream.device_index();
  const c10::StreamId id = stream.id();
  return guarded("stream", [&] {
    if (id == 0) return runtime::default_stream(device);
    const int number = static_cast<int>(id) - 1;
    const bool urgent = number >= runtime::kStreamsPerPriority;
    return runtime::pool_stream(device, urgent ? -1 : 0, number % runtime::kStreamsPerPriority);
  });
}

chipset_stream current_stream_slow(int device) {
  if (in_bad_fork()) raise_bad_fork();
  refuse_capture_elsewhere(device);
  CurrentStream& current = thread_state().streams[device];
  current.stream = stream_of(c10::Stream(c10::Stream::UNSAFE, chip(device), current.id));
  return current.stream;
}

c10::Stream current_torch_stream(int device) {
  return c10::Stream(c10::Stream::UNSAFE, chip(device), thread_state().streams[device].id);
}

// ---- errors ---------------------------------------------------------------------------------

namespace {

[[noreturn]] void raise_as(chipset_status status, const char* text) {
  switch (status) {
    case CHIPSET_STATUS_OUT_OF_RANGE:
      TORCH_CHECK_INDEX(false, text);
    case CHIPSET_STATUS_OUT_OF_MEMORY:
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case CHIPSET_STATUS_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case CHIPSET_STATUS_DEVICE_LOST:
      throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, status,
                                  text);
    default:
      TORCH_CHECK(false, text);
  }
}

}  // namespace

void raise(chipset_status status, const char* function) {
  try {
    runtime::fail(status, function);
  } catch (const runtime::Error& error) {
    raise_as(error.status, error.what());
  }
}

void raise_current(const char* what) {
  try {
    throw;
  } catch (const runtime::Error& error) {
    raise_as(error.status, error.what());
  } catch (const std::exception& error) {
    TORCH_CHECK(false, "chipset: ", what, ": ", error.what());
  }
}

// ---- fork -----------------------------------------------------------------------------------

bool in_bad_fork() noexcept { return runtime::in_bad_fork(); }

void raise_bad_fork() {
  TORCH_CHECK(false,
              "chip: this process was forked after a device had been used, and no driver survives "
              "that. Use torch.multiprocessing.set_start_method('spawn') (DataLoader: "
              "multiprocessing_context='spawn'), or first use the device after the fork");
}

}  // namespace chipset::bridge
