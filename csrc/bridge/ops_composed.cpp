// SPDX-License-Identifier: Apache-2.0
// Operators that torch implements for its own devices only and that other operators express.
#include <ATen/ExpandUtils.h>
#include <ATen/ScalarOps.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/angle_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/hardshrink_backward_meta.h>
#include <ATen/ops/hardshrink_meta.h>
#include <ATen/ops/i0.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/le.h>
#include <ATen/ops/linalg_cross_meta.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logit_backward_meta.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/renorm_meta.h>
#include <ATen/ops/round.h>
#include <ATen/ops/round_meta.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softshrink_backward_meta.h>
#include <ATen/ops/softshrink_meta.h>
#include <ATen/ops/special_entr_meta.h>
#include <ATen/ops/special_i0e_meta.h>
#include <ATen/ops/special_xlog1py_meta.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>

#include "structured.h"

namespace chipset::bridge {
namespace {

using at::Scalar;
using at::Tensor;

// A number that does not change the dtype of what it meets.
Tensor number(double value) { return at::native::wrapped_scalar_tensor(value); }

// ---- shrinking activations ------------------------------------------------------------------

Tensor& hardshrink_out(const Tensor& self, const Scalar& lambda, Tensor& out) {
  Out<at::meta::structured_hardshrink> check(out);
  check.meta(self, lambda);
  return at::where_out(out, at::le(at::abs(self), lambda), number(0), self);
}
// Both shrinks have the same derivative: the gradient where |x| > lambda.
template <class Meta>
Tensor& shrink_backward_out(const Tensor& grad, const Tensor& self, const Scalar& lambda,
                            Tensor& out) {
  Out<Meta> check(out);
  check.meta(grad, self, lambda);
  return at::where_out(out, at::le(at::abs(self), lambda), number(0), grad);
}
Tensor& softshrink_out(const Tensor& self, const Scalar& lambda, Tensor& out) {
  Out<at::meta::structured_softshrink> check(out);
  check.meta(self, lambda);
  return at::sub_out(out, self, at::clamp(self, Scalar(-lambda.toDouble()), lambda));
}

// ---- gates ----------------------------------------------------------------------------------

int64_t check_halves(const Tensor& self, int64_t dim) {
  TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.size(dim) % 2 == 0, "Halving dimension must be even, but dimension ", dim,
              " is size ", self.size(dim));
  return dim;
}
Tensor& glu_out(const Tensor& self, int64_t dim, Tensor& out) {
  dim = check_halves(self, dim);
  const int64_t half = self.size(dim) / 2;
  const Tensor value = self.narrow(dim, 0, half);
  const Tensor gate = at::sigmoid(self.narrow(dim, half, half));
  return at::mul_out(out, value, gate);
}
Tensor glu_backward(const Tensor& grad, const Tensor& self, int64_t dim) {
  dim = check_halves(self, dim);
  const int64_t half = self.size(dim) / 2;
  const Tensor value = self.narrow(dim, 0, half);
  const Tensor gate = at::sigmoid(self.narrow(dim, half, half));
  const Tensor through = at::mul(grad, gate);
  return at::cat({through, at::mul(at::mul(through, at::sub(number(1), gate)), value)}, dim);
}
Tensor& glu_backward_out(const Tensor& grad, const Tensor& self, int64_t dim, Tensor& out) {
  return store(glu_backward(grad, self, dim), out);
}

Tensor prelu(const Tensor& self, const Tensor& weight) {
  return at::where(at::gt(self, 0), self, at::mul(self, weight));
}
std::tuple<Tensor, Tensor> prelu_backward(const Tensor& grad, const Tensor& self,
                                          const Tensor& weight) {
  const Tensor positive = at::gt(self, 0);
  return {at::where(positive, grad, at::mul(grad, weight)),
          at::where(positive, number(0), at::mul(grad, self))};
}

// ---- logit, entropy, angle ------------------------------------------------------------------

Tensor logit(const Tensor& self, std::optional<double> eps) {
  const Tensor float_self =
      at::isIntegralType(self.scalar_type(), true) ? self.to(at::kFloat) : self;
  const Tensor x = eps ? at::clamp(float_self, Scalar(*eps), Scalar(1.0 - *eps)) : float_self;
  return at::log(at::div(x, at::sub(number(1), x)));
}
Tensor& logit_(Tensor& self, std::optional<double> eps) { return self.copy_(logit(self, eps)); }
Tensor& logit_out(const Tensor& self, std::optional<double> eps, Tensor& out) {
  return store(logit(self, eps), out);
}
Tensor& logit_backward_out(const Tensor& grad, const Tensor& self, std::optional<double> eps,
                           Tensor& out) {
  Out<at::meta::structured_logit_backward> check(out);
  check.meta(grad, self, eps);
  const double low = eps.value_or(0.0);
  const Tensor outside = at::logical_or(at::lt(self, low), at::gt(self, 1.0 - low));
  const Tensor inside = at::div(grad, at::mul(self, at::sub(number(1), self)));
  return at::where_out(out, outside, number(eps ? 0.0 : std::nan("")), inside);
}

// -x log x, 0 at 0, -inf below.
Tensor& entr_out(const Tensor& self, Tensor& out) {
  Out<at::meta::structured_special_entr> check(out);
  check.meta(self);
  const Tensor entropy = at::neg(at::xlogy(self, self));
  return at::where_out(out, at::lt(self, 0), number(-INFINITY), entropy);
}
// x log(1 + y), 0 where x is 0 and y is not NaN.
Tensor& xlog1py_out(const Tensor& self, const Tensor& other, Tensor& out) {
  Out<at::meta::structured_special_xlog1py> check(out);
  check.meta(self, other);
  const Tensor product = at::mul(self, at::log1p(other));
  const Tensor zero = at::logical_and(at::eq(self, 0), at::logical_not(at::isnan(other)));
  return store(at::where(zero, number(0), product), out);
}

// exp(-|x|) I0(x).
Tensor& i0e_out(const Tensor& self, Tensor& out) {
  Out<at::meta::structured_special_i0e> check(out);
  check.meta(self);
  return store(at::mul(at::exp(at::neg(at::abs(self))), at::i0(self)), out);
}

// Of a real number: pi below zero, 0 above, NaN stays.
Tensor angle(const Tensor& self) {
  const Tensor x = at::isIntegralType(self.scalar_type(), true) ? self.to(at::kFloat) : self;
  if (x.is_complex()) return host<at::_ops::angle>(self);
  const Tensor negative = at::mul(at::lt(x, 0).to(x.scalar_type()), M_PI);
  return at::where(at::isnan(x), x, negative);
}
Tensor& angle_out(const Tensor& self, Tensor& out) { return store(angle(self), out); }

// ---- rounding to decimals -------------------------------------------------------------------

Tensor& round_decimals_out(const Tensor& self, int64_t decimals, Tensor& out) {
  Out<at::meta::structured_round_decimals> check(out);
  check.meta(self, decimals);
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  if (decimals >= 0) return at::div_out(out, at::round(at::mul(self, scale)), number(scale));
  return at::mul_out(out, at::round(at::div(self, scale)), number(scale));
}

// ---- complex numbers: views, and assembly from parts ------------------------------------------

Tensor& complex_out(const Tensor& real, const Tensor& imag, Tensor& out) {
  TORCH_CHECK(real.scalar_type() == imag.scalar_type(), "Expected object of scalar type ",
              real.scalar_type(), " but got scalar type ", imag.scalar_type(),
              " for second argument");
  TORCH_CHECK(out.scalar_type() == c10::toComplexType(real.scalar_type()),
              "Expected object of scalar type ", c10::toComplexType(real.scalar_type()),
              " but got scalar type ", out.scalar_type(), " for argument 'out'");
  same_device("complex", real, imag, out);
  at::native::resize_output(out, at::infer_size(real.sizes(), imag.sizes()));
  const Tensor parts = at::view_as_real(out);
  parts.select(-1, 0).copy_(real);
  parts.select(-1, 1).copy_(imag);
  return out;
}
Tensor& polar_out(const Tensor& abs, const Tensor& angle, Tensor& out) {
  return complex_out(at::mul(abs, at::cos(angle)), at::mul(abs, at::sin(angle)), out);
}

// ---- losses ---------------------------------------------------------------------------------

constexpr int64_t kMean = 1;
constexpr int64_t kSum = 2;

Tensor reduced(const Tensor& loss, int64_t reduction) {
  return reduction == kMean ? at::mean(loss) : reduction == kSum ? at::sum(loss) : loss;
}
// The gradient of each element's loss, given that of the result.
Tensor spread(const Tensor& grad, const Tensor& self, int64_t reduction) {
  return reduction == kMean ? at::div(grad, static_cast<double>(self.numel())) : grad;
}

Tensor mse_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  const Tensor difference = at::sub(self, target);
  return reduced(at::mul(difference, difference), reduction);
}
Tensor& mse_loss_out(const Tensor& self, const Tensor& target, int64_t reduction, Tensor& out) {
  return store(mse_loss(self, target, reduction), out);
}
Tensor mse_loss_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                         int64_t reduction) {
  return at::mul(at::mul(at::sub(self, target), 2), spread(grad, self, reduction));
}
Tensor& mse_loss_backward_out(const Tensor& grad, const Tensor& self, const Tensor& target,
                              int64_t reduction, Tensor& out) {
  return store(mse_loss_backward(grad, self, target, reduction), out);
}

// Quadratic within the bound, linear beyond it; the two losses differ by the factor beta.
Tensor huber_elements(const Tensor& self, const Tensor& target, double bound, bool divided) {
  const Tensor z = at::abs(at::sub(self, target));
  if (divided && bound == 0.0) return z;
  const double scale = divided ? 1.0 / bound : 1.0;
  const Tensor inner = at::mul(at::mul(z, z), 0.5 * scale);
  const Tensor outer = at::mul(at::sub(z, 0.5 * bound), divided ? 1.0 : bound);
  return at::where(divided ? at::lt(z, bound) : at::le(z, bound), inner, outer);
}
Tensor huber_gradient(const Tensor& grad, const Tensor& self, const Tensor& target,
                      int64_t reduction, double bound, bool divided) {
  const Tensor difference = at::sub(self, target);
  const Tensor slope = divided && bound == 0.0 ? at::sign(difference)
                       : divided
                           ? at::div(at::clamp(difference, Scalar(-bound), Scalar(bound)), bound)
                           : at::clamp(difference, Scalar(-bound), Scalar(bound));
  return at::mul(slope, spread(grad, self, reduction));
}

Tensor smooth_l1_loss(const Tensor& self, const Tensor& target, int64_t reduction, double beta) {
  TORCH_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta.");
  return reduced(huber_elements(self, target, beta, true), reduction);
}
Tensor& smooth_l1_loss_out(const Tensor& self, const Tensor& target, int64_t reduction, double beta,
                           Tensor& out) {
  return store(smooth_l1_loss(self, target, reduction, beta), out);
}
Tensor& smooth_l1_loss_backward_out(const Tensor& grad, const Tensor& self, const Tensor& target,
                                    int64_t reduction, double beta, Tensor& out) {
  return store(huber_gradient(grad, self, target, reduction, beta, true), out);
}
Tensor huber_loss(const Tensor& self, const Tensor& target, int64_t reduction, double delta) {
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
  return reduced(huber_elements(self, target, delta, false), reduction);
}
Tensor& huber_loss_out(const Tensor& self, const Tensor& target, int64_t reduction, double delta,
                       Tensor& out) {
  return store(huber_loss(self, target, reduction, delta), out);
}
Tensor& huber_loss_backward_out(const Tensor& grad, const Tensor& self, const Tensor& target,
                                int64_t reduction, double delta, Tensor& out) {
  return store(huber_gradient(grad, self, target, reduction, delta, false), out);
}

// Logarithms are bounded below by -100, as in torch, so that the loss stays finite.
Tensor binary_cross_entropy(const Tensor& self, const Tensor& target,
                            const std::optional<Tensor>& weight, int64_t reduction) {
  const Tensor log_p = at::clamp(at::log(self), Scalar(-100.0));
  const Tensor log_q = at::clamp(at::log1p(at::neg(self)), Scalar(-100.0));
  Tensor loss = at::sub(at::mul(at::sub(target, 1), log_q), at::mul(target, log_p));
  if (weight && weight->defined()) loss = at::mul(loss, *weight);
  return reduced(loss, reduction);
}
Tensor& binary_cross_entropy_out(const Tensor& self, const Tensor& target,
                                 const std::optional<Tensor>& weight, int64_t reduction,
                                 Tensor& out) {
  return store(binary_cross_entropy(self, target, weight, reduction), out);
}
Tensor binary_cross_entropy_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                                     const std::optional<Tensor>& weight, int64_t reduction) {
  const Tensor spread_p = at::clamp(at::mul(at::sub(number(1), self), self), Scalar(1e-12));
  Tensor result = at::mul(grad, at::div(at::sub(self, target), spread_p));
  if (weight && weight->defined()) result = at::mul(result, *weight);
  return reduction == kMean ? at::div(result, static_cast<double>(self.numel())) : result;
}
Tensor& binary_cross_entropy_backward_out(const Tensor& grad, const Tensor& self,
                                          const Tensor& target, const std::optional<Tensor>& weight,
                                          int64_t reduction, Tensor& out) {
  return store(binary_cross_entropy_backward(grad, self, target, weight, reduction), out);
}

// ---- cross product --------------------------------------------------------------------------

Tensor& cross_out(const Tensor& self, const Tensor& other, int64_t dim, Tensor& out) {
  Out<at::meta::structured_linalg_cross> check(out);
  check.meta(self, other, dim);
  const auto sizes = at::infer_size(self.sizes(), other.sizes());
  const Tensor a = self.expand(sizes);
  const Tensor b = other.expand(sizes);
  const auto part = [dim](const Tensor& x, int64_t i) { return x.narrow(dim, i, 1); };
  const auto component = [&](int64_t i, int64_t j) {
    return at::sub(at::mul(part(a, i), part(b, j)), at::mul(part(a, j), part(b, i)));
  };
  return at::cat_out(out, {component(1, 2), component(2, 0), component(0, 1)}, dim);
}

// ---- unfold ---------------------------------------------------------------------------------

// The gradient of x.unfold(dim, size, step): windows overlap, so they are added one after the
// other, or element by element of all windows, whichever takes fewer calls.
Tensor unfold_backward(const Tensor& grad, at::IntArrayRef sizes, int64_t dim, int64_t size,
                       int64_t step) {
  const Tensor out = at::zeros(sizes, grad.options());
  if (sizes.empty()) return out.copy_(grad.squeeze());
  dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  const int64_t windows = grad.size(dim);
  if (windows <= size) {
    for (int64_t w = 0; w < windows; ++w)
      out.narrow(dim, w * step, size).add_(grad.select(dim, w).movedim(-1, dim));
  } else {
    for (int64_t i = 0; i < size; ++i)
      out.slice(dim, i, i + (windows - 1) * step + 1, step).add_(grad.select(-1, i));
  }
  return out;
}

// ---- renorm ---------------------------------------------------------------------------------

// Scales each slice along `dim` whose p-norm exceeds maxnorm down to it.
Tensor& renorm_out(const Tensor& self, const Scalar& p, int64_t dim, const Scalar& maxnorm,
                   Tensor& out) {
  Out<at::meta::structured_renorm> meta(out);
  meta.meta(self, p, dim, maxnorm);
  at::DimVector others;
  dim = at::maybe_wrap_dim(dim, self.dim());
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != dim) others.push_back(d);
  const Tensor norm = at::linalg_vector_norm(self, p, others, /*keepdim=*/true);
  const Tensor shrunk = at::div(number(maxnorm.toDouble()), at::add(norm, 1e-7));
  return at::mul_out(out, self, at::where(at::gt(norm, maxnorm), shrunk, number(1)));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("hardshrink.out", TORCH_FN(hardshrink_out));
  m.impl("hardshrink_backward.grad_input",
         TORCH_FN(shrink_backward_out<at::meta::structured_hardshrink_backward>));
  m.impl("softshrink.out", TORCH_FN(softshrink_out));
  m.impl("softshrink_backward.grad_input",
         TORCH_FN(shrink_backward_out<at::meta::structured_softshrink_backward>));
  m.impl("glu.out", TORCH_FN(glu_out));
  m.impl("glu_backward", TORCH_FN(glu_backward));
  m.impl("glu_backward.grad_input", TORCH_FN(glu_backward_out));
  m.impl("_prelu_kernel", TORCH_FN(prelu));
  m.impl("_prelu_kernel_backward", TORCH_FN(prelu_backward));
  m.impl("logit", TORCH_FN(logit));
  m.impl("logit_", TORCH_FN(logit_));
  m.impl("logit.out", TORCH_FN(logit_out));
  m.impl("logit_backward.grad_input", TORCH_FN(logit_backward_out));
  m.impl("special_entr.out", TORCH_FN(entr_out));
  m.impl("special_xlog1py.out", TORCH_FN(xlog1py_out));
  m.impl("round.decimals_out", TORCH_FN(round_decimals_out));
  m.impl("complex.out", TORCH_FN(complex_out));
  m.impl("polar.out", TORCH_FN(polar_out));
  m.impl("linalg_cross.out", TORCH_FN(cross_out));
  m.impl("special_i0e.out", TORCH_FN(i0e_out));
  m.impl("angle", TORCH_FN(angle));
  m.impl("angle.out", TORCH_FN(angle_out));
  m.impl("mse_loss", TORCH_FN(mse_loss));
  m.impl("mse_loss.out", TORCH_FN(mse_loss_out));
  m.impl("mse_loss_backward", TORCH_FN(mse_loss_backward));
  m.impl("mse_loss_backward.grad_input", TORCH_FN(mse_loss_backward_out));
  m.impl("smooth_l1_loss", TORCH_FN(smooth_l1_loss));
  m.impl("smooth_l1_loss.out", TORCH_FN(smooth_l1_loss_out));
  m.impl("smooth_l1_loss_backward.grad_input", TORCH_FN(smooth_l1_loss_backward_out));
  m.impl("huber_loss", TORCH_FN(huber_loss));
  m.impl("huber_loss.out", TORCH_FN(huber_loss_out));
  m.impl("huber_loss_backward.out", TORCH_FN(huber_loss_backward_out));
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy));
  m.impl("binary_cross_entropy.out", TORCH_FN(binary_cross_entropy_out));
  m.impl("binary_cross_entropy_backward", TORCH_FN(binary_cross_entropy_backward));
  m.impl("binary_cross_entropy_backward.grad_input", TORCH_FN(binary_cross_entropy_backward_out));
  m.impl("unfold_backward", TORCH_FN(unfold_backward));
  m.impl("renorm.out", TORCH_FN(renorm_out));
}

}  // namespace
}  // namespace chipset::bridge
