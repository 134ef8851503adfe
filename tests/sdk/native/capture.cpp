// Captured<Chip>: what is captured does not run, a replay runs it, and what cannot be captured
// spoils the graph and says so.
#include <chipset_sdk/capture.hpp>
#include <vector>

#include "check.hpp"

using namespace chipset::sdk;

namespace {

struct Plain : QueuedDevice<HostMemory> {
  static void add_one(const chipset_pointwise_args& args) {
    for (int64_t i = 0; i < numel(*args.output); ++i) ++static_cast<float*>(args.output->data)[i];
  }
  static void device_info(int32_t device, chipset_device_info*) { check_device(device); }
  static void pointwise(chipset_stream stream, const chipset_pointwise_args* args) {
    launch(stream, args, add_one);
  }
  static void reduce(chipset_stream, const chipset_reduce_args*) { unsupported("no reduce"); }
  static void gemm(chipset_stream, const chipset_gemm_args*) { unsupported("no gemm"); }
  static void gather(chipset_stream, const chipset_gather_args*) { unsupported("no gather"); }
  static void scatter(chipset_stream, const chipset_scatter_args*) { unsupported("no scatter"); }
};

const chipset_api api = make_table<Captured<Plain>>("captured", "1");

chipset_stream new_stream() {
  chipset_stream stream = nullptr;
  CHECK(api.stream_create(0, 0, &stream) == CHIPSET_STATUS_OK);
  return stream;
}

struct Row {
  float* data;
  Row() {
    void* made = nullptr;
    CHECK(api.mem_alloc(0, CHIPSET_MEMORY_KIND_DEVICE, 4 * sizeof(float), &made) == 0);
    data = static_cast<float*>(made);
    std::fill_n(data, 4, 1.0f);  // HostMemory: the host may
  }
  ~Row() { api.mem_free(0, data); }
  // data += 1
  void add_one(chipset_stream stream) const {
    const chipset_tensor t = tensor(data, CHIPSET_DTYPE_F32, {4});
    chipset_pointwise_args args{};
    args.struct_size = sizeof args;
    args.output = &t;
    CHECK(api.pointwise(stream, &args) == CHIPSET_STATUS_OK);
  }
};

void a_replay_runs_what_was_captured() {
  const Row row;
  chipset_stream stream = new_stream(), side = new_stream();
  chipset_event fork = nullptr, join = nullptr;
  CHECK(api.event_create(0, 0, &fork) == 0 && api.event_create(0, 0, &join) == 0);
  CHECK(api.capture_begin(stream) == CHIPSET_STATUS_OK);
  row.add_one(stream);
  CHECK(api.event_record(fork, stream) == 0 && api.stream_wait(side, fork) == 0);
  row.add_one(side);  // joined the capture by its wait
  CHECK(api.event_record(join, side) == 0 && api.stream_wait(stream, join) == 0);
  row.add_one(stream);
  chipset_graph graph = nullptr;
  CHECK(api.capture_end(stream, &graph) == CHIPSET_STATUS_OK && graph != nullptr);
  CHECK(api.device_sync(0) == 0 && row.data[0] == 1);                   // nothing ran
  CHECK(api.event_destroy(fork) == 0 && api.event_destroy(join) == 0);  // the graph keeps them
  for (int i = 0; i < 2; ++i) CHECK(api.capture_replay(graph, stream) == CHIPSET_STATUS_OK);
  CHECK(api.stream_sync(stream) == 0 && row.data[0] == 7 && row.data[3] == 7);
  row.add_one(side);  // outside of any capture again
  CHECK(api.stream_sync(side) == 0 && row.data[0] == 8);
  CHECK(api.graph_destroy(graph) == 0);
  CHECK(api.stream_destroy(stream) == 0 && api.stream_destroy(side) == 0);
}

void what_cannot_be_captured_spoils_the_graph() {
  const Row row;
  chipset_stream stream = new_stream();
  chipset_graph graph = nullptr;
  CHECK(api.capture_begin(stream) == 0);
  CHECK(api.capture_begin(stream) == CHIPSET_STATUS_INVALID);
  CHECK(api.stream_sync(stream) == CHIPSET_STATUS_INVALID);
  CHECK(FakeHost::text().find("stream_sync is not possible") != std::string::npos);
  CHECK(api.capture_end(stream, &graph) == CHIPSET_STATUS_INVALID && graph == nullptr);
  CHECK(api.capture_end(stream, &graph) == CHIPSET_STATUS_INVALID);
  row.add_one(stream);  // works again
  CHECK(api.stream_sync(stream) == 0 && row.data[0] == 2);
  CHECK(api.stream_destroy(stream) == 0);
}

}  // namespace

int main() {
  FakeHost::install();
  a_replay_runs_what_was_captured();
  what_cannot_be_captured_spoils_the_graph();
  return report();
}
