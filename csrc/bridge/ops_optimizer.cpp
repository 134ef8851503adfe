// SPDX-License-Identifier: Apache-2.0
// The fused Adam and AdamW: one call of the waist for all parameters of a group.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <torch/library.h>

#include "waist.h"

namespace chipset::bridge {
namespace {

struct Options {
  double lr;
  double beta1;
  double beta2;
  double weight_decay;
  double eps;
  bool amsgrad;
  bool maximize;
  bool decoupled;
};

// The waist walks memory: a parameter must fill its memory, and all of a row share its strides.
bool same_layout(const at::Tensor& param, const at::Tensor& state) {
  return state.sizes() == param.sizes() && state.strides() == param.strides();
}

bool steppable(const at::Tensor& param) {
  return fits(param) && param.is_non_overlapping_and_dense() &&
         at::isFloatingType(param.scalar_type());
}

std::vector<chipset_tensor> views(at::TensorList tensors) {
  std::vector<chipset_tensor> out;
  out.reserve(tensors.size());
  for (const at::Tensor& t : tensors) out.push_back(view(t));
  return out;
}

// lr_on_chip: a tensor on the chip that replaces the number, or undefined.
bool step(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
          at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs, at::TensorList steps,
          const Options& options, const at::Tensor& lr_on_chip, const at::Tensor& found_inf) {
  if (params.empty()) return true;
  std::vector<at::Tensor> gradients;
  gradients.reserve(grads.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& p = params[i];
    if (!steppable(p) || !same_layout(p, exp_avgs[i]) || !same_layout(p, exp_avg_sqs[i]))
      return false;
    if (options.amsgrad && !same_layout(p, max_exp_avg_sqs[i])) return false;
    if (steps[i].scalar_type() != at::kFloat || steps[i].device() != p.device()) return false;
    gradients.push_back(
        same_layout(p, grads[i])
            ? grads[i]
            : empty_strided(p.sizes(), p.strides(), grads[i].scalar_type(), p.get_device())
                  .copy_(grads[i]));
  }
  const auto param = views(params), grad = views(gradients), exp_avg = views(exp_avgs),
             exp_avg_sq = views(exp_avg_sqs), maximum = views(max_exp_avg_sqs),
             count = views(steps);
  auto args = arguments<chipset_adamw_args>();
  args.num_tensors = static_cast<uint32_t>(params.size());
  args.param = param.data();
  args.grad = grad.data();
  args.exp_avg = exp_avg.data();
  args.exp_avg_sq = exp_avg_sq.data();
  args.max_exp_avg_sq = options.amsgrad ? maximum.data() : nullptr;
  args.step = count.data();
  args.lr = options.lr;
  args.beta1 = options.beta1;
  args.beta2 = options.beta2;
  args.eps = options.eps;
  args.weight_decay = options.weight_decay;
  args.decoupled = options.decoupled;
  args.maximize = options.maximize;
  args.lr_tensor = lr_on_chip.defined() ? lr_on_chip.const_data_ptr() : nullptr;
  args.found_inf = found_inf.defined() ? found_inf.const_data_ptr() : nullptr;
  return call<&chipset_api::adamw>(params[0].get_device(), args);
}

// GradScaler's scale: the gradients themselves are divided, as torch's own fused kernels do.
void unscale(at::TensorList grads, const std::optional<at::Tensor>& scale) {
  if (!scale.has_value() || !scale->defined()) return;
  for (const at::Tensor& grad : grads) at::Tensor(grad).div_(*scale);
}

using OptionalTensor = std::optional<at::Tensor>;

template <bool decoupled, class Operator>
void fused(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
           at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs, at::TensorList steps,
           double lr, double beta1, double beta2, double weight_decay, double eps, bool amsgrad,
           bool maximize, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  unscale(grads, grad_scale);
  const Options options{lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, decoupled};
  if (step(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, options, {},
           found_inf.value_or(at::Tensor())))
    return;
  host<Operator>(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1, beta2,
                 weight_decay, eps, amsgrad, maximize, OptionalTensor(), found_inf);
}

template <bool decoupled, class Operator>
void fused_tensor_lr(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                     at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,
                     at::TensorList steps, const at::Tensor& lr, double beta1, double beta2,
                     double weight_decay, double eps, bool amsgrad, bool maximize,
                     const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  if (!lr.is_privateuseone()) {
    fused<decoupled, Operator>(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps,
                               lr.item<double>(), beta1, beta2, weight_decay, eps, amsgrad,
                               maximize, grad_scale, found_inf);
    return;
  }
  unscale(grads, grad_scale);
  const Options options{0, beta1, beta2, weight_decay, eps, amsgrad, maximize, decoupled};
  if (step(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, options, lr.to(at::kFloat),
           found_inf.value_or(at::Tensor())))
    return;
  host<Operator>(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr.item<double>(),
                 beta1, beta2, weight_decay, eps, amsgrad, maximize, OptionalTensor(), found_inf);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_adamw_", fused<true, at::_ops::_fused_adamw_>);
  m.impl("_fused_adamw_.tensor_lr", fused_tensor_lr<true, at::_ops::_fused_adamw_>);
  m.impl("_fused_adam_", fused<false, at::_ops::_fused_adam_>);
  m.impl("_fused_adam_.tensor_lr", fused_tensor_lr<false, at::_ops::_fused_adam_>);
}

}  // namespace chipset::bridge
