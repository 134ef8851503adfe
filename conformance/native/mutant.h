// SPDX-License-Identifier: Apache-2.0
// A mutant: a good chip with one fault. The good chip is another plugin's table, which must run its
// calls inline in memory that the host may touch (the CPU chip); a fault edits the arguments of a
// call, or its result, or answers in its place.
#pragma once

#include <chipset_sdk.hpp>
#include <chipset_sdk/loops.hpp>
#include <functional>
#include <thread>
#include <vector>

namespace chipset::mutants {

// The good chip's table.
const chipset_api& good();

struct Mutant {
  const char* name;
  const char* level;      // of the suite that must catch it
  const char* functions;  // that the fault is in, separated by spaces; the first names it
  const char* fault;      // what is wrong, as a sentence
  void (*seed)(chipset_api& api);
  bool queued = false;  // seeded into the chip whose streams are queues; level 1 always is
};

using List = std::vector<Mutant>;
// Each subject adds its mutants.
void add_device(List& list);
void add_stream(List& list);
void add_pointwise(List& list);
void add_conversion(List& list);
void add_reduce(List& list);
void add_gemm(List& list);
void add_indexing(List& list);
void add_attention(List& list);
void add_rows(List& list);
void add_optimizer(List& list);
void add_quantized(List& list);
void add_ordered(List& list);
void add_collective(List& list);
void add_cheats(List& list);

// A good chip whose streams are real queues: faults of order show on it. It has what levels 0 and 1
// need.
chipset_api asynchronous();
// Adds collectives that run in its queues, but for transfers between two ranks.
void queue_collectives(chipset_api& api);

// Runs work in a stream of that chip, with a stream of the good chip.
chipset_status enqueue(chipset_stream stream, std::function<chipset_status(chipset_stream)> work);
// A stream of the good chip for the calling thread.
chipset_stream good_stream();

// ---- what faults are made of
// ---------------------------------------------------------------------

// One mutant whose fault edits a copy `a` of the arguments of a function.
#define CHIPSET_MUTANT(name_, function_, Args, fault_, ...)                                \
  list.push_back({name_, "2", #function_, fault_, [](chipset_api& api) {                   \
                    api.function_ = [](chipset_stream stream,                              \
                                       const chipset_##Args* given) -> chipset_status {    \
                      chipset_##Args a = *given;                                           \
                      __VA_ARGS__ /* what it declares lives until the call has returned */ \
                          return good()                                                    \
                              .function_(stream, &a);                                      \
                    };                                                                     \
                  }})

// One whose fault edits the results `a` of a call that went well.
#define CHIPSET_MUTANT_AFTER(name_, function_, Args, fault_, ...)                       \
  list.push_back({name_, "2", #function_, fault_, [](chipset_api& api) {                \
                    api.function_ = [](chipset_stream stream,                           \
                                       const chipset_##Args* given) -> chipset_status { \
                      const chipset_##Args& a = *given;                                 \
                      const chipset_status status = good().function_(stream, given);    \
                      if (status != CHIPSET_STATUS_OK) return status;                   \
                      {                                                                 \
                        __VA_ARGS__                                                     \
                      }                                                                 \
                      return status;                                                    \
                    };                                                                  \
                  }})

// One that answers by itself: `a` are the arguments, `stream` the stream.
#define CHIPSET_MUTANT_INSTEAD(name_, function_, Args, fault_, ...)                     \
  list.push_back({name_, "2", #function_, fault_, [](chipset_api& api) {                \
                    api.function_ = [](chipset_stream stream,                           \
                                       const chipset_##Args* given) -> chipset_status { \
                      const chipset_##Args& a = *given;                                 \
                      (void)a, (void)stream;                                            \
                      __VA_ARGS__                                                       \
                    };                                                                  \
                  }})

// A descriptor that a fault may edit, in the place of the one pointed to; none stays none.
class Edited {
 public:
  explicit Edited(const chipset_tensor*& slot) : there_(slot != nullptr) {
    if (!there_) return;
    tensor_ = *slot;
    slot = &tensor_;
  }
  Edited(const Edited&) = delete;
  explicit operator bool() const { return there_; }
  chipset_tensor* operator->() { return &tensor_; }
  chipset_tensor& operator*() { return tensor_; }

 private:
  bool there_;
  chipset_tensor tensor_{};
};

inline void make_contiguous(chipset_tensor& t) {
  int64_t stride = 1;
  for (int d = t.rank - 1; d >= 0; --d) t.stride[d] = stride, stride *= t.shape[d];
}

// Calls edit(values...) for each element of the first tensor, with elements of up to two more over
// its shape converted to T, and stores the first.
template <class T, class Edit>
void rewrite(const chipset_tensor& out, const chipset_tensor* x, const chipset_tensor* y,
             Edit&& edit) {
  const auto strides = [&](const chipset_tensor* t) {
    return t != nullptr ? t->stride : out.stride;
  };
  const auto read = [](const chipset_tensor* t, int64_t at) {
    T value{};
    if (t != nullptr) sdk::loops::load(&value, sdk::address(*t, at), t->dtype, 1, 1);
    return value;
  };
  sdk::for_each_row<3>(
      out, {out.stride, strides(x), strides(y)}, [&](auto& offset, int64_t count, auto& step) {
        for (int64_t i = 0; i < count; ++i) {
          T value = read(&out, offset[0] + i * step[0]);
          edit(value, read(x, offset[1] + i * step[1]), read(y, offset[2] + i * step[2]));
          sdk::loops::store(sdk::address(out, offset[0] + i * step[0]), out.dtype, 1, &value, 1);
        }
      });
}
// The same for the tensor alone.
template <class T, class Edit>
void rewrite(const chipset_tensor& out, Edit&& edit) {
  rewrite<T>(out, nullptr, nullptr, [&](T& value, T, T) { edit(value); });
}

// A contiguous copy of a tensor that a fault may change.
class Copied {
 public:
  explicit Copied(const chipset_tensor*& slot) : edited_(slot) {
    if (!edited_) return;
    const chipset_tensor from = *edited_;
    bytes_.resize(static_cast<std::size_t>(sdk::numel(from)) * 16 + 16);
    make_contiguous(*edited_);
    edited_->data = bytes_.data();
    if (from.dtype == CHIPSET_DTYPE_I4)
      std::memcpy(bytes_.data(), from.data, static_cast<std::size_t>(sdk::numel(from) + 1) / 2);
    else
      sdk::loops::detail::move_bits(*edited_, from);
  }
  explicit operator bool() const { return static_cast<bool>(edited_); }
  chipset_tensor* operator->() { return &*edited_; }
  chipset_tensor& operator*() { return *edited_; }

 private:
  Edited edited_;
  std::vector<char> bytes_;
};

inline chipset_status refuse(chipset_status status, const char* text) {
  sdk::host()->set_error(text);
  return status;
}

}  // namespace chipset::mutants
