// SPDX-License-Identifier: Apache-2.0
#include "allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "state.h"

namespace chipset::bridge {
namespace {

// Tells torch's profiler; only while it asks for memory events, since the statistics cost.
void report_to_profiler(const void* handle, bool allocated) {
  const runtime::Extent extent = runtime::extent_of(handle);
  const runtime::MemoryStats stats = runtime::memory_stats(extent.device);
  const auto bytes = static_cast<int64_t>(extent.bytes);
  c10::reportMemoryUsageToProfiler(extent.pointer, allocated ? bytes : -bytes,
                                   static_cast<size_t>(stats.allocated_bytes[0].current),
                                   static_cast<size_t>(stats.reserved_bytes[0].current),
                                   chip(extent.device));
}

void release_block(void* handle) {
  if (handle == nullptr || in_bad_fork()) return;
  if (c10::memoryProfilingEnabled()) [[unlikely]]
    report_to_profiler(handle, false);
  // Runs in destructors, which must not throw; an error here would only repeat a lost device.
  try {
    runtime::deallocate_block(handle);
  } catch (const std::exception& error) {
    TORCH_WARN("chipset: memory could not be freed: ", error.what());
  }
}

void convert(c10::CachingAllocator::StatArray& to, const runtime::Stat (&from)[3]) {
  for (size_t i = 0; i < 3; ++i) {
    to[i].current = from[i].current;
    to[i].peak = from[i].peak;
    to[i].allocated = from[i].allocated;
    to[i].freed = from[i].freed;
  }
}

struct ChipAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override { return bridge::allocate(bytes, current_device()); }
  // No raw_deleter: the context of a block is its handle, not its address, so torch's raw_allocate
  // does not apply.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const int device = runtime::owner_of(to);
    TORCH_CHECK(device >= 0, "chip: address ", to, " is in no memory of a launched device");
    check(device_api[device]->mem_copy(current_stream(device), to, from, bytes,
                                       CHIPSET_COPY_KIND_DEVICE_TO_DEVICE),
          "mem_copy");
  }
  bool initialized() override { return device_count() > 0; }
  void emptyCache(c10::MempoolId_t) override {
    for (int i = 0; i < device_count(); ++i) {
      guarded("empty_cache", [&] { runtime::empty_cache(i); });
    }
  }
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    if (pointer.get() == nullptr || pointer.get_deleter() != &release_block) return;
    guarded("record_stream", [&] { runtime::record_stream(pointer.get(), stream_of(stream)); });
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const auto from = guarded("memory_stats", [&] { return runtime::memory_stats(device); });
    c10::CachingDeviceAllocator::DeviceStats to;
    convert(to.allocation, from.allocation);
    convert(to.segment, from.segment);
    convert(to.active, from.active);
    convert(to.inactive_split, from.inactive_split);
    convert(to.allocated_bytes, from.allocated_bytes);
    convert(to.reserved_bytes, from.reserved_bytes);
    convert(to.active_bytes, from.active_bytes);
    convert(to.inactive_split_bytes, from.inactive_split_bytes);
    convert(to.requested_bytes, from.requested_bytes);
    to.num_alloc_retries = from.num_alloc_retries;
    to.num_ooms = from.num_ooms;
    to.num_sync_all_streams = from.num_sync_all_streams;
    to.num_device_alloc = from.num_device_alloc;
    to.num_device_free = from.num_device_free;
    return to;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    guarded("memory_stats", [&] { runtime::reset_accumulated_memory_stats(device); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    guarded("memory_stats", [&] { runtime::reset_peak_memory_stats(device); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    uint64_t free = 0, total = 0;
    const runtime::Device& d =
        guarded("device", [&]() -> runtime::Device& { return runtime::device(device); });
    check(d.api->device_memory(d.local, &free, &total), "device_memory");
    return {free, total};
  }
};

void release_host(void* pointer) {
  if (pointer == nullptr || in_bad_fork()) return;
  try {
    runtime::deallocate_host(pointer);
  } catch (const std::exception& error) {
    TORCH_WARN("chipset: page-locked memory could not be freed: ", error.what());
  }
}

// Page-locked host memory, for pin_memory().
struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (in_bad_fork()) raise_bad_fork();
    void* pointer =
        guarded("pin_memory", [&] { return runtime::allocate_host(current_device(), bytes); });
    return {pointer, pointer, &release_host, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_host; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool record_event(void* pointer, void*, c10::Stream stream) override {
    return guarded("record_event",
                   [&] { return runtime::record_host(pointer, stream_of(stream)); });
  }
  void empty_cache() override {
    guarded("empty_cache", [] { runtime::empty_host_cache(); });
  }
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

ChipAllocator chip_allocator;
PinnedAllocator pinned_allocator;

}  // namespace

c10::DeviceAllocator* device_allocator() noexcept { return &chip_allocator; }

c10::DataPtr allocate(size_t bytes, int device) {
  const chipset_stream stream = current_stream(device);
  if (in_bad_fork()) raise_bad_fork();
  const auto block =
      guarded("allocate", [&] { return runtime::allocate_block(device, bytes, stream); });
  if (block.handle != nullptr && c10::memoryProfilingEnabled()) [[unlikely]] {
    report_to_profiler(block.handle, true);
  }
  return {block.pointer, block.handle, &release_block, chip(device)};
}

void resize_storage(c10::StorageImpl* storage, size_t bytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  const int device = index_of(storage->device());
  c10::DataPtr grown = allocate(bytes, device);
  const size_t kept = std::min(bytes, storage->nbytes());
  if (kept > 0 && storage->data() != nullptr) {
    check(device_api[device]->mem_copy(current_stream(device), grown.get(), storage->data(), kept,
                                       CHIPSET_COPY_KIND_DEVICE_TO_DEVICE),
          "mem_copy");
  }
  storage->set_data_ptr_noswap(std::move(grown));
  storage->set_nbytes(bytes);
}

void register_allocators() {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &chip_allocator);
  at::setHostAllocator(at::kPrivateUse1, &pinned_allocator);
}

}  // namespace chipset::bridge
