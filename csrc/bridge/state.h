// SPDX-License-Identifier: Apache-2.0
// Per-thread state that PyTorch wants and the waist does not have: the current device and the
// current stream of each device; and how a status becomes a torch exception.
#pragma once

#include <c10/core/Stream.h>
#include <c10/macros/Macros.h>
#include <chipset/chipset.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

#include "runtime.h"

namespace chipset::bridge {

constexpr int kMaxDevices = 64;

// A stream as torch knows it (an id) and as the waist knows it. Id 0 is the device's default.
struct CurrentStream {
  c10::StreamId id = 0;
  chipset_stream stream = nullptr;  // nullptr until first used by this thread
};

struct ThreadState {
  int device = 0;
  CurrentStream streams[kMaxDevices];
};
ThreadState& thread_state() noexcept;

// Tables and capabilities of the launched devices, filled by adopt_devices(). Cached here because
// every operator reads them.
extern const chipset_api* device_api[kMaxDevices];
extern uint64_t device_capabilities[kMaxDevices];
extern int adopted_devices;
void adopt_devices();
inline bool unified(int device) noexcept {
  return (device_capabilities[device] & CHIPSET_CAPABILITY_UNIFIED) != 0;
}

inline int current_device() noexcept { return thread_state().device; }
void set_device(int device);  // throws for an index out of range
int device_count() noexcept;  // those taken in; 0 in a forked child

// The stream into which this thread's work for the device goes. Throws in a forked child.
chipset_stream current_stream_slow(int device);
inline chipset_stream current_stream(int device) {
  const chipset_stream stream = thread_state().streams[device].stream;
  return stream != nullptr ? stream : current_stream_slow(device);
}
c10::Stream current_torch_stream(int device);
chipset_stream stream_of(const c10::Stream& stream);

inline c10::Device chip(int index) noexcept {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}
// A device's index, or the current one where the device has none.
inline int index_of(c10::Device device) noexcept {
  return device.has_index() ? device.index() : current_device();
}
// The same for a device that a caller named: throws where there is none with this index.
[[noreturn]] void raise_no_device(int device);
inline int existing_index(int device) {
  if (device < 0 || device >= adopted_devices) [[unlikely]]
    raise_no_device(device);
  return device;
}
inline int existing_index(c10::Device device) { return existing_index(index_of(device)); }

// ---- errors ---------------------------------------------------------------------------------

// Throws the torch exception that fits the status: IndexError for OUT_OF_RANGE, OutOfMemoryError,
// AcceleratorError for DEVICE_LOST, otherwise RuntimeError; the text is the plugin's.
[[noreturn]] void raise(chipset_status status, const char* function);
inline void check(chipset_status status, const char* function) {
  if (status != CHIPSET_STATUS_OK) [[unlikely]]
    raise(status, function);
}
// Runs a call into the runtime; what it throws becomes the torch exception that fits.
[[noreturn]] void raise_current(const char* what);
template <typename Body>
inline decltype(auto) guarded(const char* what, Body&& body) {
  try {
    return body();
  } catch (const runtime::Error&) {
    raise_current(what);
  }
}

// The name of a function of the waist, for messages.
template <auto Function>
inline const char* function_name() noexcept {
#define CHIPSET_FUNCTION(name, ...)                                                 \
  if constexpr (std::is_same_v<decltype(Function), decltype(&chipset_api::name)>) { \
    if (Function == &chipset_api::name) return #name;                               \
  }
#include <chipset/functions.inc>
  return "?";
}

// ---- fork -----------------------------------------------------------------------------------

// True in a child made by fork() after a device was used: no driver survives that.
bool in_bad_fork() noexcept;
[[noreturn]] void raise_bad_fork();

// ---- graph capture --------------------------------------------------------------------------

// True while this thread records a graph on the device.
bool capturing() noexcept;
// Throws when work that cannot be recorded (host access, a synchronisation) is asked for now.
void refuse_capture(const char* what);
// Throws when this thread records a graph on another device: the work would run, unrecorded.
void refuse_capture_elsewhere(int device);

}  // namespace chipset::bridge
