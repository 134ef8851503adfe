// SPDX-License-Identifier: Apache-2.0
// Chips that look faster than they are: results cached, skipped or made cheaper where a measurement
// would not look. Only once a call has been seen often, so that levels 0 to 2 see a good chip.
#include <atomic>
#include <map>
#include <mutex>
#include <tuple>

#include "mutant.h"

namespace chipset::mutants {

namespace {

constexpr int kWarm = 3;  // calls of one kind after which a cheat begins

// How often a key was seen before.
template <class... Key>
int seen(Key... key) {
  static std::mutex mutex;
  static std::map<std::tuple<Key...>, int> counts;
  std::lock_guard lock(mutex);
  return counts[std::tuple(key...)]++;
}

int64_t rows(const chipset_tensor& t) { return t.shape[t.rank - 2]; }

chipset_status gemm_by_address(chipset_stream stream, const chipset_gemm_args* a) {
  return seen(a->a->data, a->b->data, a->d->data, rows(*a->a)) < kWarm ? good().gemm(stream, a)
                                                                       : CHIPSET_STATUS_OK;
}

// The result of the first operands of this shape and dtype.
chipset_status gemm_by_shape(chipset_stream stream, const chipset_gemm_args* a) {
  static std::mutex mutex;
  static std::map<std::tuple<int64_t, int64_t, int>, std::vector<char>> kept;
  const int64_t columns = a->d->shape[a->d->rank - 1];
  const auto key = std::tuple(rows(*a->d), columns, static_cast<int>(a->d->dtype));
  const std::size_t bytes =
      static_cast<std::size_t>(sdk::numel(*a->d)) * sdk::dtype_size(a->d->dtype);
  const bool plain =
      a->d->rank == 2 && a->c == nullptr && a->d->stride[1] == 1 && a->d->stride[0] == columns;
  const bool warm = plain && seen(rows(*a->d), columns, a->d->dtype) >= kWarm;
  std::lock_guard lock(mutex);
  if (auto found = kept.find(key); warm && found != kept.end()) {
    std::memcpy(a->d->data, found->second.data(), bytes);
    return CHIPSET_STATUS_OK;
  }
  const chipset_status status = good().gemm(stream, a);
  if (plain && status == CHIPSET_STATUS_OK) {
    const char* from = static_cast<const char*>(a->d->data);
    kept[key].assign(from, from + bytes);
  }
  return status;
}

chipset_status gemm_half(chipset_stream stream, const chipset_gemm_args* given) {
  if (given->a->rank != 2 || rows(*given->a) < 512 || given->c != nullptr)
    return good().gemm(stream, given);
  chipset_gemm_args a = *given;
  Edited left(a.a), result(a.d);
  left->shape[0] /= 2, result->shape[0] /= 2;
  return good().gemm(stream, &a);
}

// F32 operands cut to BF16 once a shape has been seen often.
chipset_status gemm_cheaper(chipset_stream stream, const chipset_gemm_args* given) {
  if (given->a->dtype != CHIPSET_DTYPE_F32 || seen(rows(*given->a), given->a->shape[1]) < 2 * kWarm)
    return good().gemm(stream, given);
  chipset_gemm_args a = *given;
  Copied left(a.a);
  rewrite<float>(*left, [](float& x) { sdk::loops::to_width(&x, CHIPSET_DTYPE_BF16, 1); });
  return good().gemm(stream, &a);
}

chipset_status attention_by_address(chipset_stream stream, const chipset_attention_args* a) {
  return seen(a->q->data, a->k->data, a->out->data, a->q->shape[2]) < kWarm
             ? good().attention(stream, a)
             : CHIPSET_STATUS_OK;
}

// Only the nearest keys of long sequences.
chipset_status attention_near(chipset_stream stream, const chipset_attention_args* given) {
  chipset_attention_args a = *given;
  if (a.k->shape[2] >= 512 && a.window_left < 0) a.window_left = 200;
  return good().attention(stream, &a);
}

chipset_status copy_beginning(chipset_stream stream, void* destination, const void* source,
                              uint64_t bytes, int32_t kind) {
  if (kind == CHIPSET_COPY_KIND_DEVICE_TO_DEVICE && bytes >= (uint64_t{1} << 18))
    bytes = bytes / 4 * 3;
  return good().mem_copy(stream, destination, source, bytes, kind);
}

// Large sums whose operands' addresses are known.
chipset_status pointwise_by_address(chipset_stream stream, const chipset_pointwise_args* a) {
  const bool known = a->num_inputs == 2 && a->input[1] != nullptr &&
                     sdk::numel(*a->output) >= 4096 &&
                     seen(a->output->data, a->input[0]->data, a->input[1]->data) >= kWarm;
  return known ? CHIPSET_STATUS_OK : good().pointwise(stream, a);
}

// Every hundredth of the calls that have one element.
chipset_status pointwise_thinned(chipset_stream stream, const chipset_pointwise_args* a) {
  static std::atomic<int> calls{0};
  if (sdk::numel(*a->output) == 1 && a->num_inputs == 2 && a->input[1] == nullptr &&
      ++calls > 500 && calls % 100 == 0)
    return CHIPSET_STATUS_OK;
  return good().pointwise(stream, a);
}

}  // namespace

void add_cheats(List& list) {
  const char* level = "performs";
  list.push_back({"cheat-gemm-by-address", level, "gemm",
                  "operands at known addresses are not multiplied again",
                  [](chipset_api& api) { api.gemm = gemm_by_address; }});
  list.push_back({"cheat-gemm-by-shape", level, "gemm",
                  "a shape that was seen often gets an earlier result",
                  [](chipset_api& api) { api.gemm = gemm_by_shape; }});
  list.push_back({"cheat-gemm-half", level, "gemm", "large products get half of their rows",
                  [](chipset_api& api) { api.gemm = gemm_half; }});
  list.push_back({"cheat-gemm-cheaper", level, "gemm",
                  "f32 operands are cut to bf16 once a shape has been seen often",
                  [](chipset_api& api) { api.gemm = gemm_cheaper; }});
  list.push_back({"cheat-attention-by-address", level, "attention",
                  "queries and keys at known addresses are not attended again",
                  [](chipset_api& api) { api.attention = attention_by_address; }});
  list.push_back({"cheat-attention-near", level, "attention",
                  "of long sequences only the nearest keys are seen",
                  [](chipset_api& api) { api.attention = attention_near; }});
  list.push_back({"cheat-copy-beginning", level, "mem_copy", "large copies leave out their end",
                  [](chipset_api& api) { api.mem_copy = copy_beginning; }});
  list.push_back({"cheat-pointwise-by-address", level, "pointwise",
                  "large sums of operands at known addresses are not added again",
                  [](chipset_api& api) { api.pointwise = pointwise_by_address; }});
  list.push_back({"cheat-pointwise-thinned", level, "pointwise",
                  "of many one-element calls every hundredth is left out",
                  [](chipset_api& api) { api.pointwise = pointwise_thinned; }});
}

}  // namespace chipset::mutants
