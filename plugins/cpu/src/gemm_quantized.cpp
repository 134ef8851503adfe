// SPDX-License-Identifier: Apache-2.0
// gemm_quantized: checks the arguments and takes the tensors apart for the kernels.
#include "gemm_quantized.h"

#include "check.h"
#include "dispatch.h"
#include "functions.h"
#include "scratch.h"

namespace chipset::cpu {
namespace {

constexpr const char* kName = "gemm_quantized";

bool is_small_float(int32_t dtype) { return is_number_float(dtype) && dtype != CHIPSET_DTYPE_F64; }

chipset_status check_matrix(const char* name, const chipset_tensor* t, int64_t rows,
                            int64_t columns) {
  RETURN_UNLESS_OK(check_tensor(kName, name, t));
  if (t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_INVALID, "%s: %s has shape %s, need [%lld, %lld]", kName, name,
              shape_text(*t), static_cast<long long>(rows), static_cast<long long>(columns));
}
chipset_status check_dtype(const char* name, const chipset_tensor& t, bool ok, const char* need) {
  if (ok) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: %s is %s; need %s", kName, name, dtype_name(t.dtype),
              need);
}

chipset_status check_dtypes(const chipset_gemm_quantized_args& args) {
  const int32_t x = args.x->dtype, w = args.w->dtype;
  const bool whole = w == CHIPSET_DTYPE_I8 || w == CHIPSET_DTYPE_I4;
  RETURN_UNLESS_OK(check_dtype("x", *args.x, is_small_float(x) || x == CHIPSET_DTYPE_I8,
                               "f16, bf16, f32, or i8 with x_scale"));
  RETURN_UNLESS_OK(
      check_dtype("w", *args.w, whole || w == CHIPSET_DTYPE_F8E4M3, "i8, i4 or f8e4m3"));
  RETURN_UNLESS_OK(
      check_dtype("w_scale", *args.w_scale, args.w_scale->dtype == CHIPSET_DTYPE_F32, "f32"));
  RETURN_UNLESS_OK(check_dtype("d", *args.d, is_small_float(args.d->dtype), "f16, bf16 or f32"));
  if ((x == CHIPSET_DTYPE_I8) != (args.x_scale != nullptr)) {
    return fail(CHIPSET_STATUS_INVALID, "%s: x is %s and x_scale is %s; x_scale goes with i8 x",
                kName, dtype_name(x), args.x_scale == nullptr ? "missing (NULL)" : "given");
  }
  if (args.w_zero_point != nullptr && !whole) {
    return fail(CHIPSET_STATUS_INVALID,
                "%s: w_zero_point belongs to i8 and i4, but w is %s; pass NULL", kName,
                dtype_name(w));
  }
  if (args.w_zero_point == nullptr) return CHIPSET_STATUS_OK;
  return check_dtype("w_zero_point", *args.w_zero_point,
                     args.w_zero_point->dtype == CHIPSET_DTYPE_I32, "i32");
}

chipset_status check(const chipset_gemm_quantized_args& args) {
  RETURN_UNLESS_OK(check_tensor(kName, "x", args.x));
  RETURN_UNLESS_OK(check_tensor(kName, "w", args.w));
  if (args.x->rank != 2 || args.w->rank != 2) {
    return fail(CHIPSET_STATUS_INVALID, "%s: x is %s and w %s; need [M, K] and [N, K]", kName,
                shape_text(*args.x), shape_text(*args.w));
  }
  const int64_t rows = args.x->shape[0], inner = args.x->shape[1], columns = args.w->shape[0];
  if (args.group_size < 0) {
    return fail(CHIPSET_STATUS_INVALID, "%s: group_size is %lld; need 0 or more", kName,
                static_cast<long long>(args.group_size));
  }
  const int64_t group = args.group_size == 0 ? inner : args.group_size;
  const int64_t groups = group == 0 ? 1 : (inner + group - 1) / group;
  RETURN_UNLESS_OK(check_matrix("w", args.w, columns, inner));
  RETURN_UNLESS_OK(check_matrix("w_scale", args.w_scale, columns, groups));
  if (args.w_zero_point != nullptr)
    RETURN_UNLESS_OK(check_matrix("w_zero_point", args.w_zero_point, columns, groups));
  RETURN_UNLESS_OK(check_matrix("d", args.d, rows, columns));
  RETURN_UNLESS_OK(check_output(kName, "d", args.d));
  RETURN_UNLESS_OK(check_dtypes(args));
  if (args.x_scale != nullptr) {
    RETURN_UNLESS_OK(
        check_vector(kName, "x_scale", args.x_scale, rows, CHIPSET_DTYPE_F32, CHIPSET_DTYPE_F32));
  }
  if (args.bias != nullptr) {
    RETURN_UNLESS_OK(check_vector(kName, "bias", args.bias, columns, args.d->dtype, args.d->dtype));
  }
  if (args.activation < CHIPSET_ACTIVATION_NONE || args.activation > CHIPSET_ACTIVATION_SILU)
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: unknown activation %d", kName, args.activation);
  const chipset_tensor& w = *args.w;
  if (w.dtype == CHIPSET_DTYPE_I4 && inner > 1 && columns > 0 &&
      (w.stride[1] != 1 || (columns > 1 && w.stride[0] % 2 != 0))) {
    return fail(CHIPSET_STATUS_INVALID,
                "%s: i4 w needs contiguous rows that begin at whole bytes (an even row stride)",
                kName);
  }
  return CHIPSET_STATUS_OK;
}

QuantizedProblem problem_of(const chipset_gemm_quantized_args& args) {
  QuantizedProblem p{};
  p.rows = args.x->shape[0];
  p.inner = args.x->shape[1];
  p.columns = args.w->shape[0];
  p.group = args.group_size == 0 ? p.inner : args.group_size;
  if (p.group < 1) p.group = 1;
  p.args = &args;
  p.w = static_cast<const uint8_t*>(args.w->data);
  p.is_i4 = args.w->dtype == CHIPSET_DTYPE_I4;
  p.w_row = p.is_i4 ? args.w->stride[0] / 2 : args.w->stride[0];
  return p;
}

// Weights whose rows are not contiguous, copied.
bool pack_rows(const chipset_tensor& w, QuantizedProblem* p) {
  auto* bytes = static_cast<uint8_t*>(
      scratch(kScratchF, static_cast<size_t>(p->columns) * static_cast<size_t>(p->inner)));
  if (bytes == nullptr) return false;
  for (int64_t n = 0; n < p->columns; ++n)
    for (int64_t k = 0; k < p->inner; ++k)
      bytes[n * p->inner + k] = p->w[n * w.stride[0] + k * w.stride[1]];
  p->w = bytes;
  p->w_row = p->inner;
  return true;
}

}  // namespace

chipset_status cpu_gemm_quantized(chipset_stream, const chipset_gemm_quantized_args* given) {
  const chipset_gemm_quantized_args& args = *given;
  RETURN_UNLESS_OK(check(args));
  if (numel(*args.d) == 0) return CHIPSET_STATUS_OK;
  QuantizedProblem p = problem_of(args);
  if (!p.is_i4 && p.inner > 1 && args.w->stride[1] != 1 && !pack_rows(*args.w, &p))
    return no_memory(kName);
  const bool integers = args.x->dtype == CHIPSET_DTYPE_I8 && args.w->dtype != CHIPSET_DTYPE_F8E4M3;
  const bool ok = integers ? CPU_SELECT_VNNI(gemm_i8_kernels).gemm(p)
                           : CPU_SELECT(gemm_quantized_kernels).gemm(p);
  return ok ? CHIPSET_STATUS_OK : no_memory(kName);
}

}  // namespace chipset::cpu
