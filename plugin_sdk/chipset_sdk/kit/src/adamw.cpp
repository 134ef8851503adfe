// SPDX-License-Identifier: Apache-2.0
// AdamW over many tensors: those that follow one another and share their dtypes go together.
#include <cmath>

#include "rows.h"

namespace chipset::kit {

namespace {
constexpr int kTensors = 8;  // of a launch; the kernel's EACH has as many
constexpr int64_t kBlock = 2048;

struct Extents {  // as the kernel has it
  int64_t first_block[kTensors + 1] = {}, size[kTensors] = {};
};
template <class Real>
struct Numbers {
  Real lr, log_beta1, log_beta2, beta1, beta2, rest1, rest2, eps, weight_decay, sign;
  explicit Numbers(const chipset_adamw_args& a)
      : lr(static_cast<Real>(a.lr)),
        log_beta1(static_cast<Real>(std::log(a.beta1))),
        log_beta2(static_cast<Real>(std::log(a.beta2))),
        beta1(static_cast<Real>(a.beta1)),
        beta2(static_cast<Real>(a.beta2)),
        rest1(static_cast<Real>(1 - a.beta1)),
        rest2(static_cast<Real>(1 - a.beta2)),
        eps(static_cast<Real>(a.eps)),
        weight_decay(static_cast<Real>(a.weight_decay)),
        sign(a.maximize != 0 ? Real{-1} : Real{1}) {}
};

// The tensors of one parameter; the fifth may be absent.
struct Five {
  const chipset_tensor* tensor[5];
  Five(const chipset_adamw_args& a, uint32_t i)
      : tensor{a.param + i, a.grad + i, a.exp_avg + i, a.exp_avg_sq + i,
               a.max_exp_avg_sq != nullptr ? a.max_exp_avg_sq + i : nullptr} {}
  bool same_dtypes(const Five& other) const {
    for (int t = 0; t < 5; ++t)
      if (tensor[t] != nullptr && tensor[t]->dtype != other.tensor[t]->dtype) return false;
    return true;
  }
};

// The elements fill one stretch of memory, in whatever order of dimensions.
bool is_dense(const chipset_tensor& t) {
  int64_t last = 1;
  for (int d = 0; d < t.rank; ++d) last += (t.shape[d] - 1) * t.stride[d];
  return last == sdk::numel(t);
}
bool same_strides(const chipset_tensor& a, const chipset_tensor& b) {
  for (int d = 0; d < a.rank; ++d)
    if (a.shape[d] > 1 && a.stride[d] != b.stride[d]) return false;
  return true;
}

void check_adamw(const Traits& traits, const chipset_adamw_args& args) {
  if (args.param == nullptr || args.grad == nullptr || args.exp_avg == nullptr ||
      args.exp_avg_sq == nullptr || args.step == nullptr)
    fail(CHIPSET_STATUS_INVALID,
         "adamw: param, grad, exp_avg, exp_avg_sq and step must not be NULL");
  static constexpr const char* kNames[5] = {"param", "grad", "exp_avg", "exp_avg_sq",
                                            "max_exp_avg_sq"};
  for (uint32_t i = 0; i < args.num_tensors; ++i) {
    const Five five(args, i);
    const chipset_tensor& param = *five.tensor[0];
    for (int t = 0; t < 5; ++t) {
      if (five.tensor[t] == nullptr) continue;
      const chipset_tensor& tensor = *five.tensor[t];
      sdk::check_shape(kNames[t], &tensor, "param", param);
      need_float(traits, "adamw", tensor.dtype);
      if (sdk::numel(param) > 0 && !(same_strides(tensor, param) && is_dense(tensor)))
        fail(CHIPSET_STATUS_INVALID,
             "adamw: %s of shape %s must be dense with the strides of param", kNames[t],
             sdk::shape_text(tensor).c_str());
      if (class_of(tensor.dtype) != class_of(param.dtype))
        unsupported(std::string("adamw: ") + kNames[t] + " is " + sdk::dtype_name(tensor.dtype) +
                    ", but param is " + sdk::dtype_name(param.dtype));
    }
    sdk::check_tensor("step", args.step + i);
    if (args.step[i].dtype != CHIPSET_DTYPE_F32 || sdk::numel(args.step[i]) != 1)
      fail(CHIPSET_STATUS_INVALID, "adamw: step is %s of shape %s; need one f32",
           sdk::dtype_name(args.step[i].dtype), sdk::shape_text(args.step[i]).c_str());
  }
}

// One launch, over the parameters named by `which`.
void update(Kit& kit, chipset_stream stream, const chipset_adamw_args& args, const uint32_t* which,
            int count) {
  const Traits& traits = kit.traits();
  const Five first(args, which[0]);
  const bool amsgrad = first.tensor[4] != nullptr;
  const char held = class_of(first.tensor[0]->dtype);
  const int lanes = group_lanes(traits);
  int32_t dtype[5];
  for (int t = 0; t < 5; ++t) dtype[t] = first.tensor[t == 4 && !amsgrad ? 3 : t]->dtype;
  const Signature signature{kAdamw, dtype[0], dtype[1], dtype[2], dtype[3], dtype[4], amsgrad};
  void* kernel = kit.kernel(signature, "adamw", [&] {
    Source source = row_source(traits, held, lanes);
    static constexpr const char* kOperands[5] = {"P", "G", "M", "V", "H"};
    for (int t = 0; t < 5; ++t) source.operand(kOperands[t], dtype[t]);
    source.define("TENSORS", kTensors).define("BLOCK", kBlock).define("AMSGRAD", amsgrad);
    return source.file("adamw.c").take();
  });
  Extents extents;
  for (int k = 0; k < count; ++k) {
    extents.size[k] = sdk::numel(args.param[which[k]]);
    extents.first_block[k + 1] = extents.first_block[k] + ceil_div(extents.size[k], kBlock);
  }
  Launch launch(kit.backend(), stream, kernel);
  for (int t = 0; t < 5; ++t)
    for (int k = 0; k < kTensors; ++k) {
      const Five five(args, which[k < count ? k : 0]);
      launch.address(five.tensor[t == 4 && !amsgrad ? 3 : t]);
    }
  for (int k = 0; k < kTensors; ++k) launch.address(args.step + which[k < count ? k : 0]);
  const void* some = args.step[which[0]].data;
  launch.address(args.lr_tensor != nullptr ? args.lr_tensor : some)
      .address(args.grad_scale != nullptr ? args.grad_scale : some)
      .address(args.found_inf != nullptr ? args.found_inf : some)
      .i32((args.lr_tensor != nullptr ? 1 : 0) | (args.grad_scale != nullptr ? 2 : 0) |
           (args.found_inf != nullptr ? 4 : 0))
      .i32(args.decoupled != 0)
      .i32(count)
      .value(extents);
  if (held == 'd')
    launch.value(Numbers<double>(args));
  else
    launch.value(Numbers<float>(args));
  launch.run({group_count(traits, extents.first_block[count], kBlock * 4)},
             static_cast<uint32_t>(lanes));
}
}  // namespace

void Kit::adamw(chipset_stream stream, const chipset_adamw_args& arguments) {
  check_adamw(traits_, arguments);
  uint32_t which[kTensors];
  int count = 0;
  for (uint32_t i = 0; i < arguments.num_tensors; ++i) {
    if (sdk::numel(arguments.param[i]) == 0) continue;
    if (count == kTensors ||
        (count > 0 && !Five(arguments, i).same_dtypes(Five(arguments, which[0])))) {
      update(*this, stream, arguments, which, count);
      count = 0;
    }
    which[count++] = i;
  }
  if (count > 0) update(*this, stream, arguments, which, count);
}

}  // namespace chipset::kit
