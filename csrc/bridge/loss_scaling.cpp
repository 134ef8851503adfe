// SPDX-License-Identifier: Apache-2.0
// The two operators of torch.amp.GradScaler, from operators of the chip: nothing waits for it.
#include <ATen/ops/all.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "waist.h"

namespace chipset::bridge {
namespace {

at::Tensor all_finite(const at::Tensor& gradient) {
  at::Tensor finite = bridge::empty(gradient.sizes(), at::kBool, device_index(gradient));
  const chipset_tensor out = view(finite), in = view(gradient);
  auto args = arguments<chipset_pointwise_args>();
  args.op = CHIPSET_POINTWISE_OP_ISFINITE;
  args.compute_dtype = in.dtype;
  args.num_inputs = 1;
  args.output = &out;
  args.input[0] = &in;
  const bool done = fits(gradient) && computes(gradient) &&
                    call<&chipset_api::pointwise>(device_index(gradient), args);
  return at::all(done ? finite : at::isfinite(gradient));
}

void non_finite_check_and_unscale(at::TensorList gradients, at::Tensor& found_inf,
                                  const at::Tensor& inverse_scale) {
  TORCH_CHECK(inverse_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inverse_scale.scalar_type() == at::kFloat, "inv_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  for (const at::Tensor& gradient : gradients) {
    if (gradient.numel() == 0) continue;
    const at::Tensor bad = at::logical_not(all_finite(gradient)).to(at::kFloat);
    found_inf.copy_(at::maximum(found_inf, bad.expand_as(found_inf)));
    // As a scalar of the gradient's dtype: a float tensor would take part in type promotion.
    gradient.mul_(inverse_scale.to(gradient.scalar_type()).reshape({}));
  }
}

at::Tensor& update_scale(at::Tensor& scale, at::Tensor& growth_tracker, const at::Tensor& found_inf,
                         double growth_factor, double backoff_factor, int64_t growth_interval) {
  TORCH_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(scale.numel() == 1, "current_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  const at::Tensor found = found_inf.ne(0);
  const at::Tensor steps = growth_tracker.add(1);
  const at::Tensor due = steps.eq(growth_interval);
  const at::Tensor grown = scale.mul(growth_factor);
  // A scale that would become infinite stays.
  const at::Tensor next = at::where(due.logical_and(all_finite(grown)), grown, scale);
  const at::Tensor zero = growth_tracker.sub(growth_tracker);
  scale.copy_(at::where(found, scale.mul(backoff_factor), next));
  growth_tracker.copy_(at::where(found.logical_or(due), zero, steps));
  return scale;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &non_finite_check_and_unscale);
  m.impl("_amp_update_scale_", &update_scale);
}

}  // namespace chipset::bridge
