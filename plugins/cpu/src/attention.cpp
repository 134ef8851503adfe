// SPDX-License-Identifier: Apache-2.0
// attention and attention_backward: checks the arguments and takes the tensors apart.
#include "attention.h"

#include <initializer_list>

#include "check.h"
#include "dispatch.h"
#include "functions.h"

namespace chipset::cpu {
namespace {

constexpr uint32_t kCausal = 1;

View4 view(const chipset_tensor* t) {
  View4 v{};
  if (t == nullptr) return v;
  v.data = t->data;
  v.dtype = t->dtype;
  for (int d = 0; d < t->rank; ++d) v.stride[d] = t->shape[d] == 1 ? 0 : t->stride[d];
  if (t->rank == 4 && t->shape[3] == 1) v.stride[3] = 1;
  return v;
}

struct Shape {
  int rank;
  int64_t size[4];
};

chipset_status check_shape(const char* function, const char* name, const chipset_tensor* t,
                           const Shape& shape, int32_t dtype) {
  RETURN_UNLESS_OK(check_tensor(function, name, t));
  bool same = t->rank == shape.rank;
  for (int d = 0; same && d < shape.rank; ++d) same = t->shape[d] == shape.size[d];
  if (!same) {
    chipset_tensor need = *t;
    need.rank = shape.rank;
    for (int d = 0; d < shape.rank; ++d) need.shape[d] = shape.size[d];
    return fail(CHIPSET_STATUS_INVALID, "%s: %s has shape %s, need %s", function, name,
                shape_text(*t), shape_text(need));
  }
  if (t->dtype == dtype) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: %s is %s, need %s", function, name,
              dtype_name(t->dtype), dtype_name(dtype));
}

chipset_status check_mask(const char* function, const chipset_attention_args& a,
                          const Shape& full) {
  const chipset_tensor& m = *a.mask;
  const bool is_float = m.dtype == a.q->dtype || m.dtype == CHIPSET_DTYPE_F32;
  if (m.dtype != CHIPSET_DTYPE_BOOL && !is_float) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: mask is %s; need bool, f32 or %s", function,
                dtype_name(m.dtype), dtype_name(a.q->dtype));
  }
  return check_shape(function, "mask", a.mask, full, m.dtype);
}

chipset_status check_columns(const char* function, const chipset_attention_args& a) {
  const chipset_tensor& c = *a.startend_row_indices;
  RETURN_UNLESS_OK(check_tensor(function, "startend_row_indices", &c));
  const bool causal = (a.flags & kCausal) != 0;
  const int64_t heads = c.rank == 4 ? c.shape[1] : 0, n = c.rank == 4 ? c.shape[3] : 0;
  const bool legal_heads = heads == 1 || heads == a.q->shape[1] || heads == a.k->shape[1];
  const bool legal_n = causal ? n == 1 || n == 2 : n == 2 || n == 4;
  if (c.rank != 4 || c.shape[0] != a.q->shape[0] || c.shape[2] != a.k->shape[2] || !legal_heads ||
      !legal_n) {
    return fail(CHIPSET_STATUS_INVALID,
                "%s: startend_row_indices has shape %s; need [B, H or Hkv or 1, Sk, %s] with q %s "
                "and k %s",
                function, shape_text(c), causal ? "1 or 2" : "2 or 4", shape_text(*a.q),
                shape_text(*a.k));
  }
  if (c.dtype == CHIPSET_DTYPE_I32) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: startend_row_indices is %s, need i32", function,
              dtype_name(c.dtype));
}

chipset_status check(const char* function, const chipset_attention_args& a, bool backward) {
  for (const chipset_tensor* t : {a.q, a.k, a.v})
    RETURN_UNLESS_OK(check_floats(function, t == a.q ? "q" : t == a.k ? "k" : "v", t));
  const chipset_tensor &q = *a.q, &k = *a.k, &v = *a.v;
  if (q.rank != 4 || k.rank != 4 || v.rank != 4 || k.shape[0] != q.shape[0] ||
      v.shape[0] != q.shape[0] || k.shape[3] != q.shape[3] || v.shape[1] != k.shape[1] ||
      v.shape[2] != k.shape[2]) {
    return fail(CHIPSET_STATUS_INVALID,
                "%s: q %s, k %s, v %s; need [B,H,Sq,D], [B,Hkv,Sk,D], [B,Hkv,Sk,Dv]", function,
                shape_text(q), shape_text(k), shape_text(v));
  }
  if (k.shape[1] == 0 || q.shape[1] % k.shape[1] != 0) {
    return fail(CHIPSET_STATUS_INVALID, "%s: %lld query heads are no multiple of %lld key heads",
                function, static_cast<long long>(q.shape[1]), static_cast<long long>(k.shape[1]));
  }
  const int64_t batch = q.shape[0], heads = q.shape[1], s_q = q.shape[2], s_k = k.shape[2];
  const Shape out{4, {batch, heads, s_q, v.shape[3]}};
  const int32_t dtype = q.dtype;
  const int32_t wide = dtype == CHIPSET_DTYPE_F64 ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_F32;
  RETURN_UNLESS_OK(
      check_shape(function, "k", a.k, {4, {batch, k.shape[1], s_k, k.shape[3]}}, dtype));
  RETURN_UNLESS_OK(
      check_shape(function, "v", a.v, {4, {batch, k.shape[1], s_k, v.shape[3]}}, dtype));
  RETURN_UNLESS_OK(check_shape(function, "out", a.out, out, dtype));
  if (backward || a.lse != nullptr)
    RETURN_UNLESS_OK(check_shape(function, "lse", a.lse, {3, {batch, heads, s_q}}, wide));
  if (a.mask != nullptr) RETURN_UNLESS_OK(check_mask(function, a, {4, {batch, heads, s_q, s_k}}));
  if (a.startend_row_indices != nullptr) RETURN_UNLESS_OK(check_columns(function, a));
  if (!backward) return check_output(function, "out", a.out);

  RETURN_UNLESS_OK(check_shape(function, "dout", a.dout, out, dtype));
  const chipset_tensor* gradients[] = {a.dq, a.dk, a.dv};
  const chipset_tensor* like[] = {a.q, a.k, a.v};
  const char* const names[] = {"dq", "dk", "dv"};
  for (int i = 0; i < 3; ++i) {
    if (gradients[i] == nullptr) continue;
    Shape shape{4, {}};
    for (int d = 0; d < 4; ++d) shape.size[d] = like[i]->shape[d];
    RETURN_UNLESS_OK(check_shape(function, names[i], gradients[i], shape, dtype));
    RETURN_UNLESS_OK(check_output(function, names[i], gradients[i]));
  }
  return CHIPSET_STATUS_OK;
}

AttentionProblem problem_of(const chipset_attention_args& a) {
  AttentionProblem p{};
  p.batch = a.q->shape[0];
  p.heads = a.q->shape[1];
  p.s_q = a.q->shape[2];
  p.d = a.q->shape[3];
  p.kv_heads = a.k->shape[1];
  p.s_k = a.k->shape[2];
  p.d_v = a.v->shape[3];
  p.dtype = a.q->dtype;
  p.q = view(a.q);
  p.k = view(a.k);
  p.v = view(a.v);
  p.out = view(a.out);
  p.lse = view(a.lse);
  p.mask = view(a.mask);
  p.columns = view(a.startend_row_indices);
  if (a.startend_row_indices != nullptr) {
    p.column_heads = a.startend_row_indices->shape[1];
    p.column_count = a.startend_row_indices->shape[3];
  }
  p.causal = (a.flags & kCausal) != 0;
  p.scale = a.scale;
  p.softcap = a.logit_softcap;
  p.causal_offset = a.causal_offset;
  p.window_left = a.window_left;
  p.window_right = a.window_right;
  return p;
}

}  // namespace

chipset_status cpu_attention(chipset_stream, const chipset_attention_args* args) {
  RETURN_UNLESS_OK(check("attention", *args, false));
  const AttentionProblem p = problem_of(*args);
  if (p.batch == 0 || p.heads == 0 || p.s_q == 0) return CHIPSET_STATUS_OK;
  return CPU_SELECT(attention_kernels).forward(p) ? CHIPSET_STATUS_OK : no_memory("attention");
}

chipset_status cpu_attention_backward(chipset_stream, const chipset_attention_args* args) {
  RETURN_UNLESS_OK(check("attention_backward", *args, true));
  AttentionProblem p = problem_of(*args);
  p.dout = view(args->dout);
  p.dq = view(args->dq);
  p.dk = view(args->dk);
  p.dv = view(args->dv);
  if (p.batch == 0 || p.heads == 0) return CHIPSET_STATUS_OK;
  return CPU_SELECT(attention_kernels).backward(p) ? CHIPSET_STATUS_OK
                                                   : no_memory("attention_backward");
}

}  // namespace chipset::cpu
