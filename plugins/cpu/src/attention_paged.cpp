// SPDX-License-Identifier: Apache-2.0
#include "attention_paged.h"

#include "check.h"
#include "dispatch.h"
#include "functions.h"

namespace chipset::cpu {
namespace {

constexpr const char* kName = "attention_paged";

chipset_status check_cache(const char* name, const chipset_tensor* t, const chipset_tensor& q) {
  RETURN_UNLESS_OK(check_tensor(kName, name, t));
  if (t->dtype != q.dtype) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: %s is %s, but q is %s", kName, name,
                dtype_name(t->dtype), dtype_name(q.dtype));
  }
  if (t->rank != 4 || t->shape[3] != q.shape[2] || t->shape[2] < 1 || t->shape[1] < 1 ||
      q.shape[1] % t->shape[2] != 0) {
    return fail(CHIPSET_STATUS_INVALID,
                "%s: %s has shape %s; need [blocks, block_size, Hkv, D] for q of shape %s, with H "
                "a multiple of Hkv",
                kName, name, shape_text(*t), shape_text(q));
  }
  return CHIPSET_STATUS_OK;
}
chipset_status check_i32(const char* name, const chipset_tensor* t, int rank) {
  RETURN_UNLESS_OK(check_tensor(kName, name, t));
  if (t->dtype == CHIPSET_DTYPE_I32 && t->rank == rank) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_INVALID, "%s: %s is %s of shape %s; need i32 of rank %d", kName, name,
              dtype_name(t->dtype), shape_text(*t), rank);
}
int32_t at(const chipset_tensor& t, int64_t i) {
  return static_cast<const int32_t*>(t.data)[i * t.stride[0]];
}

// The lengths and block numbers, as they are when the call runs: nothing outside the tensors is
// read or written.
chipset_status check_lengths(const chipset_attention_paged_args& a) {
  const int64_t block_size = a.k_cache->shape[1], blocks = a.k_cache->shape[0];
  for (int64_t s = 0; s < a.kv_len->shape[0]; ++s) {
    const int64_t begin = at(*a.query_start, s), end = at(*a.query_start, s + 1);
    const int64_t keys = at(*a.kv_len, s);
    if (begin < 0 || end < begin || end > a.q->shape[0]) {
      return fail(CHIPSET_STATUS_OUT_OF_RANGE,
                  "%s: sequence %lld has tokens %lld to %lld; q has %lld tokens", kName,
                  static_cast<long long>(s), static_cast<long long>(begin),
                  static_cast<long long>(end), static_cast<long long>(a.q->shape[0]));
    }
    if (begin == end) continue;
    if (keys < 0 || keys > block_size * a.block_table->shape[1]) {
      return fail(CHIPSET_STATUS_OUT_OF_RANGE,
                  "%s: kv_len[%lld] is %lld; block_table has room for 0 to %lld keys", kName,
                  static_cast<long long>(s), static_cast<long long>(keys),
                  static_cast<long long>(block_size * a.block_table->shape[1]));
    }
    const int32_t* table =
        static_cast<const int32_t*>(a.block_table->data) + s * a.block_table->stride[0];
    for (int64_t b = 0; b * block_size < keys; ++b) {
      // Blocks that the window hides from every token may have been given back.
      if (a.window_left >= 0 && (b + 1) * block_size <= keys - (end - begin) - a.window_left)
        continue;
      const int64_t block = table[b * a.block_table->stride[1]];
      if (block >= 0 && block < blocks) continue;
      return fail(CHIPSET_STATUS_OUT_OF_RANGE,
                  "%s: block_table[%lld, %lld] is %lld; the cache has blocks 0 to %lld", kName,
                  static_cast<long long>(s), static_cast<long long>(b),
                  static_cast<long long>(block), static_cast<long long>(blocks - 1));
    }
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace

chipset_status cpu_attention_paged(chipset_stream, const chipset_attention_paged_args* args) {
  const chipset_attention_paged_args& a = *args;
  RETURN_UNLESS_OK(check_floats(kName, "q", a.q));
  if (a.q->rank != 3) {
    return fail(CHIPSET_STATUS_INVALID, "%s: q has shape %s, need [T,H,D]", kName,
                shape_text(*a.q));
  }
  RETURN_UNLESS_OK(check_cache("k_cache", a.k_cache, *a.q));
  RETURN_UNLESS_OK(check_cache("v_cache", a.v_cache, *a.q));
  if (!same_shape(*a.k_cache, *a.v_cache)) {
    return fail(CHIPSET_STATUS_INVALID, "%s: k_cache has shape %s, but v_cache has %s", kName,
                shape_text(*a.k_cache), shape_text(*a.v_cache));
  }
  RETURN_UNLESS_OK(check_like(kName, "out", a.out, "q", *a.q));
  RETURN_UNLESS_OK(check_output(kName, "out", a.out));
  if (a.out->dtype != a.q->dtype) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: out is %s, but q is %s", kName,
                dtype_name(a.out->dtype), dtype_name(a.q->dtype));
  }
  RETURN_UNLESS_OK(check_i32("block_table", a.block_table, 2));
  RETURN_UNLESS_OK(check_i32("query_start", a.query_start, 1));
  RETURN_UNLESS_OK(check_i32("kv_len", a.kv_len, 1));
  const int64_t sequences = a.kv_len->shape[0];
  if (a.block_table->shape[0] != sequences || a.query_start->shape[0] != sequences + 1) {
    return fail(CHIPSET_STATUS_INVALID,
                "%s: kv_len has shape %s, so block_table needs as many rows (shape %s) and "
                "query_start one element more (shape %s)",
                kName, shape_text(*a.kv_len), shape_text(*a.block_table),
                shape_text(*a.query_start));
  }
  RETURN_UNLESS_OK(check_lengths(a));
  if (numel(*a.q) == 0) return CHIPSET_STATUS_OK;
  return CPU_SELECT(paged_kernels).forward(a) ? CHIPSET_STATUS_OK : no_memory(kName);
}

}  // namespace chipset::cpu
