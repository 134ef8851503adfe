// SPDX-License-Identifier: Apache-2.0
// The hooks by which torch's generic code finds devices, generators and page-locked memory.
#include "hooks.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "allocator.h"
#include "generator.h"
#include "state.h"

namespace chipset::bridge {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  void init() const override {
    if (in_bad_fork()) raise_bad_fork();
  }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return device >= 0 && device < device_count();
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex previous = getCurrentDevice();
    if (device != previous) set_device(device);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    const int index = existing_index(device < 0 ? current_device() : device);
    return at::make_generator<ChipGenerator>(static_cast<c10::DeviceIndex>(index));
  }
  bool isPinnedPtr(const void* pointer) const override { return runtime::is_pinned(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(at::kPrivateUse1);
  }
  at::Device getDeviceFromPtr(void* pointer) const override {
    const int device = runtime::owner_of(pointer);
    TORCH_CHECK(device >= 0, "chip: address ", pointer, " is in no memory of a launched device");
    return chip(device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), bytes);
  }
};

}  // namespace

void register_hooks() {
  static auto* hooks = new Hooks();
  at::RegisterPrivateUse1HooksInterface(hooks);
}

}  // namespace chipset::bridge
