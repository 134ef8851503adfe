// SPDX-License-Identifier: Apache-2.0
// Reductions to sums, means, products, norms, variances and counts.
#include <ATen/ops/all_meta.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/any_meta.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/count_nonzero_ops.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linalg_vector_norm_meta.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/logsumexp_ops.h>
#include <ATen/ops/mean_meta.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/nansum_ops.h>
#include <ATen/ops/norm_meta.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/prod_meta.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/std_mean_ops.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_meta.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/trace_ops.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_ops.h>
#include <torch/library.h>

#include "reduce.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

using at::IntArrayRef;
using at::OptionalIntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

using Dtype = std::optional<ScalarType>;

// Sums of bools and integers are int64.
ScalarType sum_dtype(const Tensor& self, Dtype dtype) {
  if (dtype) return *dtype;
  return at::isIntegralType(self.scalar_type(), true) ? at::kLong : self.scalar_type();
}

// ---- sum, mean, prod ------------------------------------------------------------------------

template <class Meta, class Host, chipset_reduce_op Op, Accepts Which>
Tensor sum_like(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Dtype dtype) {
  Functional<Meta> meta;
  meta.meta(self, dim, keepdim, dtype);
  const Tensor& out = meta.maybe_get_output(0);
  const auto compute = out.scalar_type();
  if (!accepts(Which, compute) || !reduce({Op, compute}, self, dim_mask(self, dim), out))
    return host<Host>(self, dim, keepdim, dtype);
  return meta.take();
}

template <class Meta, class Host, chipset_reduce_op Op, Accepts Which>
Tensor& sum_like_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Dtype dtype,
                     Tensor& out) {
  Out<Meta> meta(out);
  meta.meta(self, dim, keepdim, dtype);
  const auto compute = out.scalar_type();
  if (!accepts(Which, compute) || !reduce({Op, compute}, self, dim_mask(self, dim), out))
    host<Host>(self, dim, keepdim, dtype, out);
  return out;
}

Tensor prod(const Tensor& self, Dtype dtype) {
  const auto type = sum_dtype(self, dtype);
  Tensor out = empty({}, type, self.device().index());
  if (!accepts(Accepts::kAny, type) ||
      !reduce({CHIPSET_REDUCE_OP_PROD, type}, self, dim_mask(self, {}), out))
    return host<at::_ops::prod>(self, dtype);
  return out;
}
Tensor& prod_out(const Tensor& self, int64_t dim, bool keepdim, Dtype dtype, Tensor& out) {
  Out<at::meta::structured_prod_dim_int> meta(out);
  meta.meta(self, dim, keepdim, dtype);
  const auto compute = out.scalar_type();
  if (!accepts(Accepts::kAny, compute) ||
      !reduce({CHIPSET_REDUCE_OP_PROD, compute}, self, dim_mask(self, IntArrayRef(dim)), out))
    host<at::_ops::prod_int_out>(self, dim, keepdim, dtype, out);
  return out;
}

bool nansum_into(const Tensor& self, OptionalIntArrayRef dim, const Tensor& out) {
  const auto op =
      at::isFloatingType(self.scalar_type()) ? CHIPSET_REDUCE_OP_NANSUM : CHIPSET_REDUCE_OP_SUM;
  return reduce({op, out.scalar_type()}, self, dim_mask(self, dim), out);
}
Tensor nansum(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Dtype dtype) {
  const auto type = sum_dtype(self, dtype);
  if (!accepts(Accepts::kAny, type)) return host<at::_ops::nansum>(self, dim, keepdim, dtype);
  Tensor out =
      empty(reduced_sizes(self, dim_mask(self, dim), keepdim), type, self.device().index());
  if (!nansum_into(self, dim, out)) return host<at::_ops::nansum>(self, dim, keepdim, dtype);
  return out;
}
Tensor& nansum_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Dtype dtype,
                   Tensor& out) {
  at::native::resize_output(out, reduced_sizes(self, dim_mask(self, dim), keepdim));
  if (!accepts(Accepts::kAny, out.scalar_type()) || !nansum_into(self, dim, out))
    host<at::_ops::nansum_out>(self, dim, keepdim, dtype, out);
  return out;
}

Tensor trace(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  return at::sum(self.diagonal());
}

// ---- any, all, count_nonzero ----------------------------------------------------------------

// Truth is computed in bool; the output is bool, or uint8 for a uint8 input.
template <class Meta, class Host, chipset_reduce_op Op>
Tensor& truth_out(const Tensor& self, Tensor& out) {
  Out<Meta> meta(out);
  meta.meta(self);
  if (!reduce({Op, at::kBool}, self, dim_mask(self, {}), out)) host<Host>(self, out);
  return out;
}
template <class Meta, class Host, chipset_reduce_op Op>
Tensor& truth_dim_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& out) {
  Out<Meta> meta(out);
  meta.meta(self, dim, keepdim);
  if (!reduce({Op, at::kBool}, self, dim_mask(self, IntArrayRef(dim)), out))
    host<Host>(self, dim, keepdim, out);
  return out;
}
template <class Meta, class Host, chipset_reduce_op Op>
Tensor& truth_dims_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, Tensor& out) {
  Out<Meta> meta(out);
  meta.meta(self, dim, keepdim);
  // An explicitly empty list reduces nothing here, unlike in sum.
  const uint32_t mask = dim.has_value() && dim->empty() ? 0 : dim_mask(self, dim);
  if (!reduce({Op, at::kBool}, self, mask, out)) host<Host>(self, dim, keepdim, out);
  return out;
}

Tensor count_nonzero(const Tensor& self, IntArrayRef dim) {
  const uint32_t mask = dim_mask(self, dim);
  Tensor out = empty(reduced_sizes(self, mask, false), at::kLong, self.device().index());
  if (!accepts(Accepts::kAny, self.scalar_type()) ||
      !reduce({CHIPSET_REDUCE_OP_COUNT_NONZERO, self.scalar_type()}, self, mask, out))
    return host<at::_ops::count_nonzero_dim_IntList>(self, dim);
  return out;
}

// ---- norms ----------------------------------------------------------------------------------

bool norm_into(const Tensor& self, const Scalar& order, OptionalIntArrayRef dim,
               const Tensor& out) {
  const auto compute = out.scalar_type();
  return !order.isComplex() && accepts(Accepts::kFloat, compute) &&
         reduce({CHIPSET_REDUCE_OP_NORM, compute, order.toDouble()}, self, dim_mask(self, dim),
                out);
}
Tensor vector_norm(const Tensor& self, const Scalar& order, OptionalIntArrayRef dim, bool keepdim,
                   Dtype dtype) {
  Functional<at::meta::structured_linalg_vector_norm> meta;
  meta.meta(self, order, dim, keepdim, dtype);
  if (!norm_into(self, order, dim, meta.maybe_get_output(0)))
    return host<at::_ops::linalg_vector_norm>(self, order, dim, keepdim, dtype);
  return meta.take();
}
Tensor& vector_norm_out(const Tensor& self, const Scalar& order, OptionalIntArrayRef dim,
                        bool keepdim, Dtype dtype, Tensor& out) {
  Out<at::meta::structured_linalg_vector_norm> meta(out);
  meta.meta(self, order, dim, keepdim, dtype);
  if (!norm_into(self, order, dim, out))
    host<at::_ops::linalg_vector_norm_out>(self, order, dim, keepdim, dtype, out);
  return out;
}
Tensor& norm_out(const Tensor& self, const std::optional<Scalar>& p, IntArrayRef dim, bool keepdim,
                 Tensor& out) {
  return at::linalg_vector_norm_out(out, self, p.value_or(2.0), dim, keepdim, std::nullopt);
}
Tensor& norm_dtype_out(const Tensor& self, const std::optional<Scalar>& p, IntArrayRef dim,
                       bool keepdim, ScalarType dtype, Tensor& out) {
  return at::linalg_vector_norm_out(out, self, p.value_or(2.0), dim, keepdim, dtype);
}

Tensor logsumexp(const Tensor& self, IntArrayRef dim, bool keepdim) {
  const auto type = self.scalar_type();
  const auto result = at::isIntegralType(type, true) ? at::kFloat : type;
  TORCH_CHECK(at::isFloatingType(result) || at::isComplexType(result),
              "logsumexp(): Expected floating point type for result tensor, but got: ", result);
  const uint32_t mask = dim_mask(self, dim);
  Tensor out = empty(reduced_sizes(self, mask, keepdim), result, self.device().index());
  if (!accepts(Accepts::kFloat, result) ||
      !reduce({CHIPSET_REDUCE_OP_LOGSUMEXP, result}, self, mask, out))
    return host<at::_ops::logsumexp>(self, dim, keepdim);
  return out;
}

// ---- variance -------------------------------------------------------------------------------

struct Moments {
  Tensor variance;
  Tensor mean;
};

// Variance, or its root, and if asked the mean. Undefined when the chip does not do it.
Moments moments(const Tensor& self, OptionalIntArrayRef dim,
                const std::optional<Scalar>& correction, bool keepdim, bool root, bool want_mean) {
  const auto type = self.scalar_type();
  if (!accepts(Accepts::kFloat, type)) return {};
  const double delta = correction.value_or(1).toDouble();
  const uint32_t mask = dim_mask(self, dim);
  const auto sizes = reduced_sizes(self, mask, keepdim);
  const int device = self.device().index();
  Moments out{empty(sizes, type, device), want_mean ? empty(sizes, type, device) : Tensor()};
  if (!reduce({CHIPSET_REDUCE_OP_VAR, type, delta, want_mean ? &out.mean : nullptr}, self, mask,
              out.variance))
    return {};
  const int64_t count = out.variance.numel() == 0 ? 0 : self.numel() / out.variance.numel();
  if (out.variance.numel() > 0 && static_cast<double>(count) <= delta)
    TORCH_WARN(
        "var(): degrees of freedom is <= 0. Correction should be strictly less than the "
        "reduction factor (input numel divided by output numel).");
  if (root) at::sqrt_(out.variance);
  return out;
}

Tensor var(const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>& correction,
           bool keepdim) {
  auto out = moments(self, dim, correction, keepdim, false, false);
  if (!out.variance.defined())
    return host<at::_ops::var_correction>(self, dim, correction, keepdim);
  return out.variance;
}
Tensor std_(const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>& correction,
            bool keepdim) {
  auto out = moments(self, dim, correction, keepdim, true, false);
  if (!out.variance.defined())
    return host<at::_ops::std_correction>(self, dim, correction, keepdim);
  return out.variance;
}
std::tuple<Tensor, Tensor> var_mean(const Tensor& self, OptionalIntArrayRef dim,
                                    const std::optional<Scalar>& correction, bool keepdim) {
  auto out = moments(self, dim, correction, keepdim, false, true);
  if (!out.variance.defined())
    return host<at::_ops::var_mean_correction>(self, dim, correction, keepdim);
  return {out.variance, out.mean};
}
std::tuple<Tensor, Tensor> std_mean(const Tensor& self, OptionalIntArrayRef dim,
                                    const std::optional<Scalar>& correction, bool keepdim) {
  auto out = moments(self, dim, correction, keepdim, true, true);
  if (!out.variance.defined())
    return host<at::_ops::std_mean_correction>(self, dim, correction, keepdim);
  return {out.variance, out.mean};
}

Tensor& var_out(const Tensor& self, OptionalIntArrayRef dim,
                const std::optional<Scalar>& correction, bool keepdim, Tensor& out) {
  return store(var(self, dim, correction, keepdim), out);
}
Tensor& std_out(const Tensor& self, OptionalIntArrayRef dim,
                const std::optional<Scalar>& correction, bool keepdim, Tensor& out) {
  return store(std_(self, dim, correction, keepdim), out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("sum.dim_IntList",
         TORCH_FN((sum_like<at::meta::structured_sum_dim_IntList, at::_ops::sum_dim_IntList,
                            CHIPSET_REDUCE_OP_SUM, Accepts::kAny>)));
  m.impl("sum.IntList_out",
         TORCH_FN((sum_like_out<at::meta::structured_sum_dim_IntList, at::_ops::sum_IntList_out,
                                CHIPSET_REDUCE_OP_SUM, Accepts::kAny>)));
  m.impl("mean.dim", TORCH_FN((sum_like<at::meta::structured_mean_dim, at::_ops::mean_dim,
                                        CHIPSET_REDUCE_OP_MEAN, Accepts::kFloat>)));
  m.impl("mean.out", TORCH_FN((sum_like_out<at::meta::structured_mean_dim, at::_ops::mean_out,
                                            CHIPSET_REDUCE_OP_MEAN, Accepts::kFloat>)));
  m.impl("prod", TORCH_FN(prod));
  m.impl("prod.int_out", TORCH_FN(prod_out));
  m.impl("nansum", TORCH_FN(nansum));
  m.impl("nansum.out", TORCH_FN(nansum_out));
  m.impl("trace", TORCH_FN(trace));
#define REGISTER_TRUTH(NAME, OP)                                                                 \
  m.impl(#NAME ".all_out",                                                                       \
         TORCH_FN((truth_out<at::meta::structured_##NAME, at::_ops::NAME##_all_out,              \
                             CHIPSET_REDUCE_OP_##OP>)));                                         \
  m.impl(#NAME ".out", TORCH_FN((truth_dim_out<at::meta::structured_##NAME##_dim,                \
                                               at::_ops::NAME##_out, CHIPSET_REDUCE_OP_##OP>))); \
  m.impl(#NAME ".dims_out",                                                                      \
         TORCH_FN((truth_dims_out<at::meta::structured_##NAME##_dims, at::_ops::NAME##_dims_out, \
                                  CHIPSET_REDUCE_OP_##OP>)));
  REGISTER_TRUTH(any, ANY)
  REGISTER_TRUTH(all, ALL)
  m.impl("count_nonzero.dim_IntList", TORCH_FN(count_nonzero));
  m.impl("linalg_vector_norm", TORCH_FN(vector_norm));
  m.impl("linalg_vector_norm.out", TORCH_FN(vector_norm_out));
  m.impl("norm.out", TORCH_FN(norm_out));
  m.impl("norm.dtype_out", TORCH_FN(norm_dtype_out));
  m.impl("logsumexp", TORCH_FN(logsumexp));
  m.impl("var.correction", TORCH_FN(var));
  m.impl("std.correction", TORCH_FN(std_));
  m.impl("var_mean.correction", TORCH_FN(var_mean));
  m.impl("std_mean.correction", TORCH_FN(std_mean));
  m.impl("var.correction_out", TORCH_FN(var_out));
  m.impl("std.correction_out", TORCH_FN(std_out));
}

}  // namespace
}  // namespace chipset::bridge
