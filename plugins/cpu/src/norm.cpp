// SPDX-License-Identifier: Apache-2.0
#include "norm.h"

#include <initializer_list>

#include "check.h"
#include "dispatch.h"
#include "functions.h"

namespace chipset::cpu {
namespace {

NormVector vector_of(const chipset_tensor* t) {
  if (t == nullptr) return {};
  return {t->data, t->shape[0] == 1 ? 1 : t->stride[0], t->dtype};
}
int32_t statistics_dtype(int32_t dtype) {
  return dtype == CHIPSET_DTYPE_F64 ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_F32;
}

chipset_status check_common(const char* function, const chipset_norm_args& n) {
  RETURN_UNLESS_OK(check_floats(function, "x", n.x));
  if (n.x->rank != 2) {
    return fail(CHIPSET_STATUS_INVALID, "%s: x has shape %s; need [rows, N]", function,
                shape_text(*n.x));
  }
  if (n.kind != 0 && n.kind != 1) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: unknown kind %d (0 RMS, 1 layer)", function,
                n.kind);
  }
  const int64_t size = n.x->shape[1];
  const int32_t dtype = n.x->dtype, wide = statistics_dtype(dtype);
  if (n.weight != nullptr)
    RETURN_UNLESS_OK(check_vector(function, "weight", n.weight, size, dtype, wide));
  if (n.bias != nullptr && n.kind == 1)
    RETURN_UNLESS_OK(check_vector(function, "bias", n.bias, size, dtype, wide));
  return CHIPSET_STATUS_OK;
}

NormProblem problem_of(const chipset_norm_args& n) {
  NormProblem p{};
  p.layer = n.kind == 1;
  p.eps = n.eps;
  p.weight_offset = n.weight_offset;
  p.weight = vector_of(n.weight);
  p.mean = vector_of(n.mean);
  p.rstd = vector_of(n.rstd);
  if (p.layer) p.bias = vector_of(n.bias);
  return p;
}

}  // namespace

chipset_status cpu_norm(chipset_stream, const chipset_norm_args* args) {
  const chipset_norm_args& n = *args;
  RETURN_UNLESS_OK(check_common("norm", n));
  RETURN_UNLESS_OK(check_like("norm", "y", n.y, "x", *n.x));
  RETURN_UNLESS_OK(check_output("norm", "y", n.y));
  const int32_t wide = statistics_dtype(n.x->dtype);
  const int64_t rows = n.x->shape[0];
  if (n.mean != nullptr) RETURN_UNLESS_OK(check_vector("norm", "mean", n.mean, rows, wide, wide));
  if (n.rstd != nullptr) RETURN_UNLESS_OK(check_vector("norm", "rstd", n.rstd, rows, wide, wide));
  if (rows == 0 || n.x->shape[1] == 0) return CHIPSET_STATUS_OK;
  NormProblem p = problem_of(n);
  p.rows = make_rows(n.x, n.y, nullptr, 1);
  return CPU_SELECT(norm_kernels).forward(p) ? CHIPSET_STATUS_OK : no_memory("norm");
}

chipset_status cpu_norm_backward(chipset_stream, const chipset_norm_args* args) {
  const chipset_norm_args& n = *args;
  RETURN_UNLESS_OK(check_common("norm_backward", n));
  RETURN_UNLESS_OK(check_like("norm_backward", "dy", n.dy, "x", *n.x));
  const int32_t dtype = n.x->dtype, wide = statistics_dtype(dtype);
  const int64_t rows = n.x->shape[0], size = n.x->shape[1];
  RETURN_UNLESS_OK(check_vector("norm_backward", "rstd", n.rstd, rows, wide, wide));
  if (n.kind == 1)
    RETURN_UNLESS_OK(check_vector("norm_backward", "mean", n.mean, rows, wide, wide));
  if (n.dx != nullptr) {
    RETURN_UNLESS_OK(check_like("norm_backward", "dx", n.dx, "x", *n.x));
    RETURN_UNLESS_OK(check_output("norm_backward", "dx", n.dx));
  }
  for (const chipset_tensor* t : {n.dweight, n.dbias}) {
    if (t == nullptr) continue;
    const char* name = t == n.dweight ? "dweight" : "dbias";
    RETURN_UNLESS_OK(check_vector("norm_backward", name, t, size, dtype, wide));
    RETURN_UNLESS_OK(check_output("norm_backward", name, t));
  }
  if (size == 0) return CHIPSET_STATUS_OK;
  NormProblem p = problem_of(n);
  p.dweight = vector_of(n.dweight);
  p.dbias = vector_of(n.dbias);
  p.rows = make_rows(n.x, n.dy, n.dx, 1);
  return CPU_SELECT(norm_kernels).backward(p) ? CHIPSET_STATUS_OK : no_memory("norm_backward");
}

}  // namespace chipset::cpu
