// SPDX-License-Identifier: Apache-2.0
// Attention from gemm, reduce and pointwise over a stored score matrix: right, but O(Sq*Sk) memory.
//
// Everything is in F32 (F64 for F64). Scores are [B, Hkv, R, Sq, Sk] with R = H / Hkv query heads
// for each key head, so that masks given per query head, per key head or once all broadcast.
#include <limits>

#include "composed.h"
#include "steps.h"

namespace chipset::runtime {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Problem {
  std::int64_t batch, heads, kv_heads, repeat, queries, keys, depth, value_depth;
  std::int32_t w;
  Shape scores() const { return {batch, kv_heads, repeat, queries, keys}; }
  Shape rows() const { return {batch, kv_heads, repeat, queries, 1}; }
  std::int64_t flat() const { return batch * heads; }
};

Problem problem_of(const chipset_attention_args* a) {
  const Tensor& q = *a->q;
  const Tensor& k = *a->k;
  return {q.shape[0], q.shape[1],     k.shape[1],   q.shape[1] / k.shape[1], q.shape[2], k.shape[2],
          q.shape[3], a->v->shape[3], wide(q.dtype)};
}

// [B, H, ...] with H = Hkv, H or 1 heads as [B, Hkv or 1, R or 1, ...].
Tensor by_head(const Problem& p, const Tensor& t) {
  if (t.shape[1] == p.heads && p.heads != 1) return split(t, 1, p.kv_heads, p.repeat);
  return unsqueeze(t, 2);
}

// A contiguous F32 copy as [B*H, S, D], key heads repeated for their query heads.
Tensor flatten(Steps& s, const Problem& p, const Tensor& t) {
  const std::int64_t rows = t.shape[2];
  const std::int64_t columns = t.shape[3];
  const Tensor out = s.temporary(p.w, {p.batch, p.kv_heads, p.repeat, rows, columns});
  s.copy(out, by_head(p, t));
  return reshape(out, {p.flat(), rows, columns});
}

// Sets scores to -inf where the condition holds.
void mask_where(Steps& s, const Problem& p, const Tensor& scores, const Tensor& condition) {
  s.pointwise(CHIPSET_POINTWISE_OP_WHERE, scores, {condition, -kInfinity, scores}, p.w);
}

void mask_by_position(Steps& s, const Problem& p, const chipset_attention_args* a,
                      const Tensor& scores) {
  const bool causal = (a->flags & 1) != 0;
  if (!causal && a->window_left < 0 && a->window_right < 0) return;
  const std::int32_t index = CHIPSET_DTYPE_I64;
  const Tensor row = s.temporary(index, {p.queries, 1});
  const Tensor distance = s.temporary(index, {p.queries, p.keys});
  const Tensor hidden = s.temporary(CHIPSET_DTYPE_BOOL, {p.queries, p.keys});
  const Tensor column = s.temporary(index, {p.keys});
  s.pointwise(CHIPSET_POINTWISE_OP_ARANGE, row, {}, index,
              {static_cast<double>(a->causal_offset), 1});
  s.pointwise(CHIPSET_POINTWISE_OP_ARANGE, column, {}, index, {0, 1});
  s.pointwise(CHIPSET_POINTWISE_OP_SUB, distance, {column, row}, index, {1});
  const auto hide = [&](std::int32_t op, std::int64_t limit) {
    s.pointwise(op, hidden, {distance, static_cast<double>(limit)}, index);
    mask_where(s, p, scores, hidden);
  };
  if (causal) hide(CHIPSET_POINTWISE_OP_GT, 0);
  if (a->window_right >= 0) hide(CHIPSET_POINTWISE_OP_GT, a->window_right);
  if (a->window_left >= 0) hide(CHIPSET_POINTWISE_OP_LT, -a->window_left);
}

// FlashMask's columns: rows in [start, end) of each key are hidden.
void mask_by_columns(Steps& s, const Problem& p, const chipset_attention_args* a,
                     const Tensor& scores) {
  if (a->startend_row_indices == nullptr) return;
  const std::int32_t index = CHIPSET_DTYPE_I64;
  const Tensor columns = by_head(p, *a->startend_row_indices);  // [B, Hkv|1, R|1, Sk, n]
  const std::int64_t n = columns.shape[4];
  const bool causal = (a->flags & 1) != 0;
  const Tensor row = s.temporary(index, {p.queries, 1});
  s.pointwise(CHIPSET_POINTWISE_OP_ARANGE, row, {}, index, {0, 1});
  Shape shape = shape_of(columns);
  shape[3] = p.queries;
  shape[4] = p.keys;
  const Tensor hidden = s.temporary(CHIPSET_DTYPE_BOOL, shape);
  const Tensor other = s.temporary(CHIPSET_DTYPE_BOOL, shape);
  const auto bound = [&](std::int64_t which) {  // [.., 1, Sk]
    return transpose(slice(columns, 4, which, 1), 3, 4);
  };
  // start and end are numbers of columns of the tensor; -1: no bound.
  const auto hide = [&](std::int64_t start, std::int64_t end) {
    const Tensor& first = start >= 0 ? hidden : other;
    if (start >= 0) s.pointwise(CHIPSET_POINTWISE_OP_GE, hidden, {row, bound(start)}, index);
    if (end >= 0) s.pointwise(CHIPSET_POINTWISE_OP_LT, other, {row, bound(end)}, index);
    if (start >= 0 && end >= 0)
      s.pointwise(CHIPSET_POINTWISE_OP_LOGICAL_AND, hidden, {hidden, other}, CHIPSET_DTYPE_BOOL);
    mask_where(s, p, scores, first);
  };
  if (causal) {
    hide(0, n == 2 ? 1 : -1);
  } else if (n == 2) {
    hide(0, -1);
    hide(-1, 1);
  } else {
    hide(0, 1);
    hide(2, 3);
  }
}

struct Scores {
  Tensor masked;  // [B, Hkv, R, Sq, Sk]
  Tensor capped;  // before the mask, if there is a cap
};

Scores scores_of(Steps& s, const Problem& p, const chipset_attention_args* a, const Tensor& q,
                 const Tensor& k) {
  const Tensor scores = s.temporary(p.w, p.scores());
  s.gemm(reshape(scores, {p.flat(), p.queries, p.keys}), q, transpose(k, 1, 2), a->scale);
  Scores out{scores, {}};
  if (a->logit_softcap != 0) {
    s.pointwise(CHIPSET_POINTWISE_OP_DIV, scores, {scores, a->logit_softcap}, p.w);
    s.pointwise(CHIPSET_POINTWISE_OP_TANH, scores, {scores}, p.w);
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, scores, {scores, a->logit_softcap}, p.w);
    out.capped = s.temporary(p.w, p.scores());
    s.copy(out.capped, scores);
  }
  if (a->mask != nullptr) {
    const Tensor mask = by_head(p, *a->mask);
    if (mask.dtype == CHIPSET_DTYPE_BOOL)
      s.pointwise(CHIPSET_POINTWISE_OP_WHERE, scores, {mask, scores, -kInfinity}, p.w);
    else
      s.pointwise(CHIPSET_POINTWISE_OP_ADD, scores, {scores, mask}, p.w, {1});
  }
  mask_by_position(s, p, a, scores);
  mask_by_columns(s, p, a, scores);
  return out;
}

// Replaces -inf by 0, so that exp(-inf - it) is 0 and not NaN (NUM-006).
void finite_rows(Steps& s, const Problem& p, const Tensor& row) {
  const Tensor none = s.temporary(CHIPSET_DTYPE_BOOL, p.rows());
  s.pointwise(CHIPSET_POINTWISE_OP_EQ, none, {row, -kInfinity}, p.w);
  s.pointwise(CHIPSET_POINTWISE_OP_WHERE, row, {none, 0.0, row}, p.w);
}

}  // namespace

chipset_status composed(Tag<Fn::attention>, Plugin& plugin, chipset_stream stream,
                        const chipset_attention_args* a) {
  if (empty(*a->out)) return CHIPSET_STATUS_OK;
  Steps s(plugin, stream);
  const Problem p = problem_of(a);
  if (p.keys == 0) {
    s.pointwise(CHIPSET_POINTWISE_OP_FILL, *a->out, {}, p.w, {0});
    if (a->lse != nullptr) s.pointwise(CHIPSET_POINTWISE_OP_FILL, *a->lse, {}, p.w, {-kInfinity});
    return s.status();
  }
  const Tensor q = flatten(s, p, *a->q);
  const Tensor k = flatten(s, p, *a->k);
  const Tensor v = flatten(s, p, *a->v);
  const Tensor scores = scores_of(s, p, a, q, k).masked;
  const Tensor largest = s.temporary(p.w, p.rows());
  const Tensor sum = s.temporary(p.w, p.rows());
  s.reduce(CHIPSET_REDUCE_OP_MAX, largest, scores, {4}, p.w);
  finite_rows(s, p, largest);
  s.pointwise(CHIPSET_POINTWISE_OP_SUB, scores, {scores, largest}, p.w, {1});
  s.pointwise(CHIPSET_POINTWISE_OP_EXP, scores, {scores}, p.w);
  s.reduce(CHIPSET_REDUCE_OP_SUM, sum, scores, {4}, p.w);
  const Tensor lse = s.temporary(p.w, p.rows());
  s.pointwise(CHIPSET_POINTWISE_OP_LOG, lse, {sum}, p.w);
  s.pointwise(CHIPSET_POINTWISE_OP_ADD, lse, {lse, largest}, p.w, {1});
  const Tensor none = s.temporary(CHIPSET_DTYPE_BOOL, p.rows());
  s.pointwise(CHIPSET_POINTWISE_OP_EQ, none, {sum, 0.0}, p.w);
  s.pointwise(CHIPSET_POINTWISE_OP_WHERE, sum, {none, 1.0, sum}, p.w);
  s.pointwise(CHIPSET_POINTWISE_OP_DIV, scores, {scores, sum}, p.w);
  const Tensor out = s.temporary(p.w, {p.flat(), p.queries, p.value_depth});
  s.gemm(out, reshape(scores, {p.flat(), p.queries, p.keys}), v);
  if (a->lse != nullptr) s.copy(*a->lse, reshape(lse, {p.batch, p.heads, p.queries}));
  s.copy(*a->out, reshape(out, {p.batch, p.heads, p.queries, p.value_depth}));
  return s.status();
}

chipset_status composed(Tag<Fn::attention_backward>, Plugin& plugin, chipset_stream stream,
                        const chipset_attention_args* a) {
  Steps s(plugin, stream);
  const Problem p = problem_of(a);
  const auto zero = [&](const Tensor* t) {
    if (t != nullptr) s.pointwise(CHIPSET_POINTWISE_OP_FILL, *t, {}, p.w, {0});
  };
  if (empty(*a->q) || empty(*a->k) || empty(*a->out)) {
    zero(a->dq);
    zero(a->dk);
    zero(a->dv);
    return s.status();
  }
  const Tensor q = flatten(s, p, *a->q);
  const Tensor k = flatten(s, p, *a->k);
  const Tensor v = flatten(s, p, *a->v);
  const Tensor dout = flatten(s, p, *a->dout);
  const Tensor out = flatten(s, p, *a->out);
  const Scores scores = scores_of(s, p, a, q, k);
  const Tensor lse = s.temporary(p.w, p.rows());
  s.copy(reshape(lse, {p.batch, p.heads, p.queries}), *a->lse);
  finite_rows(s, p, lse);
  const Tensor& probability = scores.masked;
  s.pointwise(CHIPSET_POINTWISE_OP_SUB, probability, {probability, lse}, p.w, {1});
  s.pointwise(CHIPSET_POINTWISE_OP_EXP, probability, {probability}, p.w);
  const Tensor flat = reshape(probability, {p.flat(), p.queries, p.keys});

  // Gradients of repeated key heads add up over the query heads that share them.
  const auto give = [&](const Tensor* target, const Tensor& gradient) {
    const std::int64_t columns = gradient.shape[2];
    const Tensor sum = s.temporary(p.w, {p.batch, p.kv_heads, 1, p.keys, columns});
    s.reduce(CHIPSET_REDUCE_OP_SUM, sum,
             reshape(gradient, {p.batch, p.kv_heads, p.repeat, p.keys, columns}), {2}, p.w);
    s.copy(*target, reshape(sum, {p.batch, p.kv_heads, p.keys, columns}));
  };
  const Tensor dv = s.temporary(p.w, {p.flat(), p.keys, p.value_depth});
  if (a->dv != nullptr) s.gemm(dv, transpose(flat, 1, 2), dout);

  // delta = sum(dout * out) per row; dS = P * (dout v^T - delta)
  const Tensor delta = s.temporary(p.w, {p.flat(), p.queries, 1});
  const Tensor product = s.temporary(p.w, shape_of(dout));
  s.pointwise(CHIPSET_POINTWISE_OP_MUL, product, {dout, out}, p.w);
  s.reduce(CHIPSET_REDUCE_OP_SUM, delta, product, {2}, p.w);
  const Tensor ds = s.temporary(p.w, {p.flat(), p.queries, p.keys});
  s.gemm(ds, dout, transpose(v, 1, 2));
  s.pointwise(CHIPSET_POINTWISE_OP_SUB, ds, {ds, delta}, p.w, {1});
  s.pointwise(CHIPSET_POINTWISE_OP_MUL, ds, {ds, flat}, p.w);
  if (a->logit_softcap != 0) {
    // The derivative of c*tanh(x/c) is 1 - (its value/c)^2.
    const Tensor slope = reshape(scores.capped, {p.flat(), p.queries, p.keys});
    s.pointwise(CHIPSET_POINTWISE_OP_DIV, slope, {slope, a->logit_softcap}, p.w);
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, slope, {slope, slope}, p.w);
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, slope, {1.0, slope}, p.w, {1});
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, ds, {ds, slope}, p.w);
  }
  const Tensor dq = s.temporary(p.w, {p.flat(), p.queries, p.depth});
  const Tensor dk = s.temporary(p.w, {p.flat(), p.keys, p.depth});
  if (a->dq != nullptr) s.gemm(dq, ds, k, a->scale);
  if (a->dk != nullptr) s.gemm(dk, transpose(ds, 1, 2), q, a->scale);
  if (a->dq != nullptr) s.copy(*a->dq, reshape(dq, {p.batch, p.heads, p.queries, p.depth}));
  if (a->dk != nullptr) give(a->dk, dk);
  if (a->dv != nullptr) give(a->dv, dv);
  return s.status();
}

}  // namespace chipset::runtime
