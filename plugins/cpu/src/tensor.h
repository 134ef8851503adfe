// SPDX-License-Identifier: Apache-2.0
// Small questions about a chipset_tensor.
#pragma once

#include <cstdint>

#include "chipset/chipset.h"

namespace chipset::cpu {

inline constexpr int kDtypeCount = 18;
// Bytes per element; I4 packs two in one and is not addressed by element.
inline constexpr uint8_t kDtypeSize[kDtypeCount] = {1, 1, 1, 2, 4, 8, 2, 2, 4,
                                                    8, 1, 1, 0, 1, 2, 4, 8, 16};
const char* dtype_name(int32_t dtype);

inline bool valid_dtype(int32_t dtype) {
  return static_cast<uint32_t>(dtype) < static_cast<uint32_t>(kDtypeCount);
}
inline int64_t dtype_size(int32_t dtype) { return kDtypeSize[dtype]; }
inline bool is_float(int32_t dtype) {
  return dtype >= CHIPSET_DTYPE_F16 && dtype <= CHIPSET_DTYPE_F8E5M2;
}
inline bool is_integer(int32_t dtype) {  // bool is not
  return dtype >= CHIPSET_DTYPE_U8 && dtype <= CHIPSET_DTYPE_I64;
}
inline bool is_opaque(int32_t dtype) { return dtype >= CHIPSET_DTYPE_OPAQUE8; }

inline int64_t numel(const chipset_tensor& t) {
  int64_t n = 1;
  for (int d = 0; d < t.rank; ++d) n *= t.shape[d];
  return n;
}

// Row-major without gaps; dimensions of size 1 do not matter.
inline bool is_contiguous(const chipset_tensor& t) {
  int64_t expected = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    if (t.shape[d] == 1) continue;
    if (t.stride[d] != expected) return t.shape[d] == 0;
    expected *= t.shape[d];
  }
  return true;
}

inline bool same_shape(const chipset_tensor& a, const chipset_tensor& b) {
  if (a.rank != b.rank) return false;
  for (int d = 0; d < a.rank; ++d) {
    if (a.shape[d] != b.shape[d]) return false;
  }
  return true;
}

// OK, or the explained fault of a tensor that breaks the header's rules by itself: NULL, an unknown
// dtype, rank, a negative size or stride, no data. `name` is how the message calls it.
chipset_status check_tensor(const char* function, const char* name, const chipset_tensor* t);
// Likewise for an output: also no stride of zero over more than one element (SHP-002).
chipset_status check_output(const char* function, const char* name, const chipset_tensor* t);

// Text of a shape such as "[2, 3]", for messages; valid until the thread's fourth next call.
const char* shape_text(const chipset_tensor& t);

}  // namespace chipset::cpu
