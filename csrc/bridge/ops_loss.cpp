// SPDX-License-Identifier: Apache-2.0
// Negative log-likelihood of class indices, over [N, C], [C] or [N, C, H, W], composed of the
// waist's gather, scatter, pointwise and reduce. All intermediate tensors have the target's shape.
#include <ATen/core/Reduction.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_forward_meta.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "structured.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

// Class 0 where the target is ignored, and a class that does not exist (so that gather reports it)
// where it is negative, which gather would count from the end.
struct Target {
  at::Tensor ignored;  // bool
  at::Tensor classes;
};

Target checked_target(const at::Tensor& target, int64_t classes, int64_t ignore_index) {
  Target out;
  const at::Tensor wide = target.to(at::kLong);
  out.ignored = wide.eq(ignore_index);
  out.classes = wide.masked_fill(wide.lt(0), classes).masked_fill_(out.ignored, 0);
  return out;
}

// Torch's error where a target names no class; to be called while an error is handled, which goes
// on where the targets are not to blame.
[[noreturn]] void raise_bad_target(const at::Tensor& target, int64_t classes,
                                   int64_t ignore_index) {
  const at::Tensor on_host = target.to(at::kCPU, at::kLong).contiguous();
  const int64_t* element = on_host.const_data_ptr<int64_t>();
  for (int64_t k = 0; k < on_host.numel(); ++k)
    TORCH_CHECK_INDEX(element[k] == ignore_index || (element[k] >= 0 && element[k] < classes),
                      "Target ", element[k], " is out of bounds.");
  throw;
}

// The weight of each target, 0 where ignored.
at::Tensor weights_of(const Target& target, const at::Tensor& weight, at::ScalarType type) {
  if (!weight.defined()) return target.ignored.logical_not().to(type);
  return weight.index_select(0, target.classes.reshape({-1}))
      .view(target.classes.sizes())
      .to(type)
      .masked_fill_(target.ignored, 0);
}

struct Loss {
  at::Tensor output;
  at::Tensor total_weight;
};

// x: log-probabilities, classes along `dim`.
Loss nll_forward(const at::Tensor& x, int64_t dim, const at::Tensor& target,
                 const at::Tensor& weight, int64_t reduction, int64_t ignore_index) {
  const Target at = checked_target(target, x.size(dim), ignore_index);
  at::Tensor weights, chosen;
  try {
    weights = weights_of(at, weight, x.scalar_type());
    chosen = x.gather(dim, at.classes.unsqueeze(dim)).squeeze(dim);
  } catch (const c10::Error&) {
    raise_bad_target(target, x.size(dim), ignore_index);
  }
  // Masked after the product: an ignored -inf must not become NaN.
  const at::Tensor losses = chosen.mul(weights).neg_().masked_fill_(at.ignored, 0);
  if (reduction == at::Reduction::None) return {losses, at::zeros({}, x.options())};
  Loss out{losses.sum(), weights.sum()};
  if (reduction == at::Reduction::Mean) out.output = out.output.div(out.total_weight);
  return out;
}

at::Tensor nll_backward(const at::Tensor& grad, const at::Tensor& x, int64_t dim,
                        const at::Tensor& target, const at::Tensor& weight, int64_t reduction,
                        int64_t ignore_index, const at::Tensor& total_weight) {
  const Target at = checked_target(target, x.size(dim), ignore_index);
  at::Tensor step = weights_of(at, weight, x.scalar_type()).mul_(grad).neg_();
  if (reduction == at::Reduction::Mean) step.div_(total_weight);
  step.masked_fill_(at.ignored, 0);
  const at::Tensor out = at::zeros(x.sizes(), x.options());
  return out.scatter_(dim, at.classes.unsqueeze(dim), step.unsqueeze(dim));
}

// ---- [N, C] or [C] --------------------------------------------------------------------------

at::Tensor defined_or_none(const std::optional<at::Tensor>& weight) {
  return weight.has_value() ? *weight : at::Tensor();
}

std::tuple<at::Tensor&, at::Tensor&> nll_loss_forward_out(
    const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight,
    int64_t reduction, int64_t ignore_index, at::Tensor& output, at::Tensor& total_weight) {
  Out<at::meta::structured_nll_loss_forward, 2> op(output, total_weight);
  op.meta(self, target, defined_or_none(weight), reduction, ignore_index);
  const Loss loss =
      nll_forward(self, self.dim() - 1, target.dim() < self.dim() ? target : target.squeeze(),
                  defined_or_none(weight), reduction, ignore_index);
  output.copy_(loss.output.view(output.sizes()));
  total_weight.copy_(loss.total_weight);
  return {output, total_weight};
}

std::tuple<at::Tensor, at::Tensor> nll_loss_forward(const at::Tensor& self,
                                                    const at::Tensor& target,
                                                    const std::optional<at::Tensor>& weight,
                                                    int64_t reduction, int64_t ignore_index) {
  Functional<at::meta::structured_nll_loss_forward, 2> op;
  op.meta(self, target, defined_or_none(weight), reduction, ignore_index);
  const Loss loss =
      nll_forward(self, self.dim() - 1, target.dim() < self.dim() ? target : target.squeeze(),
                  defined_or_none(weight), reduction, ignore_index);
  return {loss.output.view(op.maybe_get_output(0).sizes()), loss.total_weight};
}

at::Tensor& nll_loss_backward_out(const at::Tensor& grad, const at::Tensor& self,
                                  const at::Tensor& target, const std::optional<at::Tensor>& weight,
                                  int64_t reduction, int64_t ignore_index,
                                  const at::Tensor& total_weight, at::Tensor& grad_input) {
  Out<at::meta::structured_nll_loss_backward> op(grad_input);
  op.meta(grad, self, target, defined_or_none(weight), reduction, ignore_index, total_weight);
  const at::Tensor at = target.dim() < self.dim() ? target : target.squeeze();
  return grad_input.copy_(nll_backward(grad, self, self.dim() - 1, at, defined_or_none(weight),
                                       reduction, ignore_index, total_weight));
}

at::Tensor nll_loss_backward(const at::Tensor& grad, const at::Tensor& self,
                             const at::Tensor& target, const std::optional<at::Tensor>& weight,
                             int64_t reduction, int64_t ignore_index,
                             const at::Tensor& total_weight) {
  Functional<at::meta::structured_nll_loss_backward> op;
  op.meta(grad, self, target, defined_or_none(weight), reduction, ignore_index, total_weight);
  const at::Tensor at = target.dim() < self.dim() ? target : target.squeeze();
  return nll_backward(grad, self, self.dim() - 1, at, defined_or_none(weight), reduction,
                      ignore_index, total_weight);
}

// ---- [N, C, H, W] ---------------------------------------------------------------------------

void check_2d(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight) {
  TORCH_CHECK(target.dim() == 3, "only batches of spatial targets supported (3D tensors) but got ",
              "targets of dimension: ", target.dim());
  TORCH_CHECK(self.dim() == 4, "only batches of spatial inputs supported (4D tensors), but got ",
              "input of dimension: ", self.dim());
  TORCH_CHECK(!weight.defined() || weight.numel() == self.size(1), "weight tensor should be ",
              "defined either for all or no classes");
  TORCH_CHECK(self.size(0) == target.size(0) && self.size(2) == target.size(1) &&
                  self.size(3) == target.size(2),
              "input and target batch or spatial sizes don't match: target ", target.sizes(),
              ", input ", self.sizes());
}

std::tuple<at::Tensor, at::Tensor> nll_loss2d_forward(const at::Tensor& self,
                                                      const at::Tensor& target,
                                                      const std::optional<at::Tensor>& weight,
                                                      int64_t reduction, int64_t ignore_index) {
  check_2d(self, target, defined_or_none(weight));
  const Loss loss = nll_forward(self, 1, target, defined_or_none(weight), reduction, ignore_index);
  return {loss.output, loss.total_weight};
}

std::tuple<at::Tensor&, at::Tensor&> nll_loss2d_forward_out(
    const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight,
    int64_t reduction, int64_t ignore_index, at::Tensor& output, at::Tensor& total_weight) {
  const auto [loss, total] = nll_loss2d_forward(self, target, weight, reduction, ignore_index);
  at::native::resize_output(output, loss.sizes());
  at::native::resize_output(total_weight, total.sizes());
  output.copy_(loss);
  total_weight.copy_(total);
  return {output, total_weight};
}

at::Tensor nll_loss2d_backward(const at::Tensor& grad, const at::Tensor& self,
                               const at::Tensor& target, const std::optional<at::Tensor>& weight,
                               int64_t reduction, int64_t ignore_index,
                               const at::Tensor& total_weight) {
  check_2d(self, target, defined_or_none(weight));
  return nll_backward(grad, self, 1, target, defined_or_none(weight), reduction, ignore_index,
                      total_weight);
}

at::Tensor& nll_loss2d_backward_out(const at::Tensor& grad, const at::Tensor& self,
                                    const at::Tensor& target,
                                    const std::optional<at::Tensor>& weight, int64_t reduction,
                                    int64_t ignore_index, const at::Tensor& total_weight,
                                    at::Tensor& grad_input) {
  at::native::resize_output(grad_input, self.sizes());
  return grad_input.copy_(
      nll_loss2d_backward(grad, self, target, weight, reduction, ignore_index, total_weight));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nll_loss_forward", nll_loss_forward);
  m.impl("nll_loss_forward.output", nll_loss_forward_out);
  m.impl("nll_loss_backward", nll_loss_backward);
  m.impl("nll_loss_backward.grad_input", nll_loss_backward_out);
  m.impl("nll_loss2d_forward", nll_loss2d_forward);
  m.impl("nll_loss2d_forward.output", nll_loss2d_forward_out);
  m.impl("nll_loss2d_backward", nll_loss2d_backward);
  m.impl("nll_loss2d_backward.grad_input", nll_loss2d_backward_out);
}

}  // namespace chipset::bridge
