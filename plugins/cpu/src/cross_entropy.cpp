// SPDX-License-Identifier: Apache-2.0
#include "cross_entropy.h"

#include "check.h"
#include "dispatch.h"
#include "functions.h"

namespace chipset::cpu {
namespace {

int32_t row_dtype(const chipset_cross_entropy_args& a) {
  return a.logits->dtype == CHIPSET_DTYPE_F64 ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_F32;
}

chipset_status check_targets(const char* function, const chipset_cross_entropy_args& a) {
  const int64_t rows = a.logits->shape[0], classes = a.logits->shape[1];
  RETURN_UNLESS_OK(
      check_vector(function, "target", a.target, rows, CHIPSET_DTYPE_I64, CHIPSET_DTYPE_I64));
  const int64_t* target = static_cast<const int64_t*>(a.target->data);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t t = target[i * a.target->stride[0]];
    if (t == a.ignore_index || (t >= 0 && t < classes)) continue;
    return fail(CHIPSET_STATUS_OUT_OF_RANGE,
                "%s: target[%lld] is %lld; need 0 to %lld, or ignore_index %lld", function,
                static_cast<long long>(i), static_cast<long long>(t),
                static_cast<long long>(classes - 1), static_cast<long long>(a.ignore_index));
  }
  return CHIPSET_STATUS_OK;
}

chipset_status check_common(const char* function, const chipset_cross_entropy_args& a) {
  RETURN_UNLESS_OK(check_floats(function, "logits", a.logits));
  if (a.logits->rank != 2) {
    return fail(CHIPSET_STATUS_INVALID, "%s: logits has shape %s; need [N, V]", function,
                shape_text(*a.logits));
  }
  if (!(a.label_smoothing >= 0 && a.label_smoothing <= 1)) {
    return fail(CHIPSET_STATUS_INVALID, "%s: label_smoothing is %g; need 0 to 1", function,
                a.label_smoothing);
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace

chipset_status cpu_cross_entropy(chipset_stream, const chipset_cross_entropy_args* args) {
  const chipset_cross_entropy_args& a = *args;
  constexpr const char* kName = "cross_entropy";
  RETURN_UNLESS_OK(check_common(kName, a));
  const int64_t rows = a.logits->shape[0];
  const int32_t wide = row_dtype(a);
  RETURN_UNLESS_OK(check_vector(kName, "loss", a.loss, rows, wide, wide));
  RETURN_UNLESS_OK(check_output(kName, "loss", a.loss));
  if (a.lse != nullptr) {
    RETURN_UNLESS_OK(check_vector(kName, "lse", a.lse, rows, wide, wide));
    RETURN_UNLESS_OK(check_output(kName, "lse", a.lse));
  }
  RETURN_UNLESS_OK(check_targets(kName, a));
  if (rows == 0) return CHIPSET_STATUS_OK;
  CPU_SELECT(cross_entropy_kernels).forward(a);
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_cross_entropy_backward(chipset_stream, const chipset_cross_entropy_args* args) {
  const chipset_cross_entropy_args& a = *args;
  constexpr const char* kName = "cross_entropy_backward";
  RETURN_UNLESS_OK(check_common(kName, a));
  const int64_t rows = a.logits->shape[0];
  const int32_t wide = row_dtype(a);
  RETURN_UNLESS_OK(check_vector(kName, "lse", a.lse, rows, wide, wide));
  RETURN_UNLESS_OK(check_vector(kName, "dloss", a.dloss, rows, wide, wide));
  RETURN_UNLESS_OK(check_like(kName, "dlogits", a.dlogits, "logits", *a.logits));
  RETURN_UNLESS_OK(check_output(kName, "dlogits", a.dlogits));
  RETURN_UNLESS_OK(check_targets(kName, a));
  if (numel(*a.logits) == 0) return CHIPSET_STATUS_OK;
  CPU_SELECT(cross_entropy_kernels).backward(a);
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
