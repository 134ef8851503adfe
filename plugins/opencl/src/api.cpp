// SPDX-License-Identifier: Apache-2.0
// The table: what the plugin does itself, the kit's kernels, and the SDK's captured graphs.
#include <chipset/abi_check.h>

#include <chipset_kit.hpp>
#include <chipset_sdk/capture.hpp>

#include "backend.h"
#include "functions.h"

namespace chipset::opencl {
namespace {

struct Kernels {
  DeviceBackend backend;
  kit::Kit kit;
  explicit Kernels(Device& device) : backend(device), kit(backend) {}
};

kit::Kit& kit_of(const Device& device) {
  static const auto* const all = [] {  // for the life of the process
    auto* made = new std::vector<std::unique_ptr<Kernels>>;
    for (const auto& each : devices()) made->push_back(std::make_unique<Kernels>(*each));
    return made;
  }();
  return (*all)[static_cast<size_t>(device.index)]->kit;
}

struct OpenCL : Driver, kit::Functions<OpenCL> {
  static kit::Kit& kit(chipset_stream stream) { return kit_of(*as_stream(stream)->device); }
};

}  // namespace
}  // namespace chipset::opencl

CHIPSET_SDK_PLUGIN(chipset::sdk::Captured<chipset::opencl::OpenCL>, "opencl", "0.1.0")
