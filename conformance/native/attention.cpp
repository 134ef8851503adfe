// SPDX-License-Identifier: Apache-2.0
// Faults of attention, its backward and paged attention.
#include "mutant.h"

namespace chipset::mutants {

namespace {

using Function = chipset_status (*)(chipset_stream, const chipset_attention_args*);

// A slice [at, at + count) of a dimension.
void slice(chipset_tensor& t, int dim, int64_t at, int64_t count) {
  t.data = sdk::address(t, at * t.stride[dim]);
  t.shape[dim] = count;
}

// One call per query head, which reads the key head that `key_head(h)` says.
template <class KeyHead>
chipset_status per_head(Function function, chipset_stream stream, const chipset_attention_args& a,
                        KeyHead key_head) {
  const int64_t heads = a.q->shape[1], key_heads = a.k->shape[1];
  for (int64_t h = 0; h < heads; ++h) {
    chipset_attention_args b = a;
    const int64_t from = key_head(h);
    Edited q(b.q), k(b.k), v(b.v), mask(b.mask), rows(b.startend_row_indices), out(b.out),
        lse(b.lse);
    for (Edited* t : {&q, &out, &lse})
      if (*t) slice(**t, 1, h, 1);
    for (Edited* t : {&k, &v})
      if (*t) slice(**t, 1, from, 1);
    if (mask && mask->shape[1] > 1) slice(*mask, 1, h, 1);
    if (rows && rows->shape[1] == heads)
      slice(*rows, 1, h, 1);
    else if (rows && rows->shape[1] == key_heads)
      slice(*rows, 1, from, 1);
    if (const chipset_status status = function(stream, &b); status != CHIPSET_STATUS_OK)
      return status;
  }
  return CHIPSET_STATUS_OK;
}

// The copies of FlashMask's columns, each value edited.
template <class Edit>
struct EditedRows {
  Copied copy;
  EditedRows(chipset_attention_args& a, Edit edit) : copy(a.startend_row_indices) {
    if (copy) rewrite<int64_t>(*copy, [&](int64_t& v) { edit(v); });
  }
};

// Forward with the log-sum-exp at hand, and `edit(row of out, lse)` for each row.
template <class Edit>
chipset_status with_lse(chipset_stream stream, const chipset_attention_args& given, Edit edit) {
  chipset_attention_args a = given;
  const chipset_tensor& q = *a.q;
  const bool wide = q.dtype == CHIPSET_DTYPE_F64;
  std::vector<double> room(static_cast<std::size_t>(q.shape[0] * q.shape[1] * q.shape[2]) + 1);
  chipset_tensor lse{};
  lse.struct_size = sizeof lse;
  lse.dtype = wide ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_F32;
  lse.rank = 3;
  std::copy_n(q.shape, 3, lse.shape);
  make_contiguous(lse);
  lse.data = room.data();
  if (a.lse == nullptr) a.lse = &lse;
  const chipset_status status = good().attention(stream, &a);
  if (status != CHIPSET_STATUS_OK) return status;
  for (int64_t b = 0; b < q.shape[0]; ++b)
    for (int64_t h = 0; h < q.shape[1]; ++h)
      for (int64_t s = 0; s < q.shape[2]; ++s) {
        double value;
        const int64_t at = b * a.lse->stride[0] + h * a.lse->stride[1] + s * a.lse->stride[2];
        sdk::loops::load(&value, sdk::address(*a.lse, at), a.lse->dtype, 1, 1);
        chipset_tensor row = *a.out;
        row.data = sdk::address(row, b * row.stride[0] + h * row.stride[1] + s * row.stride[2]);
        row.rank = 1;
        row.shape[0] = a.out->shape[3];
        row.stride[0] = a.out->stride[3];
        edit(row, value);
      }
  return status;
}

}  // namespace

void add_attention(List& list) {
#define EDIT(name, fault, ...) \
  CHIPSET_MUTANT("attention-" name, attention, attention_args, fault, __VA_ARGS__)
#define AFTER(name, fault, ...) \
  CHIPSET_MUTANT_AFTER("attention-" name, attention, attention_args, fault, __VA_ARGS__)
#define INSTEAD(name, fault, ...) \
  CHIPSET_MUTANT_INSTEAD("attention-" name, attention, attention_args, fault, __VA_ARGS__)

  EDIT("fixed-scale", "the scale is always 1/sqrt(D)",
       a.scale = 1 / std::sqrt(static_cast<double>(a.q->shape[3])););
  EDIT("causal-top-left", "causal masks are aligned top left", a.causal_offset = 0;);
  EDIT("causal-ignored", "the causal flag is ignored", a.flags &= ~1u;);
  EDIT("causal-off-by-one", "a causal row does not see its own key", a.causal_offset -= 1;);
  EDIT("window-off-by-one", "a sliding window is one key too short",
       if (a.window_left > 0)-- a.window_left;);
  EDIT("window-ignored", "the sliding window is ignored", a.window_left = a.window_right = -1;);
  EDIT("window-right-ignored", "the right side of a window is ignored", a.window_right = -1;);
  EDIT("softcap-ignored", "the logit soft cap is ignored", a.logit_softcap = 0;);
  EDIT("mask-ignored", "the mask is ignored", a.mask = nullptr;);
  EDIT("bool-mask-inverted", "a bool mask hides what it should show", Copied mask(a.mask);
       if (mask && mask->dtype == CHIPSET_DTYPE_BOOL)
           rewrite<int64_t>(*mask, [](int64_t& v) { v = !v; }););
  EDIT("float-mask-scaled", "an additive mask is multiplied by the scale", Copied mask(a.mask);
       if (mask && mask->dtype != CHIPSET_DTYPE_BOOL)
           rewrite<double>(*mask, [&](double& v) { v *= a.scale; }););
  EDIT("mask-of-the-first-batch", "every batch has the mask of the first", Edited mask(a.mask);
       if (mask) mask->stride[0] = 0;);
  INSTEAD("wrong-key-heads", "query head h reads key head h mod Hkv",
          const int64_t key_heads = a.k->shape[1];
          if (a.q->shape[1] == key_heads) return good().attention(stream, given);
          return per_head(good().attention, stream, a, [=](int64_t h) { return h % key_heads; }););
  INSTEAD("first-key-head-for-all", "every query head reads key head 0",
          if (a.q->shape[1] == a.k->shape[1]) return good().attention(stream, given);
          return per_head(good().attention, stream, a, [](int64_t) { return int64_t{0}; }););
  INSTEAD("masked-rows-average", "a row that sees nothing is not zero",
          return with_lse(stream, a, [](chipset_tensor& row, double lse) {
            if (std::isinf(lse) && lse < 0) rewrite<float>(row, [](float& v) { v = 0.25f; });
          }););
  INSTEAD("masked-rows-nan", "a row that sees nothing is NaN",
          return with_lse(stream, a, [](chipset_tensor& row, double lse) {
            if (std::isinf(lse) && lse < 0)
              rewrite<float>(row, [](float& v) { v = std::nanf(""); });
          }););
  AFTER("lse-in-base-2", "the log-sum-exp is in base 2",
        if (a.lse != nullptr) rewrite<double>(*a.lse, [](double& v) { v *= 1.4426950408889634; }););
  AFTER("lse-of-masked-rows", "the log-sum-exp of a row that sees nothing is the lowest number",
        if (a.lse != nullptr) rewrite<double>(*a.lse, [](double& v) {
          if (v == -std::numeric_limits<double>::infinity()) v = -3e38;
        }););
  EDIT("flashmask-ignored", "FlashMask's columns are ignored", a.startend_row_indices = nullptr;);
  EDIT("flashmask-off-by-one", "a FlashMask interval begins one row late",
       EditedRows rows(a, [](int64_t& v) { ++v; }););
  EDIT("tile-skipped-early", "a tile is skipped although one of its rows is live",
       EditedRows rows(a, [](int64_t& v) { v -= v % 16; }););
  EDIT("flashmask-first-head", "every head has the FlashMask of the first",
       Edited rows(a.startend_row_indices);
       if (rows) rows->stride[1] = 0;);
  INSTEAD("last-key-block-dropped", "keys beyond a multiple of 64 are left out",
          chipset_attention_args b = a;
          Edited k(b.k); Edited v(b.v); const int64_t whole = k->shape[2] / 64 * 64;
          if (whole == 0 || whole == k->shape[2] || b.mask != nullptr ||
              b.startend_row_indices != nullptr) return good()
              .attention(stream, given);
          k->shape[2] = v->shape[2] = whole; return good().attention(stream, &b););
  EDIT("ignores-value-strides", "v is read as if it were contiguous", Edited v(a.v);
       make_contiguous(*v););

  // ---- backward
#define BACK(name, fault, ...) \
  CHIPSET_MUTANT("attention-backward-" name, attention_backward, attention_args, fault, __VA_ARGS__)
#define BACK_AFTER(name, fault, ...)                                                          \
  CHIPSET_MUTANT_AFTER("attention-backward-" name, attention_backward, attention_args, fault, \
                       __VA_ARGS__)
  BACK("ignores-window", "the sliding window is ignored", a.window_left = a.window_right = -1;);
  BACK("ignores-causal", "the causal flag is ignored", a.flags &= ~1u;);
  BACK("ignores-softcap", "the logit soft cap is ignored", a.logit_softcap = 0;);
  BACK("ignores-mask", "the mask is ignored", a.mask = nullptr;);
  BACK("ignores-flashmask", "FlashMask's columns are ignored", a.startend_row_indices = nullptr;);
  BACK_AFTER("dq-unscaled", "dq lacks the scale",
             if (a.dq != nullptr && a.scale != 0)
                 rewrite<double>(*a.dq, [&](double& v) { v /= a.scale; }););
  BACK_AFTER("dk-unscaled", "dk has the scale twice",
             if (a.dk != nullptr) rewrite<double>(*a.dk, [&](double& v) { v *= a.scale; }););
  BACK_AFTER("dv-not-written", "dv is zero",
             if (a.dv != nullptr) rewrite<double>(*a.dv, [](double& v) { v = 0; }););
  BACK_AFTER("masked-rows-nan", "the gradient of a row that sees nothing is NaN",
             if (a.dq != nullptr) rewrite<double>(*a.dq, [](double& v) {
               if (v == 0) v = std::nan("");
             }););
  CHIPSET_MUTANT_INSTEAD(
      "attention-backward-one-head-of-a-group", attention_backward, attention_args,
      "dk and dv hold the part of one query head of each group",
      const int64_t heads = a.q->shape[1];
      const int64_t group = heads / std::max<int64_t>(1, a.k->shape[1]);
      if (group < 2 || a.mask != nullptr || a.startend_row_indices != nullptr) return good()
          .attention_backward(stream, given);
      const chipset_status status = good().attention_backward(stream, given);
      if (status != CHIPSET_STATUS_OK) return status; chipset_attention_args b = a; Edited q(b.q);
      Edited out(b.out); Edited lse(b.lse); Edited dout(b.dout);
      for (Edited* t : {&q, &out, &lse, &dout}) {
        (*t)->shape[1] /= group;
        (*t)->stride[1] *= group;
      } b.dq = nullptr;
      return good().attention_backward(stream, &b););

  // ---- paged
#define PAGED(name, fault, ...) \
  CHIPSET_MUTANT("attention-paged-" name, attention_paged, attention_paged_args, fault, __VA_ARGS__)
  PAGED("ignores-block-table", "blocks are read in the order of the cache",
        Copied table(a.block_table);
        int64_t next = 0; rewrite<int64_t>(
            *table, [&](int64_t& v) { v = std::min(next++, a.k_cache->shape[0] - 1); }););
  PAGED("one-key-short", "the newest key is not seen", Copied length(a.kv_len);
        rewrite<int64_t>(*length, [](int64_t& v) { v -= v > 1; }););
  PAGED("window-ignored", "the sliding window is ignored", a.window_left = -1;);
  PAGED("softcap-ignored", "the logit soft cap is ignored", a.logit_softcap = 0;);
  PAGED("scale-ignored", "the scale is taken for 1", a.scale = 1;);
#undef EDIT
#undef AFTER
#undef INSTEAD
#undef BACK
#undef BACK_AFTER
#undef PAGED
}

}  // namespace chipset::mutants
