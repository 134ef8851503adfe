// SPDX-License-Identifier: Apache-2.0
// Activation functions with parameters, and the derivatives of all activation functions.
#include <ATen/ops/elu_backward_meta.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/elu_meta.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu_backward_meta.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_meta.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/hardsigmoid_backward_meta.h>
#include <ATen/ops/hardsigmoid_backward_ops.h>
#include <ATen/ops/hardswish_backward_ops.h>
#include <ATen/ops/hardtanh_backward_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/leaky_relu_backward_meta.h>
#include <ATen/ops/leaky_relu_backward_ops.h>
#include <ATen/ops/leaky_relu_meta.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/log_sigmoid_backward_ops.h>
#include <ATen/ops/log_sigmoid_forward_ops.h>
#include <ATen/ops/mish_backward_ops.h>
#include <ATen/ops/sigmoid_backward_meta.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/silu_backward_meta.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/softplus_backward_meta.h>
#include <ATen/ops/softplus_backward_ops.h>
#include <ATen/ops/softplus_meta.h>
#include <ATen/ops/softplus_ops.h>
#include <ATen/ops/tanh_backward_meta.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_meta.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/threshold_meta.h>
#include <ATen/ops/threshold_ops.h>
#include <torch/library.h>

#include "pointwise.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

using at::Scalar;
using at::Tensor;

// ---- forward --------------------------------------------------------------------------------

Tensor& leaky_relu_out(const Tensor& self, const Scalar& slope, Tensor& out) {
  Out<at::meta::structured_leaky_relu> iterator(out);
  iterator.meta(self, slope);
  if (!pointwise(iterator, CHIPSET_POINTWISE_OP_LEAKY_RELU, Accepts::kFloat, {{scalar(slope)}}))
    host<at::_ops::leaky_relu_out>(self, slope, out);
  return out;
}

Tensor& elu_out(const Tensor& self, const Scalar& alpha, const Scalar& scale,
                const Scalar& input_scale, Tensor& out) {
  Out<at::meta::structured_elu> iterator(out);
  iterator.meta(self, alpha, scale, input_scale);
  const Params params{{scalar(alpha), scalar(scale), scalar(input_scale)}};
  if (!pointwise(iterator, CHIPSET_POINTWISE_OP_ELU, Accepts::kFloat, params))
    host<at::_ops::elu_out>(self, alpha, scale, input_scale, out);
  return out;
}

Tensor& softplus_out(const Tensor& self, const Scalar& beta, const Scalar& threshold, Tensor& out) {
  Out<at::meta::structured_softplus> iterator(out);
  iterator.meta(self, beta, threshold);
  const Params params{{scalar(beta), scalar(threshold)}};
  if (!pointwise(iterator, CHIPSET_POINTWISE_OP_SOFTPLUS, Accepts::kFloat, params))
    host<at::_ops::softplus_out>(self, beta, threshold, out);
  return out;
}

// The iterator of threshold holds the operand twice.
Tensor& threshold_out(const Tensor& self, const Scalar& threshold, const Scalar& value,
                      Tensor& out) {
  Out<at::meta::structured_threshold> iterator(out);
  iterator.meta(self, threshold, value);
  const auto type = self.scalar_type();
  const Params params{{scalar(threshold), scalar(value)}};
  if (!accepts(Accepts::kNumber, type) ||
      !pointwise(iterator, CHIPSET_POINTWISE_OP_THRESHOLD, type, {1}, params))
    host<at::_ops::threshold_out>(self, threshold, value, out);
  return out;
}

bool is_tanh(std::string_view approximate) { return approximate == "tanh"; }

Tensor gelu(const Tensor& self, std::string_view approximate) {
  const auto op =
      is_tanh(approximate) ? CHIPSET_POINTWISE_OP_GELU_TANH : CHIPSET_POINTWISE_OP_GELU_ERF;
  Functional<at::meta::structured_gelu> iterator;
  iterator.meta(self, approximate);
  if (!pointwise(iterator, op, Accepts::kFloat)) return host<at::_ops::gelu>(self, approximate);
  return iterator.take();
}

Tensor& gelu_out(const Tensor& self, std::string_view approximate, Tensor& out) {
  const auto op =
      is_tanh(approximate) ? CHIPSET_POINTWISE_OP_GELU_TANH : CHIPSET_POINTWISE_OP_GELU_ERF;
  Out<at::meta::structured_gelu> iterator(out);
  iterator.meta(self, approximate);
  if (!pointwise(iterator, op, Accepts::kFloat)) host<at::_ops::gelu_out>(self, approximate, out);
  return out;
}

Params bounds(const Scalar& low, const Scalar& high) { return {{scalar(low), scalar(high)}}; }

Tensor hardtanh(const Tensor& self, const Scalar& low, const Scalar& high) {
  Tensor out;
  if (!elementwise(CHIPSET_POINTWISE_OP_HARDTANH, Accepts::kFloat, {&self}, out, bounds(low, high)))
    return host<at::_ops::hardtanh>(self, low, high);
  return out;
}
Tensor& hardtanh_(Tensor& self, const Scalar& low, const Scalar& high) {
  if (!elementwise(CHIPSET_POINTWISE_OP_HARDTANH, Accepts::kFloat, {&self}, self,
                   bounds(low, high)))
    host<at::_ops::hardtanh_>(self, low, high);
  return self;
}
Tensor& hardtanh_out(const Tensor& self, const Scalar& low, const Scalar& high, Tensor& out) {
  if (!elementwise(CHIPSET_POINTWISE_OP_HARDTANH, Accepts::kFloat, {&self}, out, bounds(low, high)))
    host<at::_ops::hardtanh_out>(self, low, high, out);
  return out;
}

// The buffer serves torch's CPU kernels only; as on other accelerators it is empty here.
std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor& self) {
  Tensor out;
  if (!elementwise(CHIPSET_POINTWISE_OP_LOGSIGMOID, Accepts::kFloat, {&self}, out))
    return host<at::_ops::log_sigmoid_forward>(self);
  return {out, at::empty({0}, self.options())};
}
std::tuple<Tensor&, Tensor&> log_sigmoid_forward_out(const Tensor& self, Tensor& out,
                                                     Tensor& buffer) {
  if (!elementwise(CHIPSET_POINTWISE_OP_LOGSIGMOID, Accepts::kFloat, {&self}, out))
    return host<at::_ops::log_sigmoid_forward_output>(self, out, buffer);
  return {out, buffer};
}

// ---- backward -------------------------------------------------------------------------------

// clang-format off
// Operator, opcode: grad_input = op(gradient, saved).
#define BACKWARD(X) \
  X(silu_backward, SILU_BACKWARD) X(sigmoid_backward, SIGMOID_BACKWARD) \
  X(tanh_backward, TANH_BACKWARD) X(hardsigmoid_backward, HARDSIGMOID_BACKWARD)
// clang-format on

// Meta functions differ in the order of their two inputs, the opcodes do not.
bool backward(const at::TensorIteratorBase& iterator, chipset_pointwise_op op, const Tensor& grad,
              const Tensor& saved, const Params& params = {}) {
  const auto compute = iterator.common_dtype();
  return accepts(Accepts::kFloat, compute) &&
         pointwise(iterator, op, compute, {operand_of(iterator, grad), operand_of(iterator, saved)},
                   params);
}

template <class Meta, class Host, chipset_pointwise_op Op>
Tensor& backward_out(const Tensor& grad, const Tensor& saved, Tensor& out) {
  Out<Meta> iterator(out);
  iterator.meta(grad, saved);
  if (!backward(iterator, Op, grad, saved)) host<Host>(grad, saved, out);
  return out;
}

// Torch also has a composed form, which its autograd would take where a device has none of its own.
Tensor silu_backward(const Tensor& grad, const Tensor& self) {
  Functional<at::meta::structured_silu_backward> iterator;
  iterator.meta(grad, self);
  if (!backward(iterator, CHIPSET_POINTWISE_OP_SILU_BACKWARD, grad, self))
    return host<at::_ops::silu_backward>(grad, self);
  return iterator.take();
}

Tensor& threshold_backward_out(const Tensor& grad, const Tensor& self, const Scalar& threshold,
                               Tensor& out) {
  Out<at::meta::structured_threshold_backward> iterator(out);
  iterator.meta(grad, self, threshold);
  if (!backward(iterator, CHIPSET_POINTWISE_OP_THRESHOLD_BACKWARD, grad, self,
                {{scalar(threshold)}}))
    host<at::_ops::threshold_backward_grad_input>(grad, self, threshold, out);
  return out;
}

Tensor& leaky_relu_backward_out(const Tensor& grad, const Tensor& self, const Scalar& slope,
                                bool is_result, Tensor& out) {
  Out<at::meta::structured_leaky_relu_backward> iterator(out);
  iterator.meta(grad, self, slope, is_result);
  if (!backward(iterator, CHIPSET_POINTWISE_OP_LEAKY_RELU_BACKWARD, grad, self, {{scalar(slope)}}))
    host<at::_ops::leaky_relu_backward_grad_input>(grad, self, slope, is_result, out);
  return out;
}

Tensor& elu_backward_out(const Tensor& grad, const Scalar& alpha, const Scalar& scale,
                         const Scalar& input_scale, bool is_result, const Tensor& saved,
                         Tensor& out) {
  Out<at::meta::structured_elu_backward> iterator(out);
  iterator.meta(grad, alpha, scale, input_scale, is_result, saved);
  const Params params{
      {scalar(alpha), scalar(scale), scalar(input_scale), scalar(static_cast<int64_t>(is_result))}};
  if (!backward(iterator, CHIPSET_POINTWISE_OP_ELU_BACKWARD, grad, saved, params))
    host<at::_ops::elu_backward_grad_input>(grad, alpha, scale, input_scale, is_result, saved, out);
  return out;
}

Tensor& softplus_backward_out(const Tensor& grad, const Tensor& self, const Scalar& beta,
                              const Scalar& threshold, Tensor& out) {
  Out<at::meta::structured_softplus_backward> iterator(out);
  iterator.meta(grad, self, beta, threshold);
  if (!backward(iterator, CHIPSET_POINTWISE_OP_SOFTPLUS_BACKWARD, grad, self,
                {{scalar(beta), scalar(threshold)}}))
    host<at::_ops::softplus_backward_grad_input>(grad, self, beta, threshold, out);
  return out;
}

Tensor& gelu_backward_out(const Tensor& grad, const Tensor& self, std::string_view approximate,
                          Tensor& out) {
  const auto op = is_tanh(approximate) ? CHIPSET_POINTWISE_OP_GELU_TANH_BACKWARD
                                       : CHIPSET_POINTWISE_OP_GELU_ERF_BACKWARD;
  Out<at::meta::structured_gelu_backward> iterator(out);
  iterator.meta(grad, self, approximate);
  if (!backward(iterator, op, grad, self))
    host<at::_ops::gelu_backward_grad_input>(grad, self, approximate, out);
  return out;
}

Tensor hardtanh_backward(const Tensor& grad, const Tensor& self, const Scalar& low,
                         const Scalar& high) {
  Tensor out;
  if (!elementwise(CHIPSET_POINTWISE_OP_HARDTANH_BACKWARD, Accepts::kFloat, {&grad, &self}, out,
                   bounds(low, high)))
    return host<at::_ops::hardtanh_backward>(grad, self, low, high);
  return out;
}
Tensor& hardtanh_backward_out(const Tensor& grad, const Tensor& self, const Scalar& low,
                              const Scalar& high, Tensor& out) {
  if (!elementwise(CHIPSET_POINTWISE_OP_HARDTANH_BACKWARD, Accepts::kFloat, {&grad, &self}, out,
                   bounds(low, high)))
    host<at::_ops::hardtanh_backward_grad_input>(grad, self, low, high, out);
  return out;
}

Tensor hardswish_backward(const Tensor& grad, const Tensor& self) {
  Tensor out;
  if (!elementwise(CHIPSET_POINTWISE_OP_HARDSWISH_BACKWARD, Accepts::kFloat, {&grad, &self}, out))
    return host<at::_ops::hardswish_backward>(grad, self);
  return out;
}

Tensor mish_backward(const Tensor& grad, const Tensor& self) {
  Tensor out;
  if (!elementwise(CHIPSET_POINTWISE_OP_MISH_BACKWARD, Accepts::kFloat, {&grad, &self}, out))
    return host<at::_ops::mish_backward>(grad, self);
  return out;
}

Tensor log_sigmoid_backward(const Tensor& grad, const Tensor& self, const Tensor& buffer) {
  Tensor out;
  if (!elementwise(CHIPSET_POINTWISE_OP_LOGSIGMOID_BACKWARD, Accepts::kFloat, {&grad, &self}, out))
    return host<at::_ops::log_sigmoid_backward>(grad, self, buffer);
  return out;
}
Tensor& log_sigmoid_backward_out(const Tensor& grad, const Tensor& self, const Tensor& buffer,
                                 Tensor& out) {
  if (!elementwise(CHIPSET_POINTWISE_OP_LOGSIGMOID_BACKWARD, Accepts::kFloat, {&grad, &self}, out))
    host<at::_ops::log_sigmoid_backward_grad_input>(grad, self, buffer, out);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("silu_backward", TORCH_FN(silu_backward));
  m.impl("leaky_relu.out", TORCH_FN(leaky_relu_out));
  m.impl("elu.out", TORCH_FN(elu_out));
  m.impl("softplus.out", TORCH_FN(softplus_out));
  m.impl("threshold.out", TORCH_FN(threshold_out));
  m.impl("gelu", TORCH_FN(gelu));
  m.impl("gelu.out", TORCH_FN(gelu_out));
  m.impl("hardtanh", TORCH_FN(hardtanh));
  m.impl("hardtanh_", TORCH_FN(hardtanh_));
  m.impl("hardtanh.out", TORCH_FN(hardtanh_out));
  m.impl("log_sigmoid_forward", TORCH_FN(log_sigmoid_forward));
  m.impl("log_sigmoid_forward.output", TORCH_FN(log_sigmoid_forward_out));
#define REGISTER_BACKWARD(NAME, OP)                                                       \
  m.impl(#NAME ".grad_input",                                                             \
         TORCH_FN((backward_out<at::meta::structured_##NAME, at::_ops::NAME##_grad_input, \
                                CHIPSET_POINTWISE_OP_##OP>)));
  BACKWARD(REGISTER_BACKWARD)
  m.impl("threshold_backward.grad_input", TORCH_FN(threshold_backward_out));
  m.impl("leaky_relu_backward.grad_input", TORCH_FN(leaky_relu_backward_out));
  m.impl("elu_backward.grad_input", TORCH_FN(elu_backward_out));
  m.impl("softplus_backward.grad_input", TORCH_FN(softplus_backward_out));
  m.impl("gelu_backward.grad_input", TORCH_FN(gelu_backward_out));
  m.impl("hardtanh_backward", TORCH_FN(hardtanh_backward));
  m.impl("hardtanh_backward.grad_input", TORCH_FN(hardtanh_backward_out));
  m.impl("hardswish_backward", TORCH_FN(hardswish_backward));
  m.impl("mish_backward", TORCH_FN(mish_backward));
  m.impl("log_sigmoid_backward", TORCH_FN(log_sigmoid_backward));
  m.impl("log_sigmoid_backward.grad_input", TORCH_FN(log_sigmoid_backward_out));
}

}  // namespace
}  // namespace chipset::bridge
