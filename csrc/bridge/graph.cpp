// SPDX-License-Identifier: Apache-2.0
// Graphs behind torch.accelerator.Graph and torch.chip.Graph: capture on the current stream, with
// memory from a private pool so that the addresses in the graph stay valid.
#include "graph.h"

#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "state.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

class ChipGraph;
// The graph that this thread captures.
thread_local ChipGraph* captured = nullptr;

// Pools live as long as a graph uses them.
class Pools {
 public:
  uint64_t fresh() { return ++last_; }
  void retain(int device, uint64_t id) {
    const std::lock_guard lock(mutex_);
    ++users_[{device, id}];
  }
  void release(int device, uint64_t id) {
    const std::lock_guard lock(mutex_);
    const auto found = users_.find({device, id});
    if (found == users_.end() || --found->second > 0) return;
    users_.erase(found);
    runtime::release_private_pool(device, id);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, uint64_t>, int> users_;
  std::atomic<uint64_t> last_{0};
};
Pools& pools() {
  static auto* pools = new Pools();
  return *pools;
}

// One random call of a graph: where in device memory it reads its state, and how far that lies
// behind the generator's state at the start of a replay.
struct RandomSlot {
  c10::intrusive_ptr<ChipGenerator> generator;
  uint64_t relative_offset;
};
constexpr int64_t kSlotsPerChunk = 256;

class ChipGraph final : public at::GraphImplInterface {
 public:
  explicit ChipGraph(const at::GraphImplArgs&) {}
  ~ChipGraph() override {
    if (in_bad_fork()) return;
    try {
      reset();
    } catch (const std::exception& error) {
      TORCH_WARN("chipset: a graph could not be freed: ", error.what());
    }
  }

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode) override {
    TORCH_CHECK(captured == nullptr, "chip: a graph is being captured by this thread already");
    TORCH_CHECK(graph_ == nullptr,
                "chip: this graph holds a recording; call reset() before capturing again");
    device_ = current_device();
    const chipset_api* api = device_api[device_];
    TORCH_CHECK_NOT_IMPLEMENTED(
        api->capture_begin != nullptr && api->capture_replay != nullptr, "chip: the plugin '",
        runtime::device(device_).plugin,
        "' records no graphs; torch.chip.graphs_supported(device) tells before");
    pool_ = pool.second != 0 ? pool.second : pool.first != 0 ? pool.first : pools().fresh();
    stream_ = current_stream(device_);
    pools().retain(device_, pool_);
    guarded("graph", [&] { runtime::begin_private_pool(device_, pool_); });
    const chipset_status status = api->capture_begin(stream_);
    if (status != CHIPSET_STATUS_OK) {
      abandon();
      raise(status, "capture_begin");
    }
    spoilt_ = false;
    captured = this;
    // Work for another device then asks current_stream_slow, which refuses it.
    for (int other = 0; other < device_count(); ++other) {
      if (other != device_) thread_state().streams[other].stream = nullptr;
    }
  }

  void capture_end() override {
    TORCH_CHECK(captured == this, "chip: this graph is not being captured by this thread");
    captured = nullptr;
    const chipset_status status = device_api[device_]->capture_end(stream_, &graph_);
    if (status != CHIPSET_STATUS_OK || graph_ == nullptr || spoilt_) {
      if (graph_ != nullptr) device_api[device_]->graph_destroy(graph_);
      graph_ = nullptr;
      abandon();
      if (status != CHIPSET_STATUS_OK) raise(status, "capture_end");
      TORCH_CHECK(false,
                  "chip: the capture was spoilt by work that needs the host, so there is no graph");
    }
    guarded("graph", [&] { runtime::end_private_pool(device_, pool_); });
  }

  void instantiate() override {}  // capture_end gives a graph that can run

  void replay() override {
    TORCH_CHECK(graph_ != nullptr, "chip: this graph holds no recording; capture one first");
    const chipset_stream stream = current_stream(device_);
    set_random_states(stream);
    check(device_api[device_]->capture_replay(graph_, stream), "capture_replay");
  }

  void reset() override {
    if (captured == this) {
      spoilt_ = true;
      captured = nullptr;
      device_api[device_]->capture_end(stream_, &graph_);
      runtime::end_private_pool(device_, pool_);
    }
    slots_.clear();
    drawn_.clear();
    if (graph_ == nullptr) {
      chunks_.clear();
      return;
    }
    // Ending a graph wants the device to be done with it.
    device_api[device_]->device_sync(runtime::device(device_).local);
    device_api[device_]->graph_destroy(graph_);
    graph_ = nullptr;
    chunks_.clear();
    pools().release(device_, pool_);
  }

  at::MempoolId_t pool() const override { return {0, pool_}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "chip: graphs cannot be drawn; CHIPSET_TRACE=FILE shows the calls of a run");
  }

  int device() const { return device_; }
  void spoil() { spoilt_ = true; }

  // Room for the state of one more random call. Its memory is allocated here, from the pool.
  const void* random_slot(ChipGenerator* generator, int64_t elements) {
    const auto used = static_cast<int64_t>(slots_.size()) % kSlotsPerChunk;
    if (used == 0) {
      chunks_.push_back(bridge::empty({2 * kSlotsPerChunk}, at::kLong, device_));
    }
    uint64_t& drawn = drawn_[generator];
    slots_.push_back({c10::intrusive_ptr<ChipGenerator>::reclaim_copy(generator), drawn});
    drawn += static_cast<uint64_t>(elements + 1) / 2;
    return static_cast<const int64_t*>(chunks_.back().const_data_ptr()) + 2 * used;
  }

 private:
  void abandon() {
    runtime::end_private_pool(device_, pool_);
    slots_.clear();
    chunks_.clear();
    drawn_.clear();
    pools().release(device_, pool_);
  }

  // Every replay draws new numbers, and moves the generators on.
  void set_random_states(chipset_stream stream) {
    if (slots_.empty()) return;
    std::map<ChipGenerator*, PhiloxState> starts;
    for (const auto& [generator, drawn] : drawn_) {
      starts[generator] = generator->advance(drawn);
    }
    std::vector<uint64_t> states;
    states.reserve(2 * slots_.size());
    for (const RandomSlot& slot : slots_) {
      const PhiloxState& start = starts[slot.generator.get()];
      states.push_back(start.seed);
      states.push_back(start.offset + slot.relative_offset);
    }
    for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      const size_t first = chunk * 2 * kSlotsPerChunk;
      const size_t count = std::min<size_t>(2 * kSlotsPerChunk, states.size() - first);
      check(device_api[device_]->mem_copy(stream, chunks_[chunk].mutable_data_ptr(),
                                          states.data() + first, count * sizeof(uint64_t),
                                          CHIPSET_COPY_KIND_HOST_TO_DEVICE),
            "mem_copy");
    }
  }

  int device_ = 0;
  uint64_t pool_ = 0;
  chipset_stream stream_ = nullptr;
  chipset_graph graph_ = nullptr;
  bool spoilt_ = false;
  std::vector<RandomSlot> slots_;
  std::vector<at::Tensor> chunks_;
  std::map<ChipGenerator*, uint64_t> drawn_;  // offset that one replay uses of each generator
};

}  // namespace

bool capturing() noexcept { return captured != nullptr; }

void refuse_capture(const char* what) {
  if (captured == nullptr) [[likely]]
    return;
  captured->spoil();
  TORCH_CHECK(false, "chip: ", what,
              " cannot be recorded in a graph: only work that stays on the chip can. Move it out "
              "of the captured region");
}

void refuse_capture_elsewhere(int device) {
  if (captured == nullptr || captured->device() == device) [[likely]]
    return;
  captured->spoil();
  TORCH_CHECK(false, "chip: a graph is being recorded on chip:", captured->device(),
              ", the current device when it began, so that work on chip:", device,
              " would not be part of it. Record it within `with torch.chip.device(", device, "):`");
}

RandomSource random_source(ChipGenerator* generator, int64_t elements) {
  if (captured == nullptr) return {generator->draw(elements), nullptr};
  return {{generator->current_seed(), 0}, captured->random_slot(generator, elements)};
}

}  // namespace chipset::bridge

namespace at {
// Torch looks a backend's graphs up under its name in capitals.
C10_REGISTER_CLASS(GraphImplRegistry, CHIP, chipset::bridge::ChipGraph)
}  // namespace at
