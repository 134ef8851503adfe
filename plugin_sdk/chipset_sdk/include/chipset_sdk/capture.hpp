// SPDX-License-Identifier: Apache-2.0
// Captured graphs for a chip that has none: Captured<MyChip> is MyChip with capture_begin,
// capture_end, capture_replay and graph_destroy, to be given to CHIPSET_SDK_PLUGIN in its place.
//
// A call into a captured stream is kept with copies of its arguments. A replay makes the calls
// again, in one stream, in the order in which the host made them, which satisfies every wait among
// the captured streams. It saves the caller's work per call, not the chip's. Needs C++20; not part
// of chipset_sdk.hpp.
#pragma once

#if __cplusplus < 202002L
#error "chipset_sdk/capture.hpp needs C++20"
#endif

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "held.hpp"
#include "table.hpp"

namespace chipset::sdk {

// One graph, during and after its capture.
struct CapturedGraph {
  using Call = std::function<void(chipset_stream)>;
  chipset_stream origin = nullptr;  // the stream that capture_begin was given
  bool spoilt = false;
  std::vector<Call> calls;
};

// Captures in progress.
class Captures {
 public:
  static Captures& all() {
    static auto* const the = new Captures;  // outlives static destructors
    return *the;
  }

  // The graph into which the stream's calls go; NULL when they run. Cheap while nothing is
  // captured.
  CapturedGraph* of(chipset_stream stream) {
    if (active_.load(std::memory_order_acquire) == 0) [[likely]]
      return nullptr;
    std::lock_guard lock(mutex_);
    const auto found = streams_.find(stream);
    return found == streams_.end() ? nullptr : found->second;
  }

  void begin(chipset_stream stream) {
    if (of(stream) != nullptr)
      fail(CHIPSET_STATUS_INVALID, "capture_begin: the stream is being captured already");
    auto graph = std::make_unique<CapturedGraph>();
    graph->origin = stream;
    std::lock_guard lock(mutex_);
    streams_[stream] = graph.release();
    ++active_;
  }

  // The finished graph, which is the caller's.
  CapturedGraph* end(chipset_stream stream) {
    CapturedGraph* graph = of(stream);
    if (graph == nullptr) fail(CHIPSET_STATUS_INVALID, "capture_end: the stream is not captured");
    if (graph->origin != stream)
      fail(CHIPSET_STATUS_INVALID,
           "capture_end: this stream joined the capture of another; end that one");
    forget(graph);
    std::unique_ptr<CapturedGraph> owner(graph);
    if (graph->spoilt)
      fail(CHIPSET_STATUS_INVALID,
           "capture_end: a call that cannot be captured was made meanwhile; there is no graph");
    return owner.release();
  }

  // A stream ends: its capture is spoilt, and over if it began there.
  void leave(chipset_stream stream) {
    CapturedGraph* graph = of(stream);
    if (graph == nullptr) return;
    graph->spoilt = true;
    if (graph->origin == stream) {
      forget(graph);
      delete graph;
    } else {
      std::lock_guard lock(mutex_);
      streams_.erase(stream);
    }
  }

  // The event's point lies in a graph. It is kept as long as the graph needs it (EVT-001).
  std::shared_ptr<void> keep_event(chipset_event event, CapturedGraph* graph,
                                   void (*destroy)(chipset_event)) {
    std::lock_guard lock(mutex_);
    Recorded& recorded = events_[event];
    recorded.graph = graph;
    if (recorded.event == nullptr)
      recorded.event.reset(event, [destroy](void* e) { destroy(static_cast<chipset_event>(e)); });
    return recorded.event;
  }
  // A stream that waits for a captured point joins that capture.
  void join(chipset_stream stream, chipset_event event) {
    if (active_.load(std::memory_order_acquire) == 0) [[likely]]
      return;
    std::lock_guard lock(mutex_);
    const auto found = events_.find(event);
    if (found != events_.end() && found->second.graph != nullptr)
      streams_.emplace(stream, found->second.graph);
  }
  // The event was recorded outside a capture.
  void record_outside(chipset_event event) {
    std::lock_guard lock(mutex_);
    const auto found = events_.find(event);
    if (found != events_.end()) found->second.graph = nullptr;
  }
  // Whether graphs hold the event, so that the last of them destroys it.
  bool release_event(chipset_event event) {
    std::shared_ptr<void> last;  // may destroy the event, outside the lock
    std::lock_guard lock(mutex_);
    const auto found = events_.find(event);
    if (found == events_.end()) return false;
    last = std::move(found->second.event);
    events_.erase(found);
    return true;
  }

 private:
  struct Recorded {
    std::shared_ptr<void> event;
    CapturedGraph* graph = nullptr;  // in progress; NULL: its capture is over
  };

  void forget(CapturedGraph* graph) {
    std::lock_guard lock(mutex_);
    std::erase_if(streams_, [&](const auto& entry) { return entry.second == graph; });
    for (auto& [event, recorded] : events_)
      if (recorded.graph == graph) recorded.graph = nullptr;
    --active_;
  }

  std::atomic<int> active_{0};
  std::mutex mutex_;
  std::map<chipset_stream, CapturedGraph*> streams_;
  std::map<chipset_event, Recorded> events_;
};

[[noreturn]] inline void spoil(CapturedGraph* graph, const char* call) {
  graph->spoilt = true;
  fail(CHIPSET_STATUS_INVALID,
       "%s is not possible while the stream is captured; the capture is spoilt, end it with "
       "capture_end",
       call);
}

namespace detail {
// One layer over a chip for each compute function that it has; nothing over one that it lacks, so
// that the function stays absent from the table.
#define CHIPSET_SDK_CAPTURED(name, struct_name)                                       \
  template <class Chip, bool = Has_##name<Chip>::value>                               \
  struct Captured_##name : Chip {};                                                   \
  template <class Chip>                                                               \
  struct Captured_##name<Chip, true> : Chip {                                         \
    static void name(chipset_stream stream, const chipset_##struct_name* args) {      \
      CapturedGraph* graph = Captures::all().of(stream);                              \
      if (graph == nullptr) [[likely]]                                                \
        return static_cast<void>(Chip::name(stream, args));                           \
      const auto same = [](void* address, int64_t) { return address; };               \
      graph->calls.push_back([held = Held<chipset_##struct_name>(args, same)](        \
                                 chipset_stream into) { Chip::name(into, &*held); }); \
    }                                                                                 \
  };
CHIPSET_SDK_CAPTURED(pointwise, pointwise_args)
CHIPSET_SDK_CAPTURED(reduce, reduce_args)
CHIPSET_SDK_CAPTURED(gemm, gemm_args)
CHIPSET_SDK_CAPTURED(gather, gather_args)
CHIPSET_SDK_CAPTURED(scatter, scatter_args)
CHIPSET_SDK_CAPTURED(attention, attention_args)
CHIPSET_SDK_CAPTURED(attention_backward, attention_args)
CHIPSET_SDK_CAPTURED(softmax, softmax_args)
CHIPSET_SDK_CAPTURED(softmax_backward, softmax_args)
CHIPSET_SDK_CAPTURED(norm, norm_args)
CHIPSET_SDK_CAPTURED(norm_backward, norm_args)
CHIPSET_SDK_CAPTURED(rotary, rotary_args)
CHIPSET_SDK_CAPTURED(cross_entropy, cross_entropy_args)
CHIPSET_SDK_CAPTURED(cross_entropy_backward, cross_entropy_args)
CHIPSET_SDK_CAPTURED(adamw, adamw_args)
CHIPSET_SDK_CAPTURED(quantize, quantize_args)
CHIPSET_SDK_CAPTURED(dequantize, quantize_args)
CHIPSET_SDK_CAPTURED(gemm_quantized, gemm_quantized_args)
CHIPSET_SDK_CAPTURED(attention_paged, attention_paged_args)
CHIPSET_SDK_CAPTURED(scan, scan_args)
CHIPSET_SDK_CAPTURED(sort, sort_args)
CHIPSET_SDK_CAPTURED(random, random_args)
#undef CHIPSET_SDK_CAPTURED

template <class Chip>
using CapturedCompute = Captured_pointwise<Captured_reduce<Captured_gemm<Captured_gather<
    Captured_scatter<Captured_attention<Captured_attention_backward<Captured_softmax<
        Captured_softmax_backward<Captured_norm<Captured_norm_backward<Captured_rotary<
            Captured_cross_entropy<Captured_cross_entropy_backward<Captured_adamw<Captured_quantize<
                Captured_dequantize<Captured_gemm_quantized<Captured_attention_paged<
                    Captured_scan<Captured_sort<Captured_random<Chip>>>>>>>>>>>>>>>>>>>>>>;
}  // namespace detail

template <class Chip>
struct Captured : detail::CapturedCompute<Chip> {
  static void mem_copy(chipset_stream stream, void* destination, const void* source, uint64_t bytes,
                       int32_t kind) {
    CapturedGraph* graph = Captures::all().of(stream);
    if (graph == nullptr) [[likely]]
      return static_cast<void>(Chip::mem_copy(stream, destination, source, bytes, kind));
    if (kind != CHIPSET_COPY_KIND_DEVICE_TO_DEVICE) spoil(graph, "mem_copy with host memory");
    graph->calls.push_back(
        [=](chipset_stream into) { Chip::mem_copy(into, destination, source, bytes, kind); });
  }
  static void mem_fill(chipset_stream stream, void* destination, int32_t value, uint64_t bytes) {
    CapturedGraph* graph = Captures::all().of(stream);
    if (graph == nullptr) [[likely]]
      return static_cast<void>(Chip::mem_fill(stream, destination, value, bytes));
    graph->calls.push_back(
        [=](chipset_stream into) { Chip::mem_fill(into, destination, value, bytes); });
  }

  static void stream_destroy(chipset_stream stream) {
    Captures::all().leave(stream);
    Chip::stream_destroy(stream);
  }
  static void stream_sync(chipset_stream stream) {
    if (CapturedGraph* graph = Captures::all().of(stream)) spoil(graph, "stream_sync");
    Chip::stream_sync(stream);
  }
  static void stream_wait(chipset_stream stream, chipset_event event) {
    Captures::all().join(stream, event);
    if (Captures::all().of(stream) == nullptr) Chip::stream_wait(stream, event);
  }
  static void event_record(chipset_event event, chipset_stream stream) {
    CapturedGraph* graph = Captures::all().of(stream);
    if (graph == nullptr) [[likely]] {
      Captures::all().record_outside(event);
      return static_cast<void>(Chip::event_record(event, stream));
    }
    auto kept = Captures::all().keep_event(
        event, graph, [](chipset_event e) { guarded([e] { Chip::event_destroy(e); }); });
    graph->calls.push_back([kept = std::move(kept)](chipset_stream into) {
      Chip::event_record(static_cast<chipset_event>(kept.get()), into);
    });
  }
  static void event_destroy(chipset_event event) {
    if (!Captures::all().release_event(event)) Chip::event_destroy(event);
  }

  static void capture_begin(chipset_stream stream) {
    if (stream == nullptr) fail(CHIPSET_STATUS_INVALID, "capture_begin: no stream");
    Captures::all().begin(stream);
  }
  static void capture_end(chipset_stream stream, chipset_graph* graph) {
    *graph = nullptr;
    *graph = reinterpret_cast<chipset_graph>(Captures::all().end(stream));
  }
  static void capture_replay(chipset_graph graph, chipset_stream stream) {
    if (graph == nullptr) fail(CHIPSET_STATUS_INVALID, "capture_replay: no graph");
    const auto& calls = reinterpret_cast<CapturedGraph*>(graph)->calls;
    if (CapturedGraph* outer = Captures::all().of(stream)) {  // they become part of the outer graph
      outer->calls.insert(outer->calls.end(), calls.begin(), calls.end());
      return;
    }
    for (const CapturedGraph::Call& call : calls) call(stream);
  }
  static void graph_destroy(chipset_graph graph) { delete reinterpret_cast<CapturedGraph*>(graph); }
};

}  // namespace chipset::sdk
