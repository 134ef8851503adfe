// SPDX-License-Identifier: Apache-2.0
// The runtime half of a plugin for a chip whose driver has no streams: memory by a policy, streams
// and events by Queue. A plugin inherits it and hides, one by one, what its driver does itself:
//
//   struct MyChip : chipset::sdk::QueuedDevice<chipset::sdk::HostMemory> { … };
//
// A memory policy has a constructor from bytes, allocate(bytes), release(pointer), alias(pointer,
// bytes) — the address that kernels use, throwing INVALID outside of an allocation (MEM-004) —
// total() and free().
//
// Launch options: `devices` (1) and `memory_mib` per device (4096).
#pragma once

#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "held.hpp"
#include "queue.hpp"

struct chipset_stream_s {
  int32_t device;
  std::shared_ptr<chipset::sdk::Queue> queue = std::make_shared<chipset::sdk::Queue>();
};
struct chipset_event_s {
  int32_t device;
  chipset::sdk::Event event;
};

namespace chipset::sdk {

// Blocks of host memory, each known by its address.
class HostBlocks {
 public:
  void* allocate(uint64_t bytes) {
    void* const got = bytes <= UINT64_MAX - 63  // else the rounding would overflow
                          ? std::aligned_alloc(64, (bytes + 63) / 64 * 64)
                          : nullptr;
    if (got == nullptr) throw std::bad_alloc();
    std::lock_guard lock(mutex_);
    blocks_[got] = bytes;
    return got;
  }
  // The bytes of the block that was freed; 0 if the pointer is none of them.
  uint64_t release(void* pointer) {
    std::lock_guard lock(mutex_);
    const auto it = blocks_.find(pointer);
    if (it == blocks_.end()) return 0;
    const uint64_t bytes = it->second;
    blocks_.erase(it);
    std::free(pointer);
    return bytes;
  }
  bool contains(const void* pointer, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    auto it = blocks_.upper_bound(const_cast<void*>(pointer));
    if (it == blocks_.begin()) return false;
    --it;
    return static_cast<const char*>(pointer) + bytes <= static_cast<char*>(it->first) + it->second;
  }

 private:
  std::mutex mutex_;
  std::map<void*, uint64_t> blocks_;
};

// Host memory in the place of a device's, until the driver is there.
class HostMemory {
 public:
  static constexpr uint64_t kAlignment = 64;

  explicit HostMemory(uint64_t bytes) : bytes_(bytes) {}
  void* allocate(uint64_t bytes) {
    uint64_t taken = taken_;
    do {
      if (bytes > bytes_ - taken)
        fail(CHIPSET_STATUS_OUT_OF_MEMORY, "%llu bytes are not free: %llu of %llu are in use",
             static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(taken),
             static_cast<unsigned long long>(bytes_));
    } while (!taken_.compare_exchange_weak(taken, taken + bytes));
    try {
      return blocks_.allocate(bytes);
    } catch (...) {
      taken_ -= bytes;
      throw;
    }
  }
  void release(void* pointer) {
    const uint64_t bytes = blocks_.release(pointer);
    if (bytes == 0) fail(CHIPSET_STATUS_INVALID, "%p is no allocation of this device", pointer);
    taken_ -= bytes;
  }
  void* alias(void* pointer, int64_t bytes) {
    if (bytes > 0 && !blocks_.contains(pointer, static_cast<uint64_t>(bytes)))
      fail(CHIPSET_STATUS_INVALID,
           "%lld bytes at %p do not lie in one allocation of this device (MEM-004)",
           static_cast<long long>(bytes), pointer);
    return pointer;
  }
  uint64_t total() const { return bytes_; }
  uint64_t free() const { return bytes_ - taken_; }

 private:
  const uint64_t bytes_;
  std::atomic<uint64_t> taken_{0};
  HostBlocks blocks_;
};

template <class Memory>
struct QueuedDevice {
  struct Device {
    Memory memory;
    HostBlocks page_locked;
    std::mutex mutex;
    std::vector<std::shared_ptr<Queue>> queues;  // of the streams that are alive

    explicit Device(uint64_t bytes) : memory(bytes) {}
  };

  static int32_t devices() {
    const int64_t count = option_number("devices", 1);
    if (count < 0 || count > 64)
      fail(CHIPSET_STATUS_INVALID, "option 'devices' is %lld; need 0 to 64",
           static_cast<long long>(count));
    return static_cast<int32_t>(count);
  }
  static uint64_t memory_bytes() {
    const int64_t mib = option_number("memory_mib", 4096);
    if (mib < 1 || mib > (int64_t{1} << 30))
      fail(CHIPSET_STATUS_INVALID, "option 'memory_mib' is %lld; need 1 or more",
           static_cast<long long>(mib));
    return static_cast<uint64_t>(mib) << 20;
  }
  static void check_device(int32_t index) {
    if (index < 0 || index >= devices())
      fail(CHIPSET_STATUS_INVALID, "device %d does not exist; there are %d", index, devices());
  }

  // Powered on when it is first used. It stays: streams may end after main().
  static Device& device(int32_t index) {
    check_device(index);
    static std::mutex mutex;
    static auto* const all = new std::vector<std::unique_ptr<Device>>(devices());
    std::lock_guard lock(mutex);
    auto& one = (*all)[index];
    if (!one) one = std::make_unique<Device>(memory_bytes());
    return *one;
  }

  // Copies the arguments, with addresses that kernels may use, and enqueues the kernel.
  template <class Args>
  static void launch(chipset_stream stream, const Args* args, void (*kernel)(const Args&)) {
    Memory& memory = device(stream->device).memory;
    Held<Args> held(args, [&](void* at, int64_t bytes) { return memory.alias(at, bytes); });
    stream->queue->push([held = std::move(held), kernel] { kernel(*held); });
  }

  // ---- device ----------------------------------------------------------------------------------

  static void device_count(int32_t* count) { *count = devices(); }
  static void device_memory(int32_t index, uint64_t* free_bytes, uint64_t* total_bytes) {
    *free_bytes = device(index).memory.free();
    *total_bytes = device(index).memory.total();
  }
  static void device_sync(int32_t index) {
    Device& one = device(index);
    std::unique_lock lock(one.mutex);
    const auto queues = one.queues;
    lock.unlock();
    for (const auto& queue : queues) queue->sync();
  }

  // ---- memory ----------------------------------------------------------------------------------

  static void mem_alloc(int32_t index, int32_t kind, uint64_t bytes, void** pointer) {
    *pointer = nullptr;
    Device& one = device(index);
    if (kind != CHIPSET_MEMORY_KIND_DEVICE && kind != CHIPSET_MEMORY_KIND_HOST)
      fail(CHIPSET_STATUS_INVALID, "memory kind %d does not exist", kind);
    if (bytes == 0) return;
    *pointer = kind == CHIPSET_MEMORY_KIND_DEVICE ? one.memory.allocate(bytes)
                                                  : one.page_locked.allocate(bytes);
  }
  static void mem_free(int32_t index, void* pointer) {
    if (pointer != nullptr && device(index).page_locked.release(pointer) == 0)
      device(index).memory.release(pointer);
  }
  static void mem_copy(chipset_stream stream, void* destination, const void* source, uint64_t bytes,
                       int32_t kind) {
    if (bytes == 0) return;
    Device& one = device(stream->device);
    const auto alias = [&](const void* at) {
      return one.memory.alias(const_cast<void*>(at), static_cast<int64_t>(bytes));
    };
    const auto copy = [&](void* to, const void* from) {
      stream->queue->push([=] { std::memcpy(to, from, bytes); });
    };
    switch (kind) {
      case CHIPSET_COPY_KIND_DEVICE_TO_DEVICE:
        return copy(alias(destination), alias(source));
      case CHIPSET_COPY_KIND_HOST_TO_DEVICE: {
        void* const to = alias(destination);
        if (one.page_locked.contains(source, bytes)) return copy(to, source);
        // Pageable: read before the call returns (ASY-002).
        const char* const from = static_cast<const char*>(source);
        stream->queue->push([to, staged = std::vector<char>(from, from + bytes)] {
          std::memcpy(to, staged.data(), staged.size());
        });
        return;
      }
      case CHIPSET_COPY_KIND_DEVICE_TO_HOST:
        copy(destination, alias(source));
        if (!one.page_locked.contains(destination, bytes)) stream->queue->sync();
        return;
      default:
        fail(CHIPSET_STATUS_INVALID, "copy kind %d does not exist", kind);
    }
  }
  static void mem_fill(chipset_stream stream, void* destination, int32_t value, uint64_t bytes) {
    if (bytes == 0) return;
    void* const to = device(stream->device).memory.alias(destination, static_cast<int64_t>(bytes));
    stream->queue->push([=] { std::memset(to, value, bytes); });
  }

  // ---- streams and events ----------------------------------------------------------------------

  static void stream_create(int32_t index, int32_t, chipset_stream* stream) {
    *stream = nullptr;
    Device& one = device(index);
    auto made = std::make_unique<chipset_stream_s>();
    made->device = index;
    std::lock_guard lock(one.mutex);
    one.queues.push_back(made->queue);
    *stream = made.release();
  }
  static void stream_destroy(chipset_stream stream) {
    if (stream == nullptr) return;
    const std::unique_ptr<chipset_stream_s> ended(stream);
    Device& one = device(stream->device);
    {
      std::lock_guard lock(one.mutex);
      one.queues.erase(std::find(one.queues.begin(), one.queues.end(), stream->queue));
    }
    stream->queue->finish();
  }
  static void stream_sync(chipset_stream stream) { stream->queue->sync(); }
  static void stream_wait(chipset_stream stream, chipset_event event) {
    if (event->event.point) stream->queue->wait(event->event.point);
  }

  static void event_create(int32_t index, uint32_t flags, chipset_event* event) {
    *event = nullptr;
    check_device(index);
    *event = new chipset_event_s{index, {}};
    (*event)->event.flags = flags;
  }
  static void event_destroy(chipset_event event) { delete event; }
  static void event_record(chipset_event event, chipset_stream stream) {
    if (event->device != stream->device)
      fail(CHIPSET_STATUS_INVALID, "the event is of device %d, the stream of device %d",
           event->device, stream->device);
    event->event.record(stream->queue);
  }
  static void event_query(chipset_event event, int64_t timeout_ns) {
    event->event.query(timeout_ns);
  }
  static void event_elapsed(chipset_event start, chipset_event end, double* milliseconds) {
    *milliseconds = Event::elapsed_ms(start->event, end->event);
  }
};

}  // namespace chipset::sdk
