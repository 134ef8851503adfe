// SPDX-License-Identifier: Apache-2.0
// Layer norm, RMS norm and group norm by the waist's norm, forward and backward.
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_fused_rms_norm_backward_ops.h>
#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "waist.h"

namespace chipset::bridge {
namespace {

enum Kind : int32_t { kRms = 0, kLayer = 1 };

at::ScalarType statistics_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// A view of a tensor that may be absent, with the address that an argument struct wants.
struct OptionalView {
  explicit OptionalView(const at::Tensor& tensor) : present(tensor.defined()) {
    if (present) storage = view(tensor);
  }
  const chipset_tensor* get() const { return present ? &storage : nullptr; }
  bool present;
  chipset_tensor storage;
};

struct Norm {
  explicit Norm(Kind k, double e = 0) : kind(k), eps(e) {}
  Kind kind;
  double eps;
  at::Tensor x, weight, bias;  // [rows, n], [n], [n]
  at::Tensor y, mean, rstd;    // outputs of the forward; statistics [rows]
  at::Tensor dy, dx, dweight, dbias;
};

template <auto Function>
bool run(const Norm& norm) {
  same_device("norm", norm.x, norm.weight, norm.bias, norm.mean, norm.rstd, norm.dy);
  const OptionalView x(norm.x), weight(norm.weight), bias(norm.bias), y(norm.y), mean(norm.mean),
      rstd(norm.rstd), dy(norm.dy), dx(norm.dx), dweight(norm.dweight), dbias(norm.dbias);
  auto args = arguments<chipset_norm_args>();
  args.kind = norm.kind;
  args.eps = norm.eps;
  args.x = x.get();
  args.weight = weight.get();
  args.bias = bias.get();
  args.y = y.get();
  args.mean = mean.get();
  args.rstd = rstd.get();
  args.dy = dy.get();
  args.dx = dx.get();
  args.dweight = dweight.get();
  args.dbias = dbias.get();
  return call<Function>(norm.x.get_device(), args);
}

bool normalizes(const at::Tensor& x) { return at::isFloatingType(x.scalar_type()); }

struct Rows {
  int64_t rows, n;
  at::DimVector statistics;  // shape of mean and rstd: ones where normalized
};

Rows rows_of(const at::Tensor& x, size_t normalized_dims) {
  Rows out{1, 1, at::DimVector(x.sizes())};
  const size_t axis = x.dim() - normalized_dims;
  for (size_t d = 0; d < static_cast<size_t>(x.dim()); ++d) {
    (d < axis ? out.rows : out.n) *= x.size(d);
    if (d >= axis) out.statistics[d] = 1;
  }
  return out;
}

at::Tensor flat(const at::Tensor& t) { return t.defined() ? t.reshape({-1}) : t; }
at::Tensor or_none(const std::optional<at::Tensor>& t) { return t.value_or(at::Tensor()); }

// ---- layer norm -----------------------------------------------------------------------------

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(
    const at::Tensor& input, at::IntArrayRef shape, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, double eps) {
  at::native::_check_layer_norm_inputs(input, shape, or_none(weight), or_none(bias));
  const Rows at = rows_of(input, shape.size());
  const int device = input.get_device();
  at::Tensor y = empty(input.sizes(), input.scalar_type(), device);
  at::Tensor mean = empty(at.statistics, statistics_type(input), device);
  at::Tensor rstd = empty(at.statistics, statistics_type(input), device);
  if (input.numel() == 0) return {y, mean.zero_(), rstd.fill_(std::nan(""))};
  Norm norm(kLayer, eps);
  norm.x = input.reshape({at.rows, at.n});
  norm.weight = flat(or_none(weight));
  norm.bias = flat(or_none(bias));
  norm.y = y.view({at.rows, at.n});
  norm.mean = mean.view({at.rows});
  norm.rstd = rstd.view({at.rows});
  if (normalizes(input) && run<&chipset_api::norm>(norm)) return {y, mean, rstd};
  return host<at::_ops::native_layer_norm>(input, shape, weight, bias, eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm_backward(
    const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& mean,
    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, std::array<bool, 3> wanted) {
  const Rows at = rows_of(input, shape.size());
  const int device = input.get_device();
  const at::ScalarType weight_type =
      or_none(weight).defined() ? weight->scalar_type() : input.scalar_type();
  at::Tensor dx, dweight, dbias;
  if (wanted[0]) dx = empty(input.sizes(), input.scalar_type(), device);
  if (wanted[1]) dweight = empty(shape, weight_type, device);
  if (wanted[2])
    dbias = empty(shape, or_none(bias).defined() ? bias->scalar_type() : weight_type, device);
  if (input.numel() == 0) {
    if (wanted[1]) dweight.zero_();
    if (wanted[2]) dbias.zero_();
    return {dx, dweight, dbias};
  }
  Norm norm(kLayer);
  norm.x = input.reshape({at.rows, at.n});
  norm.weight = flat(or_none(weight));
  norm.mean = flat(mean);
  norm.rstd = flat(rstd);
  norm.dy = grad.reshape({at.rows, at.n});
  if (wanted[0]) norm.dx = dx.view({at.rows, at.n});
  if (wanted[1]) norm.dweight = dweight.view({at.n});
  if (wanted[2]) norm.dbias = dbias.view({at.n});
  if (normalizes(input) && run<&chipset_api::norm_backward>(norm)) return {dx, dweight, dbias};
  return host<at::_ops::native_layer_norm_backward>(grad, input, shape, mean, rstd, weight, bias,
                                                    wanted);
}

// ---- RMS norm -------------------------------------------------------------------------------

std::tuple<at::Tensor, at::Tensor> fused_rms_norm(const at::Tensor& input, at::IntArrayRef shape,
                                                  const std::optional<at::Tensor>& weight,
                                                  std::optional<double> eps) {
  const Rows at = rows_of(input, shape.size());
  const int device = input.get_device();
  at::Tensor y = empty(input.sizes(), input.scalar_type(), device);
  at::Tensor rstd = empty(at.statistics, statistics_type(input), device);
  if (input.numel() == 0) return {y, rstd};
  Norm norm(kRms);
  norm.eps =
      eps.value_or(statistics_type(input) == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                         : std::numeric_limits<float>::epsilon());
  norm.x = input.reshape({at.rows, at.n});
  norm.weight = flat(or_none(weight));
  norm.y = y.view({at.rows, at.n});
  norm.rstd = rstd.view({at.rows});
  if (normalizes(input) && run<&chipset_api::norm>(norm)) return {y, rstd};
  return host<at::_ops::_fused_rms_norm>(input, shape, weight, eps);
}

std::tuple<at::Tensor, at::Tensor> fused_rms_norm_backward(
    const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight, std::array<bool, 2> wanted) {
  const Rows at = rows_of(input, shape.size());
  const int device = input.get_device();
  at::Tensor dx, dweight;
  if (wanted[0]) dx = empty(input.sizes(), input.scalar_type(), device);
  if (wanted[1] && or_none(weight).defined()) dweight = empty(shape, weight->scalar_type(), device);
  if (input.numel() == 0) return {dx, dweight.defined() ? dweight.zero_() : dweight};
  Norm norm(kRms);
  norm.x = input.reshape({at.rows, at.n});
  norm.weight = flat(or_none(weight));
  norm.rstd = flat(rstd);
  norm.dy = grad.reshape({at.rows, at.n});
  if (dx.defined()) norm.dx = dx.view({at.rows, at.n});
  if (dweight.defined()) norm.dweight = dweight.view({at.n});
  if (normalizes(input) && run<&chipset_api::norm_backward>(norm)) return {dx, dweight};
  return host<at::_ops::_fused_rms_norm_backward>(grad, input, shape, rstd, weight, wanted);
}

// ---- group norm: a layer norm over each group, then one weight per channel ------------------

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_group_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, int64_t n, int64_t c, int64_t inner, int64_t groups,
    double eps) {
  const int device = input.get_device();
  at::Tensor y = empty(input.sizes(), input.scalar_type(), device);
  at::Tensor mean = empty({n, groups}, statistics_type(input), device);
  at::Tensor rstd = empty({n, groups}, statistics_type(input), device);
  if (input.numel() == 0) return {y, mean, rstd};
  Norm norm(kLayer, eps);
  norm.x = input.reshape({n * groups, c / groups * inner});
  norm.y = y.view(norm.x.sizes());
  norm.mean = mean.view({-1});
  norm.rstd = rstd.view({-1});
  if (!normalizes(input) || !run<&chipset_api::norm>(norm))
    return host<at::_ops::native_group_norm>(input, weight, bias, n, c, inner, groups, eps);
  const at::Tensor channels = y.view({n, c, inner});
  if (or_none(weight).defined()) channels.mul_(weight->reshape({1, c, 1}));
  if (or_none(bias).defined()) channels.add_(bias->reshape({1, c, 1}));
  return {y, mean, rstd};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_group_norm_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight, int64_t n, int64_t c, int64_t inner, int64_t groups,
    std::array<bool, 3> wanted) {
  at::Tensor dx, dweight, dbias;
  if (input.numel() == 0) {
    if (wanted[0]) dx = empty(input.sizes(), input.scalar_type(), input.get_device());
    if (wanted[1]) dweight = at::zeros({c}, input.options());
    if (wanted[2]) dbias = at::zeros({c}, input.options());
    return {dx, dweight, dbias};
  }
  const at::Tensor channels = grad.reshape({n, c, inner});
  if (wanted[0]) {
    at::Tensor weighted = channels;
    if (or_none(weight).defined()) weighted = channels.mul(weight->reshape({1, c, 1}));
    dx = empty(input.sizes(), input.scalar_type(), input.get_device());
    Norm norm(kLayer);
    norm.x = input.reshape({n * groups, c / groups * inner});
    norm.dy = weighted.reshape(norm.x.sizes());
    norm.mean = flat(mean);
    norm.rstd = flat(rstd);
    norm.dx = dx.view(norm.x.sizes());
    if (!normalizes(input) || !run<&chipset_api::norm_backward>(norm))
      return host<at::_ops::native_group_norm_backward>(grad, input, mean, rstd, weight, n, c,
                                                        inner, groups, wanted);
  }
  if (wanted[1]) {
    const at::Tensor x = input.reshape({n, groups, c / groups * inner});
    const at::Tensor unit = x.sub(mean.view({n, groups, 1})).mul_(rstd.view({n, groups, 1}));
    dweight = unit.reshape({n, c, inner}).mul_(channels).sum({0, 2}).to(input.scalar_type());
  }
  if (wanted[2]) dbias = channels.sum({0, 2});
  return {dx, dweight, dbias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", native_layer_norm);
  m.impl("native_layer_norm_backward", native_layer_norm_backward);
  m.impl("_fused_rms_norm", fused_rms_norm);
  m.impl("_fused_rms_norm_backward", fused_rms_norm_backward);
  m.impl("native_group_norm", native_group_norm);
  m.impl("native_group_norm_backward", native_group_norm_backward);
}

}  // namespace chipset::bridge
