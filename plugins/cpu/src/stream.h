// SPDX-License-Identifier: Apache-2.0
// Streams, events and capture. Calls run on the caller's thread, so a stream holds no queue: it is
// always passed, and capturing is its one state.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "chipset/chipset.h"
#include "graph.h"

namespace chipset::cpu {

struct CapturedGraph;

struct Stream {
  int32_t device = 0;
  CapturedGraph* capture = nullptr;  // where calls are recorded; NULL: they run
};

struct Event {
  int32_t device = 0;
  uint32_t flags = 0;
  uint64_t capture_id = 0;  // the capture in which it was last recorded; 0: none
  // Time of the last record, -1: never recorded. Shared with the graphs that record it, so that the
  // event may be destroyed at once (EVT-001).
  std::shared_ptr<std::atomic<int64_t>> time_ns;
};

inline Stream* as_stream(chipset_stream handle) { return reinterpret_cast<Stream*>(handle); }
inline Event* as_event(chipset_event handle) { return reinterpret_cast<Event*>(handle); }

// A sequence of calls with deep copies of their arguments.
struct CapturedGraph final : Graph {
  CapturedGraph() : Graph(GraphKind::kCaptured) {}

  using Run = chipset_status (*)(chipset_stream stream, const void* args);
  struct Call {
    Run run;
    const void* args;
  };

  // Memory that lives as long as the graph, aligned for any struct of the header.
  void* keep(const void* bytes, size_t size);

  int32_t device = 0;
  uint64_t id = 0;  // while capturing
  bool spoilt = false;
  Stream* origin = nullptr;
  std::vector<Stream*> streams;  // the origin and those that joined by waiting for its events
  std::vector<Call> calls;
  std::vector<std::shared_ptr<void>> kept;  // shared with graphs that this one was replayed into
  char* block = nullptr;
  size_t block_used = 0;
  size_t block_size = 0;
};

// Ends a capture that met a call it cannot hold; capture_end then gives no graph.
chipset_status spoil_capture(Stream& stream, const char* call);

chipset_status cpu_stream_create(int32_t device, int32_t priority, chipset_stream* stream);
chipset_status cpu_stream_destroy(chipset_stream stream);
chipset_status cpu_stream_sync(chipset_stream stream);
chipset_status cpu_stream_wait(chipset_stream stream, chipset_event event);
chipset_status cpu_event_create(int32_t device, uint32_t flags, chipset_event* event);
chipset_status cpu_event_destroy(chipset_event event);
chipset_status cpu_event_record(chipset_event event, chipset_stream stream);
chipset_status cpu_event_query(chipset_event event, int64_t timeout_ns);
chipset_status cpu_event_elapsed(chipset_event start, chipset_event end, double* milliseconds);
chipset_status cpu_capture_begin(chipset_stream stream);
chipset_status cpu_capture_end(chipset_stream stream, chipset_graph* graph);
chipset_status cpu_capture_replay(chipset_graph graph, chipset_stream stream);
chipset_status cpu_graph_destroy(chipset_graph graph);

}  // namespace chipset::cpu
