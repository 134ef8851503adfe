// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "device.h"
#include "error.h"

namespace chipset::cpu {
namespace {

constexpr size_t kBlockSize = 64 * 1024;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

chipset_status missing(const char* function, const char* what) {
  return fail(CHIPSET_STATUS_INVALID, "%s: the %s is missing (NULL)", function, what);
}

chipset_status replay_event_record(chipset_stream, const void* args) {
  (*static_cast<std::atomic<int64_t>* const*>(args))->store(now_ns(), std::memory_order_relaxed);
  return CHIPSET_STATUS_OK;
}

// Captures in progress, so that an event that outlived its capture is told from one within.
std::mutex g_captures_mutex;
std::vector<CapturedGraph*> g_captures;
uint64_t g_last_capture_id = 0;

void enter_capture(CapturedGraph& graph) {
  std::lock_guard lock(g_captures_mutex);
  graph.id = ++g_last_capture_id;
  g_captures.push_back(&graph);
}

CapturedGraph* find_capture(uint64_t id) {
  if (id == 0) return nullptr;
  std::lock_guard lock(g_captures_mutex);
  for (CapturedGraph* graph : g_captures) {
    if (graph->id == id) return graph;
  }
  return nullptr;
}

void leave_capture(CapturedGraph& graph) {
  {
    std::lock_guard lock(g_captures_mutex);
    std::erase(g_captures, &graph);
  }
  for (Stream* member : graph.streams) member->capture = nullptr;
  graph.streams.clear();
}

}  // namespace

void* CapturedGraph::keep(const void* bytes, size_t size) {
  const size_t rounded = (size + 15) / 16 * 16;
  if (block_used + rounded > block_size) {
    block_size = rounded > kBlockSize ? rounded : kBlockSize;
    auto made = std::make_shared<std::vector<char>>(block_size);
    block = made->data();
    kept.push_back(std::move(made));
    block_used = 0;
  }
  char* copy = block + block_used;
  block_used += rounded;
  std::memcpy(copy, bytes, size);
  return copy;
}

chipset_status spoil_capture(Stream& stream, const char* call) {
  CapturedGraph& graph = *stream.capture;
  graph.spoilt = true;
  return fail(CHIPSET_STATUS_INVALID,
              "%s: not possible while the stream is captured; the capture is spoilt, end it with "
              "capture_end",
              call);
}

chipset_status cpu_stream_create(int32_t device, int32_t, chipset_stream* stream) {
  if (stream == nullptr) return missing("stream_create", "out parameter");
  if (const chipset_status s = check_device("stream_create", device); s != CHIPSET_STATUS_OK) {
    return s;
  }
  auto* made = new (std::nothrow) Stream;
  if (made == nullptr) return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "stream_create: no memory");
  made->device = device;
  *stream = reinterpret_cast<chipset_stream>(made);
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_stream_destroy(chipset_stream stream) {
  Stream* s = as_stream(stream);
  if (s == nullptr) return CHIPSET_STATUS_OK;
  if (s->capture != nullptr) {
    CapturedGraph* graph = s->capture;
    graph->spoilt = true;
    if (graph->origin == s) {
      leave_capture(*graph);
      delete graph;
    } else {
      std::erase(graph->streams, s);
    }
  }
  delete s;
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_stream_sync(chipset_stream stream) {
  Stream* s = as_stream(stream);
  if (s == nullptr) return missing("stream_sync", "stream");
  if (s->capture != nullptr) return spoil_capture(*s, "stream_sync");
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_stream_wait(chipset_stream stream, chipset_event event) {
  Stream* s = as_stream(stream);
  Event* e = as_event(event);
  if (s == nullptr) return missing("stream_wait", "stream");
  if (e == nullptr) return missing("stream_wait", "event");
  // Waiting for a captured point joins that capture. The order in which the host makes the calls is
  // one that satisfies all waits, so the graph keeps this order and the wait itself needs no entry.
  if (s->capture != nullptr) return CHIPSET_STATUS_OK;
  if (CapturedGraph* graph = find_capture(e->capture_id); graph != nullptr) {
    s->capture = graph;
    graph->streams.push_back(s);
  }
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_event_create(int32_t device, uint32_t flags, chipset_event* event) {
  if (event == nullptr) return missing("event_create", "out parameter");
  if (const chipset_status s = check_device("event_create", device); s != CHIPSET_STATUS_OK) {
    return s;
  }
  auto* made = new (std::nothrow) Event;
  if (made == nullptr) return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "event_create: no memory");
  made->device = device;
  made->flags = flags;
  made->time_ns = std::make_shared<std::atomic<int64_t>>(-1);
  *event = reinterpret_cast<chipset_event>(made);
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_event_destroy(chipset_event event) {
  delete as_event(event);
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_event_record(chipset_event event, chipset_stream stream) {
  Event* e = as_event(event);
  Stream* s = as_stream(stream);
  if (e == nullptr) return missing("event_record", "event");
  if (s == nullptr) return missing("event_record", "stream");
  if (e->device != s->device) {
    return fail(CHIPSET_STATUS_INVALID,
                "event_record: the event is of device %d, the stream of device %d", e->device,
                s->device);
  }
  if (CapturedGraph* graph = s->capture; graph != nullptr) {
    e->capture_id = graph->id;
    std::atomic<int64_t>* time = e->time_ns.get();
    graph->kept.push_back(e->time_ns);
    graph->calls.push_back({replay_event_record, graph->keep(&time, sizeof(time))});
    return CHIPSET_STATUS_OK;
  }
  e->capture_id = 0;
  const bool timing = (e->flags & CHIPSET_EVENT_FLAG_TIMING) != 0;
  e->time_ns->store(timing ? now_ns() : 0, std::memory_order_relaxed);
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_event_query(chipset_event event, int64_t) {
  if (event == nullptr) return missing("event_query", "event");
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_event_elapsed(chipset_event start, chipset_event end, double* milliseconds) {
  const Event* a = as_event(start);
  const Event* b = as_event(end);
  if (a == nullptr || b == nullptr) return missing("event_elapsed", "event");
  if (milliseconds == nullptr) return missing("event_elapsed", "out parameter");
  if ((a->flags & b->flags & CHIPSET_EVENT_FLAG_TIMING) == 0) {
    return fail(CHIPSET_STATUS_INVALID,
                "event_elapsed: both events need flag TIMING, given to event_create");
  }
  if (a->device != b->device) {
    return fail(CHIPSET_STATUS_INVALID, "event_elapsed: events of devices %d and %d", a->device,
                b->device);
  }
  const int64_t from = a->time_ns->load(std::memory_order_relaxed);
  const int64_t to = b->time_ns->load(std::memory_order_relaxed);
  if (from < 0 || to < 0) {
    return fail(CHIPSET_STATUS_INVALID, "event_elapsed: an event was never recorded");
  }
  *milliseconds = static_cast<double>(to - from) * 1e-6;
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_capture_begin(chipset_stream stream) {
  Stream* s = as_stream(stream);
  if (s == nullptr) return missing("capture_begin", "stream");
  if (s->capture != nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "capture_begin: the stream is being captured already");
  }
  auto* graph = new (std::nothrow) CapturedGraph;
  if (graph == nullptr) return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "capture_begin: no memory");
  graph->device = s->device;
  graph->origin = s;
  graph->streams.push_back(s);
  s->capture = graph;
  enter_capture(*graph);
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_capture_end(chipset_stream stream, chipset_graph* graph) {
  Stream* s = as_stream(stream);
  if (graph == nullptr) return missing("capture_end", "out parameter");
  *graph = nullptr;
  if (s == nullptr) return missing("capture_end", "stream");
  CapturedGraph* captured = s->capture;
  if (captured == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "capture_end: the stream is not being captured");
  }
  if (captured->origin != s) {
    return fail(CHIPSET_STATUS_INVALID,
                "capture_end: this stream joined the capture of another; end that one");
  }
  leave_capture(*captured);
  captured->origin = nullptr;
  if (captured->spoilt) {
    delete captured;
    return fail(CHIPSET_STATUS_INVALID,
                "capture_end: a call that cannot be captured was made meanwhile; no graph");
  }
  *graph = as_handle(captured);
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_capture_replay(chipset_graph graph, chipset_stream stream) {
  Graph* g = as_graph(graph);
  Stream* s = as_stream(stream);
  if (g == nullptr) return missing("capture_replay", "graph");
  if (s == nullptr) return missing("capture_replay", "stream");
  if (g->kind != GraphKind::kCaptured) {
    return fail(CHIPSET_STATUS_INVALID,
                "capture_replay: a compiled ONNX graph is run with graph_run");
  }
  auto* captured = static_cast<CapturedGraph*>(g);
  if (captured->device != s->device) {
    return fail(CHIPSET_STATUS_INVALID,
                "capture_replay: captured on device %d, the stream is of device %d",
                captured->device, s->device);
  }
  if (s->capture != nullptr) {  // a graph in a graph: its calls become part of the outer one
    CapturedGraph& outer = *s->capture;
    outer.calls.insert(outer.calls.end(), captured->calls.begin(), captured->calls.end());
    outer.kept.insert(outer.kept.end(), captured->kept.begin(), captured->kept.end());
    return CHIPSET_STATUS_OK;
  }
  for (const CapturedGraph::Call& call : captured->calls) {
    if (const chipset_status status = call.run(stream, call.args); status != CHIPSET_STATUS_OK) {
      return status;
    }
  }
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_graph_destroy(chipset_graph graph) {
  delete as_graph(graph);
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
