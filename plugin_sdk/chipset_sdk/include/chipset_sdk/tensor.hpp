// SPDX-License-Identifier: Apache-2.0
// Questions about a chipset_tensor, and a walk over the elements of several at once.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>

#include "numbers.hpp"

namespace chipset::sdk {

inline int64_t numel(const chipset_tensor& tensor) {
  int64_t n = 1;
  for (int d = 0; d < tensor.rank; ++d) n *= tensor.shape[d];
  return n;
}

inline std::string shape_text(const chipset_tensor& tensor) {
  std::string text = "[";
  for (int d = 0; d < tensor.rank; ++d) text += (d ? ", " : "") + std::to_string(tensor.shape[d]);
  return text + "]";
}

inline bool same_shape(const chipset_tensor& a, const chipset_tensor& b) {
  return a.rank == b.rank && std::equal(a.shape, a.shape + a.rank, b.shape);
}

// Row-major without gaps; the stride of a dimension of size 1 does not matter.
inline bool is_contiguous(const chipset_tensor& tensor) {
  if (numel(tensor) == 0) return true;
  int64_t expected = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    if (tensor.shape[d] == 1) continue;
    if (tensor.stride[d] != expected) return false;
    expected *= tensor.shape[d];
  }
  return true;
}

inline char* address(const chipset_tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.data) + element * dtype_size(tensor.dtype);
}

// Bytes from tensor.data to the end of its last element; 0 without elements.
inline int64_t extent(const chipset_tensor& tensor) {
  int64_t last = 0;
  for (int d = 0; d < tensor.rank; ++d) {
    if (tensor.shape[d] == 0) return 0;
    last += (tensor.shape[d] - 1) * tensor.stride[d];
  }
  if (tensor.dtype == CHIPSET_DTYPE_I4) return last / 2 + 1;
  return (last + 1) * dtype_size(tensor.dtype);
}

// Rows of a shape, for N operands that are addressed over it: for each innermost row calls
// row(offsets, count, steps), all in elements, in row-major order. Dimensions that every operand
// walks in one go are merged first, so that rows are as long as they can be.
template <std::size_t N, class Row>
void for_each_row(const chipset_tensor& shape, const std::array<const int64_t*, N>& strides,
                  Row&& row) {
  int64_t size[CHIPSET_MAX_RANK];
  int64_t stride[CHIPSET_MAX_RANK][N];
  int rank = 0;
  for (int d = 0; d < shape.rank; ++d) {
    if (shape.shape[d] == 0) return;
    if (shape.shape[d] == 1) continue;
    bool merged = rank > 0;
    for (std::size_t k = 0; merged && k < N; ++k)
      merged = stride[rank - 1][k] == strides[k][d] * shape.shape[d];
    if (merged)
      size[rank - 1] *= shape.shape[d];
    else
      size[rank++] = shape.shape[d];
    for (std::size_t k = 0; k < N; ++k) stride[rank - 1][k] = strides[k][d];
  }
  std::array<int64_t, N> offset{}, step{};
  const int64_t count = rank > 0 ? size[rank - 1] : 1;
  for (std::size_t k = 0; k < N; ++k) step[k] = rank > 0 ? stride[rank - 1][k] : 0;
  int64_t index[CHIPSET_MAX_RANK] = {};
  for (;;) {
    row(offset, count, step);
    int d = rank - 2;
    for (; d >= 0; --d) {
      for (std::size_t k = 0; k < N; ++k) offset[k] += stride[d][k];
      if (++index[d] < size[d]) break;
      for (std::size_t k = 0; k < N; ++k) offset[k] -= stride[d][k] * size[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace chipset::sdk
