// SPDX-License-Identifier: Apache-2.0
// Inside the kit: what quantize and gemm_quantized share.
#pragma once

#include "rows.h"

namespace chipset::kit {

inline bool is_whole(int32_t dtype) {
  return dtype == CHIPSET_DTYPE_I8 || dtype == CHIPSET_DTYPE_I4;
}
// Elements of a group; 1 where there is nothing to group.
inline int64_t group_of(int64_t group_size, int64_t length) {
  return std::max<int64_t>(group_size == 0 ? length : group_size, 1);
}
inline int64_t groups_of(int64_t group_size, int64_t length) {
  return length == 0 && group_size == 0 ? 1 : ceil_div(length, group_of(group_size, length));
}

// Rows of halves of bytes are contiguous and begin at whole bytes.
inline void check_nibbles(const char* function, const char* name, const chipset_tensor& t) {
  if (t.dtype == CHIPSET_DTYPE_I4 && t.rank == 2 && sdk::numel(t) > 0 &&
      ((t.shape[1] > 1 && t.stride[1] != 1) || (t.shape[0] > 1 && t.stride[0] % 2 != 0)))
    fail(CHIPSET_STATUS_INVALID,
         "%s: i4 %s needs contiguous rows that begin at whole bytes (an even row stride)", function,
         name);
}

// Operand Q of the kernels, with the functions that read it.
inline Source& add_quantized(Source& source, const Traits& traits, int32_t dtype) {
  const bool i4 = dtype == CHIPSET_DTYPE_I4;
  source.operand("Q", i4 ? CHIPSET_DTYPE_U8 : dtype).define("Q_IS_I4", i4);
  source.define("Q_IS_F8E4M3", dtype == CHIPSET_DTYPE_F8E4M3);
  return source.define("HALF_W", vector_width(traits, 4) / 2).file("quantized.h");
}

}  // namespace chipset::kit
