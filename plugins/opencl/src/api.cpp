// SPDX-License-Identifier: Apache-2.0
// The table: what the plugin does itself, its GEMM for processors, and the kit's kernels.
#include <chipset/abi_check.h>

#include <chipset_kit.hpp>

#include "backend.h"
#include "functions.h"
#include "gemm.h"

namespace chipset::opencl {
namespace {

struct Kernels {
  DeviceBackend backend;
  kit::Kit kit;
  explicit Kernels(Device& device) : backend(device), kit(backend) {}
};

Kernels& kernels_of(chipset_stream stream) {
  static const auto* const all = [] {  // for the life of the process
    auto* made = new std::vector<std::unique_ptr<Kernels>>;
    for (const auto& device : devices()) made->push_back(std::make_unique<Kernels>(*device));
    return made;
  }();
  return *(*all)[static_cast<size_t>(as_stream(stream)->device->index)];
}

struct OpenCL : kit::Functions<OpenCL>, Driver {
  static kit::Kit& kit(chipset_stream stream) { return kernels_of(stream).kit; }

  static void gemm(chipset_stream stream, const chipset_gemm_args* args) {
    kit::Kit& the = kit(stream);
    if (!the.traits().is_cpu || !cpu_gemm(the, stream, *args, {})) the.gemm(stream, *args);
  }
};

}  // namespace
}  // namespace chipset::opencl

CHIPSET_SDK_PLUGIN(chipset::opencl::OpenCL, "opencl", "0.1.0")
