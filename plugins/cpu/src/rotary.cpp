// SPDX-License-Identifier: Apache-2.0
#include "rotary.h"

#include "check.h"
#include "dispatch.h"
#include "functions.h"

namespace chipset::cpu {
namespace {

// cos or sin: [B, S, R] of F32 or of x's dtype.
chipset_status check_table(const char* name, const chipset_tensor* t, const chipset_tensor& x) {
  RETURN_UNLESS_OK(check_tensor("rotary", name, t));
  if (t->rank != 3 || t->shape[0] != x.shape[0] || t->shape[1] != x.shape[2] ||
      t->shape[2] > x.shape[3] || t->shape[2] % 2 != 0) {
    return fail(
        CHIPSET_STATUS_INVALID,
        "rotary: %s has shape %s; need [B, S, R] with an even R of at most D for x of shape "
        "%s [B, H, S, D]",
        name, shape_text(*t), shape_text(x));
  }
  if (t->dtype == x.dtype || t->dtype == CHIPSET_DTYPE_F32) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "rotary: %s is %s, but x is %s; need f32 or x's dtype",
              name, dtype_name(t->dtype), dtype_name(x.dtype));
}

}  // namespace

chipset_status cpu_rotary(chipset_stream, const chipset_rotary_args* args) {
  const chipset_rotary_args& r = *args;
  RETURN_UNLESS_OK(check_floats("rotary", "x", r.x));
  if (r.x->rank != 4) {
    return fail(CHIPSET_STATUS_INVALID, "rotary: x has shape %s; need [B, H, S, D]",
                shape_text(*r.x));
  }
  RETURN_UNLESS_OK(check_table("cos", r.cos, *r.x));
  RETURN_UNLESS_OK(check_table("sin", r.sin, *r.x));
  if (!same_shape(*r.cos, *r.sin)) {
    return fail(CHIPSET_STATUS_INVALID, "rotary: cos has shape %s, but sin has %s",
                shape_text(*r.cos), shape_text(*r.sin));
  }
  RETURN_UNLESS_OK(check_like("rotary", "y", r.y, "x", *r.x));
  RETURN_UNLESS_OK(check_output("rotary", "y", r.y));
  if (r.y->dtype != r.x->dtype) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "rotary: y is %s, but x is %s", dtype_name(r.y->dtype),
                dtype_name(r.x->dtype));
  }
  if (numel(*r.x) == 0) return CHIPSET_STATUS_OK;
  return CPU_SELECT(rotary_kernels).rotate(r) ? CHIPSET_STATUS_OK : no_memory("rotary");
}

}  // namespace chipset::cpu
