// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention by the waist's attention, forward and backward. PyTorch asks the
// stub which implementation to take; registering the operators alone is not enough.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "waist.h"

namespace chipset::bridge {
namespace {

constexpr uint32_t kCausal = 1;

// ---- which implementation -------------------------------------------------------------------

bool chip_has_attention(const at::Tensor& query) {
  const chipset_api* api = runtime::device(query.get_device()).api;
  return runtime::has(api, &chipset_api::attention) &&
         runtime::has(api, &chipset_api::attention_backward);
}

bool chip_takes(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const std::optional<at::Tensor>& mask) {
  for (const at::Tensor* t : {&query, &key, &value}) {
    if (t->is_nested() || t->dim() != 4 || t->numel() == 0) return false;
    if (!at::isFloatingType(t->scalar_type()) || t->scalar_type() != query.scalar_type())
      return false;
    if (!t->is_privateuseone() || t->device() != query.device()) return false;
    if (t->size(0) != query.size(0)) return false;
  }
  if (key.size(1) != value.size(1) || query.size(1) % key.size(1) != 0) return false;
  if (key.size(2) != value.size(2) || key.size(3) != query.size(3)) return false;
  if (!mask.has_value() || !mask->defined()) return true;
  // A mask that learns needs its gradient, which the waist does not give.
  if (mask->requires_grad() && at::GradMode::is_enabled()) return false;
  return mask->dim() <= 4 && mask->is_privateuseone();
}

int64_t sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const std::optional<at::Tensor>& mask, double dropout_p, bool /*is_causal*/,
                   std::optional<double> /*scale*/, bool enable_gqa) {
  const auto math = static_cast<int64_t>(at::SDPBackend::math);
  if (!at::globalContext().userEnabledOverrideableSDP()) return math;
  if (dropout_p > 0 || !chip_takes(query, key, value, mask)) return math;
  if (!enable_gqa && query.size(1) != key.size(1)) return math;  // raises torch's own error
  if (!chip_has_attention(query)) return math;
  return static_cast<int64_t>(at::SDPBackend::overrideable);
}

// ---- the operators --------------------------------------------------------------------------

// What forward and backward share. The views live here, so it is neither copied nor moved.
struct AttentionCall {
  chipset_tensor q, k, v, mask, out, lse;
  at::Tensor expanded_mask;
  chipset_attention_args args = arguments<chipset_attention_args>();

  AttentionCall(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const at::Tensor& bias, bool causal, std::optional<double> scale,
                const at::Tensor& output, const at::Tensor& log_sum_exp)
      : q(view(query)), k(view(key)), v(view(value)), out(view(output)), lse(view(log_sum_exp)) {
    args.q = &q;
    args.k = &k;
    args.v = &v;
    args.out = &out;
    args.lse = &lse;
    if (bias.defined()) {
      expanded_mask = bias.expand({query.size(0), query.size(1), query.size(2), key.size(2)});
      mask = view(expanded_mask);
      args.mask = &mask;
    }
    args.flags = causal ? kCausal : 0;
    args.scale = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
    args.causal_offset = 0;  // torch aligns the causal mask at the top left
    args.window_left = -1;
    args.window_right = -1;
  }
  AttentionCall(const AttentionCall&) = delete;
  AttentionCall& operator=(const AttentionCall&) = delete;
};

// A result in the order of the query's dimensions in memory, so that the transpose that follows
// attention in most models is free.
at::Tensor empty_in_layout_of(const at::Tensor& query, int64_t width) {
  const std::array<int64_t, 4> sizes{query.size(0), query.size(1), query.size(2), width};
  std::array<int, 4> order{0, 1, 2, 3};
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return query.stride(a) > query.stride(b); });
  std::array<int64_t, 4> strides;
  int64_t step = 1;
  for (int k = 3; k >= 0; --k) {
    strides[order[k]] = step;
    step *= sizes[order[k]];
  }
  return empty_strided(sizes, strides, query.scalar_type(), query.get_device());
}

[[noreturn]] void refuse(const at::Tensor& query) {
  TORCH_CHECK(false, "the chip does not compute attention for ", query.scalar_type(),
              " with head size ", query.size(3),
              ": use torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
           at::Tensor, at::Tensor>
attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
          const std::optional<at::Tensor>& bias, double dropout_p, bool causal, bool,
          std::optional<double> scale) {
  TORCH_CHECK(dropout_p == 0, "attention on a chip has no dropout, but dropout_p is ", dropout_p,
              ": use torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
  TORCH_CHECK(chip_takes(query, key, value, bias),
              "attention on a chip takes query [B, H, Sq, D], "
              "key [B, Hkv, Sk, D] and value [B, Hkv, Sk, Dv] of one floating dtype, but got ",
              query.sizes(), ", ", key.sizes(), " and ", value.sizes(), " of ", query.scalar_type(),
              ", ", key.scalar_type(), " and ", value.scalar_type());
  const int device = query.get_device();
  const at::ScalarType wide = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor out = empty_in_layout_of(query, value.size(3));
  at::Tensor lse = empty({query.size(0), query.size(1), query.size(2)}, wide, device);
  const AttentionCall attend(query, key, value, bias.value_or(at::Tensor()), causal, scale, out,
                             lse);
  if (!call<&chipset_api::attention>(device, attend.args)) refuse(query);
  const at::Tensor unused = empty({}, at::kLong, device);  // Philox seed and offset: no dropout
  return {out,         lse,    at::Tensor(), at::Tensor(), query.size(2),
          key.size(2), unused, unused,       at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& bias, std::array<bool, 4> wanted,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&,
    c10::SymInt, c10::SymInt, double, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale) {
  if (!grad_out.defined()) return {};
  const int device = query.get_device();
  AttentionCall attend(query, key, value, bias, causal, scale, out, logsumexp);
  const chipset_tensor dout = view(grad_out);
  attend.args.dout = &dout;
  at::Tensor grads[3];
  chipset_tensor views[3];
  const chipset_tensor** slots[3] = {&attend.args.dq, &attend.args.dk, &attend.args.dv};
  const at::Tensor* inputs[3] = {&query, &key, &value};
  for (int i = 0; i < 3; ++i) {
    if (!wanted[i]) continue;
    grads[i] = empty_in_layout_of(*inputs[i], inputs[i]->size(3));
    views[i] = view(grads[i]);
    *slots[i] = &views[i];
  }
  if (!call<&chipset_api::attention_backward>(device, attend.args)) refuse(query);
  return {grads[0], grads[1], grads[2], at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", sdp_choice);
  m.impl("_scaled_dot_product_fused_attention_overrideable", attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", attention_backward);
}

}  // namespace chipset::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &chipset::bridge::sdp_choice)
}  // namespace at::native
