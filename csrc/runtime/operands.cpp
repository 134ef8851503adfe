// SPDX-License-Identifier: Apache-2.0
#include "operands.h"

#include <algorithm>

namespace chipset::runtime {

std::uint64_t dtype_bits(std::int32_t dtype) {
  constexpr std::uint8_t kBits[] = {8,  8, 8, 16, 32, 64, 16, 16, 32,
                                    64, 8, 8, 4,  8,  16, 32, 64, 128};
  const bool known = dtype >= 0 && dtype < static_cast<int>(std::size(kBits));
  return known ? kBits[dtype] : 0;
}

std::int64_t element_count(const chipset_tensor& t) {
  std::int64_t count = 1;
  for (int d = 0; d < t.rank; ++d) count *= t.shape[d];
  return count;
}

bool empty(const chipset_tensor& t) {
  for (int d = 0; d < t.rank; ++d)
    if (t.shape[d] == 0) return true;
  return false;
}

std::uint64_t indexed_extent(const chipset_tensor& view, std::int32_t count,
                             const std::int64_t* sizes, const std::int64_t* strides) {
  if (empty(view)) return 0;
  std::int64_t last = 0;
  for (int d = 0; d < view.rank; ++d) last += (view.shape[d] - 1) * view.stride[d];
  for (int k = 0; k < count && k < CHIPSET_MAX_INDICES; ++k) {
    if (sizes[k] == 0) return 0;
    last += (sizes[k] - 1) * strides[k];
  }
  return (static_cast<std::uint64_t>(last) + 1) * dtype_bits(view.dtype) / 8;
}

}  // namespace chipset::runtime
