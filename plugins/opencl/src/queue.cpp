// SPDX-License-Identifier: Apache-2.0
// Streams are in-order command queues, events are markers in them.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "device.h"
#include "functions.h"

namespace chipset::opencl {
namespace {

// Copies from pageable memory up to this size are taken over by the plugin, so that they need not
// wait for the work before them.
constexpr uint64_t kStagedBytes = 64 << 10;

// The fault that kernels of the stream have left, once (ERR-003). After the work has run.
void surface(Device& device, Faults* faults) {
  device.check_alive();
  if (faults == nullptr || !faults->armed.exchange(false)) return;
  int32_t word = 0;
  std::lock_guard lock(device.mutex);  // the service queue is used by one thread at a time
  check(cl().EnqueueSVMMemcpy(device.service, CL_TRUE, &word, faults->word, sizeof word, 0, nullptr,
                              nullptr),
        "EnqueueSVMMemcpy");
  if (word == 0) return;
  const int32_t zero = 0;
  check(cl().EnqueueSVMMemcpy(device.service, CL_TRUE, faults->word, &zero, sizeof zero, 0, nullptr,
                              nullptr),
        "EnqueueSVMMemcpy");
  sdk::fail(CHIPSET_STATUS_OUT_OF_RANGE,
            "opencl: an index of an earlier gather, scatter or cross_entropy of this stream lies "
            "outside its dimension");
}

void release(cl_event event, cl_int, void* user_event) {
  cl().SetUserEventStatus(static_cast<cl_event>(user_event), CL_COMPLETE);
  cl().ReleaseEvent(static_cast<cl_event>(user_event));
  cl().ReleaseEvent(event);
}

// An event of `context` that passes when the event of another context passes.
cl_event bridge_event(cl_context context, cl_event from) {
  cl_int error = CL_SUCCESS;
  cl_event made = cl().CreateUserEvent(context, &error);
  check(error, "CreateUserEvent");
  cl().RetainEvent(from);
  cl().RetainEvent(made);
  check(cl().SetEventCallback(from, CL_COMPLETE, release, made), "SetEventCallback");
  return made;
}

// A reference to an event of the driver.
class Reference {
 public:
  explicit Reference(cl_event event) : event_(event) {}
  ~Reference() {
    if (event_ != nullptr) cl().ReleaseEvent(event_);
  }
  Reference(Reference&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  cl_event get() const { return event_; }

 private:
  cl_event event_;
};

// The event's present point; NULL when it was never recorded.
Reference take_point(Event& event) {
  const std::lock_guard lock(event.mutex);
  if (event.point != nullptr) cl().RetainEvent(event.point);
  return Reference(event.point);
}

// Whether the point was passed; throws when its work failed.
bool has_passed(Device& device, cl_event point) {
  cl_int status = CL_COMPLETE;
  device.check(
      cl().GetEventInfo(point, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr),
      "GetEventInfo");
  if (status < 0) device.check(status, "GetEventInfo", true);
  return status == CL_COMPLETE;
}

void wait_for(Device& device, cl_event point, int64_t timeout_ns) {
  if (timeout_ns < 0) {
    const cl_int error = cl().WaitForEvents(1, &point);
    has_passed(device, point);
    return device.check(error, "WaitForEvents", true);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  while (!has_passed(device, point)) {
    if (timeout_ns == 0) throw sdk::Error(CHIPSET_STATUS_NOT_READY, "");
    if (std::chrono::steady_clock::now() >= end)
      sdk::fail(CHIPSET_STATUS_TIMEOUT, "opencl: the event was not passed within %lld ns",
                static_cast<long long>(timeout_ns));
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

Faults::~Faults() { cl().SVMFree(device->context, word); }

void* Stream::get_scratch(uint64_t bytes) {
  if (bytes <= scratch_bytes) return scratch;
  device->check(cl().Finish(queue), "Finish", true);  // of the work that uses the old one
  if (scratch != nullptr) Driver::mem_free(device->index, std::exchange(scratch, nullptr));
  scratch_bytes = 0;
  Driver::mem_alloc(device->index, CHIPSET_MEMORY_KIND_DEVICE, bytes, &scratch);
  scratch_bytes = bytes;
  return scratch;
}

void Driver::device_sync(int32_t index) {
  Device& device = device_at(index);
  std::vector<std::pair<cl_command_queue, std::shared_ptr<Faults>>> all;
  {
    std::lock_guard lock(device.mutex);
    for (Stream* stream : device.streams) {
      cl().RetainCommandQueue(stream->queue);
      all.emplace_back(stream->queue, stream->faults);
    }
  }
  for (auto& [queue, faults] : all) {
    const cl_int error = cl().Finish(queue);
    cl().ReleaseCommandQueue(queue);
    device.check(error, "Finish", true);
  }
  for (auto& [queue, faults] : all) surface(device, faults.get());
  device.check_alive();
}

void Driver::mem_copy(chipset_stream handle, void* destination, const void* source, uint64_t bytes,
                      int32_t kind) {
  Stream& stream = *as_stream(handle);
  Device& device = *stream.device;
  device.check_alive();
  if (kind < CHIPSET_COPY_KIND_HOST_TO_DEVICE || kind > CHIPSET_COPY_KIND_DEVICE_TO_DEVICE)
    sdk::fail(CHIPSET_STATUS_INVALID, "opencl: mem_copy: unknown copy kind %d", kind);
  if (bytes == 0) return;
  if (destination == nullptr || source == nullptr)
    sdk::fail(CHIPSET_STATUS_INVALID, "opencl: mem_copy: %llu bytes at address NULL",
              static_cast<unsigned long long>(bytes));
  const void* host = kind == CHIPSET_COPY_KIND_HOST_TO_DEVICE   ? source
                     : kind == CHIPSET_COPY_KIND_DEVICE_TO_HOST ? destination
                                                                : nullptr;
  const bool pageable = host != nullptr && !device.is_pinned(host);
  if (pageable && kind == CHIPSET_COPY_KIND_HOST_TO_DEVICE && bytes <= kStagedBytes) {
    void* staged = std::malloc(bytes);
    if (staged == nullptr) throw std::bad_alloc();
    std::memcpy(staged, source, bytes);
    cl_event done = nullptr;
    const cl_int error = cl().EnqueueSVMMemcpy(stream.queue, CL_FALSE, destination, staged, bytes,
                                               0, nullptr, &done);
    if (error != CL_SUCCESS) std::free(staged);
    device.check(error, "EnqueueSVMMemcpy");
    cl().SetEventCallback(
        done, CL_COMPLETE, [](cl_event, cl_int, void* memory) { std::free(memory); }, staged);
    cl().ReleaseEvent(done);
    return;
  }
  device.check(cl().EnqueueSVMMemcpy(stream.queue, pageable ? CL_TRUE : CL_FALSE, destination,
                                     source, bytes, 0, nullptr, nullptr),
               "EnqueueSVMMemcpy", pageable);
}

void Driver::mem_fill(chipset_stream handle, void* destination, int32_t value, uint64_t bytes) {
  Stream& stream = *as_stream(handle);
  stream.device->check_alive();
  if (bytes == 0) return;
  if (destination == nullptr)
    sdk::fail(CHIPSET_STATUS_INVALID, "opencl: mem_fill: %llu bytes at address NULL",
              static_cast<unsigned long long>(bytes));
  const auto byte = static_cast<uint8_t>(value);
  stream.device->check(
      cl().EnqueueSVMMemFill(stream.queue, destination, &byte, 1, bytes, 0, nullptr, nullptr),
      "EnqueueSVMMemFill");
}

void Driver::stream_create(int32_t index, int32_t, chipset_stream* handle) {
  Device& device = device_at(index);
  device.check_alive();
  auto stream = std::make_unique<Stream>();
  stream->device = &device;
  stream->faults = std::make_shared<Faults>();
  stream->faults->device = &device;
  void* word = cl().SVMAlloc(device.context, CL_MEM_READ_WRITE, 128, 0);
  if (word == nullptr) sdk::fail(CHIPSET_STATUS_OUT_OF_MEMORY, "opencl: stream_create: no memory");
  stream->faults->word = static_cast<int32_t*>(word);
  const cl_bitfield properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
  cl_int error = CL_SUCCESS;
  stream->queue =
      cl().CreateCommandQueueWithProperties(device.context, device.id, properties, &error);
  device.check(error, "CreateCommandQueueWithProperties");
  const int32_t zero = 0;
  device.check(
      cl().EnqueueSVMMemcpy(stream->queue, CL_TRUE, word, &zero, sizeof zero, 0, nullptr, nullptr),
      "EnqueueSVMMemcpy");
  std::lock_guard lock(device.mutex);
  device.streams.insert(stream.get());
  *handle = reinterpret_cast<chipset_stream>(stream.release());
}

void Driver::stream_destroy(chipset_stream handle) {
  if (handle == nullptr) return;
  const std::unique_ptr<Stream> stream(as_stream(handle));
  Device& device = *stream->device;
  {
    std::lock_guard lock(device.mutex);
    device.streams.erase(stream.get());
  }
  cl().Finish(stream->queue);
  cl().ReleaseCommandQueue(stream->queue);
  if (stream->scratch != nullptr) Driver::mem_free(device.index, stream->scratch);
}

void Driver::stream_sync(chipset_stream handle) {
  Stream& stream = *as_stream(handle);
  stream.device->check(cl().Finish(stream.queue), "Finish", true);
  surface(*stream.device, stream.faults.get());
}

void Driver::stream_wait(chipset_stream handle, chipset_event event_handle) {
  Stream& stream = *as_stream(handle);
  Event& event = *as_event(event_handle);
  stream.device->check_alive();
  const Reference point = take_point(event);
  if (point.get() == nullptr) return;
  const bool foreign = event.device != stream.device;
  const Reference bridged(foreign ? bridge_event(stream.device->context, point.get()) : nullptr);
  cl_event waited = foreign ? bridged.get() : point.get();
  stream.device->check(cl().EnqueueBarrierWithWaitList(stream.queue, 1, &waited, nullptr),
                       "EnqueueBarrierWithWaitList");
}

void Driver::event_create(int32_t index, uint32_t flags, chipset_event* handle) {
  auto event = std::make_unique<Event>();
  event->device = &device_at(index);
  event->flags = flags;
  *handle = reinterpret_cast<chipset_event>(event.release());
}

void Driver::event_destroy(chipset_event handle) {
  if (handle == nullptr) return;
  const Reference point(as_event(handle)->point);
  delete as_event(handle);
}

void Driver::event_record(chipset_event handle, chipset_stream stream_handle) {
  Event& event = *as_event(handle);
  Stream& stream = *as_stream(stream_handle);
  if (event.device != stream.device)
    sdk::fail(CHIPSET_STATUS_INVALID,
              "opencl: event_record: the event is of device %d, the stream of device %d",
              event.device->index, stream.device->index);
  stream.device->check_alive();
  cl_event made = nullptr;
  stream.device->check(cl().EnqueueMarkerWithWaitList(stream.queue, 0, nullptr, &made),
                       "EnqueueMarkerWithWaitList");
  cl().Flush(stream.queue);  // another queue that waits for it would not
  const std::lock_guard lock(event.mutex);
  const Reference before(std::exchange(event.point, made));
  event.faults = stream.faults;
}

void Driver::event_query(chipset_event handle, int64_t timeout_ns) {
  Event& event = *as_event(handle);
  const Reference point = take_point(event);
  if (point.get() == nullptr) return;
  wait_for(*event.device, point.get(), timeout_ns);
  if (timeout_ns != 0) surface(*event.device, event.faults.get());
}

void Driver::event_elapsed(chipset_event start, chipset_event end, double* milliseconds) {
  Event* events[2] = {as_event(start), as_event(end)};
  cl_ulong time[2] = {};
  bool known = events[0]->device == events[1]->device;
  for (int i = 0; known && i < 2; ++i) {
    const Reference point = take_point(*events[i]);
    known = (events[i]->flags & CHIPSET_EVENT_FLAG_TIMING) != 0 && point.get() != nullptr &&
            has_passed(*events[i]->device, point.get()) &&
            cl().GetEventProfilingInfo(point.get(), CL_PROFILING_COMMAND_END, sizeof time[i],
                                       &time[i], nullptr) == CL_SUCCESS;
  }
  if (!known)
    sdk::fail(CHIPSET_STATUS_INVALID,
              "opencl: event_elapsed needs two events of one device that were made with TIMING, "
              "recorded and passed");
  *milliseconds = (static_cast<double>(time[1]) - static_cast<double>(time[0])) * 1e-6;
}

}  // namespace chipset::opencl
