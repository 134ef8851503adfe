// SPDX-License-Identifier: Apache-2.0
// The library behind chipset_sdk.PythonDevice. The table lies in Python's memory: the option
// 'table' holds its address and that of a variable that wants the host's, as two hexadecimal
// numbers. Calls go through functions of this library, because the core outlives the interpreter:
// at exit it still returns memory and waits for events, and Python's callbacks are gone by then.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "chipset/chipset.h"

namespace {

constexpr int kDevices = 8;  // PythonDevices in one process

struct Device {
  std::uintptr_t table = 0;  // its address in Python's memory; 0: unused
  chipset_api theirs{}, ours{};
  std::string name, version, build_info;
};
// Never destroyed: the core may call until the process ends.
Device* const devices = new Device[kDevices];

bool interpreter_lives() {
  static const auto answer = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  return answer == nullptr || answer() != 0;
}

// An output of a call that nobody will make good use of: a handle that is not NULL.
template <class T>
void give_handle(T) {}
void give_handle(chipset_event* event) { *event = reinterpret_cast<chipset_event>(devices); }

template <int kDevice, auto kFunction, class Signature>
struct Entry;
template <int kDevice, auto kFunction, class... A>
struct Entry<kDevice, kFunction, chipset_status (*)(A...)> {
  static chipset_status call(A... arguments) {
    if (interpreter_lives()) return (devices[kDevice].theirs.*kFunction)(arguments...);
    // The device ended with the interpreter: all is freed, and there is nothing to wait for.
    (give_handle(arguments), ...);
    return CHIPSET_STATUS_OK;
  }
};

template <int kDevice>
void fill_table(const chipset_api& theirs) {
  Device& device = devices[kDevice];
  std::memcpy(&device.theirs, &theirs, std::min<std::size_t>(theirs.struct_size, sizeof theirs));
  device.name = theirs.name;
  device.version = theirs.version;
  device.build_info = theirs.build_info;
  device.ours = device.theirs;
  device.ours.name = device.name.c_str();
  device.ours.version = device.version.c_str();
  device.ours.build_info = device.build_info.c_str();
#define CHIPSET_FUNCTION(function, required, group, since) \
  if (device.theirs.function != nullptr)                   \
    device.ours.function =                                 \
        Entry<kDevice, &chipset_api::function, decltype(chipset_api::function)>::call;
#include "chipset/functions.inc"
}

using Fill = void (*)(const chipset_api&);
template <int... kDevice>
constexpr std::array<Fill, kDevices> fills(std::integer_sequence<int, kDevice...>) {
  return {fill_table<kDevice>...};
}

}  // namespace

extern "C" CHIPSET_EXPORT const chipset_api* chipset_plugin(const chipset_host* host) {
  const char* option = host->option("table");
  std::uintptr_t table = 0, variable = 0;
  if (option == nullptr || std::sscanf(option, "%" SCNxPTR ":%" SCNxPTR, &table, &variable) != 2) {
    host->set_error(
        "this library serves chipset_sdk.PythonDevice and has no table of its own; describe the "
        "plugin with PythonDevice.plugin()");
    return nullptr;
  }
  *reinterpret_cast<const chipset_host**>(variable) = host;
  for (int i = 0; i < kDevices; ++i) {
    if (devices[i].table != 0 && devices[i].table != table) continue;
    devices[i].table = table;
    const auto fill = fills(std::make_integer_sequence<int, kDevices>());
    fill[static_cast<std::size_t>(i)](*reinterpret_cast<const chipset_api*>(table));
    return &devices[i].ours;
  }
  host->set_error("a process has room for 8 plugins in Python, and all are taken");
  return nullptr;
}
