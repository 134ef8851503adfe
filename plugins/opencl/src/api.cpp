// SPDX-License-Identifier: Apache-2.0
// The table: what the plugin does itself, its GEMM for processors, and the kit's kernels. Each call
// into a stream that is captured is recorded instead.
#include <chipset/abi_check.h>

#include <chipset_kit.hpp>

#include "backend.h"
#include "capture.h"
#include "functions.h"
#include "gemm.h"

namespace chipset::opencl {
namespace {

// The compute functions of one device.
struct Kernels : private DeviceBackend, public kit::Kit {
  explicit Kernels(Device& device) : DeviceBackend(device), Kit(static_cast<Backend&>(*this)) {}

  void gemm(chipset_stream stream, const chipset_gemm_args& args) {
    if (!Kit::traits().is_cpu || !cpu_gemm(*this, stream, args, {})) Kit::gemm(stream, args);
  }
};

Kernels& kernels(chipset_stream stream) {
  static const auto* const all = [] {  // for the life of the process
    auto* made = new std::vector<std::unique_ptr<Kernels>>;
    for (const auto& device : devices()) made->push_back(std::make_unique<Kernels>(*device));
    return made;
  }();
  return *(*all)[static_cast<size_t>(as_stream(stream)->device->index)];
}

// Kernels use the addresses that the core sees.
void* same(void* address, int64_t) { return address; }

struct OpenCL : Driver {
#define OPENCL_COMPUTE(name, struct_name)                                                         \
  static void name(chipset_stream stream, const chipset_##struct_name* args) {                    \
    if (Capture* capture = as_stream(stream)->capture; capture != nullptr) [[unlikely]]           \
      return capture->add([held = sdk::Held<chipset_##struct_name>(args, [](auto at, int64_t n) { \
                             return same(at, n);                                                  \
                           })](chipset_stream into) { kernels(into).name(into, *held); });        \
    kernels(stream).name(stream, *args);                                                          \
  }
  CHIPSET_KIT_FUNCTIONS(OPENCL_COMPUTE)
#undef OPENCL_COMPUTE

  static void mem_copy(chipset_stream stream, void* destination, const void* source, uint64_t bytes,
                       int32_t kind) {
    Capture* capture = as_stream(stream)->capture;
    if (capture == nullptr) return Driver::mem_copy(stream, destination, source, bytes, kind);
    if (kind != CHIPSET_COPY_KIND_DEVICE_TO_DEVICE) capture->spoil("mem_copy with host memory");
    capture->add(
        [=](chipset_stream into) { Driver::mem_copy(into, destination, source, bytes, kind); });
  }

  static void mem_fill(chipset_stream stream, void* destination, int32_t value, uint64_t bytes) {
    Capture* capture = as_stream(stream)->capture;
    if (capture == nullptr) return Driver::mem_fill(stream, destination, value, bytes);
    capture->add([=](chipset_stream into) { Driver::mem_fill(into, destination, value, bytes); });
  }

  static void stream_destroy(chipset_stream stream) {
    if (stream != nullptr) Capture::leave(*as_stream(stream));
    Driver::stream_destroy(stream);
  }

  static void stream_sync(chipset_stream stream) {
    if (Capture* capture = as_stream(stream)->capture) capture->spoil("stream_sync");
    Driver::stream_sync(stream);
  }

  static void stream_wait(chipset_stream stream, chipset_event event) {
    Capture::join(*as_stream(stream), *as_event(event));
    if (as_stream(stream)->capture == nullptr) Driver::stream_wait(stream, event);
  }

  static void event_record(chipset_event event, chipset_stream stream) {
    Capture* capture = as_stream(stream)->capture;
    if (capture == nullptr) return Driver::event_record(event, stream);
    as_event(event)->capture = capture->number();
    capture->add([point = as_event(event)->point](chipset_stream into) {
      record_point(*point, *as_stream(into));
    });
  }

  static void capture_begin(chipset_stream stream) { Capture::begin(*as_stream(stream)); }
  static void capture_end(chipset_stream stream, chipset_graph* graph) {
    *graph = nullptr;
    *graph = reinterpret_cast<chipset_graph>(Capture::end(*as_stream(stream)));
  }
  static void capture_replay(chipset_graph graph, chipset_stream stream) {
    if (graph == nullptr) sdk::fail(CHIPSET_STATUS_INVALID, "opencl: the graph is missing (NULL)");
    reinterpret_cast<Capture*>(graph)->replay(stream);
  }
  static void graph_destroy(chipset_graph graph) { delete reinterpret_cast<Capture*>(graph); }
};

}  // namespace
}  // namespace chipset::opencl

CHIPSET_SDK_PLUGIN(chipset::opencl::OpenCL, "opencl", "0.1.0")
