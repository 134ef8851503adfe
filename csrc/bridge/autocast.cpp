// SPDX-License-Identifier: Apache-2.0
// Autocast on the chip: torch's own lists of operators for devices (those of CUDA).
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {
namespace {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define CHIPSET_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define CHIPSET_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define CHIPSET_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define CHIPSET_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

Tensor banned_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                                   int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
              "autocast. Use torch.nn.functional.binary_cross_entropy_with_logits or "
              "torch.nn.BCEWithLogitsLoss, which are safe, or leave the autocast region for it");
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(CHIPSET_LOWER)
  AT_FORALL_FP32(CHIPSET_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(CHIPSET_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(CHIPSET_PROMOTE)
  m.impl("binary_cross_entropy", &banned_binary_cross_entropy);
}

}  // namespace
}  // namespace at::autocast
