// SPDX-License-Identifier: Apache-2.0
// Attention of few queries over many keys, as in decoding: keys and values are read where they lie,
// once for all the query heads that share them, and the keys of one head are split among threads
// (flash decoding: Dao et al., 2023), in splits that depend on the shape alone.
#include "isa/attention_rows.h"
#include "isa/lanes.h"

namespace chipset::cpu::CPU_ISA {

bool is_decoding(const AttentionProblem& p);
bool attention_decode(const AttentionProblem& p);

namespace {

constexpr int64_t kMostRows = 16;     // queries that share a key, over heads and positions
constexpr int64_t kSplitBlocks = 4;   // least blocks of keys in a split
constexpr int64_t kWantedTasks = 16;  // splits make up to about this many

// scores[m][j] = q_m . k_j for M rows of q (contiguous) and W keys.
template <class T, int M, int W>
inline void dot_block(const compute_t<T>* q, int64_t q_row, const T* k, int64_t k_row, int64_t d,
                      compute_t<T>* scores) {
  using A = compute_t<T>;
  vec<A> sum[M][W] = {};
  for_vectors<A>(d, [&](int64_t i, auto n) {
    vec<A> keys[W];
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) keys[j] = load(k + j * k_row + i, n);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const vec<A> left = load(q + m * q_row + i, n);
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) sum[m][j] += left * keys[j];
    }
  });
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) sum_lanes_of<W, A>(sum[m], scores + m * kTileRow);
}
template <class T, int M>
void dot_keys(const compute_t<T>* q, int64_t q_row, const T* k, int64_t k_row, int64_t count,
              int64_t d, compute_t<T>* scores) {
  int64_t j = 0;
  for (; j + 4 <= count; j += 4) dot_block<T, M, 4>(q, q_row, k + j * k_row, k_row, d, scores + j);
  for (; j < count; ++j) dot_block<T, M, 1>(q, q_row, k + j * k_row, k_row, d, scores + j);
}

// sums[m] += sum over j of p[m][j] * v_j for M rows, `V` vectors of columns at a time.
template <class T, int M, int V>
inline void value_block(const compute_t<T>* p, const T* v, int64_t v_row, int64_t count, int last,
                        compute_t<T>* sums, int64_t sum_row) {
  using A = compute_t<T>;
  vec<A> sum[M][V];
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int c = 0; c < V; ++c) sum[m][c] = load(sums + m * sum_row + c * kLanes<A>);
  for (int64_t j = 0; j < count; ++j, v += v_row) {
    vec<A> values[V];
#pragma GCC unroll 4
    for (int c = 0; c < V; ++c) {
      const T* from = v + c * kLanes<A>;
      values[c] = V > 1 || last == kLanes<A> ? load(from) : load(from, last);
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const vec<A> weight = splat(p[m * kTileRow + j]);
#pragma GCC unroll 4
      for (int c = 0; c < V; ++c) sum[m][c] += weight * values[c];
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int c = 0; c < V; ++c) store(sums + m * sum_row + c * kLanes<A>, sum[m][c]);
}
template <class T, int M>
void add_values(const compute_t<T>* p, const T* v, int64_t v_row, int64_t count, int64_t d_v,
                compute_t<T>* sums, int64_t sum_row) {
  constexpr int64_t w = kLanes<compute_t<T>>;
  int64_t c = 0;
  for (; c + 4 * w <= d_v; c += 4 * w)
    value_block<T, M, 4>(p, v + c, v_row, count, w, sums + c, sum_row);
  for (; c < d_v; c += w) {
    value_block<T, M, 1>(p, v + c, v_row, count, static_cast<int>(least(w, d_v - c)), sums + c,
                         sum_row);
  }
}

// Calls f(first row, integral constant M) for blocks of up to four rows.
template <class F>
inline void for_row_blocks(int64_t rows, F&& f) {
  int64_t m = 0;
  for (; m + 4 <= rows; m += 4) f(m, std::integral_constant<int, 4>{});
  switch (rows - m) {
    case 1:
      return f(m, std::integral_constant<int, 1>{});
    case 2:
      return f(m, std::integral_constant<int, 2>{});
    case 3:
      return f(m, std::integral_constant<int, 3>{});
    default:
      return;
  }
}

template <class T>
struct Decode {
  using A = compute_t<T>;
  const AttentionProblem& p;
  Source<T> q, k, v;
  ColumnMask columns;
  int64_t group, rows;     // query heads of a key head; rows = group * s_q
  int64_t q_row, sum_row;  // elements, whole vectors
  int64_t blocks, splits, split_blocks;
  A* partial = nullptr;  // [key head][split][row][sums, top, sum], where there are splits

  explicit Decode(const AttentionProblem& problem)
      : p(problem),
        q(p.q, p.heads, p.s_q, p.d),
        k(p.k, p.kv_heads, p.s_k, p.d),
        v(p.v, p.kv_heads, p.s_k, p.d_v),
        group(p.heads / p.kv_heads),
        rows(group * p.s_q),
        q_row(ceil_div(p.d, kLanes<A>) * kLanes<A>),
        sum_row(ceil_div(p.d_v, kLanes<A>) * kLanes<A>),
        blocks(ceil_div(p.s_k, kBlockKeys)) {
    const int64_t wanted = ceil_div(kWantedTasks, p.batch * p.kv_heads);
    splits = least(wanted, ceil_div(blocks, kSplitBlocks));
    split_blocks = ceil_div(blocks, splits);
    splits = ceil_div(blocks, split_blocks);
  }
  int64_t partial_row() const { return sum_row + kLanes<A>; }
  A* partial_at(int64_t kv, int64_t split, int64_t row) const {
    return partial + ((kv * splits + split) * rows + row) * partial_row();
  }
  int64_t head(int64_t kv, int64_t row) const { return kv % p.kv_heads * group + row / p.s_q; }

  bool run() {
    const int64_t kv_count = p.batch * p.kv_heads;
    if (splits > 1) {
      const int64_t size = kv_count * splits * rows * partial_row();
      partial = static_cast<A*>(scratch(kScratchA, sizeof(A) * static_cast<size_t>(size)));
      if (partial == nullptr) return false;
    }
    if (p.columns.data != nullptr) {
      void* memory = scratch(kScratchB, ColumnMask::bytes(p));
      if (memory == nullptr) return false;
      columns.build(p, memory);
    }
    const double work = static_cast<double>(p.batch * p.heads) * static_cast<double>(p.s_q) *
                        static_cast<double>(p.s_k) * static_cast<double>(p.d + p.d_v);
    bool ok = true;
    for_tasks(kv_count * splits, work > 4e5, [&](int64_t task) {
      if (!split_of(task / splits, task % splits)) __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    });
    if (!ok || splits == 1) return ok;
    for (int64_t kv = 0; kv < kv_count; ++kv)
      for (int64_t row = 0; row < rows; ++row) combine(kv, row);
    return true;
  }

  // The keys of one split for every row that shares the key head.
  bool split_of(int64_t kv, int64_t split) {
    Arena<A> arena;
    const int64_t at_q = arena.reserve(rows * q_row), at_tile = arena.reserve(rows * kTileRow);
    const int64_t at_sums = arena.reserve(rows * sum_row);
    if (!arena.allocate(kScratchD)) return false;
    A *left = arena.base + at_q, *tile = arena.base + at_tile, *sums = arena.base + at_sums;
    A top[kMostRows], total[kMostRows];
    const int64_t b = kv / p.kv_heads;
    for (int64_t row = 0; row < rows; ++row) {
      top[row] = A(-INFINITY), total[row] = 0;
      read_row_of(q.at(b * p.heads + head(kv, row), row % p.s_q), p.d == 1 ? 1 : q.stride[3], p.d,
                  left + row * q_row);
    }
    std::memset(sums, 0, sizeof(A) * static_cast<size_t>(rows * sum_row));
    const int64_t end = least(blocks, (split + 1) * split_blocks);
    for (int64_t block = split * split_blocks; block < end; ++block)
      add_block(kv, b, block, left, tile, sums, top, total);
    for (int64_t row = 0; row < rows; ++row) {
      A* sum = sums + row * sum_row;
      if (splits == 1) {
        write_attention(p, b, head(kv, row), row % p.s_q, sum, top[row], total[row]);
        continue;
      }
      A* to = partial_at(kv, split, row);
      std::memcpy(to, sum, sizeof(A) * static_cast<size_t>(sum_row));
      to[sum_row] = top[row], to[sum_row + 1] = total[row];
    }
    return true;
  }

  void add_block(int64_t kv, int64_t b, int64_t block, const A* left, A* tile, A* sums, A* top,
                 A* total) {
    Tile kinds[kMostRows];
    bool any = false;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = row % p.s_q;
      kinds[row] = classify(p, columns, b, head(kv, row), i, i + 1, block);
      any = any || kinds[row] != Tile::kSkip;
    }
    if (!any) return;
    const A scale = static_cast<A>(p.scale), softcap = static_cast<A>(p.softcap);
    const int64_t c0 = block * kBlockKeys, count = least(kBlockKeys, p.s_k - c0);
    for_row_blocks(rows, [&](int64_t row, auto m) {
      dot_keys<T, m()>(left + row * q_row, q_row, k.at(kv, c0), k.stride[2], count, p.d,
                       tile + row * kTileRow);
    });
    for (int64_t row = 0; row < rows; ++row) {
      A* scores = tile + row * kTileRow;
      if (kinds[row] == Tile::kSkip) {
        std::memset(scores, 0, sizeof(A) * static_cast<size_t>(count));
        continue;
      }
      if (kinds[row] == Tile::kPartial) {
        for (int64_t j = 0; j < count; j += kLanes<A>)
          store(scores + j, cap_scores(load(scores + j), scale, softcap));
        mask_row(p, columns, b, head(kv, row), row % p.s_q, c0, count, scores);
      }
      const A factor = soften_row(scores, count, scale, softcap, kinds[row] == Tile::kPartial,
                                  top[row], total[row]);
      if (factor == A{1}) continue;
      A* sum = sums + row * sum_row;
      for (int64_t c = 0; c < sum_row; c += kLanes<A>) store(sum + c, load(sum + c) * factor);
    }
    for_row_blocks(rows, [&](int64_t row, auto m) {
      add_values<T, m()>(tile + row * kTileRow, v.at(kv, c0), v.stride[2], count, p.d_v,
                         sums + row * sum_row, sum_row);
    });
  }

  // The splits of one row, each brought to the largest of their maxima.
  void combine(int64_t kv, int64_t row) {
    A* sum = partial_at(kv, 0, row);
    A top = A(-INFINITY), total = 0;
    for (int64_t s = 0; s < splits; ++s) {
      const A here = partial_at(kv, s, row)[sum_row];
      top = (top > here || top != top) ? top : here;
    }
    const A reference = top == A(-INFINITY) ? A{0} : top;
    for (int64_t s = 0; s < splits; ++s) {
      const A* from = partial_at(kv, s, row);
      const A factor = std::exp(from[sum_row] - reference);
      total += factor * from[sum_row + 1];
      for (int64_t c = 0; c < sum_row; c += kLanes<A>) {
        const vec<A> scaled = load(from + c) * factor;
        store(sum + c, s == 0 ? scaled : load(sum + c) + scaled);
      }
    }
    write_attention(p, kv / p.kv_heads, head(kv, row), row % p.s_q, sum, top, total);
  }
};

}  // namespace

bool is_decoding(const AttentionProblem& p) {
  const bool in_place = (p.d == 1 || p.k.stride[3] == 1) && (p.d_v == 1 || p.v.stride[3] == 1);
  return in_place && p.s_k > 0 && p.heads / p.kv_heads * p.s_q <= kMostRows;
}

bool attention_decode(const AttentionProblem& p) {
  switch (p.dtype) {
    case CHIPSET_DTYPE_F16:
      return Decode<f16>(p).run();
    case CHIPSET_DTYPE_BF16:
      return Decode<bf16>(p).run();
    case CHIPSET_DTYPE_F32:
      return Decode<float>(p).run();
    default:
      return Decode<double>(p).run();
  }
}

}  // namespace chipset::cpu::CPU_ISA
