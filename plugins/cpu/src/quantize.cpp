// SPDX-License-Identifier: Apache-2.0
#include "quantize.h"

#include "check.h"
#include "dispatch.h"
#include "functions.h"

namespace chipset::cpu {
namespace {

chipset_status check_groups(const char* function, const char* name, const chipset_tensor* t,
                            int64_t rows, int64_t groups, int32_t dtype) {
  RETURN_UNLESS_OK(check_tensor(function, name, t));
  if (t->dtype == dtype && t->rank == 2 && t->shape[0] == rows && t->shape[1] == groups)
    return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_INVALID, "%s: %s is %s of shape %s; need %s [%lld, %lld]", function,
              name, dtype_name(t->dtype), shape_text(*t), dtype_name(dtype),
              static_cast<long long>(rows), static_cast<long long>(groups));
}

chipset_status check(const char* function, const chipset_quantize_args& a) {
  RETURN_UNLESS_OK(check_floats(function, "x", a.x));
  RETURN_UNLESS_OK(check_tensor(function, "q", a.q));
  if (a.x->rank != 2 || !same_shape(*a.x, *a.q) || a.group_size < 0) {
    return fail(CHIPSET_STATUS_INVALID,
                "%s: x is %s, q %s and group_size %lld; need one shape [rows, K] and 0 or more",
                function, shape_text(*a.x), shape_text(*a.q), static_cast<long long>(a.group_size));
  }
  const int32_t d = a.q->dtype;
  if (d != CHIPSET_DTYPE_I8 && d != CHIPSET_DTYPE_I4 && d != CHIPSET_DTYPE_F8E4M3 &&
      d != CHIPSET_DTYPE_F8E5M2) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: q is %s; need i8, i4, f8e4m3 or f8e5m2", function,
                dtype_name(d));
  }
  if (d == CHIPSET_DTYPE_I4 && (a.q->stride[0] % 2 != 0 || a.q->stride[1] != 1)) {
    return fail(CHIPSET_STATUS_INVALID,
                "%s: i4 q needs contiguous rows that begin at whole bytes (an even row stride)",
                function);
  }
  const bool whole = d == CHIPSET_DTYPE_I8 || d == CHIPSET_DTYPE_I4;
  if (a.zero_point != nullptr && !whole) {
    return fail(CHIPSET_STATUS_INVALID,
                "%s: zero_point belongs to i8 and i4, but q is %s; pass "
                "NULL",
                function, dtype_name(d));
  }
  const int64_t size = a.group_size == 0 ? a.x->shape[1] : a.group_size;
  const int64_t groups = size == 0 ? 1 : (a.x->shape[1] + size - 1) / size;
  RETURN_UNLESS_OK(
      check_groups(function, "scale", a.scale, a.x->shape[0], groups, CHIPSET_DTYPE_F32));
  if (a.zero_point == nullptr) return CHIPSET_STATUS_OK;
  return check_groups(function, "zero_point", a.zero_point, a.x->shape[0], groups,
                      CHIPSET_DTYPE_I32);
}

}  // namespace

chipset_status cpu_quantize(chipset_stream, const chipset_quantize_args* a) {
  RETURN_UNLESS_OK(check("quantize", *a));
  if (numel(*a->x) == 0) return CHIPSET_STATUS_OK;
  return CPU_SELECT(quantize_kernels).quantize(*a) ? CHIPSET_STATUS_OK : no_memory("quantize");
}

chipset_status cpu_dequantize(chipset_stream, const chipset_quantize_args* a) {
  RETURN_UNLESS_OK(check("dequantize", *a));
  RETURN_UNLESS_OK(check_output("dequantize", "x", a->x));
  if (numel(*a->x) == 0) return CHIPSET_STATUS_OK;
  return CPU_SELECT(quantize_kernels).dequantize(*a) ? CHIPSET_STATUS_OK : no_memory("dequantize");
}

}  // namespace chipset::cpu
