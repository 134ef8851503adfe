// SPDX-License-Identifier: Apache-2.0
// A plugin that runs nothing: each kernel that the kit would compile for CUDA or HIP
// (RECORDER_LANGUAGE) is written to the folder RECORDER_FOLDER, for the tests to compile.
#include <chipset/abi_check.h>

#include <atomic>
#include <chipset_kit.hpp>
#include <chipset_sdk/queued_device.hpp>
#include <chipset_sdk/table.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace {
namespace sdk = chipset::sdk;
namespace kit = chipset::kit;

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) sdk::fail(CHIPSET_STATUS_INVALID, "recorder: %s is not set", name);
  return value;
}

struct Recorder : kit::Backend {
  kit::Traits the;
  int32_t word = 0;
  std::atomic<int> count{0};

  Recorder() {
    const bool hip = std::strcmp(setting("RECORDER_LANGUAGE"), "hip") == 0;
    the.language = hip ? kit::Language::kHip : kit::Language::kCuda;
    the.fp64 = true;
    the.compute_units = 100;
    the.max_group = 1024;
  }
  const kit::Traits& traits() const override { return the; }
  kit::Binary compile(const std::string& source, const std::string&) override {
    char name[16];
    std::snprintf(name, sizeof name, "%05d.cu", count++);
    const std::string path = std::string(setting("RECORDER_FOLDER")) + "/" + name;
    std::ofstream file(path);
    file << source << std::flush;
    if (!file) sdk::fail(CHIPSET_STATUS_INTERNAL, "recorder: cannot write %s", path.c_str());
    return kit::Binary(1);
  }
  void* load(const kit::Binary&, const char*) override { return this; }
  void launch(chipset_stream, void*, kit::Size3, kit::Size3, const kit::Argument*,
              uint32_t) override {}
  void finish(chipset_stream) override {}
  void* scratch(chipset_stream, uint64_t) override { return &word; }
  void* fault_word(chipset_stream) override { return &word; }
};

struct RecorderChip : sdk::QueuedDevice<sdk::HostMemory>, kit::Functions<RecorderChip> {
  static kit::Kit& kit(chipset_stream) {
    static auto* const the = new kit::Kit(*new Recorder);
    return *the;
  }
  static void device_info(int32_t device, chipset_device_info* info) {
    check_device(device);
    chipset_device_info mine{};
    mine.struct_size = info->struct_size;
    mine.compute_units = 1;
    std::snprintf(mine.name, sizeof mine.name, "recorder");
    mine.capabilities = CHIPSET_CAPABILITY_EMULATED;
    mine.total_memory = mine.max_allocation = memory_bytes();
    mine.dtypes = (1u << (CHIPSET_DTYPE_F8E5M2 + 1)) - 1;
    mine.alignment = sdk::HostMemory::kAlignment;
    std::memcpy(info, &mine, std::min<std::size_t>(info->struct_size, sizeof mine));
  }
};
}  // namespace

CHIPSET_SDK_PLUGIN(RecorderChip, "recorder", "0.1.0")
