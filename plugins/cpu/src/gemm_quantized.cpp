// SPDX-License-Identifier: Apache-2.0
// gemm_quantized for few rows of floats against symmetric I8 weights: the linear layers of
// decoding. Everything else answers UNSUPPORTED, and the core composes it from dequantize and gemm.
#include "gemm_quantized.h"

#include "check.h"
#include "dispatch.h"
#include "functions.h"

namespace chipset::cpu {
namespace {

// From here on dequantising once and multiplying beats widening the weights for every few rows.
constexpr int64_t kMostRows = 16;

bool is_small_float(int32_t dtype) { return is_number_float(dtype) && dtype != CHIPSET_DTYPE_F64; }

chipset_status check_matrix(const char* name, const chipset_tensor* t, int64_t rows,
                            int64_t columns) {
  RETURN_UNLESS_OK(check_tensor("gemm_quantized", name, t));
  if (t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_INVALID, "gemm_quantized: %s has shape %s, need [%lld, %lld]", name,
              shape_text(*t), static_cast<long long>(rows), static_cast<long long>(columns));
}

chipset_status check(const chipset_gemm_quantized_args& args) {
  RETURN_UNLESS_OK(check_tensor("gemm_quantized", "x", args.x));
  RETURN_UNLESS_OK(check_tensor("gemm_quantized", "w", args.w));
  if (args.x->rank != 2 || args.w->rank != 2) {
    return fail(CHIPSET_STATUS_INVALID, "gemm_quantized: x is %s and w %s; need [M, K] and [N, K]",
                shape_text(*args.x), shape_text(*args.w));
  }
  const int64_t rows = args.x->shape[0], inner = args.x->shape[1], columns = args.w->shape[0];
  if (args.group_size < 0) {
    return fail(CHIPSET_STATUS_INVALID, "gemm_quantized: group_size is %lld; need 0 or more",
                static_cast<long long>(args.group_size));
  }
  const int64_t group = args.group_size == 0 ? inner : args.group_size;
  const int64_t groups = group == 0 ? 1 : (inner + group - 1) / group;
  RETURN_UNLESS_OK(check_matrix("w", args.w, columns, inner));
  RETURN_UNLESS_OK(check_matrix("w_scale", args.w_scale, columns, groups));
  RETURN_UNLESS_OK(check_matrix("d", args.d, rows, columns));
  RETURN_UNLESS_OK(check_output("gemm_quantized", "d", args.d));
  if (args.bias != nullptr) {
    RETURN_UNLESS_OK(
        check_vector("gemm_quantized", "bias", args.bias, columns, args.d->dtype, args.d->dtype));
  }
  const bool weights = args.w->dtype == CHIPSET_DTYPE_I8 && args.w_zero_point == nullptr &&
                       (args.w->stride[1] == 1 || inner <= 1) &&
                       args.w_scale->dtype == CHIPSET_DTYPE_F32;
  if (!weights || rows > kMostRows || !is_small_float(args.x->dtype) ||
      !is_small_float(args.d->dtype)) {
    return fail(CHIPSET_STATUS_UNSUPPORTED,
                "gemm_quantized: %lld rows of %s against %s; this chip does up to %lld rows of "
                "floats against symmetric i8 with contiguous rows itself",
                static_cast<long long>(rows), dtype_name(args.x->dtype), dtype_name(args.w->dtype),
                static_cast<long long>(kMostRows));
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace

chipset_status cpu_gemm_quantized(chipset_stream, const chipset_gemm_quantized_args* given) {
  const chipset_gemm_quantized_args& args = *given;
  RETURN_UNLESS_OK(check(args));
  if (numel(*args.d) == 0) return CHIPSET_STATUS_OK;
  const bool ok = CPU_SELECT(gemm_quantized_kernels).few_rows(args);
  return ok ? CHIPSET_STATUS_OK : no_memory("gemm_quantized");
}

}  // namespace chipset::cpu
