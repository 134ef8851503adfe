// SPDX-License-Identifier: Apache-2.0
// The backward of flash attention: scores are computed again tile by tile from the log-sum-exp.
// With P = exp(S - lse) and D = rowsum(dO * O): dV = P^T dO, dP = dO V^T, dS = P*(dP - D),
// dQ = scale * dS K, dK = scale * dS^T Q; a soft cap multiplies dS by 1 - tanh^2.
#include "isa/attention_tiles.h"

namespace chipset::cpu::CPU_ISA {

bool attention_backward(const AttentionProblem& p);

namespace {

template <class T>
struct Backward {
  using A = compute_t<T>;
  static constexpr int nr = kColumns<A>;
  const AttentionProblem& p;
  Source<T> q, k, v, dout, out;
  ColumnMask columns;
  int64_t d_row, dv_row;  // padded rows of sums
  int64_t query_heads, key_heads, row_blocks, key_blocks, chunks;
  // Left and right forms of the operands.
  Packed<A> q_left, q_right, dout_left, dout_right, k_transposed, k_right, v_transposed;
  A* delta;  // [query_heads][s_q]
  A* dq;     // [chunks][query_heads][s_q][d_row]: one sum per chunk of keys, added in order

  explicit Backward(const AttentionProblem& problem)
      : p(problem),
        q(p.q, p.heads, p.s_q, p.d),
        k(p.k, p.kv_heads, p.s_k, p.d),
        v(p.v, p.kv_heads, p.s_k, p.d_v),
        dout(p.dout, p.heads, p.s_q, p.d_v),
        out(p.out, p.heads, p.s_q, p.d_v),
        d_row(ceil_div(p.d, nr) * nr),
        dv_row(ceil_div(p.d_v, nr) * nr),
        query_heads(p.batch * p.heads),
        key_heads(p.batch * p.kv_heads),
        row_blocks(ceil_div(p.s_q, kBlockRows)),
        key_blocks(ceil_div(p.s_k, kBlockKeys)) {
    // Enough tasks for all threads even where there are few heads; from shapes and thread count
    // alone, so that the sums do not depend on timing.
    chunks = ceil_div(4 * thread_count(), key_heads);
    if (chunks > key_blocks) chunks = key_blocks;
    if (chunks < 1) chunks = 1;
  }

  bool run() {
    if (!prepare()) return false;
    const double work = static_cast<double>(query_heads * p.s_q) * static_cast<double>(p.s_k) *
                        static_cast<double>(p.d + p.d_v);
    const bool parallel = work > 2e5;
    for_tasks(query_heads * row_blocks, parallel, [&](int64_t task) { pack_rows(task); });
    for_tasks(key_heads * key_blocks, parallel, [&](int64_t task) { pack_keys(task); });
    bool ok = true;
    for_tasks(key_heads * chunks, parallel, [&](int64_t task) {
      const int64_t head = task % key_heads, chunk = task / key_heads;
      if (!chunk_of_keys(head, chunk)) __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    });
    if (!ok) return false;
    if (p.dq.data != nullptr)
      for_tasks(query_heads * row_blocks, parallel, [&](int64_t task) { write_dq(task); });
    return true;
  }

  bool prepare() {
    q_left.blocks = q_right.blocks = dout_left.blocks = dout_right.blocks = row_blocks;
    q_left.block_size = kBlockRows * p.d;
    q_right.block_size = kBlockRows * d_row;
    dout_left.block_size = kBlockRows * p.d_v;
    dout_right.block_size = kBlockRows * dv_row;
    k_transposed.blocks = k_right.blocks = v_transposed.blocks = key_blocks;
    k_transposed.block_size = kBlockKeys * p.d;
    k_right.block_size = kBlockKeys * d_row;
    v_transposed.block_size = kBlockKeys * p.d_v;
    Arena<A> arena;
    Packed<A>* by_rows[] = {&q_left, &q_right, &dout_left, &dout_right};
    Packed<A>* by_keys[] = {&k_transposed, &k_right, &v_transposed};
    int64_t at_rows[4], at_keys[3];
    for (int i = 0; i < 4; ++i) at_rows[i] = arena.reserve(by_rows[i]->size(query_heads));
    for (int i = 0; i < 3; ++i) at_keys[i] = arena.reserve(by_keys[i]->size(key_heads));
    const int64_t at_delta = arena.reserve(query_heads * p.s_q);
    const int64_t at_dq = arena.reserve(chunks * query_heads * p.s_q * d_row);
    if (!arena.allocate(kScratchA)) return false;
    for (int i = 0; i < 4; ++i) by_rows[i]->data = arena.base + at_rows[i];
    for (int i = 0; i < 3; ++i) by_keys[i]->data = arena.base + at_keys[i];
    delta = arena.base + at_delta;
    dq = arena.base + at_dq;
    if (p.columns.data != nullptr) {
      void* memory = scratch(kScratchB, ColumnMask::bytes(p));
      if (memory == nullptr) return false;
      columns.build(p, memory);
    }
    return true;
  }

  void pack_rows(int64_t task) {
    const int64_t bh = task / row_blocks, block = task % row_blocks;
    const int64_t r0 = block * kBlockRows, r1 = least(r0 + kBlockRows, p.s_q);
    pack_left(q, bh, r0, r1, q_left.at(bh, block));
    pack_right(q, bh, r0, r1, q_right.at(bh, block));
    pack_left(dout, bh, r0, r1, dout_left.at(bh, block));
    pack_right(dout, bh, r0, r1, dout_right.at(bh, block));
    for (int64_t r = r0; r < r1; ++r) {
      const T *x = dout.at(bh, r), *y = out.at(bh, r);
      A sum = 0;
      if (dout.stride[3] == 1 && out.stride[3] == 1) {
        vec<A> sums{};
        for_vectors<A>(p.d_v, [&](int64_t c, auto n) { sums += load(x + c, n) * load(y + c, n); });
        sum = sum_lanes(sums);
      } else {
        for (int64_t c = 0; c < p.d_v; ++c)
          sum += static_cast<A>(to_float(x[c * dout.stride[3]])) *
                 static_cast<A>(to_float(y[c * out.stride[3]]));
      }
      delta[bh * p.s_q + r] = sum;
    }
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      std::memset(dq_row(chunk, bh, r0), 0, sizeof(A) * static_cast<size_t>((r1 - r0) * d_row));
  }

  A* dq_row(int64_t chunk, int64_t bh, int64_t row) const {
    return dq + ((chunk * query_heads + bh) * p.s_q + row) * d_row;
  }

  void pack_keys(int64_t task) {
    const int64_t bh = task / key_blocks, block = task % key_blocks;
    const int64_t r0 = block * kBlockKeys, r1 = least(r0 + kBlockKeys, p.s_k);
    pack_right_transposed(k, bh, r0, r1, k_transposed.at(bh, block));
    pack_right(k, bh, r0, r1, k_right.at(bh, block));
    pack_right_transposed(v, bh, r0, r1, v_transposed.at(bh, block));
  }

  // dK and dV of some blocks of keys of one key head, from all its query heads.
  bool chunk_of_keys(int64_t kv, int64_t chunk) {
    Arena<A> arena;
    const int64_t at_p = arena.reserve(kBlockRows * kTileRow);
    const int64_t at_ds = arena.reserve(kBlockRows * kTileRow);
    const int64_t at_dk = arena.reserve(kBlockKeys * d_row);
    const int64_t at_dv = arena.reserve(kBlockKeys * dv_row);
    if (!arena.allocate(kScratchD)) return false;
    A *tile = arena.base + at_p, *ds = arena.base + at_ds;
    A *dk = arena.base + at_dk, *dv = arena.base + at_dv;
    const int64_t group = p.heads / p.kv_heads;
    const int64_t b = kv / p.kv_heads;
    const int64_t last = key_blocks * (chunk + 1) / chunks;
    for (int64_t block = key_blocks * chunk / chunks; block < last; ++block) {
      const int64_t c0 = block * kBlockKeys, count = least(kBlockKeys, p.s_k - c0);
      std::memset(dk, 0, sizeof(A) * static_cast<size_t>(count * d_row));
      std::memset(dv, 0, sizeof(A) * static_cast<size_t>(count * dv_row));
      for (int64_t g = 0; g < group; ++g) {
        const int64_t h = kv % p.kv_heads * group + g, bh = b * p.heads + h;
        for (int64_t rows = 0; rows < row_blocks; ++rows) {
          const int64_t r0 = rows * kBlockRows, r1 = least(r0 + kBlockRows, p.s_q);
          const Tile kind = classify(p, columns, b, h, r0, r1, block);
          if (kind == Tile::kSkip) continue;
          const int64_t n = r1 - r0;
          multiply_tile(n, count, p.d, q_left.at(bh, rows), k_transposed.at(kv, block), tile);
          multiply_tile(n, count, p.d_v, dout_left.at(bh, rows), v_transposed.at(kv, block), ds);
          for (int64_t i = 0; i < n; ++i)
            differentiate_row(kind, b, h, bh, r0 + i, c0, count, tile + i * kTileRow,
                              ds + i * kTileRow);
          add_transposed_tile_product(count, p.d_v, n, tile, dout_right.at(bh, rows), dv, dv_row);
          add_transposed_tile_product(count, p.d, n, ds, q_right.at(bh, rows), dk, d_row);
          add_tile_product(n, p.d, count, ds, k_right.at(kv, block), dq_row(chunk, bh, r0), d_row);
        }
      }
      write_keys(p.dk, kv, c0, count, dk, d_row, p.d, static_cast<A>(p.scale));
      write_keys(p.dv, kv, c0, count, dv, dv_row, p.d_v, A{1});
    }
    return true;
  }

  // Raw scores become probabilities, dP becomes dS.
  void differentiate_row(Tile kind, int64_t b, int64_t h, int64_t bh, int64_t row, int64_t c0,
                         int64_t count, A* scores, A* ds) {
    const A scale = static_cast<A>(p.scale), softcap = static_cast<A>(p.softcap);
    const int64_t padded = ceil_div(count, kLanes<A>) * kLanes<A>;
    const A stored = static_cast<const A*>(
        p.lse.data)[b * p.lse.stride[0] + h * p.lse.stride[1] + row * p.lse.stride[2]];
    // A row that saw no key has probabilities of zero (NUM-006).
    const vec<A> lse = splat(stored == A(-INFINITY) ? A(INFINITY) : stored);
    const vec<A> by = splat(delta[bh * p.s_q + row]);
    alignas(64) A slope[kBlockKeys];
    if (softcap != 0) {
      for (int64_t j = 0; j < padded; j += kLanes<A>) {
        vec<A> t = vtanh(load(scores + j) * scale / softcap);
        store(slope + j, A{1} - t * t);
        store(scores + j, softcap * t);
      }
    } else if (kind == Tile::kPartial) {
      for (int64_t j = 0; j < padded; j += kLanes<A>) store(scores + j, load(scores + j) * scale);
    }
    if (kind == Tile::kPartial) mask_row(p, columns, b, h, row, c0, count, scores);
    const bool scaled = softcap != 0 || kind == Tile::kPartial;
    for (int64_t j = 0; j < padded; j += kLanes<A>) {
      vec<A> s = load(scores + j);
      if (!scaled) s = s * scale;
      vec<A> probability = vexp(s - lse);
      vec<A> gradient = probability * (load(ds + j) - by);
      if (softcap != 0) gradient = gradient * load(slope + j);
      // Zero times a NaN or an infinity of a hidden key must stay zero.
      gradient = probability == A{0} ? vec<A>{} : gradient;
      store(scores + j, probability);
      store(ds + j, gradient);
    }
  }

  void write_keys(const View4& to, int64_t kv, int64_t c0, int64_t count, A* sums, int64_t row,
                  int64_t size, A factor) {
    if (to.data == nullptr) return;
    const int64_t base = kv / p.kv_heads * to.stride[0] + kv % p.kv_heads * to.stride[1];
    for (int64_t j = 0; j < count; ++j) {
      A* sum = sums + j * row;
      for (int64_t c = 0; c < row; c += kLanes<A>) store(sum + c, load(sum + c) * factor);
      write_row(p.dtype, to.data, base + (c0 + j) * to.stride[2], to.stride[3], size, sum);
    }
  }

  void write_dq(int64_t task) {
    const int64_t bh = task / row_blocks, block = task % row_blocks;
    const int64_t end = least((block + 1) * kBlockRows, p.s_q);
    const A scale = static_cast<A>(p.scale);
    for (int64_t r = block * kBlockRows; r < end; ++r) {
      A* sum = dq_row(0, bh, r);
      for (int64_t chunk = 1; chunk < chunks; ++chunk) {
        const A* part = dq_row(chunk, bh, r);
        for (int64_t c = 0; c < d_row; c += kLanes<A>)
          store(sum + c, load(sum + c) + load(part + c));
      }
      for (int64_t c = 0; c < d_row; c += kLanes<A>) store(sum + c, load(sum + c) * scale);
      const int64_t* stride = p.dq.stride;
      write_row(p.dtype, p.dq.data,
                bh / p.heads * stride[0] + bh % p.heads * stride[1] + r * stride[2], stride[3], p.d,
                sum);
    }
  }
};

}  // namespace

bool attention_backward(const AttentionProblem& p) {
  switch (p.dtype) {
    case CHIPSET_DTYPE_F16:
      return Backward<f16>(p).run();
    case CHIPSET_DTYPE_BF16:
      return Backward<bf16>(p).run();
    case CHIPSET_DTYPE_F32:
      return Backward<float>(p).run();
    default:
      return Backward<double>(p).run();
  }
}

}  // namespace chipset::cpu::CPU_ISA
