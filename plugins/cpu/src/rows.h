// SPDX-License-Identifier: Apache-2.0
// Tensors seen as rows along one dimension: which rows there are, and where each begins.
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

struct Rows {
  static constexpr int kTensors = 3;
  int rank = 0;
  int64_t count = 1;                // rows
  int64_t size = 1;                 // elements of a row
  int64_t shape[CHIPSET_MAX_RANK];  // of the other dimensions
  int64_t stride[kTensors][CHIPSET_MAX_RANK];
  const void* data[kTensors];
  int32_t dtype[kTensors];
  int64_t step[kTensors];  // from element to element of a row
};

// Rows of up to three tensors of one shape along dimension `dim`; NULL tensors are left out.
inline Rows make_rows(const chipset_tensor* a, const chipset_tensor* b, const chipset_tensor* c,
                      int dim) {
  Rows rows{};
  const chipset_tensor* tensors[Rows::kTensors] = {a, b, c};
  for (int d = 0; d < a->rank; ++d) {
    if (d == dim) continue;
    rows.shape[rows.rank] = a->shape[d];
    rows.count *= a->shape[d];
    for (int t = 0; t < Rows::kTensors; ++t)
      rows.stride[t][rows.rank] = tensors[t] == nullptr ? 0 : tensors[t]->stride[d];
    ++rows.rank;
  }
  rows.size = a->rank == 0 ? 1 : a->shape[dim];
  for (int t = 0; t < Rows::kTensors; ++t) {
    if (tensors[t] == nullptr) continue;
    rows.data[t] = tensors[t]->data;
    rows.dtype[t] = tensors[t]->dtype;
    rows.step[t] = a->rank == 0 || rows.size == 1 ? 1 : tensors[t]->stride[dim];
  }
  return rows;
}

}  // namespace chipset::cpu
