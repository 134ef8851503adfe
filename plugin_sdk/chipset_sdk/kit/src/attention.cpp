// SPDX-License-Identifier: Apache-2.0
// Attention, forward and backward, and over a paged cache: sizes of tiles, checks and launches.
#include "chipset_sdk/check.hpp"
#include "source.h"

namespace chipset::kit {
namespace {

constexpr int64_t kFar = int64_t{1} << 40;  // no limit on what a query sees

// As in attention.h.
struct Problem {
  int64_t batch, heads, kv_heads, s_q, s_k, stack;
  int64_t offset, left, upper;
  int64_t q[4], k[4], v[4], out[4], lse[3], mask[4], columns[4];
  int64_t dout[4], dq[4], dk[4], dv[4];
  int64_t column_heads, column_count, causal;
  int64_t splits, split_keys;
};

struct Tile {
  int rows, keys;     // queries and keys
  int register_rows;  // of a register tile, one vector wide
};

enum Pass { kForward, kJoin, kDelta, kDq, kDkv, kPaged, kPagedJoin };
constexpr struct {
  const char *name, *file;
} kPasses[] = {
    {"attention", "attention.c"},
    {"attention_join", "attention.c"},
    {"attention_delta", "attention_backward.c"},
    {"attention_dq", "attention_backward.c"},
    {"attention_dkv", "attention_backward.c"},
    {"attention", "attention.c"},
    {"attention_join", "attention.c"},
};

// Bytes of local memory of a pass.
uint64_t local_bytes(Pass pass, const Tile& tile, int64_t d, int64_t d_v, int64_t element) {
  const int64_t wide = std::max(d, d_v), square = int64_t{tile.rows} * tile.keys;
  const int64_t both = d + d_v;
  int64_t count = 0;
  if (pass == kDq)
    count = tile.rows * (2 * d + d_v) + tile.keys * wide + 2 * square;
  else if (pass == kDkv)
    count = tile.rows * both + 2 * tile.keys * both + 2 * square;
  else if (pass == kForward || pass == kPaged)
    count = tile.rows * (both + 2) + tile.keys * wide + square;
  return static_cast<uint64_t>(count * element + 16 * tile.keys);
}

// The largest tile that the device has local memory for.
Tile choose_tile(const Traits& traits, Pass pass, int64_t rows, int64_t d, int64_t d_v,
                 int64_t element) {
  const int64_t padded = element == 8 ? 8 : 16;
  d = ceil_div(d, padded) * padded, d_v = ceil_div(d_v, padded) * padded;
  static constexpr Tile kProcessor[] = {{64, 64, 8}, {32, 32, 8}, {16, 16, 8}};
  static constexpr Tile kFew{4, 64, 4};
  static constexpr Tile kOthers[] = {{64, 32, 4}, {32, 32, 4}, {16, 32, 4},
                                     {16, 16, 4}, {8, 16, 4},  {4, 8, 4}};
  const auto fits = [&](const Tile& tile) {
    return local_bytes(pass, tile, d, d_v, element) <= traits.local_memory;
  };
  if (traits.is_cpu && rows <= kFew.rows && fits(kFew)) return kFew;
  if (traits.is_cpu)
    for (const Tile& tile : kProcessor)
      if (fits(tile)) return tile;
  for (const Tile& tile : kOthers)
    if (fits(tile)) return tile;
  unsupported("attention of depths " + std::to_string(d) + " and " + std::to_string(d_v) +
              ": a tile does not fit into " + std::to_string(traits.local_memory) +
              " bytes of local memory");
}

struct Attention {
  Kit& kit;
  chipset_stream stream;
  int32_t dtype, mask_dtype;  // mask_dtype -1: none
  int64_t d, d_v;
  double scale, cap;
  Problem p;

  char held() const { return dtype == CHIPSET_DTYPE_F64 ? 'd' : 'f'; }
  int64_t element() const { return held() == 'd' ? 8 : 4; }
  int width() const { return vector_width(kit.traits(), held() == 'd' ? 8 : 4); }
  uint32_t lanes() const { return static_cast<uint32_t>(group_lanes(kit.traits(), 64)); }
  // Elements of a row's part: the padded sums, the maximum and the total.
  int64_t part() const { return ceil_div(d_v, width()) * width() + 2; }

  Launch launch(Pass pass, const Tile& tile) const {
    const bool paged = pass == kPaged || pass == kPagedJoin;
    const int mask = mask_dtype < 0 ? 0 : mask_dtype == CHIPSET_DTYPE_BOOL ? 1 : 2;
    const Signature signature{kAttention, pass,    dtype,   mask_dtype + 1, tile.rows,
                              tile.keys,  d % 256, d / 256, d_v % 256,      d_v / 256};
    void* kernel = kit.kernel(signature, kPasses[pass].name, [&] {
      Source source(kit.traits(), width(), static_cast<int>(lanes()));
      source.define("C", std::string(1, held())).file("compute.h");
      source.operand("X", dtype).operand("M", mask_dtype < 0 ? dtype : mask_dtype);
      source.define("HAS_MASK", mask).define("PAGED", paged);
      source.define("BR", tile.rows).define("BC", tile.keys).define("MR", tile.register_rows);
      source.define("D", d).define("DV", d_v);
      if (width() > 1) source.file("turn.h");
      return source.file("attention.h").file(kPasses[pass].file).take();
    });
    return Launch(kit.backend(), stream, kernel);
  }
  // Parts of the keys that groups of their own take, so that few queries fill the device.
  void split(const Tile& tile, int64_t groups, int64_t keys) {
    const Traits& traits = kit.traits();
    const int64_t wanted = int64_t{traits.compute_units} * (traits.is_cpu ? 4 : 8);
    const int64_t least = traits.is_cpu ? 4 : 1;  // tiles of keys that are worth a group
    const int64_t blocks = std::max<int64_t>(1, ceil_div(keys, tile.keys));
    const int64_t most = std::max<int64_t>(1, blocks / least);
    const int64_t splits = std::clamp<int64_t>(wanted / std::max<int64_t>(groups, 1), 1, most);
    const int64_t each = ceil_div(blocks, splits);
    p.split_keys = each * tile.keys;
    p.splits = ceil_div(blocks, each);
  }
};

void strides_of(const chipset_tensor* t, int64_t* stride) {
  for (int i = 0; t != nullptr && i < t->rank; ++i) stride[i] = t->shape[i] == 1 ? 0 : t->stride[i];
  if (t != nullptr && t->rank == 4 && t->shape[3] == 1) stride[3] = 1;
}

void need_shape(const char* function, const char* name, const chipset_tensor* t,
                std::initializer_list<int64_t> shape, int32_t dtype) {
  sdk::check_tensor(name, t);
  if (t->rank != static_cast<int>(shape.size()) ||
      !std::equal(shape.begin(), shape.end(), t->shape)) {
    chipset_tensor need = *t;
    need.rank = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), need.shape);
    fail(CHIPSET_STATUS_INVALID, "%s: %s has shape %s; need %s", function, name,
         sdk::shape_text(*t).c_str(), sdk::shape_text(need).c_str());
  }
  if (t->dtype != dtype)
    unsupported(std::string(function) + ": " + name + " is " + sdk::dtype_name(t->dtype) +
                "; need " + sdk::dtype_name(dtype));
}

void check_columns(const char* function, const chipset_attention_args& a) {
  const chipset_tensor& c = *a.startend_row_indices;
  sdk::check_tensor("startend_row_indices", &c);
  const int64_t heads = c.rank == 4 ? c.shape[1] : 0, n = c.rank == 4 ? c.shape[3] : 0;
  const bool legal_heads = heads == 1 || heads == a.q->shape[1] || heads == a.k->shape[1];
  const bool legal_n = a.flags & 1 ? n == 1 || n == 2 : n == 2 || n == 4;
  if (c.rank != 4 || c.shape[0] != a.q->shape[0] || c.shape[2] != a.k->shape[2] || !legal_heads ||
      !legal_n)
    fail(
        CHIPSET_STATUS_INVALID,
        "%s: startend_row_indices has shape %s; need [B, H or Hkv or 1, Sk, %s] with q %s and k %s",
        function, sdk::shape_text(c).c_str(), a.flags & 1 ? "1 or 2" : "2 or 4",
        sdk::shape_text(*a.q).c_str(), sdk::shape_text(*a.k).c_str());
  if (c.dtype != CHIPSET_DTYPE_I32)
    unsupported(std::string(function) + ": startend_row_indices is " + sdk::dtype_name(c.dtype) +
                "; need i32");
}

// Checks the arguments and takes the tensors apart.
Attention prepare(Kit& kit, chipset_stream stream, const chipset_attention_args& a,
                  const char* function, bool backward) {
  for (const chipset_tensor* t : {a.q, a.k, a.v}) sdk::check_tensor("q, k or v", t);
  need_float(kit.traits(), function, a.q->dtype);
  const chipset_tensor &q = *a.q, &k = *a.k, &v = *a.v;
  if (q.rank != 4 || k.rank != 4 || v.rank != 4)
    fail(CHIPSET_STATUS_INVALID,
         "%s: q %s, k %s, v %s; need [B,H,Sq,D], [B,Hkv,Sk,D], [B,Hkv,Sk,Dv]", function,
         sdk::shape_text(q).c_str(), sdk::shape_text(k).c_str(), sdk::shape_text(v).c_str());
  const int64_t batch = q.shape[0], heads = q.shape[1], s_q = q.shape[2], d = q.shape[3];
  const int64_t kv_heads = k.shape[1], s_k = k.shape[2], d_v = v.shape[3];
  if (kv_heads == 0 || heads % kv_heads != 0)
    fail(CHIPSET_STATUS_INVALID, "%s: %lld query heads are no multiple of %lld key heads", function,
         static_cast<long long>(heads), static_cast<long long>(kv_heads));
  const int32_t wide = q.dtype == CHIPSET_DTYPE_F64 ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_F32;
  need_shape(function, "k", a.k, {batch, kv_heads, s_k, d}, q.dtype);
  need_shape(function, "v", a.v, {batch, kv_heads, s_k, d_v}, q.dtype);
  need_shape(function, "out", a.out, {batch, heads, s_q, d_v}, q.dtype);
  if (backward || a.lse != nullptr) need_shape(function, "lse", a.lse, {batch, heads, s_q}, wide);
  if (a.mask != nullptr) {
    const int32_t m = a.mask->dtype;
    if (m != CHIPSET_DTYPE_BOOL && m != q.dtype && m != CHIPSET_DTYPE_F32)
      unsupported(std::string(function) + ": mask is " + sdk::dtype_name(m) +
                  "; need bool, f32 or " + sdk::dtype_name(q.dtype));
    need_shape(function, "mask", a.mask, {batch, heads, s_q, s_k}, m);
  }
  if (a.startend_row_indices != nullptr) check_columns(function, a);
  if (!backward) sdk::check_output("out", a.out);

  Problem p = {};
  p.batch = batch, p.heads = heads, p.kv_heads = kv_heads, p.s_q = s_q, p.s_k = s_k;
  p.causal = a.flags & 1;
  p.offset = a.causal_offset;
  p.left = a.window_left >= 0 ? a.window_left : kFar;
  p.upper = a.window_right >= 0 ? a.window_right : kFar;
  if (p.causal) p.upper = 0;
  strides_of(a.q, p.q), strides_of(a.k, p.k), strides_of(a.v, p.v), strides_of(a.out, p.out);
  strides_of(a.lse, p.lse), strides_of(a.mask, p.mask);
  strides_of(a.startend_row_indices, p.columns);
  if (a.startend_row_indices != nullptr) {
    p.column_heads = a.startend_row_indices->shape[1];
    p.column_count = a.startend_row_indices->shape[3];
  }
  // Columns of its own keep a head from sharing tiles.
  p.stack = p.column_heads > kv_heads ? 1 : heads / kv_heads;
  p.splits = 1, p.split_keys = std::max<int64_t>(s_k, 1);
  return {kit,     stream,          q.dtype, a.mask != nullptr ? a.mask->dtype : -1, d, d_v,
          a.scale, a.logit_softcap, p};
}

}  // namespace

void Kit::attention(chipset_stream stream, const chipset_attention_args& args) {
  Attention a = prepare(*this, stream, args, "attention", false);
  Problem& p = a.p;
  if (p.batch == 0 || p.heads == 0 || p.s_q == 0) return;
  const Tile tile = choose_tile(traits_, kForward, p.s_q * p.stack, a.d, a.d_v, a.element());
  const int64_t tiles = ceil_div(p.s_q * p.stack, tile.rows);
  const int64_t groups = p.batch * p.heads / p.stack * tiles;
  a.split(tile, groups, p.s_k);
  const int64_t rows = p.batch * p.heads * p.s_q;
  void* parts = nullptr;
  if (p.splits > 1)
    parts =
        backend_.scratch(stream, static_cast<uint64_t>(rows * p.splits * a.part() * a.element()));
  const void* any = args.out->data != nullptr ? args.out->data : args.q->data;
  const auto data = [&](const chipset_tensor* t) {
    return t != nullptr && t->data != nullptr ? static_cast<const void*>(t->data) : any;
  };
  const bool has_lse = args.lse != nullptr;
  a.launch(kForward, tile)
      .address(data(args.q))
      .address(data(args.k))
      .address(data(args.v))
      .address(data(args.mask))
      .address(data(args.startend_row_indices))
      .address(data(args.out))
      .address(data(args.lse))
      .address(parts != nullptr ? parts : any)
      .value(p)
      .i64(tiles)
      .i32(args.startend_row_indices != nullptr)
      .i32(has_lse)
      .real(a.held(), a.scale)
      .real(a.held(), a.cap)
      .run({static_cast<uint32_t>(groups * p.splits)}, a.lanes());
  if (p.splits == 1) return;
  a.launch(kJoin, tile)
      .address(parts)
      .address(data(args.out))
      .address(data(args.lse))
      .value(p)
      .i64(rows)
      .i32(has_lse)
      .run({group_count(traits_, ceil_div(rows, a.lanes()), p.splits * a.part())}, a.lanes());
}

void Kit::attention_backward(chipset_stream stream, const chipset_attention_args& args) {
  const char* const name = "attention_backward";
  Attention a = prepare(*this, stream, args, name, true);
  Problem& p = a.p;
  need_shape(name, "dout", args.dout, {p.batch, p.heads, p.s_q, a.d_v}, a.dtype);
  if (args.dq != nullptr) need_shape(name, "dq", args.dq, {p.batch, p.heads, p.s_q, a.d}, a.dtype);
  if (args.dk != nullptr)
    need_shape(name, "dk", args.dk, {p.batch, p.kv_heads, p.s_k, a.d}, a.dtype);
  if (args.dv != nullptr)
    need_shape(name, "dv", args.dv, {p.batch, p.kv_heads, p.s_k, a.d_v}, a.dtype);
  for (const chipset_tensor* t : {args.dq, args.dk, args.dv})
    if (t != nullptr) sdk::check_output("a gradient", t);
  strides_of(args.dout, p.dout), strides_of(args.dq, p.dq);
  strides_of(args.dk, p.dk), strides_of(args.dv, p.dv);
  if (p.batch == 0 || p.heads == 0) return;
  const int64_t rows = p.batch * p.heads * p.s_q;
  void* delta = backend_.scratch(stream, static_cast<uint64_t>((rows + 1) * a.element()));
  const auto data = [&](const chipset_tensor* t) {
    return t != nullptr && t->data != nullptr ? static_cast<const void*>(t->data) : delta;
  };
  const Tile dq_tile = choose_tile(traits_, kDq, p.s_q * p.stack, a.d, a.d_v, a.element());
  const Tile dkv_tile = choose_tile(traits_, kDkv, p.s_q * p.stack, a.d, a.d_v, a.element());
  if (rows > 0)
    a.launch(kDelta, dq_tile)
        .address(data(args.out))
        .address(data(args.dout))
        .address(delta)
        .value(p)
        .i64(rows)
        .run({group_count(traits_, ceil_div(rows, a.lanes()), 2 * a.d_v)}, a.lanes());
  const auto inputs = [&](Launch launch) {
    launch.address(data(args.q)).address(data(args.k)).address(data(args.v));
    launch.address(data(args.dout)).address(data(args.lse)).address(delta);
    launch.address(data(args.mask)).address(data(args.startend_row_indices));
    return launch;
  };
  const bool has_columns = args.startend_row_indices != nullptr;
  if (args.dq != nullptr && rows > 0) {
    const int64_t tiles = ceil_div(p.s_q * p.stack, dq_tile.rows);
    inputs(a.launch(kDq, dq_tile))
        .address(data(args.dq))
        .value(p)
        .i64(tiles)
        .i32(has_columns)
        .real(a.held(), a.scale)
        .real(a.held(), a.cap)
        .run({static_cast<uint32_t>(p.batch * p.heads / p.stack * tiles)}, a.lanes());
  }
  if ((args.dk == nullptr && args.dv == nullptr) || p.s_k == 0) return;
  const int64_t tiles = ceil_div(p.s_k, dkv_tile.keys);
  inputs(a.launch(kDkv, dkv_tile))
      .address(data(args.dk))
      .address(data(args.dv))
      .value(p)
      .i64(tiles)
      .i32(has_columns)
      .i32((args.dk != nullptr ? 1 : 0) | (args.dv != nullptr ? 2 : 0))
      .real(a.held(), a.scale)
      .real(a.held(), a.cap)
      .run({static_cast<uint32_t>(p.batch * p.kv_heads * tiles)}, a.lanes());
}

void Kit::attention_paged(chipset_stream stream, const chipset_attention_paged_args& args) {
  const char* const name = "attention_paged";
  sdk::check_tensor("q", args.q);
  need_float(traits_, name, args.q->dtype);
  if (args.q->rank != 3)
    fail(CHIPSET_STATUS_INVALID, "%s: q has shape %s; need [T,H,D]", name,
         sdk::shape_text(*args.q).c_str());
  sdk::check_tensor("k_cache", args.k_cache);
  sdk::check_tensor("kv_len", args.kv_len);
  const chipset_tensor &q = *args.q, &cache = *args.k_cache;
  const int64_t tokens = q.shape[0], heads = q.shape[1], d = q.shape[2];
  if (cache.rank != 4 || cache.shape[1] < 1 || cache.shape[2] < 1 || heads % cache.shape[2] != 0)
    fail(CHIPSET_STATUS_INVALID,
         "%s: k_cache has shape %s; need [blocks, block_size, Hkv, D] for q of shape %s, with H a "
         "multiple of Hkv",
         name, sdk::shape_text(cache).c_str(), sdk::shape_text(q).c_str());
  const int64_t blocks = cache.shape[0], block = cache.shape[1], kv_heads = cache.shape[2];
  need_shape(name, "k_cache", args.k_cache, {blocks, block, kv_heads, d}, q.dtype);
  need_shape(name, "v_cache", args.v_cache, {blocks, block, kv_heads, d}, q.dtype);
  need_shape(name, "out", args.out, {tokens, heads, d}, q.dtype);
  sdk::check_output("out", args.out);
  const int64_t sequences = args.kv_len->rank == 1 ? args.kv_len->shape[0] : -1;
  sdk::check_tensor("block_table", args.block_table);
  const int64_t max_blocks = args.block_table->rank == 2 ? args.block_table->shape[1] : -1;
  need_shape(name, "kv_len", args.kv_len, {sequences}, CHIPSET_DTYPE_I32);
  need_shape(name, "block_table", args.block_table, {sequences, max_blocks}, CHIPSET_DTYPE_I32);
  need_shape(name, "query_start", args.query_start, {sequences + 1}, CHIPSET_DTYPE_I32);
  if (sequences == 0 || sdk::numel(q) == 0) return;

  Problem p = {};
  p.batch = sequences, p.heads = heads, p.kv_heads = kv_heads, p.s_q = tokens;
  p.stack = heads / kv_heads;
  p.left = args.window_left >= 0 ? args.window_left : kFar;
  // Tokens take the place of queries, dimension 2.
  p.q[1] = q.stride[1], p.q[2] = q.stride[0], p.q[3] = d == 1 ? 1 : q.stride[2];
  p.out[1] = args.out->stride[1], p.out[2] = args.out->stride[0];
  p.out[3] = d == 1 ? 1 : args.out->stride[2];
  strides_of(args.k_cache, p.k), strides_of(args.v_cache, p.v);
  Attention a{*this, stream, q.dtype, -1, d, d, args.scale, args.logit_softcap, p};
  const int64_t most = std::clamp<int64_t>(args.max_query, 1, tokens) * p.stack;
  const Tile tile = choose_tile(traits_, kPaged, most, d, d, a.element());
  const int64_t tiles = ceil_div(most, tile.rows), groups = sequences * kv_heads * tiles;
  a.split(tile, groups, block * max_blocks);
  const int64_t rows = tokens * heads;
  void* parts = nullptr;
  if (a.p.splits > 1)
    parts =
        backend_.scratch(stream, static_cast<uint64_t>(rows * a.p.splits * a.part() * a.element()));
  const void* any = args.out->data;
  const auto step = [](const chipset_tensor* t) { return t->shape[0] > 1 ? t->stride[0] : 0; };
  a.launch(kPaged, tile)
      .address(args.block_table->data != nullptr ? args.block_table->data : any)
      .address(args.query_start)
      .address(args.kv_len)
      .address(backend_.fault_word(stream))
      .i64(step(args.block_table))
      .i64(max_blocks > 1 ? args.block_table->stride[1] : 0)
      .i64(step(args.query_start))
      .i64(step(args.kv_len))
      .i64(block)
      .i64(blocks)
      .i64(max_blocks)
      .address(args.q)
      .address(cache.data != nullptr ? cache.data : any)
      .address(args.v_cache->data != nullptr ? args.v_cache->data : any)
      .address(any)
      .address(any)
      .address(args.out)
      .address(any)
      .address(parts != nullptr ? parts : any)
      .value(a.p)
      .i64(tiles)
      .i32(0)
      .i32(0)
      .real(a.held(), a.scale)
      .real(a.held(), a.cap)
      .run({static_cast<uint32_t>(groups * a.p.splits)}, a.lanes());
  if (a.p.splits == 1) return;
  a.launch(kPagedJoin, tile)
      .address(args.query_start)
      .i64(step(args.query_start))
      .address(parts)
      .address(args.out)
      .address(any)
      .value(a.p)
      .i64(rows)
      .i32(0)
      .run({group_count(traits_, ceil_div(rows, a.lanes()), a.p.splits * a.part())}, a.lanes());
}

}  // namespace chipset::kit
