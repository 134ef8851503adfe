// SPDX-License-Identifier: Apache-2.0
// What the kernel kit needs of a device: compile, load and launch by OpenCL.
#pragma once

#include <chipset_kit.hpp>

#include "device.h"

namespace chipset::opencl {

class DeviceBackend : public kit::Backend {
 public:
  explicit DeviceBackend(Device& device);

  const kit::Traits& traits() const override { return traits_; }
  kit::Binary compile(const std::string& source, const std::string& options) override;
  void* load(const kit::Binary& binary, const char* name) override;
  void launch(chipset_stream stream, void* kernel, kit::Size3 grid, kit::Size3 block,
              const kit::Argument* arguments, uint32_t count) override;
  void* scratch(chipset_stream stream, uint64_t bytes) override;
  void finish(chipset_stream stream) override;
  void* fault_word(chipset_stream stream) override;

 private:
  Device& device_;
  kit::Traits traits_;
};

}  // namespace chipset::opencl
