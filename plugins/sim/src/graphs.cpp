// SPDX-License-Identifier: Apache-2.0
// Captured graphs, and ONNX graphs when the borrowed chip compiles them.
#include <algorithm>
#include <memory>

#include "config.h"
#include "functions.h"

namespace chipset::sim {
namespace {

struct Graph {
  std::int32_t device = 0;
  std::shared_ptr<Captured> captured;
  chipset_graph compiled = nullptr;  // of the borrowed chip
};
std::unordered_map<chipset_graph, std::unique_ptr<Graph>>& graphs() {
  static auto* all = new std::unordered_map<chipset_graph, std::unique_ptr<Graph>>;
  return *all;
}

chipset_graph keep(Graph graph) {
  auto kept = std::make_unique<Graph>(std::move(graph));
  auto handle = reinterpret_cast<chipset_graph>(kept.get());
  graphs()[handle] = std::move(kept);
  return handle;
}

Graph* graph_at(chipset_graph handle) {
  const auto found = graphs().find(handle);
  return found == graphs().end() ? nullptr : found->second.get();
}

chipset_status unknown_graph(chipset_graph handle) {
  return fault(text("HND-001: ", text_of(current_call()), ": graph ", static_cast<void*>(handle),
                    " was never made, or has been destroyed"));
}

void release_streams(Captured& captured) {
  for (Stream* member : captured.streams) member->capture = nullptr;
  captured.streams.clear();
  captured.origin = nullptr;
}

}  // namespace

chipset_status spoil(Stream& stream) {
  stream.capture->spoilt = true;
  return fail(CHIPSET_STATUS_INVALID,
              text(name_of(current_call().function),
                   ": not possible while the stream is captured; the capture is spoilt, end it "
                   "with capture_end"));
}

bool join_capture(Stream& stream, const Event& event) {
  const std::shared_ptr<Captured> captured = event.captured.lock();
  if (captured == nullptr || captured->origin == nullptr) return false;
  if (stream.capture == nullptr) {
    stream.capture = captured;
    captured->streams.push_back(&stream);
  }
  return true;
}

void leave_capture(Stream& stream) {
  const std::shared_ptr<Captured> captured = stream.capture;
  captured->spoilt = true;
  if (captured->origin == &stream) {
    release_streams(*captured);
  } else {
    std::erase(captured->streams, &stream);
    stream.capture = nullptr;
  }
}

chipset_status capture_begin(chipset_stream handle) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  if (stream == nullptr) return unknown_stream(handle);
  if (stream->capture != nullptr)
    return fail(CHIPSET_STATUS_INVALID, "capture_begin: the stream is being captured already");
  stream->capture = std::make_shared<Captured>();
  stream->capture->device = stream->device;
  stream->capture->origin = stream.get();
  stream->capture->streams.push_back(stream.get());
  return CHIPSET_STATUS_OK;
}

chipset_status capture_end(chipset_stream handle, chipset_graph* graph) {
  if (graph == nullptr) return fail(CHIPSET_STATUS_INVALID, "capture_end: graph is NULL");
  *graph = nullptr;
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  if (stream == nullptr) return unknown_stream(handle);
  const std::shared_ptr<Captured> captured = stream->capture;
  if (captured == nullptr)
    return fail(CHIPSET_STATUS_INVALID, "capture_end: the stream is not being captured");
  if (captured->origin != stream.get())
    return fail(CHIPSET_STATUS_INVALID,
                "capture_end: this stream joined the capture of another; end that one");
  release_streams(*captured);
  if (captured->spoilt)
    return fail(CHIPSET_STATUS_INVALID,
                "capture_end: a call that cannot be captured was made meanwhile; no graph");
  *graph = keep({captured->device, captured, nullptr});
  return CHIPSET_STATUS_OK;
}

chipset_status capture_replay(chipset_graph handle, chipset_stream stream_handle) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(stream_handle);
  if (stream == nullptr) return unknown_stream(stream_handle);
  const Graph* graph = graph_at(handle);
  if (graph == nullptr) return unknown_graph(handle);
  if (graph->captured == nullptr)
    return fail(CHIPSET_STATUS_INVALID,
                "capture_replay: a compiled ONNX graph is run with graph_run");
  if (graph->device != stream->device)
    return fault(text("HND-001: ", text_of(current_call()), ": captured on sim:", graph->device,
                      ", the stream is of sim:", stream->device));
  const std::shared_ptr<Captured> captured = graph->captured;
  for (const Work& work : captured->works) {
    for (const Span& span : work.touches)
      if (find_live(span.begin) == nullptr)
        return fault(text("MEM-004: ", text_of(current_call()), " would run ", text_of(work.call),
                          ", which uses memory at ", reinterpret_cast<void*>(span.begin),
                          " that has been freed; keep it for the life of the graph"));
    submit(lock, stream, work);
  }
  return CHIPSET_STATUS_OK;
}

chipset_status graph_compile(std::int32_t device, const void* onnx, std::uint64_t bytes,
                             chipset_graph* graph) {
  if (graph == nullptr) return fail(CHIPSET_STATUS_INVALID, "graph_compile: graph is NULL");
  *graph = nullptr;
  if (const std::string f = device_fault(device); !f.empty()) return fault(f);
  chipset_graph inner = nullptr;
  if (const auto s = borrowed().graph_compile(device, onnx, bytes, &inner); s != CHIPSET_STATUS_OK)
    return fail(s, take_borrowed_error());
  Lock lock(simulator_mutex());
  *graph = keep({device, nullptr, inner});
  return CHIPSET_STATUS_OK;
}

// Shapes are checked by the borrowed chip when the graph runs, so that a fault in them surfaces at
// the next synchronisation.
chipset_status graph_run(chipset_stream handle, chipset_graph graph_handle,
                         std::uint32_t num_inputs, const chipset_tensor* inputs,
                         std::uint32_t num_outputs, const chipset_tensor* outputs) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  if (stream == nullptr) return unknown_stream(handle);
  const Graph* graph = graph_at(graph_handle);
  if (graph == nullptr) return unknown_graph(graph_handle);
  if (graph->compiled == nullptr)
    return fail(CHIPSET_STATUS_INVALID, "graph_run: a captured graph is run with capture_replay");
  const auto operands = runtime::operands_of<Fn::graph_run>(handle, graph_handle, num_inputs,
                                                            inputs, num_outputs, outputs);
  if (const auto s = check_placement(operands, stream->device); s != CHIPSET_STATUS_OK) return s;
  if (const auto s = check_contents(operands); s != CHIPSET_STATUS_OK) return s;
  mark_outputs(operands);
  Work work;
  work.call = current_call();
  add_spans(work, operands);
  work.seconds = kernel_seconds(0, CHIPSET_DTYPE_F32, bytes_of(operands));
  const auto inside = [](const chipset_tensor* first, std::uint32_t n) {
    std::vector<chipset_tensor> out(first, first + n);
    for (chipset_tensor& t : out) t.data = private_of(t.data);
    return out;
  };
  work.run = [compiled = graph->compiled, in = inside(inputs, num_inputs),
              out = inside(outputs, num_outputs)](chipset_stream inner) {
    return borrowed().graph_run(inner, compiled, static_cast<std::uint32_t>(in.size()), in.data(),
                                static_cast<std::uint32_t>(out.size()), out.data());
  };
  submit(lock, stream, std::move(work));
  return CHIPSET_STATUS_OK;
}

chipset_status graph_destroy(chipset_graph handle) {
  if (handle == nullptr) return CHIPSET_STATUS_OK;
  Lock lock(simulator_mutex());
  const Graph* graph = graph_at(handle);
  if (graph == nullptr) return unknown_graph(handle);
  if (graph->compiled != nullptr) borrowed().graph_destroy(graph->compiled);
  graphs().erase(handle);
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::sim
