// SPDX-License-Identifier: Apache-2.0
// Faults of order: streams, events, copies that overlap with the host. They need a chip on which
// order can go wrong, so the good chip's functions run here behind queues with threads of their
// own.
#include <atomic>
#include <functional>
#include <thread>

#include "mutant.h"

namespace chipset::mutants {

namespace {

void check(chipset_status status) {
  if (status != CHIPSET_STATUS_OK) throw sdk::Error(status, "the good chip declined a call");
}

// A stream of the good chip for the calling thread.
chipset_stream inner_stream() {
  thread_local chipset_stream stream = [] {
    chipset_stream made = nullptr;
    check(good().stream_create(0, 0, &made));
    return made;
  }();
  return stream;
}

// The good chip's memory, of a size of its own.
class Memory {
 public:
  explicit Memory(uint64_t bytes) : total_(bytes) {}
  void* allocate(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    void* pointer = nullptr;
    if (bytes > total_ - taken_ ||
        good().mem_alloc(0, CHIPSET_MEMORY_KIND_DEVICE, bytes, &pointer) != CHIPSET_STATUS_OK)
      sdk::fail(CHIPSET_STATUS_OUT_OF_MEMORY, "%llu bytes are not free",
                static_cast<unsigned long long>(bytes));
    sizes_[pointer] = bytes;
    taken_ += bytes;
    return pointer;
  }
  void release(void* pointer) {
    std::lock_guard lock(mutex_);
    const auto it = sizes_.find(pointer);
    if (it == sizes_.end())
      sdk::fail(CHIPSET_STATUS_INVALID, "%p is no allocation of this device", pointer);
    taken_ -= it->second;
    sizes_.erase(it);
    check(good().mem_free(0, pointer));
  }
  void* alias(void* pointer, int64_t) { return pointer; }
  uint64_t total() const { return total_; }
  uint64_t free() {
    std::lock_guard lock(mutex_);
    return total_ - taken_;
  }

 private:
  const uint64_t total_;
  uint64_t taken_ = 0;
  std::mutex mutex_;
  std::map<void*, uint64_t> sizes_;
};

struct Queued : sdk::QueuedDevice<Memory> {
  static void device_info(int32_t index, chipset_device_info* info) {
    check_device(index);
    chipset_device_info whole{};
    whole.struct_size = sizeof whole;
    check(good().device_info(0, &whole));
    whole.capabilities &= ~uint64_t{CHIPSET_CAPABILITY_UNIFIED | CHIPSET_CAPABILITY_INLINE |
                                    CHIPSET_CAPABILITY_CAPTURE | CHIPSET_CAPABILITY_PEER};
    whole.capabilities |= CHIPSET_CAPABILITY_HOST_ASYNC;
    whole.total_memory = whole.max_allocation = memory_bytes();
    whole.struct_size = info->struct_size;
    std::memcpy(info, &whole, std::min<std::size_t>(info->struct_size, sizeof whole));
  }

  template <auto kFunction, class Args>
  static void run(const Args& args) {
    const chipset_status status = (good().*kFunction)(inner_stream(), &args);
    if (status != CHIPSET_STATUS_OK)
      throw sdk::Error(status, "an index is out of range, or a call cannot be done");
  }
#define CHIPSET_QUEUED(function)                                                       \
  static void function(chipset_stream stream, const chipset_##function##_args* args) { \
    launch(stream, args, run<&chipset_api::function, chipset_##function##_args>);      \
  }
  static void pointwise(chipset_stream stream, const chipset_pointwise_args* args) {
    sdk::loops::check_pointwise(*args);  // what is declined is declined at once
    launch(stream, args, run<&chipset_api::pointwise, chipset_pointwise_args>);
  }
  static void reduce(chipset_stream stream, const chipset_reduce_args* args) {
    sdk::loops::check_reduce(*args);
    launch(stream, args, run<&chipset_api::reduce, chipset_reduce_args>);
  }
  static void scatter(chipset_stream stream, const chipset_scatter_args* args) {
    sdk::loops::check_scatter(*args);
    launch(stream, args, run<&chipset_api::scatter, chipset_scatter_args>);
  }
  CHIPSET_QUEUED(gemm)
  CHIPSET_QUEUED(gather)
#undef CHIPSET_QUEUED
};

void mutate(List& list, const char* name, const char* functions, const char* fault,
            void (*seed)(chipset_api&)) {
  list.push_back({name, "1", functions, fault, seed});
}

const chipset_api& well_ordered() {
  static const chipset_api api = sdk::make_table<Queued>("mutant", "0");
  return api;
}

// The first stream of the device that a stream belongs to.
sdk::Queue& first_queue(chipset_stream stream) {
  auto& device = Queued::device(stream->device);
  std::lock_guard lock(device.mutex);
  return *device.queues.front();
}

}  // namespace

chipset_api asynchronous() { return well_ordered(); }

chipset_stream good_stream() { return inner_stream(); }

chipset_status enqueue(chipset_stream stream, std::function<chipset_status(chipset_stream)> work) {
  return sdk::guarded(
      [&] { stream->queue->push([work = std::move(work)] { check(work(inner_stream())); }); });
}

void add_stream(List& list) {
  mutate(list, "stream-wait-ignored", "stream_wait", "a stream does not wait for an event",
         [](chipset_api& api) {
           api.stream_wait = [](chipset_stream, chipset_event) { return CHIPSET_STATUS_OK; };
         });
  mutate(list, "stream-wait-blocks-the-wrong-stream", "stream_wait",
         "the host waits for the event, and the stream's earlier work with it",
         [](chipset_api& api) {
           api.stream_wait = [](chipset_stream stream, chipset_event) {
             return well_ordered().stream_sync(stream);
           };
         });
  mutate(
      list, "stream-sync-returns-early", "stream_sync", "stream_sync does not wait",
      [](chipset_api& api) { api.stream_sync = [](chipset_stream) { return CHIPSET_STATUS_OK; }; });
  mutate(list, "stream-destroy-drops-work", "stream_destroy",
         "work that was enqueued is lost when its stream ends", [](chipset_api& api) {
           api.mem_fill = [](chipset_stream stream, void* to, int32_t value, uint64_t bytes) {
             return sdk::guarded([&] {
               auto queue = stream->queue;
               const auto ended = std::weak_ptr<sdk::Queue>(queue);
               queue->push([=] {
                 std::this_thread::sleep_for(std::chrono::milliseconds(5));
                 if (ended.use_count() > 1) std::memset(to, value, bytes);
               });
             });
           };
           api.stream_destroy = [](chipset_stream stream) {
             return sdk::guarded([&] {
               if (stream == nullptr) return;
               auto& device = Queued::device(stream->device);
               std::unique_lock lock(device.mutex);
               const auto queue = stream->queue;
               device.queues.erase(std::find(device.queues.begin(), device.queues.end(), queue));
               delete stream;
             });
           };
         });
  mutate(list, "stream-create-few", "stream_create", "a ninth stream cannot be made",
         [](chipset_api& api) {
           api.stream_create = [](int32_t device, int32_t priority, chipset_stream* stream) {
             static std::atomic<int> made{0};
             if (++made > 8) return refuse(CHIPSET_STATUS_OUT_OF_MEMORY, "no stream is left");
             return well_ordered().stream_create(device, priority, stream);
           };
           api.stream_destroy = [](chipset_stream stream) {
             return well_ordered().stream_destroy(stream);
           };
         });
  mutate(list, "device-sync-one-stream", "device_sync", "device_sync waits for one stream only",
         [](chipset_api& api) {
           api.device_sync = [](int32_t index) {
             return sdk::guarded([&] {
               auto& device = Queued::device(index);
               std::unique_lock lock(device.mutex);
               const auto queues = device.queues;
               lock.unlock();
               if (!queues.empty()) queues.front()->sync();
             });
           };
         });

  // ---- work in the wrong place
  mutate(list, "fill-ignores-stream", "mem_fill", "memory is set at once, not in stream order",
         [](chipset_api& api) {
           api.mem_fill = [](chipset_stream, void* to, int32_t value, uint64_t bytes) {
             if (bytes) std::memset(to, value, bytes);
             return CHIPSET_STATUS_OK;
           };
         });
  mutate(list, "copy-ignores-stream", "mem_copy", "device copies run at once, not in stream order",
         [](chipset_api& api) {
           api.mem_copy = [](chipset_stream stream, void* to, const void* from, uint64_t bytes,
                             int32_t kind) -> chipset_status {
             if (kind != CHIPSET_COPY_KIND_DEVICE_TO_DEVICE)
               return well_ordered().mem_copy(stream, to, from, bytes, kind);
             if (bytes) std::memcpy(to, from, bytes);
             return CHIPSET_STATUS_OK;
           };
         });
  mutate(list, "pointwise-in-the-first-stream", "pointwise",
         "work goes to the device's first stream, whatever stream was named", [](chipset_api& api) {
           api.pointwise = [](chipset_stream stream, const chipset_pointwise_args* args) {
             return sdk::guarded([&] {
               sdk::loops::check_pointwise(*args);
               sdk::Held<chipset_pointwise_args> held(args, [](void* at, int64_t) { return at; });
               first_queue(stream).push(
                   [held = std::move(held)] { Queued::run<&chipset_api::pointwise>(*held); });
             });
           };
         });
  mutate(list, "stream-out-of-order", "mem_fill pointwise", "work of one stream runs on two queues",
         [](chipset_api& api) {
           api.mem_fill = [](chipset_stream stream, void* to, int32_t value, uint64_t bytes) {
             static auto* const second = new sdk::Queue;
             return sdk::guarded([&] {
               static std::atomic<int> calls{0};
               sdk::Queue& queue = ++calls % 2 ? *stream->queue : *second;
               const auto done = std::make_shared<sdk::Point>();
               queue.push([=] {
                 if (bytes) std::memset(to, value, bytes);
                 done->pass();
               });
             });
           };
         });

  // ---- host memory
  mutate(list, "pageable-read-late", "mem_copy",
         "pageable host memory is read when the stream gets there (ASY-002)", [](chipset_api& api) {
           api.mem_copy = [](chipset_stream stream, void* to, const void* from, uint64_t bytes,
                             int32_t kind) -> chipset_status {
             if (kind != CHIPSET_COPY_KIND_HOST_TO_DEVICE)
               return well_ordered().mem_copy(stream, to, from, bytes, kind);
             return sdk::guarded([&] {
               stream->queue->push([=] {
                 std::this_thread::sleep_for(std::chrono::milliseconds(2));
                 std::memcpy(to, from, bytes);
               });
             });
           };
         });
  mutate(list, "pageable-written-late", "mem_copy",
         "a copy to pageable host memory returns before it was made (ASY-002)",
         [](chipset_api& api) {
           api.mem_copy = [](chipset_stream stream, void* to, const void* from, uint64_t bytes,
                             int32_t kind) -> chipset_status {
             if (kind != CHIPSET_COPY_KIND_DEVICE_TO_HOST)
               return well_ordered().mem_copy(stream, to, from, bytes, kind);
             return sdk::guarded([&] {
               stream->queue->push([=] {
                 std::this_thread::sleep_for(std::chrono::milliseconds(2));
                 std::memcpy(to, from, bytes);
               });
             });
           };
         });
  mutate(list, "arguments-read-late", "pointwise",
         "descriptors are read when the stream gets there (ASY-002)", [](chipset_api& api) {
           api.pointwise = [](chipset_stream stream, const chipset_pointwise_args* args) {
             return sdk::guarded([&] {
               sdk::loops::check_pointwise(*args);
               stream->queue->push([=, copy = *args] {
                 Queued::run<&chipset_api::pointwise>(copy);  // what it points to is the caller's
               });
             });
           };
         });

  // ---- events
  mutate(list, "event-passes-at-once", "event_record event_query",
         "an event counts as passed as soon as it is recorded", [](chipset_api& api) {
           api.event_query = [](chipset_event, int64_t) { return CHIPSET_STATUS_OK; };
         });
  mutate(list, "event-before-record-not-ready", "event_query",
         "an event that was never recorded is not passed (EVT-001)", [](chipset_api& api) {
           api.event_query = [](chipset_event event, int64_t timeout) -> chipset_status {
             if (!event->event.point)
               return timeout == 0 ? CHIPSET_STATUS_NOT_READY
                                   : refuse(CHIPSET_STATUS_TIMEOUT, "not passed");
             return well_ordered().event_query(event, timeout);
           };
         });
  mutate(list, "event-keeps-its-first-record", "event_record",
         "recording again does not replace the point (EVT-001)", [](chipset_api& api) {
           api.event_record = [](chipset_event event, chipset_stream stream) -> chipset_status {
             if (event->event.point) return CHIPSET_STATUS_OK;
             return well_ordered().event_record(event, stream);
           };
         });
  mutate(list, "event-remembers-a-former-life", "event_create",
         "a new event has the state of a destroyed one", [](chipset_api& api) {
           static std::mutex mutex;
           static auto* const pool = new std::vector<chipset_event>;
           api.event_create = [](int32_t device, uint32_t flags,
                                 chipset_event* event) -> chipset_status {
             std::lock_guard lock(mutex);
             if (device != 0 || pool->empty())
               return well_ordered().event_create(device, flags, event);
             *event = pool->back();
             pool->pop_back();
             (*event)->event.flags = flags;
             return CHIPSET_STATUS_OK;
           };
           api.event_destroy = [](chipset_event event) -> chipset_status {
             std::lock_guard lock(mutex);
             if (event != nullptr) pool->push_back(event);
             return CHIPSET_STATUS_OK;
           };
         });
  mutate(list, "event-destroyed-frees-waiters", "event_destroy stream_wait",
         "destroying an event releases the streams that wait for it (EVT-001)",
         [](chipset_api& api) {
           api.event_destroy = [](chipset_event event) -> chipset_status {
             if (event != nullptr && event->event.point) event->event.point->pass();
             return well_ordered().event_destroy(event);
           };
         });
  mutate(list, "event-timeout-ignored", "event_query", "a wait with a timeout answers at once",
         [](chipset_api& api) {
           api.event_query = [](chipset_event event, int64_t timeout) -> chipset_status {
             if (timeout > 0) {
               const chipset_status status = well_ordered().event_query(event, 0);
               return status == CHIPSET_STATUS_NOT_READY
                          ? refuse(CHIPSET_STATUS_TIMEOUT, "not passed")
                          : status;
             }
             return well_ordered().event_query(event, timeout);
           };
         });
  mutate(list, "event-poll-blocks", "event_query", "a poll waits until the event has passed",
         [](chipset_api& api) {
           api.event_query = [](chipset_event event, int64_t) {
             return well_ordered().event_query(event, CHIPSET_WAIT_FOREVER);
           };
         });
  mutate(list, "elapsed-in-microseconds", "event_elapsed", "times are a thousand times too long",
         [](chipset_api& api) {
           api.event_elapsed = [](chipset_event start, chipset_event end,
                                  double* milliseconds) -> chipset_status {
             const chipset_status status = well_ordered().event_elapsed(start, end, milliseconds);
             *milliseconds *= 1000;
             return status;
           };
         });
  mutate(list, "elapsed-of-untimed-events", "event_elapsed", "events without TIMING have a time",
         [](chipset_api& api) {
           api.event_elapsed = [](chipset_event start, chipset_event end,
                                  double* milliseconds) -> chipset_status {
             const chipset_status status = well_ordered().event_elapsed(start, end, milliseconds);
             if (status == CHIPSET_STATUS_OK) return status;
             *milliseconds = 1;
             return CHIPSET_STATUS_OK;
           };
         });

  // ---- faults of enqueued work
  mutate(list, "out-of-range-swallowed", "gather stream_sync",
         "an index out of range never surfaces (ERR-003)", [](chipset_api& api) {
           api.gather = [](chipset_stream stream, const chipset_gather_args* args) {
             return sdk::guarded([&] {
               sdk::Held<chipset_gather_args> held(args, [](void* at, int64_t) { return at; });
               stream->queue->push(
                   [held = std::move(held)] { good().gather(inner_stream(), &*held); });
             });
           };
         });
  mutate(list, "out-of-range-for-ever", "gather stream_sync",
         "an index out of range surfaces at every sync (ERR-003)", [](chipset_api& api) {
           static std::atomic<bool> failed{false};
           api.stream_sync = [](chipset_stream stream) -> chipset_status {
             const chipset_status status = well_ordered().stream_sync(stream);
             failed = failed || status == CHIPSET_STATUS_OUT_OF_RANGE;
             return failed ? refuse(CHIPSET_STATUS_OUT_OF_RANGE, "an index was out of range")
                           : status;
           };
         });

  // ---- devices
  mutate(
      list, "memory-of-the-current-device", "mem_alloc device_memory",
      "memory is taken from the device that the thread used last (STA-001)", [](chipset_api& api) {
        static thread_local int32_t current = 0;
        api.stream_create = [](int32_t device, int32_t priority, chipset_stream* stream) {
          current = device;
          return well_ordered().stream_create(device, priority, stream);
        };
        api.mem_alloc = [](int32_t device, int32_t kind, uint64_t bytes, void** pointer) {
          if (kind == CHIPSET_MEMORY_KIND_DEVICE && device != current && device >= 0 &&
              device < Queued::devices())
            return well_ordered().mem_alloc(current, kind, bytes, pointer);
          return well_ordered().mem_alloc(device, kind, bytes, pointer);
        };
        api.mem_free = [](int32_t device, void* pointer) -> chipset_status {
          const chipset_status status = well_ordered().mem_free(device, pointer);
          for (int32_t other = 0; status != CHIPSET_STATUS_OK && other < Queued::devices(); ++other)
            if (well_ordered().mem_free(other, pointer) == CHIPSET_STATUS_OK)
              return CHIPSET_STATUS_OK;
          return status;
        };
      });
}

}  // namespace chipset::mutants
