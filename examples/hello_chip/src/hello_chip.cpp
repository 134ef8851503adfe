// SPDX-License-Identifier: Apache-2.0
// hello_chip: a worked example of a plugin. The chip is a model of a small accelerator card: memory
// of its own, which the host cannot reach; a command processor with in-order queues; a matrix unit
// (matrix_unit.hpp) and a vector unit (the SDK's loops). Everything else — attention, norms,
// losses, the optimizer — the core composes of these.
#include <cstdlib>
#include <vector>

#include "matrix_unit.hpp"
#include "memory.hpp"

using chipset::sdk::Event;
using chipset::sdk::fail;
using chipset::sdk::Held;
using chipset::sdk::Queue;
namespace loops = chipset::sdk::loops;

struct chipset_stream_s {
  int32_t device;
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
};
struct chipset_event_s {
  int32_t device;
  Event event;
};

namespace hello {
namespace {

struct Card {
  Memory memory;
  std::mutex mutex;
  std::vector<std::shared_ptr<Queue>> queues;  // of the streams that are alive
  std::map<void*, uint64_t> host_memory;       // page-locked: start and bytes

  explicit Card(uint64_t bytes) : memory(bytes) {}

  bool is_page_locked(const void* pointer, uint64_t bytes) {
    std::lock_guard lock(mutex);
    auto it = host_memory.upper_bound(const_cast<void*>(pointer));
    if (it == host_memory.begin()) return false;
    --it;
    return static_cast<const char*>(pointer) + bytes <= static_cast<char*>(it->first) + it->second;
  }
};

int32_t cards() {
  const int64_t count = chipset::sdk::option_number("devices", 1);
  if (count < 0 || count > 64)
    fail(CHIPSET_STATUS_INVALID, "option 'devices' is %lld; need 0 to 64",
         static_cast<long long>(count));
  return static_cast<int32_t>(count);
}

uint64_t memory_bytes() {
  return static_cast<uint64_t>(chipset::sdk::option_number("memory_mib", 4096)) << 20;
}

void check_device(int32_t device) {
  if (device < 0 || device >= cards())
    fail(CHIPSET_STATUS_INVALID, "device %d does not exist; there are %d", device, cards());
}

// A card is powered on when it is first used. It stays: streams may end after main().
Card& card(int32_t device) {
  check_device(device);
  static std::mutex mutex;
  static auto* const all = new std::vector<std::unique_ptr<Card>>(cards());
  std::lock_guard lock(mutex);
  auto& one = (*all)[device];
  if (!one) one = std::make_unique<Card>(memory_bytes());
  return *one;
}

// Copies the arguments with addresses that the units can follow, and enqueues the unit's work.
template <class Args>
void launch(chipset_stream stream, const Args* args, void (*unit)(const Args&)) {
  Memory& memory = card(stream->device).memory;
  Held<Args> held(args, [&](void* at, int64_t bytes) { return memory.alias(at, bytes); });
  stream->queue->push([held = std::move(held), unit] { unit(*held); });
}

struct HelloChip {
  // ---- device ----------------------------------------------------------------------------------

  static void device_count(int32_t* count) { *count = cards(); }

  static void device_info(int32_t device, chipset_device_info* info) {
    check_device(device);
    chipset_device_info mine{};
    mine.struct_size = info->struct_size;
    mine.compute_units = 1;
    std::snprintf(mine.name, sizeof mine.name, "hello_chip");
    std::snprintf(mine.vendor, sizeof mine.vendor, "Chipset examples");
    std::snprintf(mine.architecture, sizeof mine.architecture, "hello-1");
    std::snprintf(mine.driver, sizeof mine.driver, "0.1.0");
    mine.capabilities = CHIPSET_CAPABILITY_EMULATED | CHIPSET_CAPABILITY_HOST_ASYNC;
    mine.total_memory = mine.max_allocation = memory_bytes();
    mine.dtypes = (1u << (CHIPSET_DTYPE_F8E5M2 + 1)) - 1;  // all that the vector unit converts
    mine.alignment = Memory::kAlignment;
    mine.preferred_vector_bytes = 32;
    std::memcpy(info, &mine, std::min<std::size_t>(info->struct_size, sizeof mine));
  }

  static void device_memory(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    *free_bytes = card(device).memory.free();
    *total_bytes = card(device).memory.total();
  }

  static void device_sync(int32_t device) {
    Card& one = card(device);
    std::unique_lock lock(one.mutex);
    const auto queues = one.queues;
    lock.unlock();
    for (const auto& queue : queues) queue->sync();
  }

  // ---- memory ----------------------------------------------------------------------------------

  static void mem_alloc(int32_t device, int32_t kind, uint64_t bytes, void** pointer) {
    *pointer = nullptr;
    Card& one = card(device);
    if (kind != CHIPSET_MEMORY_KIND_DEVICE && kind != CHIPSET_MEMORY_KIND_HOST)
      fail(CHIPSET_STATUS_INVALID, "memory kind %d does not exist", kind);
    if (bytes == 0) return;
    if (kind == CHIPSET_MEMORY_KIND_DEVICE) {
      *pointer = one.memory.allocate(bytes);
      return;
    }
    void* const got = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (got == nullptr) throw std::bad_alloc();
    std::lock_guard lock(one.mutex);
    one.host_memory[got] = bytes;
    *pointer = got;
  }

  static void mem_free(int32_t device, void* pointer) {
    if (pointer == nullptr) return;
    Card& one = card(device);
    {
      std::lock_guard lock(one.mutex);
      if (one.host_memory.erase(pointer) > 0) return std::free(pointer);
    }
    one.memory.release(pointer);
  }

  static void mem_copy(chipset_stream stream, void* destination, const void* source, uint64_t bytes,
                       int32_t kind) {
    if (bytes == 0) return;
    Card& one = card(stream->device);
    const auto alias = [&](const void* at) {
      return one.memory.alias(const_cast<void*>(at), static_cast<int64_t>(bytes));
    };
    const auto dma = [&](void* to, const void* from) {
      stream->queue->push([=] { std::memcpy(to, from, bytes); });
    };
    if (kind == CHIPSET_COPY_KIND_DEVICE_TO_DEVICE) return dma(alias(destination), alias(source));
    if (kind == CHIPSET_COPY_KIND_HOST_TO_DEVICE) {
      void* const to = alias(destination);
      if (one.is_page_locked(source, bytes)) return dma(to, source);
      // Pageable: read before the call returns (ASY-002).
      const char* const from = static_cast<const char*>(source);
      stream->queue->push([to, staged = std::vector<char>(from, from + bytes)] {
        std::memcpy(to, staged.data(), staged.size());
      });
      return;
    }
    if (kind != CHIPSET_COPY_KIND_DEVICE_TO_HOST)
      fail(CHIPSET_STATUS_INVALID, "copy kind %d does not exist", kind);
    dma(destination, alias(source));
    if (!one.is_page_locked(destination, bytes)) stream->queue->sync();
  }

  static void mem_fill(chipset_stream stream, void* destination, int32_t value, uint64_t bytes) {
    if (bytes == 0) return;
    void* const to = card(stream->device).memory.alias(destination, static_cast<int64_t>(bytes));
    stream->queue->push([=] { std::memset(to, value, bytes); });
  }

  // ---- streams and events ----------------------------------------------------------------------

  static void stream_create(int32_t device, int32_t, chipset_stream* stream) {
    *stream = nullptr;
    Card& one = card(device);
    *stream = new chipset_stream_s{device};
    std::lock_guard lock(one.mutex);
    one.queues.push_back((*stream)->queue);
  }

  static void stream_destroy(chipset_stream stream) {
    if (stream == nullptr) return;
    Card& one = card(stream->device);
    {
      std::lock_guard lock(one.mutex);
      one.queues.erase(std::find(one.queues.begin(), one.queues.end(), stream->queue));
    }
    delete stream;  // the queue ends after its work
  }

  static void stream_sync(chipset_stream stream) { stream->queue->sync(); }
  static void stream_wait(chipset_stream stream, chipset_event event) {
    if (event->event.point) stream->queue->wait(event->event.point);
  }

  static void event_create(int32_t device, uint32_t flags, chipset_event* event) {
    *event = nullptr;
    check_device(device);
    *event = new chipset_event_s{device, {}};
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

  // ---- the matrix unit -------------------------------------------------------------------------

  static void gemm(chipset_stream stream, const chipset_gemm_args* args) {
    check_gemm(*args);
    launch(stream, args, hello::gemm);
  }

  // ---- the vector unit -------------------------------------------------------------------------

  static void pointwise(chipset_stream stream, const chipset_pointwise_args* args) {
    loops::check_pointwise(*args);
    launch(stream, args, loops::pointwise);
  }
  static void reduce(chipset_stream stream, const chipset_reduce_args* args) {
    loops::check_reduce(*args);
    launch(stream, args, loops::reduce);
  }
  static void gather(chipset_stream stream, const chipset_gather_args* args) {
    launch(stream, args, loops::gather);
  }
  static void scatter(chipset_stream stream, const chipset_scatter_args* args) {
    loops::check_scatter(*args);
    launch(stream, args, loops::scatter);
  }
  static void scan(chipset_stream stream, const chipset_scan_args* args) {
    loops::check_scan(*args);
    launch(stream, args, loops::scan);
  }
  static void sort(chipset_stream stream, const chipset_sort_args* args) {
    loops::check_sort(*args);
    launch(stream, args, loops::sort);
  }
  static void random(chipset_stream stream, const chipset_random_args* args) {
    loops::check_random(*args);
    launch(stream, args, loops::random);
  }
};

}  // namespace
}  // namespace hello

CHIPSET_SDK_PLUGIN(hello::HelloChip, "hello", "0.1.0")
