// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees: causality, window, FlashMask columns (arXiv:2410.01359) and a stored
// mask; for whole tiles, so that they can be skipped, and element by element.
#pragma once

#include "attention.h"
#include "isa/activation.h"
#include "isa/micro_gemm.h"

namespace chipset::cpu::CPU_ISA {

constexpr int kBlockKeys = 128;            // keys of a tile
constexpr int kBlockRows = 4 * kRows;      // queries of a tile
constexpr int kTileRow = kBlockKeys + 16;  // not a power of two, which would share cache sets

enum class Tile { kSkip, kPartial, kWhole };

// FlashMask columns as two intervals of masked rows per key, and their extremes per block of keys.
struct ColumnMask {
  // [column heads of all batches][begin1, end1, begin2, end2][keys]; NULL: no columns.
  int32_t* bounds = nullptr;
  int32_t* extremes = nullptr;  // [...][block][4 bounds][min, max]
  int64_t keys = 0, blocks = 0;

  static size_t bytes(const AttentionProblem& p) {
    const int64_t blocks = (p.s_k + kBlockKeys - 1) / kBlockKeys;
    return sizeof(int32_t) *
           static_cast<size_t>(p.batch * p.column_heads * (4 * p.s_k + 8 * blocks));
  }

  void build(const AttentionProblem& p, void* memory) {
    keys = p.s_k;
    blocks = (keys + kBlockKeys - 1) / kBlockKeys;
    bounds = static_cast<int32_t*>(memory);
    extremes = bounds + p.batch * p.column_heads * 4 * keys;
    const auto* data = static_cast<const int32_t*>(p.columns.data);
    const int64_t* stride = p.columns.stride;
    constexpr int32_t never = INT32_MAX;
    for (int64_t line = 0; line < p.batch * p.column_heads; ++line) {
      const int32_t* from =
          data + line / p.column_heads * stride[0] + line % p.column_heads * stride[1];
      int32_t* to = bounds + line * 4 * keys;
      int32_t* extreme = extremes + line * blocks * 8;
      for (int64_t j = 0; j < keys; ++j) {
        int32_t c[4] = {0, 0, 0, 0};
        for (int64_t t = 0; t < p.column_count; ++t) c[t] = from[j * stride[2] + t * stride[3]];
        int32_t b[4] = {0, 0, 0, 0};
        if (p.causal) {
          b[0] = c[0];
          b[1] = p.column_count == 1 ? never : c[1];
        } else if (p.column_count == 2) {
          b[0] = c[0], b[1] = never, b[2] = 0, b[3] = c[1];
        } else {
          b[0] = c[0], b[1] = c[1], b[2] = c[2], b[3] = c[3];
        }
        int32_t* e = extreme + j / kBlockKeys * 8;
        for (int t = 0; t < 4; ++t) {
          to[t * keys + j] = b[t];
          const bool first = j % kBlockKeys == 0;
          if (first || b[t] < e[2 * t]) e[2 * t] = b[t];
          if (first || b[t] > e[2 * t + 1]) e[2 * t + 1] = b[t];
        }
      }
    }
  }

  int64_t line(const AttentionProblem& p, int64_t b, int64_t h) const {
    return b * p.column_heads + h / (p.heads / p.column_heads);
  }

  // The tile of rows [r0, r1) and a block of keys.
  Tile classify(int64_t line, int64_t r0, int64_t r1, int64_t block) const {
    const int32_t* e = extremes + (line * blocks + block) * 8;
    Tile tile = Tile::kWhole;
    for (int t = 0; t < 8; t += 4) {
      // Every column masks every row: the latest begin is at or before the first row, and the
      // earliest end lies after the last.
      if (e[t + 1] <= r0 && e[t + 2] >= r1) return Tile::kSkip;
      const bool misses = e[t] >= r1 || e[t + 3] <= r0 || e[t] >= e[t + 3];
      if (!misses) tile = Tile::kPartial;
    }
    return tile;
  }
};

// Keys [begin, end) that causality and window leave to query i; both ends grow with i.
struct Span {
  int64_t begin, end;
};
inline Span key_span(const AttentionProblem& p, int64_t i) {
  Span s{0, p.s_k};
  const int64_t diagonal = i + p.causal_offset;
  if (p.causal && diagonal + 1 < s.end) s.end = diagonal + 1;
  if (p.window_right >= 0 && diagonal + p.window_right + 1 < s.end)
    s.end = diagonal + p.window_right + 1;
  if (p.window_left >= 0 && diagonal - p.window_left > 0) s.begin = diagonal - p.window_left;
  if (s.end < 0) s.end = 0;
  if (s.begin > p.s_k) s.begin = p.s_k;
  return s;
}

inline Tile classify(const AttentionProblem& p, const ColumnMask& columns, int64_t b, int64_t h,
                     int64_t r0, int64_t r1, int64_t block) {
  const int64_t c0 = block * kBlockKeys;
  const int64_t c1 = c0 + kBlockKeys < p.s_k ? c0 + kBlockKeys : p.s_k;
  const Span first = key_span(p, r0), last = key_span(p, r1 - 1);
  if (c1 <= first.begin || c0 >= last.end) return Tile::kSkip;
  Tile tile = c0 < last.begin || c1 > first.end ? Tile::kPartial : Tile::kWhole;
  if (columns.bounds != nullptr) {
    const Tile by_columns = columns.classify(columns.line(p, b, h), r0, r1, block);
    if (by_columns == Tile::kSkip) return Tile::kSkip;
    if (by_columns == Tile::kPartial) tile = Tile::kPartial;
  }
  return p.mask.data != nullptr ? Tile::kPartial : tile;
}

// Adds the mask to the scores of query i against `count` keys from c0; -inf where it sees nothing.
template <class A>
inline void mask_row(const AttentionProblem& p, const ColumnMask& columns, int64_t b, int64_t h,
                     int64_t i, int64_t c0, int64_t count, A* scores) {
  const A hidden = A(-INFINITY);
  const Span span = key_span(p, i);
  for (int64_t j = 0; j < count && c0 + j < span.begin; ++j) scores[j] = hidden;
  for (int64_t j = span.end > c0 ? span.end - c0 : 0; j < count; ++j) scores[j] = hidden;
  if (columns.bounds != nullptr) {
    const int32_t* bound = columns.bounds + columns.line(p, b, h) * 4 * columns.keys + c0;
    const int64_t n = columns.keys;
    const int32_t row = static_cast<int32_t>(i);
    for (int64_t j = 0; j < count; ++j) {
      const bool masked = (row >= bound[j] && row < bound[n + j]) ||
                          (row >= bound[2 * n + j] && row < bound[3 * n + j]);
      scores[j] = masked ? hidden : scores[j];
    }
  }
  if (p.mask.data == nullptr) return;
  const int64_t* stride = p.mask.stride;
  const int64_t offset = b * stride[0] + h * stride[1] + i * stride[2] + c0 * stride[3];
  if (p.mask.dtype == CHIPSET_DTYPE_BOOL) {
    const auto* m = static_cast<const uint8_t*>(p.mask.data) + offset;
    for (int64_t j = 0; j < count; ++j) scores[j] = m[j * stride[3]] ? scores[j] : hidden;
  } else {
    A m[kBlockKeys];
    read_row(p.mask.dtype, p.mask.data, offset, stride[3], count, m);
    for (int64_t j = 0; j < count; ++j) scores[j] += m[j];
  }
}

}  // namespace chipset::cpu::CPU_ISA
