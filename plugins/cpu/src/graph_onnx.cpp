// SPDX-License-Identifier: Apache-2.0
// graph_compile and graph_run: an ONNX model, run by ONNX Runtime with as many threads as the
// plugin's own kernels use.
#include <unistd.h>

#include <cinttypes>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "check.h"
#include "device.h"
#include "error.h"
#include "functions.h"
#include "graph.h"
#include "graph_onnxruntime.h"
#include "parallel.h"
#include "stream.h"
#include "tensor.h"

namespace chipset::cpu {
namespace {

// An input or output as the model declares it; a size that only a run decides is negative.
struct Slot {
  std::string name;
  int32_t dtype = -1;
  std::vector<int64_t> shape;

  bool is_fixed() const {
    for (const int64_t size : shape) {
      if (size < 0) return false;
    }
    return true;
  }
};

struct OnnxGraph final : Graph {
  explicit OnnxGraph(const ort::Library& used) : Graph(GraphKind::kOnnx), library(used) {}
  ~OnnxGraph() override {
    // The threads of a session do not survive a fork, and ending it would wait for them.
    if (session != nullptr && process == getpid()) library.ReleaseSession(session);
  }

  const ort::Library& library;
  ort::Session* session = nullptr;
  int32_t device = 0;
  pid_t process = getpid();
  std::vector<Slot> inputs, outputs;
  std::vector<const char*> input_names, output_names;  // of the slots above
};

// Values of one run, released at its end.
struct Values {
  explicit Values(const ort::Library& used, size_t count) : library(used), of(count, nullptr) {}
  ~Values() {
    for (ort::Value* value : of) {
      if (value != nullptr) library.ReleaseValue(value);
    }
  }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  const ort::Library& library;
  std::vector<ort::Value*> of;
};

// Reports what ONNX Runtime says, and frees it.
chipset_status report(const ort::Library& library, ort::Status* status, const char* function,
                      chipset_status (*meaning)(int code)) {
  const chipset_status result = meaning(library.GetErrorCode(status));
  fail(result, "%s: %s", function, library.GetErrorMessage(status));
  library.ReleaseStatus(status);
  return result;
}

// Bytes that are no model are INVALID; a model that ONNX Runtime cannot compile is UNSUPPORTED, and
// its text names the operator.
chipset_status meaning_when_compiling(int code) {
  const bool broken =
      code == ort::kInvalidProtobuf || code == ort::kNoModel || code == ort::kInvalidArgument;
  return broken ? CHIPSET_STATUS_INVALID : CHIPSET_STATUS_UNSUPPORTED;
}
// An operator refuses the sizes that a run gave it.
chipset_status meaning_when_running(int code) {
  const bool refused =
      code == ort::kInvalidArgument || code == ort::kRuntimeException || code == ort::kFail;
  return refused ? CHIPSET_STATUS_INVALID : CHIPSET_STATUS_INTERNAL;
}

#define RETURN_IF_REFUSED(call, function, meaning)                      \
  if (ort::Status* refused_ = (call); refused_ != nullptr) [[unlikely]] \
  return report(library, refused_, function, meaning)

// Reads one input (or output) of the session.
chipset_status read_slot(const OnnxGraph& graph, bool is_input, size_t index, Slot& slot) {
  const ort::Library& library = graph.library;
  const auto get_name = is_input ? library.SessionGetInputName : library.SessionGetOutputName;
  const auto get_type =
      is_input ? library.SessionGetInputTypeInfo : library.SessionGetOutputTypeInfo;
  char* name = nullptr;
  RETURN_IF_REFUSED(get_name(graph.session, index, library.allocator, &name), "graph_compile",
                    meaning_when_compiling);
  slot.name = name;
  RETURN_IF_REFUSED(library.AllocatorFree(library.allocator, name), "graph_compile",
                    meaning_when_compiling);

  ort::TypeInfo* type = nullptr;
  RETURN_IF_REFUSED(get_type(graph.session, index, &type), "graph_compile", meaning_when_compiling);
  const ort::TensorInfo* tensor = nullptr;  // part of `type`; NULL when this is no tensor
  int element = -1;
  size_t rank = 0;
  ort::Status* refused = library.CastTypeInfoToTensorInfo(type, &tensor);
  if (refused == nullptr && tensor != nullptr) {
    refused = library.GetTensorElementType(tensor, &element);
    if (refused == nullptr) refused = library.GetDimensionsCount(tensor, &rank);
    slot.shape.resize(rank);
    if (refused == nullptr) refused = library.GetDimensions(tensor, slot.shape.data(), rank);
  }
  library.ReleaseTypeInfo(type);
  RETURN_IF_REFUSED(refused, "graph_compile", meaning_when_compiling);
  slot.dtype = ort::dtype_of(element);
  if (slot.dtype >= 0 && rank <= CHIPSET_MAX_RANK) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_UNSUPPORTED,
              "graph_compile: %s '%s' has ONNX element type %d and rank %zu; need a tensor of a "
              "dtype of the interface (not i4) and a rank up to %d",
              is_input ? "input" : "output", slot.name.c_str(), element, rank, CHIPSET_MAX_RANK);
}

chipset_status read_slots(OnnxGraph& graph) {
  const ort::Library& library = graph.library;
  size_t inputs = 0, outputs = 0;
  RETURN_IF_REFUSED(library.SessionGetInputCount(graph.session, &inputs), "graph_compile",
                    meaning_when_compiling);
  RETURN_IF_REFUSED(library.SessionGetOutputCount(graph.session, &outputs), "graph_compile",
                    meaning_when_compiling);
  graph.inputs.resize(inputs);
  graph.outputs.resize(outputs);
  for (size_t i = 0; i < inputs; ++i) {
    RETURN_UNLESS_OK(read_slot(graph, true, i, graph.inputs[i]));
    graph.input_names.push_back(graph.inputs[i].name.c_str());
  }
  for (size_t i = 0; i < outputs; ++i) {
    RETURN_UNLESS_OK(read_slot(graph, false, i, graph.outputs[i]));
    graph.output_names.push_back(graph.outputs[i].name.c_str());
  }
  return CHIPSET_STATUS_OK;
}

chipset_status make_session(OnnxGraph& graph, const void* model, size_t bytes) {
  const ort::Library& library = graph.library;
  ort::SessionOptions* options = nullptr;
  RETURN_IF_REFUSED(library.CreateSessionOptions(&options), "graph_compile",
                    meaning_when_compiling);
  ort::Status* refused = library.SetIntraOpNumThreads(options, thread_count());
  // Between two runs the cores belong to the plugin's own pool.
  if (refused == nullptr) {
    refused = library.AddSessionConfigEntry(options, "session.intra_op.allow_spinning", "0");
  }
  if (refused == nullptr) {
    refused = library.CreateSessionFromArray(library.env, model, bytes, options, &graph.session);
  }
  library.ReleaseSessionOptions(options);
  RETURN_IF_REFUSED(refused, "graph_compile", meaning_when_compiling);
  return CHIPSET_STATUS_OK;
}

// The text of a declared shape, sizes that a run decides as "?".
std::string declared(const Slot& slot) {
  std::string text = "[";
  for (size_t d = 0; d < slot.shape.size(); ++d) {
    if (d > 0) text += ", ";
    text += slot.shape[d] < 0 ? "?" : std::to_string(slot.shape[d]);
  }
  return text + "]";
}

// Whether a tensor is what the model declares.
chipset_status check_slot(const char* kind, size_t index, const Slot& slot,
                          const chipset_tensor& t) {
  RETURN_UNLESS_OK(check_tensor("graph_run", slot.name.c_str(), &t));
  bool fits = t.rank == static_cast<int32_t>(slot.shape.size());
  for (int d = 0; fits && d < t.rank; ++d) {
    fits =
        slot.shape[static_cast<size_t>(d)] < 0 || slot.shape[static_cast<size_t>(d)] == t.shape[d];
  }
  if (t.dtype != slot.dtype || !fits) {
    return fail(CHIPSET_STATUS_INVALID,
                "graph_run: %s %zu '%s' is %s %s, but the graph declares %s %s", kind, index,
                slot.name.c_str(), dtype_name(t.dtype), shape_text(t), dtype_name(slot.dtype),
                declared(slot).c_str());
  }
  if (!is_contiguous(t)) {
    return fail(CHIPSET_STATUS_INVALID,
                "graph_run: %s %zu '%s' is not contiguous; copy it into a contiguous tensor", kind,
                index, slot.name.c_str());
  }
  return CHIPSET_STATUS_OK;
}

chipset_status check_slots(const char* kind, const std::vector<Slot>& slots, uint32_t count,
                           const chipset_tensor* tensors) {
  if (count != slots.size()) {
    return fail(CHIPSET_STATUS_INVALID, "graph_run: %" PRIu32 " %ss given, the graph has %zu",
                count, kind, slots.size());
  }
  if (count > 0 && tensors == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "graph_run: the %ss are missing (NULL)", kind);
  }
  for (uint32_t i = 0; i < count; ++i) {
    RETURN_UNLESS_OK(check_slot(kind, i, slots[i], tensors[i]));
  }
  return CHIPSET_STATUS_OK;
}

// A value that uses the tensor's memory.
ort::Status* wrap(const ort::Library& library, const chipset_tensor& t, ort::Value** value) {
  static char nothing;
  void* data = t.data != nullptr ? t.data : &nothing;
  const size_t bytes = static_cast<size_t>(numel(t) * dtype_size(t.dtype));
  return library.CreateTensorWithDataAsOrtValue(library.memory, data, bytes, t.shape,
                                                static_cast<size_t>(t.rank),
                                                ort::element_type(t.dtype), value);
}

// Checks that an output which ONNX Runtime has made has the shape that the caller expects.
chipset_status check_made(const ort::Library& library, size_t index, const Slot& slot,
                          const ort::Value* value, const chipset_tensor& expected) {
  ort::TensorInfo* info = nullptr;
  RETURN_IF_REFUSED(library.GetTensorTypeAndShape(value, &info), "graph_run", meaning_when_running);
  chipset_tensor made = {};
  size_t rank = 0;
  ort::Status* refused = library.GetDimensionsCount(info, &rank);
  if (refused == nullptr && rank <= CHIPSET_MAX_RANK) {
    refused = library.GetDimensions(info, made.shape, rank);
  }
  library.ReleaseTensorTypeAndShapeInfo(info);
  RETURN_IF_REFUSED(refused, "graph_run", meaning_when_running);
  made.rank = static_cast<int32_t>(rank);
  if (same_shape(made, expected)) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_INVALID,
              "graph_run: output %zu '%s' has shape %s, but the graph yields %s", index,
              slot.name.c_str(), shape_text(expected), shape_text(made));
}

struct RunArgs {
  OnnxGraph* graph;
  uint32_t num_inputs, num_outputs;
  const chipset_tensor* inputs;
  const chipset_tensor* outputs;
};

chipset_status run(chipset_stream, const void* args) {
  const RunArgs& a = *static_cast<const RunArgs*>(args);
  OnnxGraph& graph = *a.graph;
  const ort::Library& library = graph.library;
  if (graph.process != getpid()) {
    return fail(
        CHIPSET_STATUS_INVALID,
        "graph_run: the graph was compiled by process %d before a fork; compile it again in "
        "this process",
        static_cast<int>(graph.process));
  }
  Values inputs(library, a.num_inputs), outputs(library, a.num_outputs);
  for (uint32_t i = 0; i < a.num_inputs; ++i) {
    RETURN_IF_REFUSED(wrap(library, a.inputs[i], &inputs.of[i]), "graph_run", meaning_when_running);
  }
  // Outputs of declared shape are written in place. The others are made by ONNX Runtime and copied
  // once all shapes are known to be right, so that an error has written nothing.
  bool in_place = true;
  for (const Slot& slot : graph.outputs) in_place = in_place && slot.is_fixed();
  for (uint32_t i = 0; in_place && i < a.num_outputs; ++i) {
    RETURN_IF_REFUSED(wrap(library, a.outputs[i], &outputs.of[i]), "graph_run",
                      meaning_when_running);
  }
  RETURN_IF_REFUSED(
      library.Run(graph.session, nullptr, graph.input_names.data(), inputs.of.data(), a.num_inputs,
                  graph.output_names.data(), a.num_outputs, outputs.of.data()),
      "graph_run", meaning_when_running);
  if (in_place) return CHIPSET_STATUS_OK;
  for (uint32_t i = 0; i < a.num_outputs; ++i) {
    RETURN_UNLESS_OK(check_made(library, i, graph.outputs[i], outputs.of[i], a.outputs[i]));
  }
  for (uint32_t i = 0; i < a.num_outputs; ++i) {
    const chipset_tensor& t = a.outputs[i];
    void* made = nullptr;
    RETURN_IF_REFUSED(library.GetTensorMutableData(outputs.of[i], &made), "graph_run",
                      meaning_when_running);
    const size_t bytes = static_cast<size_t>(numel(t) * dtype_size(t.dtype));
    if (bytes > 0) std::memcpy(t.data, made, bytes);
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace

chipset_status cpu_graph_compile(int32_t device, const void* onnx, uint64_t bytes,
                                 chipset_graph* graph) {
  if (graph == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "graph_compile: the out parameter is missing (NULL)");
  }
  *graph = nullptr;
  RETURN_UNLESS_OK(check_device("graph_compile", device));
  if (onnx == nullptr || bytes == 0) {
    return fail(CHIPSET_STATUS_INVALID, "graph_compile: the model is missing (%" PRIu64 " bytes)",
                bytes);
  }
  const char* reason = nullptr;
  const ort::Library* library = ort::library(&reason);
  if (library == nullptr) return fail(CHIPSET_STATUS_UNSUPPORTED, "graph_compile: %s", reason);
  auto* made = new (std::nothrow) OnnxGraph(*library);
  if (made == nullptr) return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "graph_compile: no memory");
  made->device = device;
  chipset_status status = make_session(*made, onnx, static_cast<size_t>(bytes));
  if (status == CHIPSET_STATUS_OK) status = read_slots(*made);
  if (status != CHIPSET_STATUS_OK) {
    delete made;
    return status;
  }
  *graph = as_handle(made);
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_graph_run(chipset_stream stream, chipset_graph graph, uint32_t num_inputs,
                             const chipset_tensor* inputs, uint32_t num_outputs,
                             const chipset_tensor* outputs) {
  Stream* s = as_stream(stream);
  Graph* g = as_graph(graph);
  if (s == nullptr || g == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "graph_run: the %s is missing (NULL)",
                s == nullptr ? "stream" : "graph");
  }
  if (g->kind != GraphKind::kOnnx) {
    return fail(CHIPSET_STATUS_INVALID, "graph_run: a captured graph is run with capture_replay");
  }
  auto* compiled = static_cast<OnnxGraph*>(g);
  if (compiled->device != s->device) {
    return fail(CHIPSET_STATUS_INVALID,
                "graph_run: compiled for device %d, the stream is of device %d", compiled->device,
                s->device);
  }
  RETURN_UNLESS_OK(check_slots("input", compiled->inputs, num_inputs, inputs));
  RETURN_UNLESS_OK(check_slots("output", compiled->outputs, num_outputs, outputs));
  RunArgs args = {compiled, num_inputs, num_outputs, inputs, outputs};
  if (CapturedGraph* capture = s->capture; capture != nullptr) {
    const auto keep = [&](const chipset_tensor* tensors, uint32_t count) {
      return static_cast<const chipset_tensor*>(capture->keep(tensors, sizeof(*tensors) * count));
    };
    args.inputs = keep(inputs, num_inputs);
    args.outputs = keep(outputs, num_outputs);
    capture->calls.push_back({run, capture->keep(&args, sizeof(args))});
    return CHIPSET_STATUS_OK;
  }
  return run(stream, &args);
}

}  // namespace chipset::cpu
