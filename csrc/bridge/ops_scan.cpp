// SPDX-License-Identifier: Apache-2.0
// Prefix operations along a dimension by the waist's scan.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_cummax_helper_ops.h>
#include <ATen/ops/_cummin_helper_ops.h>
#include <ATen/ops/_logcumsumexp_ops.h>
#include <ATen/ops/cumprod_meta.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_meta.h>
#include <ATen/ops/cumsum_ops.h>
#include <torch/library.h>

#include "structured.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

// `indices` is undefined except for the extrema.
bool scan(int32_t op, const at::Tensor& self, int64_t dim, const at::Tensor& out,
          const at::Tensor& indices) {
  if (self.numel() == 0) return true;
  if (!fits(self) || !computes(self) || !computes(out)) return false;
  // A scalar is a vector of one.
  const auto at_least_1d = [](const at::Tensor& t) { return t.dim() == 0 ? t.unsqueeze(0) : t; };
  const chipset_tensor input = view(at_least_1d(self)), output = view(at_least_1d(out));
  auto args = arguments<chipset_scan_args>();
  args.op = op;
  args.dim = static_cast<int32_t>(at::maybe_wrap_dim(dim, self.dim()));
  args.compute_dtype = output.dtype;
  args.input = &input;
  args.output = &output;
  chipset_tensor where;
  if (indices.defined()) {
    where = view(at_least_1d(indices));
    args.indices = &where;
  }
  return call<&chipset_api::scan>(self.get_device(), args);
}

template <class Meta, class Operator, int32_t op>
at::Tensor& cumulate_out(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype,
                         at::Tensor& out) {
  Out<Meta> structured(out);
  structured.meta(self, dim, dtype);
  if (scan(op, self, dim, out, {})) return out;
  return host<Operator>(self, dim, dtype, out);
}

template <class Meta, class Operator, int32_t op>
at::Tensor cumulate(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
  Functional<Meta> structured;
  structured.meta(self, dim, dtype);
  at::Tensor out = structured.take();
  if (scan(op, self, dim, out, {})) return out;
  return host<Operator>(self, dim, dtype);
}

template <class Operator, int32_t op>
void extremum(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim) {
  if (scan(op, self, dim, values, indices)) return;
  host<Operator>(self, values, indices, dim);
}

at::Tensor logcumsumexp(const at::Tensor& self, int64_t dim) {
  at::Tensor out = empty(self.sizes(), self.scalar_type(), self.get_device());
  if (at::isFloatingType(self.scalar_type()) && scan(CHIPSET_SCAN_OP_LOGSUMEXP, self, dim, out, {}))
    return out;
  return host<at::_ops::_logcumsumexp>(self, dim);
}

at::Tensor& logcumsumexp_out(const at::Tensor& self, int64_t dim, at::Tensor& out) {
  at::native::resize_output(out, self.sizes());
  if (at::isFloatingType(self.scalar_type()) && scan(CHIPSET_SCAN_OP_LOGSUMEXP, self, dim, out, {}))
    return out;
  return host<at::_ops::_logcumsumexp_out>(self, dim, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::_ops;
  m.impl("cumsum", cumulate<at::meta::structured_cumsum, cumsum, CHIPSET_SCAN_OP_SUM>);
  m.impl("cumsum.out", cumulate_out<at::meta::structured_cumsum, cumsum_out, CHIPSET_SCAN_OP_SUM>);
  m.impl("cumprod", cumulate<at::meta::structured_cumprod, cumprod, CHIPSET_SCAN_OP_PROD>);
  m.impl("cumprod.out",
         cumulate_out<at::meta::structured_cumprod, cumprod_out, CHIPSET_SCAN_OP_PROD>);
  m.impl("_cummax_helper", extremum<_cummax_helper, CHIPSET_SCAN_OP_MAX>);
  m.impl("_cummin_helper", extremum<_cummin_helper, CHIPSET_SCAN_OP_MIN>);
  m.impl("_logcumsumexp", logcumsumexp);
  m.impl("_logcumsumexp.out", logcumsumexp_out);
}

}  // namespace chipset::bridge
