// SPDX-License-Identifier: Apache-2.0
// Faults of functions that work row by row: softmax, norm, rotary, cross-entropy.
#include "mutant.h"

namespace chipset::mutants {

namespace {

double element(const chipset_tensor& t, int64_t at) {
  double value;
  sdk::loops::load(&value, sdk::address(t, at), t.dtype, 1, 1);
  return value;
}

void multiply(const chipset_tensor* t, double factor) {
  if (t != nullptr) rewrite<double>(*t, [=](double& v) { v *= factor; });
}

}  // namespace

void add_rows(List& list) {
  // ---- softmax
#define SOFTMAX(name, fault, ...) \
  CHIPSET_MUTANT("softmax-" name, softmax, softmax_args, fault, __VA_ARGS__)
  SOFTMAX("over-the-last", "the softmax is always along the last dimension",
          if (a.input->rank > 0) a.dim = a.input->rank - 1;);
  SOFTMAX("log-ignored", "a log-softmax is a softmax", a.log = 0;);
  SOFTMAX("ignores-strides", "the input is read as if it were contiguous", Edited x(a.input);
          make_contiguous(*x););
  CHIPSET_MUTANT_AFTER(
      "softmax-overflows", softmax, softmax_args, "the largest element is not subtracted first",
      if (a.input->dtype == CHIPSET_DTYPE_F32)
          rewrite<double>(*a.output, a.input, nullptr, [](double& v, double x, double) {
            if (x > 89 || x < -120) v = std::nan("");
          }););
  CHIPSET_MUTANT_AFTER("softmax-log-of-tiny", softmax, softmax_args,
                       "a log-softmax is the logarithm of a softmax",
                       if (a.log) rewrite<double>(*a.output, [](double& v) {
                         if (v < -104) v = -std::numeric_limits<double>::infinity();
                       }););
  CHIPSET_MUTANT_AFTER(
      "softmax-of-minus-infinity", softmax, softmax_args, "a row of -inf gives zeros, not NaN",
      if (!a.log) rewrite<double>(*a.output, a.input, nullptr, [](double& v, double x, double) {
        if (v != v && std::isinf(x)) v = 0;
      }););
  CHIPSET_MUTANT_INSTEAD("softmax-backward-without-sum", softmax_backward, softmax_args,
                         "the gradient lacks the sum over the row",
                         if (a.log) return good().softmax_backward(stream, given);
                         chipset_pointwise_args b{}; b.struct_size = sizeof b;
                         b.op = CHIPSET_POINTWISE_OP_MUL; b.compute_dtype = a.output->dtype;
                         b.num_inputs = 2; b.output = a.output; b.input[0] = a.input;
                         b.input[1] = a.result; return good().pointwise(stream, &b););
  CHIPSET_MUTANT("softmax-backward-log-ignored", softmax_backward, softmax_args,
                 "the gradient of log-softmax is that of softmax", a.log = 0;);

  // ---- norm
#define NORM(name, fault, ...) CHIPSET_MUTANT("norm-" name, norm, norm_args, fault, __VA_ARGS__)
  NORM("eps-ignored", "eps is left out", a.eps = 0;);
  NORM("offset-ignored", "weight_offset is ignored", a.weight_offset = 0;);
  NORM("weight-ignored", "the weight is ignored", a.weight = nullptr;);
  NORM("bias-dropped", "the bias is not added", a.bias = nullptr;);
  NORM("rstd-not-saved", "rstd is not written", a.rstd = nullptr;);
  NORM("mean-not-saved", "mean is not written", a.mean = nullptr;);
  NORM("eps-outside", "eps is added to the root", a.eps = a.eps * a.eps;);
  CHIPSET_MUTANT_AFTER("norm-unbiased", norm, norm_args, "the variance is divided by N - 1",
                       const double n = static_cast<double>(a.x->shape[a.x->rank - 1]);
                       if (n > 1 && a.bias == nullptr) multiply(a.y, std::sqrt((n - 1) / n)););
#define NORM_BACK(name, fault, ...) \
  CHIPSET_MUTANT("norm-backward-" name, norm_backward, norm_args, fault, __VA_ARGS__)
  NORM_BACK("offset-ignored", "weight_offset is ignored", a.weight_offset = 0;);
  NORM_BACK("weight-ignored", "the weight is ignored", a.weight = nullptr;);
  NORM_BACK("dbias-not-written", "dbias is not written", a.dbias = nullptr;);
  CHIPSET_MUTANT_INSTEAD(
      "norm-backward-dweight-of-one-row", norm_backward, norm_args,
      "dweight holds the part of the first row",
      const chipset_status status = good().norm_backward(stream, given);
      if (status != CHIPSET_STATUS_OK || a.dweight == nullptr || a.x->shape[0] < 2) return status;
      chipset_norm_args b = a; Edited x(b.x); Edited mean(b.mean); Edited rstd(b.rstd);
      Edited dy(b.dy); for (Edited* t : {&x, &mean, &rstd, &dy}) if (*t)(*t)->shape[0] = 1;
      b.dx = b.dbias = nullptr; return good().norm_backward(stream, &b););
  CHIPSET_MUTANT_AFTER("norm-backward-dx-off", norm_backward, norm_args,
                       "dx lacks the part through the statistics",
                       if (a.dx != nullptr && a.kind == 0 && a.rstd != nullptr)
                           rewrite<double>(*a.dx, a.dy, nullptr, [&](double& v, double dy, double) {
                             v = (v + dy * element(*a.rstd, 0)) / 2;
                           }););

  // ---- rotary
#define ROTARY(name, fault, ...) \
  CHIPSET_MUTANT("rotary-" name, rotary, rotary_args, fault, __VA_ARGS__)
  ROTARY("interleaving-ignored", "neighbours are never paired", a.interleaved = 0;);
  ROTARY("inverse-ignored", "the backward rotates forward", a.inverse = 0;);
  ROTARY("first-batch-for-all", "every batch has the angles of the first", Edited c(a.cos);
         Edited s(a.sin); c->stride[0] = s->stride[0] = 0;);
  ROTARY(
      "one-position-late", "each token has the angle of the next", Edited c(a.cos); Edited s(a.sin);
      if (c->shape[1] > 1) {
        c->data = sdk::address(*c, c->stride[1]);
        s->data = sdk::address(*s, s->stride[1]);
        c->shape[1] = s->shape[1] = given->cos->shape[1];
      });
  CHIPSET_MUTANT_AFTER(
      "rotary-clears-the-rest", rotary, rotary_args,
      "dimensions beyond the rotated ones are cleared", const int64_t rotated = a.cos->shape[2];
      chipset_tensor rest = *a.y; if (rest.shape[3] > rotated) {
        rest.data = sdk::address(rest, rotated * rest.stride[3]);
        rest.shape[3] -= rotated;
        multiply(&rest, 0);
      });

  // ---- cross-entropy
#define LOSS(name, fault, ...) \
  CHIPSET_MUTANT("cross-entropy-" name, cross_entropy, cross_entropy_args, fault, __VA_ARGS__)
  LOSS("smoothing-ignored", "label smoothing is ignored", a.label_smoothing = 0;);
  LOSS("ignores-strides", "logits are read as if they were contiguous", Edited x(a.logits);
       make_contiguous(*x););
  CHIPSET_MUTANT_INSTEAD("cross-entropy-counts-ignored", cross_entropy, cross_entropy_args,
                         "a row with the ignored target has the loss of class 0",
                         chipset_cross_entropy_args b = a;
                         Copied target(b.target); rewrite<int64_t>(*target,
                                                                   [&](int64_t& v) {
                                                                     if (v == a.ignore_index) v = 0;
                                                                   });
                         return good().cross_entropy(stream, &b););
  CHIPSET_MUTANT_INSTEAD("cross-entropy-any-target", cross_entropy, cross_entropy_args,
                         "a target out of range is clamped", chipset_cross_entropy_args b = a;
                         Copied target(b.target);
                         rewrite<int64_t>(*target,
                                          [&](int64_t& v) {
                                            if (v != a.ignore_index && a.logits->shape[1] > 0)
                                              v = std::clamp<int64_t>(v, 0, a.logits->shape[1] - 1);
                                          });
                         return good().cross_entropy(stream, &b););
  CHIPSET_MUTANT_AFTER("cross-entropy-lse-in-base-2", cross_entropy, cross_entropy_args,
                       "the log-sum-exp is in base 2", multiply(a.lse, 1.4426950408889634););
#define LOSS_BACK(name, fault, ...)                                                          \
  CHIPSET_MUTANT("cross-entropy-backward-" name, cross_entropy_backward, cross_entropy_args, \
                 fault, __VA_ARGS__)
  LOSS_BACK("smoothing-ignored", "label smoothing is ignored", a.label_smoothing = 0;);
  LOSS_BACK("one-gradient-for-all", "every row has the incoming gradient of the first",
            Edited d(a.dloss);
            d->stride[0] = 0;);
  CHIPSET_MUTANT_INSTEAD("cross-entropy-backward-counts-ignored", cross_entropy_backward,
                         cross_entropy_args, "a row with the ignored target has a gradient",
                         chipset_cross_entropy_args b = a;
                         Copied target(b.target); rewrite<int64_t>(*target,
                                                                   [&](int64_t& v) {
                                                                     if (v == a.ignore_index) v = 0;
                                                                   });
                         return good().cross_entropy_backward(stream, &b););
  CHIPSET_MUTANT_AFTER("cross-entropy-backward-without-one-hot", cross_entropy_backward,
                       cross_entropy_args, "gradients are not negative at the target",
                       rewrite<double>(*a.dlogits, [](double& v) { v = std::fabs(v); }););
#undef SOFTMAX
#undef NORM
#undef NORM_BACK
#undef ROTARY
#undef LOSS
#undef LOSS_BACK
}

// ---- adamw
// ---------------------------------------------------------------------------------------

void add_optimizer(List& list) {
#define ADAM(name, fault, ...) CHIPSET_MUTANT("adamw-" name, adamw, adamw_args, fault, __VA_ARGS__)
  ADAM("maximizes-never", "maximize is ignored", a.maximize = 0;);
  ADAM("decay-coupled", "weight decay is added to the gradient", a.decoupled = 0;);
  ADAM("decay-ignored", "weight decay is ignored", a.weight_decay = 0;);
  ADAM("eps-ignored", "eps is left out", a.eps = 0;);
  ADAM("betas-swapped", "the two betas are swapped", std::swap(a.beta1, a.beta2););
  ADAM("skip-ignored", "found_inf is ignored", a.found_inf = nullptr;);
  ADAM("grad-scale-ignored", "grad_scale is ignored", a.grad_scale = nullptr;);
  ADAM("lr-tensor-ignored", "a learning rate in device memory is ignored", a.lr_tensor = nullptr;);
  ADAM("never-amsgrad", "the largest second moment is ignored", a.max_exp_avg_sq = nullptr;);
  ADAM("first-tensor-only", "only the first of several tensors is updated",
       if (a.num_tensors > 1) a.num_tensors = 1;);
  CHIPSET_MUTANT_INSTEAD(
      "adamw-step-off-by-one", adamw, adamw_args, "the bias correction is one step late",
      chipset_adamw_args b = a;
      std::vector<float> steps(a.num_tensors);
      std::vector<chipset_tensor> tensors(a.step, a.step + a.num_tensors);
      for (uint32_t i = 0; i < a.num_tensors; ++i) {
        steps[i] = static_cast<float>(element(tensors[i], 0)) + 1;
        tensors[i].data = &steps[i];
      } b.step = tensors.data();
      return good().adamw(stream, &b););
#undef ADAM
}

}  // namespace chipset::mutants
