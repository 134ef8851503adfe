// SPDX-License-Identifier: Apache-2.0
// Inside the kit: the text of a program, the launch of a kernel, and shapes as kernels take them.
#pragma once

#include <chipset_kit.hpp>
#include <chipset_sdk/tensor.hpp>
#include <initializer_list>
#include <string_view>

namespace chipset::kit {

using sdk::fail;
using sdk::unsupported;

// The first number of a signature: which program.
enum Program : uint8_t {
  kPointwise,
  kReduce,
  kReduceFinish,
  kGemm,
  kGather,
  kScatter,
  kAttention,
  kAttentionDelta,
  kAttentionDq,
  kAttentionDkv,
  kSoftmax,
  kSoftmaxBackward,
  kNorm,
  kNormBackward,
  kNormWeights,
  kNormWeightsFinish,
  kRotary,
  kCrossEntropy,
  kCrossEntropyBackward,
  kAdamw,
  kQuantize,
  kDequantize,
  kGemmQuantized,
  kAttentionPaged,
  kScan,
  kSort,
  kRandom,
};

// Text of an embedded kernel; throws INTERNAL for a name that does not exist.
std::string_view embedded(std::string_view name);

// What a device's cache folder holds under a key, which names the device's identity; empty when
// there is nothing, or when it is damaged. Writing keeps nothing where there is no folder.
Binary read_cached(const Traits& traits, const std::string& key);
void write_cached(const Traits& traits, const std::string& key, const Binary& binary);

// f16, bf16, …: as the dialect names a dtype. Throws UNSUPPORTED for one that it does not have.
const char* dialect_name(int32_t dtype);
// 'f', 'd', 'i' or 'l': how the dialect holds an element.
char dialect_class(int32_t dtype);
inline bool is_float(int32_t dtype) {
  return (dtype >= CHIPSET_DTYPE_F16 && dtype <= CHIPSET_DTYPE_F8E5M2);
}

// The integer of the same size, for what is only moved; of 16 bytes, that of 8.
inline int32_t moved_as(int32_t dtype) {
  switch (sdk::dtype_size(dtype)) {
    case 1:
      return CHIPSET_DTYPE_U8;
    case 2:
      return CHIPSET_DTYPE_I16;
    case 4:
      return CHIPSET_DTYPE_I32;
    default:
      return CHIPSET_DTYPE_I64;
  }
}

// A program, put together from definitions and the kernels' files.
class Source {
 public:
  // `width`: elements of the vectors; `lanes`: work-items of a group.
  Source(const Traits& traits, int width, int lanes);
  Source& define(const char* name, std::string_view value);
  Source& define(const char* name, int64_t value) { return define(name, std::to_string(value)); }
  // Defines an operand's dtype, with the access functions of each dtype once.
  Source& operand(const char* name, int32_t dtype);
  Source& text(std::string_view text);
  Source& file(const char* name) { return text(embedded(name)); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  uint32_t dtypes_ = 0;
};

// The arguments of a launch; values are copied into it.
class Launch {
 public:
  Launch(Backend& backend, chipset_stream stream, void* kernel)
      : backend_(backend), stream_(stream), kernel_(kernel) {}
  Launch& address(const void* pointer) { return add(&pointer, sizeof pointer, true); }
  Launch& address(const chipset_tensor* tensor) {
    return address(tensor != nullptr ? static_cast<const void*>(tensor->data) : nullptr);
  }
  template <class T>
  Launch& value(const T& value) {
    return add(&value, sizeof value, false);
  }
  Launch& i64(int64_t number) { return value(number); }
  Launch& i32(int64_t number) { return value(static_cast<int32_t>(number)); }
  Launch& f32(double number) { return value(static_cast<float>(number)); }
  // In the class computed in: 'f' or 'd'.
  Launch& real(char held, double number) { return held == 'd' ? value(number) : f32(number); }
  void run(Size3 grid, uint32_t lanes) {
    Argument arguments[kMost];
    for (uint32_t i = 0; i < count_; ++i)
      arguments[i] = {room_ + place_[i], bytes_[i], is_address_[i]};
    backend_.launch(stream_, kernel_, grid, {lanes, 1, 1}, arguments, count_);
  }

 private:
  static constexpr uint32_t kMost = 64, kRoom = 2048;
  Launch& add(const void* data, uint32_t bytes, bool is_address) {
    used_ = (used_ + 7) & ~7u;
    if (count_ == kMost || used_ + bytes > kRoom)
      fail(CHIPSET_STATUS_INTERNAL, "a kernel takes more arguments than the kit foresees");
    __builtin_memcpy(room_ + used_, data, bytes);
    place_[count_] = used_;
    bytes_[count_] = bytes;
    is_address_[count_++] = is_address;
    used_ += bytes;
    return *this;
  }
  Backend& backend_;
  chipset_stream stream_;
  void* kernel_;
  alignas(8) unsigned char room_[kRoom];
  uint32_t place_[kMost], bytes_[kMost], used_ = 0, count_ = 0;
  bool is_address_[kMost];
};

// Sizes and strides of N operands over one space, dimension 0 innermost; in elements. Kernels see
// the same struct.
template <int N>
struct Walk {
  int64_t rank = 0;
  int64_t size[8] = {};
  int64_t stride[8][N] = {};

  int64_t inner() const { return rank > 0 ? size[0] : 1; }
  int64_t rows() const {
    int64_t n = 1;
    for (int d = 1; d < rank; ++d) n *= size[d];
    return n;
  }
  int64_t numel() const { return inner() * rows(); }
};

// Drops dimensions of size 1 and merges those that every operand walks in one go. `keep_order`:
// row-major order stays; otherwise the dimension with operand 0's least stride comes innermost.
template <int N>
Walk<N> make_walk(int rank, const int64_t* size, const std::array<const int64_t*, N>& strides,
                  bool keep_order = false) {
  int order[8], count = 0;
  for (int d = rank - 1; d >= 0; --d)
    if (size[d] != 1) order[count++] = d;
  if (!keep_order) {  // insertion sort: stable, and short
    const auto less = [&](int a, int b) {
      for (int k = 0; k < N; ++k)
        if (strides[k][a] != strides[k][b]) return strides[k][a] < strides[k][b];
      return false;
    };
    for (int i = 1; i < count; ++i)
      for (int j = i; j > 0 && less(order[j], order[j - 1]); --j) std::swap(order[j], order[j - 1]);
  }
  Walk<N> walk;
  for (int i = 0; i < count; ++i) {
    const int d = order[i];
    bool merged = walk.rank > 0;
    for (int k = 0; merged && k < N; ++k)
      merged = strides[k][d] == walk.stride[walk.rank - 1][k] * walk.size[walk.rank - 1];
    if (merged) {
      walk.size[walk.rank - 1] *= size[d];
      continue;
    }
    walk.size[walk.rank] = size[d];
    for (int k = 0; k < N; ++k) walk.stride[walk.rank][k] = strides[k][d];
    ++walk.rank;
  }
  for (int64_t d = walk.rank; d < 8; ++d) {
    walk.size[d] = 1;
    for (int k = 0; k < N; ++k) walk.stride[d][k] = 0;
  }
  return walk;
}

// Elements of the widest vector that is worth using, for elements of so many bytes.
inline int vector_width(const Traits& traits, int bytes) {
  return !traits.is_cpu ? 1 : bytes > 4 ? 8 : 16;
}
// Work-items of a group, at most `most`.
inline int group_lanes(const Traits& traits, int most = 256) {
  if (traits.is_cpu) return 1;
  int lanes = 1;
  while (lanes * 2 <= most && lanes * 2 <= static_cast<int>(traits.max_group)) lanes *= 2;
  return lanes;
}
// Groups that share `units` of work of `cost` elements each.
inline uint32_t group_count(const Traits& traits, int64_t units, int64_t cost) {
  constexpr int64_t kGrain = 8192;  // elements that are worth a thread's while
  int64_t most = traits.is_cpu ? traits.compute_units * 4 : traits.compute_units * 64;
  if (traits.is_cpu) most = std::min(most, std::max<int64_t>(1, units * cost / kGrain));
  return static_cast<uint32_t>(std::clamp<int64_t>(units, 1, std::max<int64_t>(most, 1)));
}
// A program of rows.h: vectors as wide as the class, a group to a row.
inline uint32_t row_groups(const Traits& traits, int64_t rows, int64_t length) {
  return group_count(traits, rows, length);
}
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Sizes and strides of up to four operands over the rows of a tensor.
using Outer = Walk<4>;
inline int64_t row_stride(const chipset_tensor& tensor) {
  return tensor.rank >= 2 ? tensor.stride[tensor.rank - 2] : 0;
}
inline int64_t step_of(const chipset_tensor* tensor) {
  return tensor != nullptr && tensor->rank > 0 ? tensor->stride[tensor->rank - 1] : 0;
}

// Throws UNSUPPORTED for F64 where the device has none.
inline void need_fp64(const Traits& traits, int32_t dtype) {
  if (dtype == CHIPSET_DTYPE_F64 && !traits.fp64)
    unsupported("the device has no double precision (f64)");
}
// A float dtype in which the kit computes, or UNSUPPORTED.
inline void need_float(const Traits& traits, const char* function, int32_t dtype) {
  need_fp64(traits, dtype);
  if (dtype != CHIPSET_DTYPE_F16 && dtype != CHIPSET_DTYPE_BF16 && dtype != CHIPSET_DTYPE_F32 &&
      dtype != CHIPSET_DTYPE_F64)
    unsupported(std::string(function) + " of " + sdk::dtype_name(dtype) +
                "; need f16, bf16, f32 or f64");
}

}  // namespace chipset::kit
