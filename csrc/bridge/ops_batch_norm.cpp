// SPDX-License-Identifier: Apache-2.0
// Batch norm, composed: statistics over all dimensions but the channel, then pointwise. Channels
// lie in dimension 1.
#include <ATen/ops/empty.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

#include "waist.h"

namespace chipset::bridge {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

bool present(const OptionalTensor& t) { return t.has_value() && t->defined(); }

at::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Every dimension but the channel's.
at::DimVector other_dims(const at::Tensor& x) {
  at::DimVector out;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (d != 1) out.push_back(d);
  return out;
}

// A [C] tensor in x's rank, so that it broadcasts.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& x) {
  at::DimVector shape(x.dim(), 1);
  shape[1] = values.numel();
  return values.reshape(shape);
}

void track(const at::Tensor& running, const at::Tensor& now, double momentum) {
  if (running.defined()) running.mul_(1 - momentum).add_(now.to(running.scalar_type()), momentum);
}

at::Tensor affine(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& invstd,
                  const OptionalTensor& weight, const OptionalTensor& bias) {
  const at::Tensor scale = present(weight) ? invstd.mul(weight->to(wide_type(x))) : invstd;
  // (x - mean) first: x*scale + (bias - mean*scale) would lose digits where the mean is large.
  at::Tensor out = x.to(wide_type(x)).sub(per_channel(mean, x)).mul_(per_channel(scale, x));
  if (present(bias)) out.add_(per_channel(bias->to(wide_type(x)), x));
  return out.to(x.scalar_type());
}

Three native_batch_norm(const at::Tensor& x, const OptionalTensor& weight,
                        const OptionalTensor& bias, const OptionalTensor& running_mean,
                        const OptionalTensor& running_var, bool training, double momentum,
                        double eps) {
  const at::ScalarType wide = wide_type(x);
  if (!training) {
    TORCH_CHECK(present(running_mean) && present(running_var),
                "running_mean and running_var must be given in evaluation");
    const at::Tensor invstd = running_var->to(wide).add(eps).rsqrt_();
    const at::Tensor none = empty({0}, wide, x.get_device());
    return {affine(x, running_mean->to(wide), invstd, weight, bias), none, none};
  }
  const auto [var, mean] = at::var_mean(x.to(wide), other_dims(x), at::Scalar(0));
  const at::Tensor invstd = var.add(eps).rsqrt_();
  const double n = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  if (present(running_mean)) track(*running_mean, mean, momentum);
  if (present(running_var)) track(*running_var, var.mul(n / (n - 1)), momentum);
  return {affine(x, mean, invstd, weight, bias), mean, invstd};
}

Three native_batch_norm_legit(const at::Tensor& x, const OptionalTensor& weight,
                              const OptionalTensor& bias, at::Tensor& running_mean,
                              at::Tensor& running_var, bool training, double momentum, double eps) {
  return native_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps);
}

Three native_batch_norm_legit_no_stats(const at::Tensor& x, const OptionalTensor& weight,
                                       const OptionalTensor& bias, bool training, double momentum,
                                       double eps) {
  return native_batch_norm(x, weight, bias, {}, {}, training, momentum, eps);
}

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
Four batch_norm_with_update(const at::Tensor& x, const OptionalTensor& weight,
                            const OptionalTensor& bias, at::Tensor& running_mean,
                            at::Tensor& running_var, double momentum, double eps) {
  auto [out, mean, invstd] =
      native_batch_norm(x, weight, bias, running_mean, running_var, true, momentum, eps);
  return {out, mean, invstd, at::empty({0}, x.options().dtype(at::kByte))};
}

// With y = (x - mean) * invstd: dx = invstd * w * (dy - mean(dy) - y * mean(dy * y)) in training,
// and invstd * w * dy in evaluation. Source: Ioffe and Szegedy, arXiv 1502.03167.
Three native_batch_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                 const OptionalTensor& weight, const OptionalTensor& running_mean,
                                 const OptionalTensor& running_var, const OptionalTensor& save_mean,
                                 const OptionalTensor& save_invstd, bool train, double eps,
                                 std::array<bool, 3> wanted) {
  const at::ScalarType wide = wide_type(x);
  const at::DimVector dims = other_dims(x);
  const at::Tensor mean = train ? save_mean->to(wide) : running_mean->to(wide);
  const at::Tensor invstd = train ? save_invstd->to(wide) : running_var->to(wide).add(eps).rsqrt_();
  const at::Tensor dy = grad.to(wide);
  const at::Tensor unit = x.to(wide).sub(per_channel(mean, x)).mul_(per_channel(invstd, x));
  const at::Tensor sum_dy = dy.sum(dims);
  const at::Tensor sum_dy_unit = dy.mul(unit).sum(dims);
  Three out;
  if (wanted[0]) {
    const at::Tensor scale = present(weight) ? invstd.mul(weight->to(wide)) : invstd;
    at::Tensor dx = dy;
    if (train) {
      const double n = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
      dx = dy.sub(per_channel(sum_dy.div(n), x));
      dx.sub_(unit.mul(per_channel(sum_dy_unit.div(n), x)));
    }
    std::get<0>(out) = dx.mul(per_channel(scale, x)).to(x.scalar_type());
  }
  const at::ScalarType weight_type = present(weight) ? weight->scalar_type() : x.scalar_type();
  if (wanted[1]) std::get<1>(out) = sum_dy_unit.to(weight_type);
  if (wanted[2]) std::get<2>(out) = sum_dy.to(weight_type);
  return out;
}

Three batch_norm_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                          const OptionalTensor& running_mean, const OptionalTensor& running_var,
                          const OptionalTensor& save_mean, const OptionalTensor& save_var,
                          bool update, double eps, std::array<bool, 3> wanted,
                          const at::Tensor& /*reserve*/) {
  return native_batch_norm_backward(grad, x, weight, running_mean, running_var, save_mean, save_var,
                                    update, eps, wanted);
}

// ---- in pieces, for torch.nn.SyncBatchNorm: statistics of several processes make one -----------

using Two = std::tuple<at::Tensor, at::Tensor>;

Two stats(const at::Tensor& x, double eps) {
  const auto [var, mean] = at::var_mean(x.to(wide_type(x)), other_dims(x), at::Scalar(0));
  return {mean, var.add(eps).rsqrt_()};
}

// mean and invstd are [processes, C], counts is [processes]. The variance of all is the mean of
// each one's variance and of its mean's squared distance from the mean of all.
Two gather_stats(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& invstd,
                 const OptionalTensor& running_mean, const OptionalTensor& running_var,
                 double momentum, double eps, const at::Tensor& counts) {
  const at::ScalarType wide = wide_type(x);
  const at::Tensor count = counts.to(wide).reshape({-1, 1});
  const at::Tensor n = count.sum();
  const at::Tensor means = mean.to(wide);
  const at::Tensor vars = invstd.to(wide).square().reciprocal_().sub_(eps);
  const at::Tensor all = means.mul(count).sum(0).div_(n);
  const at::Tensor var = means.sub(all).square_().add_(vars).mul_(count).sum(0).div_(n);
  if (present(running_mean)) track(*running_mean, all, momentum);
  if (present(running_var)) track(*running_var, var.mul(n.div(n.sub(1))), momentum);
  return {all, var.add(eps).rsqrt_()};
}

at::Tensor elemt(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                 const at::Tensor& mean, const at::Tensor& invstd, double /*eps*/) {
  return affine(x, mean.to(wide_type(x)), invstd.to(wide_type(x)), weight, bias);
}

at::Tensor& elemt_out(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                      const at::Tensor& mean, const at::Tensor& invstd, double eps,
                      at::Tensor& out) {
  return out.resize_(x.sizes()).copy_(elemt(x, weight, bias, mean, invstd, eps));
}

Four backward_reduce(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& mean,
                     const at::Tensor& invstd, const OptionalTensor& weight, bool /*input*/,
                     bool weight_wanted, bool bias_wanted) {
  const at::ScalarType wide = wide_type(x);
  const at::DimVector dims = other_dims(x);
  const at::Tensor dy = grad.to(wide);
  const at::Tensor sum_dy = dy.sum(dims);
  const at::Tensor sum_dy_xmu = x.to(wide).sub(per_channel(mean.to(wide), x)).mul_(dy).sum(dims);
  const at::ScalarType weight_type = present(weight) ? weight->scalar_type() : wide;
  Four out{sum_dy, sum_dy_xmu, {}, {}};
  if (weight_wanted) std::get<2>(out) = sum_dy_xmu.mul(invstd.to(wide)).to(weight_type);
  if (bias_wanted) std::get<3>(out) = sum_dy.to(weight_type, false, true);
  return out;
}

// The sums are those of all processes, and so are the counts.
at::Tensor backward_elemt(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& mean,
                          const at::Tensor& invstd, const OptionalTensor& weight,
                          const at::Tensor& sum_dy, const at::Tensor& sum_dy_xmu,
                          const at::Tensor& counts) {
  const at::ScalarType wide = wide_type(x);
  const at::Tensor n = counts.to(wide).sum(), inverse = invstd.to(wide);
  const at::Tensor scale = present(weight) ? inverse.mul(weight->to(wide)) : inverse;
  const at::Tensor slope = sum_dy_xmu.to(wide).mul(inverse).mul_(inverse).div_(n);
  const at::Tensor xmu = x.to(wide).sub(per_channel(mean.to(wide), x));
  const at::Tensor dx = grad.to(wide).sub(per_channel(sum_dy.to(wide).div(n), x));
  return dx.sub(xmu.mul_(per_channel(slope, x))).mul_(per_channel(scale, x)).to(x.scalar_type());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", native_batch_norm);
  m.impl("_native_batch_norm_legit", native_batch_norm_legit);
  m.impl("_native_batch_norm_legit.no_stats", native_batch_norm_legit_no_stats);
  m.impl("_batch_norm_with_update", batch_norm_with_update);
  m.impl("native_batch_norm_backward", native_batch_norm_backward);
  m.impl("batch_norm_backward", batch_norm_backward);
  m.impl("batch_norm_stats", stats);
  m.impl("batch_norm_gather_stats_with_counts", gather_stats);
  m.impl("batch_norm_elemt", elemt);
  m.impl("batch_norm_elemt.out", elemt_out);
  m.impl("batch_norm_backward_reduce", backward_reduce);
  m.impl("batch_norm_backward_elemt", backward_elemt);
}

}  // namespace chipset::bridge
