// SPDX-License-Identifier: Apache-2.0
// Checks that several functions make of their arguments.
#pragma once

#include "chipset/chipset.h"
#include "error.h"
#include "tensor.h"

#define RETURN_UNLESS_OK(call) \
  if (const chipset_status s_ = (call); s_ != CHIPSET_STATUS_OK) return s_

namespace chipset::cpu {

// F16, BF16, F32 or F64.
inline bool is_number_float(int32_t dtype) {
  return dtype >= CHIPSET_DTYPE_F16 && dtype <= CHIPSET_DTYPE_F64;
}

// A tensor of floats of the given shape.
inline chipset_status check_floats(const char* function, const char* name,
                                   const chipset_tensor* t) {
  RETURN_UNLESS_OK(check_tensor(function, name, t));
  if (is_number_float(t->dtype)) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: %s is %s; need f16, bf16, f32 or f64", function,
              name, dtype_name(t->dtype));
}
inline chipset_status check_like(const char* function, const char* name, const chipset_tensor* t,
                                 const char* other_name, const chipset_tensor& other) {
  RETURN_UNLESS_OK(check_floats(function, name, t));
  if (same_shape(*t, other)) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_INVALID, "%s: %s has shape %s, but %s has %s", function, name,
              shape_text(*t), other_name, shape_text(other));
}
// A vector [size] of one dtype or another (pass the same twice for one).
inline chipset_status check_vector(const char* function, const char* name, const chipset_tensor* t,
                                   int64_t size, int32_t dtype, int32_t or_dtype) {
  RETURN_UNLESS_OK(check_tensor(function, name, t));
  if (t->rank != 1 || t->shape[0] != size) {
    return fail(CHIPSET_STATUS_INVALID, "%s: %s has shape %s, need [%lld]", function, name,
                shape_text(*t), static_cast<long long>(size));
  }
  if (t->dtype == dtype || t->dtype == or_dtype) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: %s is %s; need %s or %s", function, name,
              dtype_name(t->dtype), dtype_name(dtype), dtype_name(or_dtype));
}
inline chipset_status no_memory(const char* function) {
  return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "%s: no working memory; free host memory and retry",
              function);
}

}  // namespace chipset::cpu
