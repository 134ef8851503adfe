// SPDX-License-Identifier: Apache-2.0
// Operands of attention packed once per call for the inner kernels of micro_gemm.h.
#pragma once

#include "isa/attention_mask.h"
#include "isa/micro_gemm.h"
#include "scratch.h"
#include "tasks.h"

namespace chipset::cpu::CPU_ISA {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// [batch, heads, s, d] of T cut into blocks of rows.
template <class T>
struct Source {
  const T* data;
  const int64_t* stride;
  int64_t heads, s, d;
  Source(const View4& v, int64_t h, int64_t rows, int64_t columns)
      : data(static_cast<const T*>(v.data)), stride(v.stride), heads(h), s(rows), d(columns) {}
  const T* at(int64_t bh, int64_t row) const {
    return data + bh / heads * stride[0] + bh % heads * stride[1] + row * stride[2];
  }
};

// Rows [r0, r1) as the left operand x[row][d]: panels of kRows rows.
template <class T>
inline void pack_left(const Source<T>& x, int64_t bh, int64_t r0, int64_t r1, compute_t<T>* out) {
  for (int64_t r = r0; r < r1; r += kRows)
    pack_panel<kRows>(x.at(bh, r), x.stride[2], x.stride[3], static_cast<int>(least(kRows, r1 - r)),
                      x.d, out + (r - r0) * x.d);
}
// Rows as the right operand x^T[d][row]: panels of kColumns rows.
template <class T>
inline void pack_right_transposed(const Source<T>& x, int64_t bh, int64_t r0, int64_t r1,
                                  compute_t<T>* out) {
  constexpr int w = kColumns<compute_t<T>>;
  for (int64_t r = r0; r < r1; r += w)
    pack_panel<w>(x.at(bh, r), x.stride[2], x.stride[3], static_cast<int>(least(w, r1 - r)), x.d,
                  out + (r - r0) * x.d);
}
// Rows as the right operand x[row][d]: panels of kColumns columns, each r1 - r0 deep.
template <class T>
inline void pack_right(const Source<T>& x, int64_t bh, int64_t r0, int64_t r1, compute_t<T>* out) {
  constexpr int w = kColumns<compute_t<T>>;
  for (int64_t c = 0; c < x.d; c += w)
    pack_panel<w>(x.at(bh, r0) + c * x.stride[3], x.stride[3], x.stride[2],
                  static_cast<int>(least(w, x.d - c)), r1 - r0, out + c * (r1 - r0));
}

// A buffer of packed blocks: one per (batch and head, block of rows), `block_size` elements apart.
template <class A>
struct Packed {
  A* data = nullptr;
  int64_t blocks = 0, block_size = 0;
  A* at(int64_t bh, int64_t block) const { return data + (bh * blocks + block) * block_size; }
  int64_t size(int64_t bh_count) const { return bh_count * blocks * block_size; }
};

// tile[rows][columns] = left (packed, `depth` deep) times right (transposed pack).
template <class A>
inline void multiply_tile(int64_t rows, int64_t columns, int64_t depth, const A* left,
                          const A* right, A* tile) {
  for (int64_t j = 0; j < columns; j += kColumns<A>)
    for (int64_t i = 0; i < rows; i += kRows)
      kPanelMicro<A>.of[least(kRows, rows - i)](depth, left + i * depth, 0, 0, right + j * depth,
                                                kColumns<A>, tile + i * kTileRow + j, kTileRow,
                                                false);
}
// sum[rows][columns] += tile[rows][depth] times right (pack_right of `depth` rows).
template <class A>
inline void add_tile_product(int64_t rows, int64_t columns, int64_t depth, const A* tile,
                             const A* right, A* sum, int64_t sum_row) {
  for (int64_t j = 0; j < columns; j += kColumns<A>)
    for (int64_t i = 0; i < rows; i += kRows)
      kMicro<A, kColumnVectors, kTileRow, 1>.of[least(kRows, rows - i)](
          depth, tile + i * kTileRow, 0, 0, right + j * depth, kColumns<A>, sum + i * sum_row + j,
          sum_row, true);
}
// sum[rows][columns] += tile[depth][rows]^T times right (pack_right of `depth` rows).
template <class A>
inline void add_transposed_tile_product(int64_t rows, int64_t columns, int64_t depth, const A* tile,
                                        const A* right, A* sum, int64_t sum_row) {
  for (int64_t j = 0; j < columns; j += kColumns<A>)
    for (int64_t i = 0; i < rows; i += kRows)
      kMicro<A, kColumnVectors, 1, kTileRow>.of[least(kRows, rows - i)](
          depth, tile + i, 0, 0, right + j * depth, kColumns<A>, sum + i * sum_row + j, sum_row,
          true);
}

// Scales scores; with a soft cap c: c*tanh(score/c).
template <class A>
inline vec<A> cap_scores(vec<A> scores, A scale, A softcap) {
  scores = scores * scale;
  return softcap == 0 ? scores : softcap * vtanh(scores / softcap);
}

// Memory of a call, handed out piece by piece: first sizes are added up, then pointers given.
template <class A>
struct Arena {
  int64_t used = 0;
  A* base = nullptr;
  int64_t reserve(int64_t elements) {
    const int64_t at = used;
    used += (elements + 63) / 64 * 64;
    return at;
  }
  bool allocate(ScratchSlot slot) {
    base = static_cast<A*>(scratch(slot, sizeof(A) * static_cast<size_t>(used + 64)));
    return base != nullptr;
  }
};

}  // namespace chipset::cpu::CPU_ISA
