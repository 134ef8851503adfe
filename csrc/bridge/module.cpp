// SPDX-License-Identifier: Apache-2.0
// The Python module chipset._bridge: what chipset._torch needs beyond torch's own generic API.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>

#include "allocator.h"
#include "fallback.h"
#include "generator.h"
#include "hooks.h"
#include "state.h"

namespace py = pybind11;

namespace chipset::bridge {
namespace {

constexpr std::pair<const char*, FallbackMode> kModes[] = {{"allow", FallbackMode::kAllow},
                                                           {"warn", FallbackMode::kWarn},
                                                           {"error", FallbackMode::kError}};

py::dict fallbacks() {
  py::dict out;
  for (const auto& [name, count] : fallback_counts()) {
    py::dict entry;
    entry["count"] = count.count;
    entry["bytes"] = count.bytes;
    out[py::str(name)] = entry;
  }
  return out;
}

void set_mode(const std::string& text) {
  for (const auto& [name, mode] : kModes) {
    if (text == name) return set_fallback_mode(mode);
  }
  throw py::value_error("fallback mode '" + text + "' is none of allow, warn, error");
}

std::string mode() {
  for (const auto& [name, mode] : kModes) {
    if (mode == fallback_mode()) return name;
  }
  return "?";
}

py::object generator_object(int device) {
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(device)));
}

}  // namespace
}  // namespace chipset::bridge

PYBIND11_MODULE(_bridge, m) {
  using namespace chipset::bridge;
  m.doc() = "PyTorch's device 'chip' on the devices that the runtime launched.";
  register_allocators();
  register_hooks();
  adopt_devices();
  m.def("adopt_devices", &adopt_devices, "Takes in devices launched since.");
  m.def("device_count", &device_count);
  m.def("current_device", &current_device);
  m.def("set_device", &set_device, py::arg("device"));
  m.def("in_bad_fork", &in_bad_fork);
  m.def("default_generator", &generator_object, py::arg("device"));
  m.def("fallbacks", &fallbacks);
  m.def("reset_fallbacks", &reset_fallback_counts);
  m.def("set_fallback_mode", &set_mode, py::arg("mode"));
  m.def("fallback_mode", &mode);
}
