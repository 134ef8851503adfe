// SPDX-License-Identifier: Apache-2.0
// gemm: checks the arguments and takes the tensors apart for the kernels.
#include "gemm.h"

#include <cinttypes>

#include "check.h"
#include "dispatch.h"
#include "error.h"
#include "functions.h"
#include "tasks.h"
#include "tensor.h"

namespace chipset::cpu {
namespace {

// The last two dimensions' strides; a dimension of size 1 is given the stride that suits kernels.
struct Matrix {
  const char* data;
  int64_t batch_stride, row, column;  // batch_stride in bytes
};

Matrix matrix(const chipset_tensor& t) {
  const int r = t.rank;
  Matrix m{static_cast<const char*>(t.data), 0, t.stride[r - 2], t.stride[r - 1]};
  if (r == 3 && t.shape[0] > 1) m.batch_stride = t.stride[0] * dtype_size(t.dtype);
  if (t.shape[r - 1] == 1) m.column = 1;
  if (t.shape[r - 2] == 1) m.row = m.column == 1 ? t.shape[r - 1] : 1;
  return m;
}

// c, d and bias: the operands' dtype, or F32 beside F16 and BF16.
bool goes_with(int32_t dtype, int32_t operands) {
  return dtype == operands || (dtype == CHIPSET_DTYPE_F32 && operands != CHIPSET_DTYPE_F64);
}

chipset_status check(const chipset_gemm_args& g) {
  RETURN_UNLESS_OK(check_tensor("gemm", "a", g.a));
  RETURN_UNLESS_OK(check_tensor("gemm", "b", g.b));
  RETURN_UNLESS_OK(check_output("gemm", "d", g.d));
  if (g.c != nullptr) RETURN_UNLESS_OK(check_tensor("gemm", "c", g.c));
  if (g.bias != nullptr) RETURN_UNLESS_OK(check_tensor("gemm", "bias", g.bias));
  const chipset_tensor &a = *g.a, &b = *g.b, &d = *g.d;
  const int r = d.rank;
  const bool ranks = (r == 2 || r == 3) && a.rank == r && b.rank == r;
  if (!ranks || a.shape[r - 2] != d.shape[r - 2] || b.shape[r - 1] != d.shape[r - 1] ||
      a.shape[r - 1] != b.shape[r - 2] ||
      (r == 3 && (a.shape[0] != d.shape[0] || b.shape[0] != d.shape[0]))) {
    return fail(CHIPSET_STATUS_INVALID,
                "gemm: shapes a %s @ b %s do not give d %s; need [M,K] @ [K,N] = [M,N], all with "
                "or all without a batch dimension",
                shape_text(a), shape_text(b), shape_text(d));
  }
  if (g.c != nullptr && !same_shape(*g.c, d)) {
    return fail(CHIPSET_STATUS_INVALID, "gemm: c has shape %s, d %s; broadcast c by strides of 0",
                shape_text(*g.c), shape_text(d));
  }
  if (g.bias != nullptr && (g.bias->rank != 1 || g.bias->shape[0] != d.shape[r - 1])) {
    return fail(CHIPSET_STATUS_INVALID, "gemm: bias has shape %s, need [%" PRId64 "]",
                shape_text(*g.bias), d.shape[r - 1]);
  }
  if (g.activation < CHIPSET_ACTIVATION_NONE || g.activation > CHIPSET_ACTIVATION_SILU) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "gemm: unknown activation %d", g.activation);
  }
  if (!is_number_float(a.dtype) || b.dtype != a.dtype || !goes_with(d.dtype, a.dtype) ||
      (g.c != nullptr && !goes_with(g.c->dtype, a.dtype)) ||
      (g.bias != nullptr && !goes_with(g.bias->dtype, a.dtype))) {
    return fail(CHIPSET_STATUS_UNSUPPORTED,
                "gemm: dtypes a %s, b %s, d %s; need one of f16, bf16, f32, f64 for all (d, c and "
                "bias may be f32 beside f16 and bf16)",
                dtype_name(a.dtype), dtype_name(b.dtype), dtype_name(d.dtype));
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace

chipset_status cpu_gemm(chipset_stream, const chipset_gemm_args* args) {
  const chipset_gemm_args& g = *args;
  RETURN_UNLESS_OK(check(g));
  const int r = g.d->rank;
  const int64_t batch = r == 3 ? g.d->shape[0] : 1;
  const Matrix a = matrix(*g.a), b = matrix(*g.b), d = matrix(*g.d);
  const bool has_c = g.c != nullptr && g.beta != 0;
  const Matrix c = has_c ? matrix(*g.c) : Matrix{};
  // alpha = 0 must not spread NaN of a and b: the product has no terms then.
  const int64_t k = g.alpha == 0 ? 0 : g.a->shape[r - 1];
  const GemmProblem whole = {.m = g.d->shape[r - 2],
                             .n = g.d->shape[r - 1],
                             .k = k,
                             .a = a.data,
                             .a_m = a.row,
                             .a_k = a.column,
                             .b = b.data,
                             .b_k = b.row,
                             .b_n = b.column,
                             .c = has_c ? c.data : nullptr,
                             .c_m = c.row,
                             .c_n = c.column,
                             .d = g.d->data,
                             .d_m = d.row,
                             .d_n = d.column,
                             .bias = g.bias != nullptr ? g.bias->data : nullptr,
                             .bias_n = g.bias != nullptr ? g.bias->stride[0] : 0,
                             .alpha = g.alpha,
                             .beta = has_c ? g.beta : 0,
                             .activation = g.activation,
                             .dtype = g.a->dtype,
                             .c_dtype = has_c ? g.c->dtype : g.d->dtype,
                             .d_dtype = g.d->dtype,
                             .bias_dtype = g.bias != nullptr ? g.bias->dtype : g.d->dtype};
  if (whole.m == 0 || whole.n == 0 || batch == 0) return CHIPSET_STATUS_OK;
  const GemmKernels& kernels = CPU_SELECT(gemm_kernels);
  bool ok = true;
  auto run = [&](int64_t i, bool parallel) {
    GemmProblem p = whole;
    p.a = a.data + i * a.batch_stride;
    p.b = b.data + i * b.batch_stride;
    if (has_c) p.c = c.data + i * c.batch_stride;
    p.d = const_cast<char*>(d.data) + i * d.batch_stride;
    if (!kernels.gemm(p, parallel)) __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
  };
  const double products = static_cast<double>(whole.m) * static_cast<double>(whole.n) *
                          static_cast<double>(k) * static_cast<double>(batch);
  if (batch >= 2 * thread_count() && products > 4e5) {
    // Groups of matrices, each of which is done by one thread.
    const int64_t tasks = batch < 16 * thread_count() ? batch : 16 * thread_count();
    for_tasks(tasks, true, [&](int64_t task) {
      for (int64_t i = batch * task / tasks; i < batch * (task + 1) / tasks; ++i) run(i, false);
    });
  } else {
    for (int64_t i = 0; i < batch; ++i) run(i, true);
  }
  if (!ok) {
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY,
                "gemm: no memory for the packed operands of %s @ %s; free host memory",
                shape_text(*g.a), shape_text(*g.b));
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
