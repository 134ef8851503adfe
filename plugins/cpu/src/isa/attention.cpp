// SPDX-License-Identifier: Apache-2.0
// Flash attention (arXiv:2205.14135): tiles of scores, a running maximum and sum per query, no
// stored score matrix.
#include "attention.h"

#include "isa/attention_rows.h"

namespace chipset::cpu::CPU_ISA {

bool attention_backward(const AttentionProblem& p);
bool is_decoding(const AttentionProblem& p);
bool attention_decode(const AttentionProblem& p);

namespace {

template <class A>
struct RowState {
  A top[kBlockRows];  // largest score so far
  A sum[kBlockRows];  // of exp(score - top)
};

template <class T>
struct Forward {
  using A = compute_t<T>;
  const AttentionProblem& p;
  Source<T> q, k, v;
  ColumnMask columns;
  Packed<A> keys, values;
  int64_t out_row;  // of the sums

  explicit Forward(const AttentionProblem& problem)
      : p(problem),
        q(p.q, p.heads, p.s_q, p.d),
        k(p.k, p.kv_heads, p.s_k, p.d),
        v(p.v, p.kv_heads, p.s_k, p.d_v),
        out_row(ceil_div(p.d_v, kColumns<A>) * kColumns<A>) {}

  bool run() {
    const int64_t kv = p.batch * p.kv_heads;
    keys.blocks = values.blocks = ceil_div(p.s_k, kBlockKeys);
    keys.block_size = kBlockKeys * p.d;
    values.block_size = kBlockKeys * out_row;
    Arena<A> arena;
    const int64_t at_keys = arena.reserve(keys.size(kv));
    const int64_t at_values = arena.reserve(values.size(kv));
    if (!arena.allocate(kScratchA)) return false;
    keys.data = arena.base + at_keys;
    values.data = arena.base + at_values;
    if (p.columns.data != nullptr) {
      void* memory = scratch(kScratchB, ColumnMask::bytes(p));
      if (memory == nullptr) return false;
      columns.build(p, memory);
    }
    const int64_t row_blocks = ceil_div(p.s_q, kBlockRows);
    const double work = static_cast<double>(p.batch * p.heads) * static_cast<double>(p.s_q) *
                        static_cast<double>(p.s_k) * static_cast<double>(p.d + p.d_v);
    const bool parallel = work > 4e5;
    for_tasks(kv * keys.blocks, parallel, [&](int64_t task) {
      const int64_t bh = task / keys.blocks, block = task % keys.blocks;
      const int64_t r0 = block * kBlockKeys, r1 = least(r0 + kBlockKeys, p.s_k);
      pack_right_transposed(k, bh, r0, r1, keys.at(bh, block));
      pack_right(v, bh, r0, r1, values.at(bh, block));
    });
    bool ok = true;
    // Late queries see more keys: they start first.
    for_tasks(p.batch * p.heads * row_blocks, parallel, [&](int64_t task) {
      const int64_t bh = task % (p.batch * p.heads);
      const int64_t block = row_blocks - 1 - task / (p.batch * p.heads);
      if (!tile_row(bh, block * kBlockRows, least((block + 1) * kBlockRows, p.s_q)))
        __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    });
    return ok;
  }

  // All keys for queries [r0, r1) of one head.
  bool tile_row(int64_t bh, int64_t r0, int64_t r1) {
    Arena<A> arena;
    const int64_t at_left = arena.reserve(kBlockRows * p.d);
    const int64_t at_tile = arena.reserve(kBlockRows * kTileRow);
    const int64_t at_sums = arena.reserve(kBlockRows * out_row);
    if (!arena.allocate(kScratchD)) return false;
    A *left = arena.base + at_left, *tile = arena.base + at_tile, *sums = arena.base + at_sums;
    const int rows = static_cast<int>(r1 - r0);
    const int64_t b = bh / p.heads, h = bh % p.heads;
    const int64_t kv = b * p.kv_heads + h / (p.heads / p.kv_heads);
    const A scale = static_cast<A>(p.scale), softcap = static_cast<A>(p.softcap);
    RowState<A> state;
    for (int i = 0; i < rows; ++i) state.top[i] = A(-INFINITY), state.sum[i] = 0;
    std::memset(sums, 0, sizeof(A) * static_cast<size_t>(rows * out_row));
    pack_left(q, bh, r0, r1, left);
    for (int64_t block = 0; block < keys.blocks; ++block) {
      const Tile kind = classify(p, columns, b, h, r0, r1, block);
      if (kind == Tile::kSkip) continue;
      const int64_t c0 = block * kBlockKeys, count = least(kBlockKeys, p.s_k - c0);
      multiply_tile(rows, count, p.d, left, keys.at(kv, block), tile);
      for (int i = 0; i < rows; ++i) {
        A* scores = tile + i * kTileRow;
        if (kind == Tile::kPartial) {
          for (int64_t j = 0; j < count; j += kLanes<A>)
            store(scores + j, cap_scores(load(scores + j), scale, softcap));
          mask_row(p, columns, b, h, r0 + i, c0, count, scores);
        }
        const A factor = soften_row(scores, count, scale, softcap, kind == Tile::kPartial,
                                    state.top[i], state.sum[i]);
        if (factor != A{1}) {
          A* sum = sums + i * out_row;
          for (int64_t c = 0; c < out_row; c += kLanes<A>) store(sum + c, load(sum + c) * factor);
        }
      }
      add_tile_product(rows, p.d_v, count, tile, values.at(kv, block), sums, out_row);
    }
    for (int i = 0; i < rows; ++i)
      write_attention(p, b, h, r0 + i, sums + i * out_row, state.top[i], state.sum[i]);
    return true;
  }
};

bool forward(const AttentionProblem& p) {
  if (is_decoding(p)) return attention_decode(p);
  switch (p.dtype) {
    case CHIPSET_DTYPE_F16:
      return Forward<f16>(p).run();
    case CHIPSET_DTYPE_BF16:
      return Forward<bf16>(p).run();
    case CHIPSET_DTYPE_F32:
      return Forward<float>(p).run();
    default:
      return Forward<double>(p).run();
  }
}

}  // namespace

extern const AttentionKernels attention_kernels;
const AttentionKernels attention_kernels = {forward, attention_backward};

}  // namespace chipset::cpu::CPU_ISA
