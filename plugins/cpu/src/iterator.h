// SPDX-License-Identifier: Apache-2.0
// Walking several strided operands of one shape together.
#pragma once

#include <cstdint>
#include <utility>

#include "chipset/chipset.h"
#include "tensor.h"

namespace chipset::cpu {

// A loop nest over N operands. Dimensions of size 1 are gone and neighbours that every operand
// walks alike are merged, so that contiguous operands give rank 1 whatever their shape was.
template <int N>
struct Loop {
  int rank = 0;  // at least 1
  int64_t numel = 0;
  int64_t shape[CHIPSET_MAX_RANK];
  int64_t stride[N][CHIPSET_MAX_RANK];  // bytes
  char* data[N];
};

enum class Order {
  kRowMajor,  // elements are visited in row-major order of the given shape
  kAny,       // dimensions are permuted so that operand 0 is walked with its smallest stride inside
};

// `operands` share the shape of operands[0] (the caller has checked it); a NULL operand gets stride
// 0 and data NULL.
template <int N>
inline Loop<N> make_loop(const chipset_tensor* const (&operands)[N], Order order) {
  Loop<N> loop;
  const chipset_tensor& first = *operands[0];
  loop.numel = 1;
  int rank = 0;
  for (int d = 0; d < first.rank; ++d) {
    loop.numel *= first.shape[d];
    if (first.shape[d] == 1) continue;
    loop.shape[rank] = first.shape[d];
    for (int k = 0; k < N; ++k) {
      loop.stride[k][rank] =
          operands[k] == nullptr ? 0 : operands[k]->stride[d] * dtype_size(operands[k]->dtype);
    }
    ++rank;
  }
  for (int k = 0; k < N; ++k) {
    loop.data[k] = operands[k] == nullptr ? nullptr : static_cast<char*>(operands[k]->data);
  }
  if (order == Order::kAny) {
    // Insertion sort, outermost first: descending stride of operand 0, ties by operand 1, ...
    for (int i = 1; i < rank; ++i) {
      for (int j = i; j > 0; --j) {
        int k = 0;
        while (k < N - 1 && loop.stride[k][j - 1] == loop.stride[k][j]) ++k;
        if (loop.stride[k][j - 1] >= loop.stride[k][j]) break;
        std::swap(loop.shape[j - 1], loop.shape[j]);
        for (int m = 0; m < N; ++m) std::swap(loop.stride[m][j - 1], loop.stride[m][j]);
      }
    }
  }
  int merged = 0;  // dimensions 0..merged are final but for merging into dimension `merged`
  for (int d = 1; d < rank; ++d) {
    bool alike = true;
    for (int k = 0; k < N; ++k) {
      alike = alike && loop.stride[k][merged] == loop.stride[k][d] * loop.shape[d];
    }
    if (alike) {
      loop.shape[merged] *= loop.shape[d];
    } else {
      ++merged;
      loop.shape[merged] = loop.shape[d];
    }
    for (int k = 0; k < N; ++k) loop.stride[k][merged] = loop.stride[k][d];
  }
  loop.rank = merged + 1;
  if (rank == 0) {
    loop.shape[0] = 1;
    for (int k = 0; k < N; ++k) loop.stride[k][0] = 0;
  }
  return loop;
}

// Calls row(pointers, n) for each piece of an innermost row in elements [begin, end) of the loop's
// order; consecutive elements of operand k lie loop.stride[k][loop.rank - 1] bytes apart.
template <int N, typename Row>
inline void for_each_row(const Loop<N>& loop, int64_t begin, int64_t end, Row&& row) {
  if (begin >= end) return;
  const int inner = loop.rank - 1;
  int64_t coordinate[CHIPSET_MAX_RANK] = {};
  char* base[N];  // of the row's first element
  for (int k = 0; k < N; ++k) base[k] = loop.data[k];
  int64_t rest = begin;
  for (int d = inner; d >= 0; --d) {
    coordinate[d] = rest % loop.shape[d];
    rest /= loop.shape[d];
    if (d == inner) continue;
    for (int k = 0; k < N; ++k) base[k] += coordinate[d] * loop.stride[k][d];
  }
  int64_t position = coordinate[inner];
  while (begin < end) {
    const int64_t left = loop.shape[inner] - position;
    const int64_t n = left < end - begin ? left : end - begin;
    char* pointers[N];
    for (int k = 0; k < N; ++k) {
      pointers[k] = base[k] + position * loop.stride[k][inner];
    }
    row(pointers, n);
    begin += n;
    position = 0;
    for (int d = inner - 1; d >= 0; --d) {
      for (int k = 0; k < N; ++k) base[k] += loop.stride[k][d];
      if (++coordinate[d] < loop.shape[d]) break;
      for (int k = 0; k < N; ++k) base[k] -= loop.shape[d] * loop.stride[k][d];
      coordinate[d] = 0;
    }
  }
}

}  // namespace chipset::cpu
