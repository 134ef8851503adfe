// SPDX-License-Identifier: Apache-2.0
// The inner kernels of every matrix product: packing into panels, and a register-blocked product
// of an A panel (kRows rows) with a B panel (kColumns columns). The layout is the classical one of
// Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (TOMS 2008).
#pragma once

#include "isa/simd.h"

namespace chipset::cpu::CPU_ISA {

// Rows and vectors of columns held in registers: 14*2 + 2 + 1 of 32, or 6*2 + 2 + 1 of 16.
#if defined(__AVX512F__)
constexpr int kRows = 14;
#else
constexpr int kRows = 6;
#endif
constexpr int kColumnVectors = 2;
template <class A>
constexpr int kColumns = kColumnVectors * kLanes<A>;

// c[i][j] (+)= sum_k a[i*a_row + k*a_k] * b[k*b_k + j] for `Rows` rows and NV vectors of columns.
// Row and K, where not 0, are the strides of a at compile time.
template <class A, int Rows, int NV, int Row, int K>
inline void micro(int64_t k_size, const A* a, int64_t a_row, int64_t a_k, const A* b, int64_t b_k,
                  A* c, int64_t c_row, bool accumulate) {
  // c is written at the end: its lines come meanwhile. Rows of b may lie a page apart, where the
  // processor does not foresee them.
  constexpr int ahead = 12;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) __builtin_prefetch(c + i * c_row + v * kLanes<A>, 1);
  vec<A> sum[Rows][NV];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) sum[i][v] = vec<A>{};
  for (int64_t k = 0; k < k_size; ++k) {
    vec<A> right[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) __builtin_prefetch(b + ahead * b_k + v * kLanes<A>);
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) right[v] = load(b + v * kLanes<A>);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      vec<A> left = splat(a[i * (Row != 0 ? Row : a_row)]);
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) sum[i][v] += left * right[v];
    }
    a += K != 0 ? K : a_k;
    b += b_k;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      A* p = c + i * c_row + v * kLanes<A>;
      store(p, accumulate ? load(p) + sum[i][v] : sum[i][v]);
    }
}

template <class A>
using micro_function = void (*)(int64_t, const A*, int64_t, int64_t, const A*, int64_t, A*, int64_t,
                                bool);
// Instances for 1 … kRows rows, so that an edge costs no more than its own rows.
template <class A, int NV, int Row, int K>
struct MicroTable {
  micro_function<A> of[kRows + 1];
  constexpr MicroTable() : of{} { fill<1>(); }
  template <int R>
  constexpr void fill() {
    of[R] = &micro<A, R, NV, Row, K>;
    if constexpr (R < kRows) fill<R + 1>();
  }
};
template <class A, int NV, int Row, int K>
inline constexpr MicroTable<A, NV, Row, K> kMicro{};
// a in panels of pack_panel<kRows>; b in panels of pack_panel<kColumns>.
template <class A>
inline constexpr const auto& kPanelMicro = kMicro<A, kColumnVectors, 1, kRows>;

// Transposes a kLanes x kLanes tile in registers by swapping ever larger off-diagonal blocks.
template <class A, int S>
inline void transpose_stage(vec<A>* r) {
  constexpr int w = kLanes<A>;
  if constexpr (S < w) {
    mask<A> low, high;
    for (int j = 0; j < w; ++j) {
      low[j] = (j & S) ? w + j - S : j;
      high[j] = (j & S) ? w + j : j + S;
    }
#pragma GCC unroll 16
    for (int i = 0; i < w; ++i) {
      if (i & S) continue;
      vec<A> x = r[i], y = r[i + S];
      r[i] = __builtin_shuffle(x, y, low);
      r[i + S] = __builtin_shuffle(x, y, high);
    }
    transpose_stage<A, S * 2>(r);
  }
}
template <class A>
inline void transpose_tile(vec<A>* r) {
  transpose_stage<A, 1>(r);
}

// Packs `width` <= Width strided columns: out[k*Width + i] = x[i*x_i + k*x_k], zero for i >= width.
// Whole vectors are stored, each over what the one before had too much; only the last is cut.
template <int Width, class A>
inline void store_packed(A* out, vec<A> x, int block, bool last) {
  constexpr int rest = Width % kLanes<A>;
  if (rest != 0 && last && block == Width / kLanes<A>) {
    store(out + block * kLanes<A>, x, rest);
  } else {
    store(out + block * kLanes<A>, x);
  }
}
template <int Width, class T>
inline void pack_panel(const T* x, int64_t x_i, int64_t x_k, int width, int64_t k_size,
                       compute_t<T>* out) {
  using A = compute_t<T>;
  constexpr int w = kLanes<A>;
  constexpr int blocks = (Width + w - 1) / w;
  if (x_i == 1) {
    for (int64_t k = 0; k < k_size; ++k, x += x_k, out += Width) {
#pragma GCC unroll 4
      for (int b = 0; b < blocks; ++b) {
        int n = width - b * w;
        vec<A> y = n >= w ? load(x + b * w) : n > 0 ? load(x + b * w, n) : vec<A>{};
        store_packed<Width, A>(out, y, b, k + 1 == k_size);
      }
    }
    return;
  }
  if (x_k == 1) {
    vec<A> tile[blocks][w];
    for (int64_t k = 0; k < k_size; k += w, out += w * Width) {
      int n = k_size - k < w ? static_cast<int>(k_size - k) : w;
      for (int b = 0; b < blocks; ++b) {
#pragma GCC unroll 16
        for (int i = 0; i < w; ++i) {
          const T* p = x + (b * w + i) * x_i + k;
          tile[b][i] = b * w + i >= width ? vec<A>{} : n == w ? load(p) : load(p, n);
        }
        transpose_tile<A>(tile[b]);
      }
      for (int j = 0; j < n; ++j)
#pragma GCC unroll 4
        for (int b = 0; b < blocks; ++b)
          store_packed<Width, A>(out + j * Width, tile[b][j], b, k + j + 1 == k_size);
    }
    return;
  }
  for (int64_t k = 0; k < k_size; ++k, out += Width)
    for (int i = 0; i < Width; ++i)
      out[i] = i < width ? static_cast<A>(to_float(x[i * x_i + k * x_k])) : A{0};
}

}  // namespace chipset::cpu::CPU_ISA
