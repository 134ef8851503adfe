// SPDX-License-Identifier: Apache-2.0
#include "adamw.h"

#include "check.h"
#include "dispatch.h"
#include "functions.h"
#include "parallel.h"

namespace chipset::cpu {
namespace {

constexpr int64_t kGrain = 16384;  // elements

// Dense: the elements fill one stretch of memory, in whatever order of dimensions.
bool is_dense(const chipset_tensor& t) {
  int64_t extent = 1;
  for (int d = 0; d < t.rank; ++d) extent += (t.shape[d] - 1) * t.stride[d];
  return extent == numel(t);
}
bool same_strides(const chipset_tensor& a, const chipset_tensor& b) {
  for (int d = 0; d < a.rank; ++d)
    if (a.shape[d] > 1 && a.stride[d] != b.stride[d]) return false;
  return true;
}

chipset_status check_one(const char* name, const chipset_tensor* t, const chipset_tensor& param) {
  RETURN_UNLESS_OK(check_like("adamw", name, t, "param", param));
  if (numel(param) > 0 && !(same_strides(*t, param) && is_dense(*t))) {
    return fail(CHIPSET_STATUS_INVALID,
                "adamw: %s of shape %s must be dense with the strides of param", name,
                shape_text(*t));
  }
  return CHIPSET_STATUS_OK;
}

chipset_status check(const chipset_adamw_args& a) {
  if (a.param == nullptr || a.grad == nullptr || a.exp_avg == nullptr || a.exp_avg_sq == nullptr ||
      a.step == nullptr) {
    return fail(CHIPSET_STATUS_INVALID,
                "adamw: param, grad, exp_avg, exp_avg_sq and step must not be NULL");
  }
  for (uint32_t i = 0; i < a.num_tensors; ++i) {
    RETURN_UNLESS_OK(check_floats("adamw", "param", a.param + i));
    RETURN_UNLESS_OK(check_one("param", a.param + i, a.param[i]));
    RETURN_UNLESS_OK(check_one("grad", a.grad + i, a.param[i]));
    RETURN_UNLESS_OK(check_one("exp_avg", a.exp_avg + i, a.param[i]));
    RETURN_UNLESS_OK(check_one("exp_avg_sq", a.exp_avg_sq + i, a.param[i]));
    if (a.max_exp_avg_sq != nullptr)
      RETURN_UNLESS_OK(check_one("max_exp_avg_sq", a.max_exp_avg_sq + i, a.param[i]));
    RETURN_UNLESS_OK(check_tensor("adamw", "step", a.step + i));
    if (a.step[i].dtype != CHIPSET_DTYPE_F32 || numel(a.step[i]) != 1) {
      return fail(CHIPSET_STATUS_INVALID, "adamw: step is %s of shape %s; need one f32",
                  dtype_name(a.step[i].dtype), shape_text(a.step[i]));
    }
  }
  return CHIPSET_STATUS_OK;
}

float read(const void* address) { return *static_cast<const float*>(address); }

}  // namespace

chipset_status cpu_adamw(chipset_stream, const chipset_adamw_args* args) {
  const chipset_adamw_args& a = *args;
  if (a.num_tensors == 0) return CHIPSET_STATUS_OK;
  RETURN_UNLESS_OK(check(a));
  if (a.found_inf != nullptr && read(a.found_inf) == 1.0f) return CHIPSET_STATUS_OK;
  AdamwPiece common{};
  common.lr = a.lr_tensor != nullptr ? read(a.lr_tensor) : a.lr;
  common.beta1 = a.beta1;
  common.beta2 = a.beta2;
  common.eps = a.eps;
  common.weight_decay = a.weight_decay;
  common.decoupled = a.decoupled != 0;
  common.grad_factor = a.maximize != 0 ? -1.0 : 1.0;
  if (a.grad_scale != nullptr) common.grad_factor /= read(a.grad_scale);
  const AdamwKernels& kernels = CPU_SELECT(adamw_kernels);
  for (uint32_t i = 0; i < a.num_tensors; ++i) {
    const chipset_tensor* tensors[5] = {
        a.param + i, a.grad + i, a.exp_avg + i, a.exp_avg_sq + i,
        a.max_exp_avg_sq != nullptr ? a.max_exp_avg_sq + i : nullptr};
    AdamwPiece whole = common;
    whole.step = read(a.step[i].data);
    for (int t = 0; t < 5; ++t) {
      if (tensors[t] == nullptr) continue;
      whole.tensor[t] = tensors[t]->data;
      whole.dtype[t] = tensors[t]->dtype;
    }
    parallel_for(numel(a.param[i]), kGrain, [&](int64_t begin, int64_t end) {
      AdamwPiece piece = whole;
      piece.begin = begin;
      piece.end = end;
      kernels.update(piece);
    });
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
