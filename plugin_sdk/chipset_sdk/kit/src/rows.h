// SPDX-License-Identifier: Apache-2.0
// Inside the kit: functions over rows of floats (rows.h of the kernels).
#pragma once

#include "chipset_sdk/check.hpp"
#include "source.h"

namespace chipset::kit {

// The class in which a float dtype is computed.
inline char class_of(int32_t dtype) { return dtype == CHIPSET_DTYPE_F64 ? 'd' : 'f'; }

inline Source row_source(const Traits& traits, char held, int lanes) {
  Source source(traits, vector_width(traits, held == 'd' ? 8 : 4), lanes);
  source.define("C", std::string(1, held)).file("compute.h").file("rows.h");
  return source;
}

// Rows along `dim`: the walk over the other dimensions, in the order that memory likes.
inline Outer rows_along(const chipset_tensor& shape, int dim, const chipset_tensor* a,
                        const chipset_tensor* b, const chipset_tensor* c) {
  static constexpr int64_t kNone[8] = {};
  int64_t size[8];
  for (int d = 0; d < shape.rank; ++d) size[d] = d == dim ? 1 : shape.shape[d];
  return make_walk<4>(shape.rank, size,
                      {a->stride, b->stride, c != nullptr ? c->stride : kNone, kNone});
}

// A vector [size], where it is given.
inline void check_vector(const char* function, const char* name, const chipset_tensor* tensor,
                         int64_t size) {
  if (tensor != nullptr && (tensor->rank != 1 || tensor->shape[0] != size))
    fail(CHIPSET_STATUS_INVALID, "%s: %s has shape %s; need [%lld]", function, name,
         sdk::shape_text(*tensor).c_str(), static_cast<long long>(size));
}

}  // namespace chipset::kit
