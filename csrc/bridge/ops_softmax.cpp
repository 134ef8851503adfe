// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax, forward and backward, by the waist's own functions.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_meta.h>
#include <ATen/ops/_softmax_ops.h>
#include <torch/library.h>

#include "structured.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

// The waist's dimensions: a scalar is a vector of one.
chipset_tensor at_least_1d(const at::Tensor& tensor) {
  chipset_tensor out = view(tensor);
  if (out.rank > 0) return out;
  out.rank = 1;
  out.shape[0] = 1;
  out.stride[0] = 1;
  return out;
}

// `result` is undefined in the forward. False: not done.
template <auto Function>
bool softmax_into(bool log, int64_t dim, const at::Tensor& input, const at::Tensor& result,
                  const at::Tensor& output) {
  same_device("softmax", input, result, output);
  if (output.numel() == 0) return true;
  if (!fits(input) || !at::isFloatingType(input.scalar_type())) return false;
  const chipset_tensor x = at_least_1d(input);
  const chipset_tensor y = at_least_1d(output);
  auto args = arguments<chipset_softmax_args>();
  args.dim = static_cast<int32_t>(at::maybe_wrap_dim(dim, input.dim()));
  args.log = log;
  args.input = &x;
  args.output = &y;
  chipset_tensor saved;
  if (result.defined()) {
    saved = at_least_1d(result);
    args.result = &saved;
  }
  return call<Function>(input.get_device(), args);
}

template <bool log>
bool forward_into(const at::Tensor& self, int64_t dim, const at::Tensor& out) {
  return softmax_into<&chipset_api::softmax>(log, dim, self, {}, out);
}

template <class Meta, class Operator, bool log>
at::Tensor forward(const at::Tensor& self, int64_t dim, bool half_to_float) {
  Functional<Meta> op;
  op.meta(self, dim, half_to_float);
  at::Tensor out = op.take();
  if (forward_into<log>(self, dim, out)) return out;
  return host<Operator>(self, dim, half_to_float);
}

template <class Meta, class Operator, bool log>
at::Tensor& forward_out(const at::Tensor& self, int64_t dim, bool half_to_float, at::Tensor& out) {
  Out<Meta> op(out);
  op.meta(self, dim, half_to_float);
  if (forward_into<log>(self, dim, out)) return out;
  return host<Operator>(self, dim, half_to_float, out);
}

template <class Meta, class Operator, bool log>
at::Tensor backward(const at::Tensor& grad, const at::Tensor& result, int64_t dim,
                    at::ScalarType input_dtype) {
  Functional<Meta> op;
  op.meta(grad, result, dim, input_dtype);
  at::Tensor out = op.take();
  if (softmax_into<&chipset_api::softmax_backward>(log, dim, grad, result, out)) return out;
  return host<Operator>(grad, result, dim, input_dtype);
}

template <class Meta, class Operator, bool log>
at::Tensor& backward_out(const at::Tensor& grad, const at::Tensor& result, int64_t dim,
                         at::ScalarType input_dtype, at::Tensor& out) {
  Out<Meta> op(out);
  op.meta(grad, result, dim, input_dtype);
  if (softmax_into<&chipset_api::softmax_backward>(log, dim, grad, result, out)) return out;
  return host<Operator>(grad, result, dim, input_dtype, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::meta;
  using namespace at::_ops;
  m.impl("_softmax", forward<structured__softmax, _softmax, false>);
  m.impl("_softmax.out", forward_out<structured__softmax, _softmax_out, false>);
  m.impl("_log_softmax", forward<structured__log_softmax, _log_softmax, true>);
  m.impl("_log_softmax.out", forward_out<structured__log_softmax, _log_softmax_out, true>);
  m.impl("_softmax_backward_data",
         backward<structured__softmax_backward_data, _softmax_backward_data, false>);
  m.impl("_softmax_backward_data.out",
         backward_out<structured__softmax_backward_data, _softmax_backward_data_out, false>);
  m.impl("_log_softmax_backward_data",
         backward<structured__log_softmax_backward_data, _log_softmax_backward_data, true>);
  m.impl("_log_softmax_backward_data.out",
         backward_out<structured__log_softmax_backward_data, _log_softmax_backward_data_out, true>);
}

}  // namespace chipset::bridge
