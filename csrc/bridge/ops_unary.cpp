// SPDX-License-Identifier: Apache-2.0
// Functions of one operand: exp, sqrt, neg, sigmoid, …
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/acos_meta.h>
#include <ATen/ops/acos_ops.h>
#include <ATen/ops/acosh_meta.h>
#include <ATen/ops/acosh_ops.h>
#include <ATen/ops/angle_ops.h>
#include <ATen/ops/asin_meta.h>
#include <ATen/ops/asin_ops.h>
#include <ATen/ops/asinh_meta.h>
#include <ATen/ops/asinh_ops.h>
#include <ATen/ops/atan_meta.h>
#include <ATen/ops/atan_ops.h>
#include <ATen/ops/atanh_meta.h>
#include <ATen/ops/atanh_ops.h>
#include <ATen/ops/bitwise_not_meta.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/ceil_meta.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/cos_meta.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cosh_meta.h>
#include <ATen/ops/cosh_ops.h>
#include <ATen/ops/digamma_meta.h>
#include <ATen/ops/digamma_ops.h>
#include <ATen/ops/erf_meta.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/erfc_meta.h>
#include <ATen/ops/erfc_ops.h>
#include <ATen/ops/erfinv_meta.h>
#include <ATen/ops/erfinv_ops.h>
#include <ATen/ops/exp2_meta.h>
#include <ATen/ops/exp2_ops.h>
#include <ATen/ops/exp_meta.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expm1_meta.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/floor_meta.h>
#include <ATen/ops/floor_ops.h>
#include <ATen/ops/frac_meta.h>
#include <ATen/ops/frac_ops.h>
#include <ATen/ops/hardsigmoid_meta.h>
#include <ATen/ops/hardsigmoid_ops.h>
#include <ATen/ops/hardswish_ops.h>
#include <ATen/ops/i0_meta.h>
#include <ATen/ops/i0_ops.h>
#include <ATen/ops/isnan_ops.h>
#include <ATen/ops/isneginf_meta.h>
#include <ATen/ops/isneginf_ops.h>
#include <ATen/ops/isposinf_meta.h>
#include <ATen/ops/isposinf_ops.h>
#include <ATen/ops/lgamma_meta.h>
#include <ATen/ops/lgamma_ops.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10_meta.h>
#include <ATen/ops/log10_ops.h>
#include <ATen/ops/log1p_meta.h>
#include <ATen/ops/log1p_ops.h>
#include <ATen/ops/log2_meta.h>
#include <ATen/ops/log2_ops.h>
#include <ATen/ops/log_meta.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logit_ops.h>
#include <ATen/ops/mish_meta.h>
#include <ATen/ops/mish_ops.h>
#include <ATen/ops/nan_to_num_ops.h>
#include <ATen/ops/neg_meta.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/reciprocal_meta.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/round_meta.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_meta.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sgn_meta.h>
#include <ATen/ops/sgn_ops.h>
#include <ATen/ops/sigmoid_meta.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/sign_meta.h>
#include <ATen/ops/sign_ops.h>
#include <ATen/ops/signbit_meta.h>
#include <ATen/ops/signbit_ops.h>
#include <ATen/ops/silu_meta.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_meta.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sinc_meta.h>
#include <ATen/ops/sinc_ops.h>
#include <ATen/ops/sinh_meta.h>
#include <ATen/ops/sinh_ops.h>
#include <ATen/ops/sqrt_meta.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/tan_meta.h>
#include <ATen/ops/tan_ops.h>
#include <ATen/ops/tanh_meta.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/trunc_meta.h>
#include <ATen/ops/trunc_ops.h>
#include <torch/library.h>

#include "pointwise.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

// clang-format off
// Operator, opcode. Integers are promoted to float by torch.
#define UNARY_FLOAT(X) \
  X(exp2, EXP2) X(expm1, EXPM1) X(log, LOG) X(log2, LOG2) X(log10, LOG10) X(log1p, LOG1P) \
  X(tan, TAN) X(asin, ASIN) X(acos, ACOS) X(atan, ATAN) X(sinh, SINH) X(cosh, COSH) \
  X(asinh, ASINH) X(acosh, ACOSH) X(atanh, ATANH) X(erf, ERF) X(erfc, ERFC) \
  X(erfinv, ERFINV) X(lgamma, LGAMMA) X(digamma, DIGAMMA) X(sinc, SINC) X(i0, I0) \
  X(frac, FRAC) X(mish, MISH) X(hardsigmoid, HARDSIGMOID)
// The same for operators that models call in every layer: their functional overload is direct.
#define UNARY_FLOAT_HOT(X) \
  X(exp, EXP) X(sqrt, SQRT) X(rsqrt, RSQRT) X(reciprocal, RECIPROCAL) X(sin, SIN) X(cos, COS) \
  X(tanh, TANH) X(sigmoid, SIGMOID) X(silu, SILU)
// Identity on integers.
#define UNARY_ROUNDING(X) X(ceil, CEIL) X(floor, FLOOR) X(round, ROUND) X(trunc, TRUNC)
#define UNARY_NUMBER(X) X(sign, SIGN) X(sgn, SIGN) X(signbit, SIGNBIT)
// clang-format on

template <class Meta, class Host, chipset_pointwise_op Op, Accepts Which>
at::Tensor& unary_out(const at::Tensor& self, at::Tensor& out) {
  Out<Meta> iterator(out);
  iterator.meta(self);
  if (!pointwise(iterator, Op, Which)) host<Host>(self, out);
  return out;
}

template <class Meta, class Host, chipset_pointwise_op Op, Accepts Which>
at::Tensor unary(const at::Tensor& self) {
  if (at::Tensor result = simple_unary(Op, Which, self); result.defined()) return result;
  Functional<Meta> iterator;
  iterator.meta(self);
  if (!pointwise(iterator, Op, Which)) return host<Host>(self);
  return iterator.take();
}

template <class Meta, class Host, chipset_pointwise_op Op>
at::Tensor& rounding_out(const at::Tensor& self, at::Tensor& out) {
  Out<Meta> iterator(out);
  iterator.meta(self);
  const bool integral = at::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  if (!pointwise(iterator, integral ? CHIPSET_POINTWISE_OP_COPY : Op, Accepts::kAny))
    host<Host>(self, out);
  return out;
}

// ---- infinities and NaN ---------------------------------------------------------------------

template <class Meta, class Host>
at::Tensor& equals_infinity_out(const at::Tensor& self, at::Tensor& out, double infinity) {
  Out<Meta> iterator(out);
  iterator.meta(self);
  const auto type = self.scalar_type();
  const bool done =
      at::isIntegralType(type, true)
          ? pointwise(iterator, CHIPSET_POINTWISE_OP_FILL, at::kBool, {})
          : accepts(Accepts::kFloat, type) &&
                pointwise(iterator, CHIPSET_POINTWISE_OP_EQ, type, {1, scalar(infinity)});
  if (!done) host<Host>(self, out);
  return out;
}
at::Tensor& isposinf_out(const at::Tensor& self, at::Tensor& out) {
  return equals_infinity_out<at::meta::structured_isposinf, at::_ops::isposinf_out>(
      self, out, std::numeric_limits<double>::infinity());
}
at::Tensor& isneginf_out(const at::Tensor& self, at::Tensor& out) {
  return equals_infinity_out<at::meta::structured_isneginf, at::_ops::isneginf_out>(
      self, out, -std::numeric_limits<double>::infinity());
}

// A unary operation whose result has another dtype than the operand, or that torch does not
// describe by a meta function.
bool plain(at::TensorIteratorConfig& config, chipset_pointwise_op op, Accepts which,
           const at::Tensor& self, const Params& params = {}) {
  if (!accepts(which, self.scalar_type())) return false;
  const auto iterator = config.build();
  return pointwise(iterator, op, self.scalar_type(), {1}, params);
}

at::Tensor isnan(const at::Tensor& self) {
  at::Tensor result = empty(self.sizes(), at::kBool, self.device().index());
  auto config = at::TensorIteratorConfig();
  config.check_all_same_dtype(false).add_output(result).add_const_input(self);
  if (!plain(config, CHIPSET_POINTWISE_OP_ISNAN, Accepts::kAny, self))
    return host<at::_ops::isnan>(self);
  return result;
}

at::Tensor& logical_not_out(const at::Tensor& self, at::Tensor& out) {
  auto config = at::TensorIteratorConfig();
  config.check_all_same_dtype(false).add_output(out).add_const_input(self);
  if (!plain(config, CHIPSET_POINTWISE_OP_LOGICAL_NOT, Accepts::kAny, self))
    host<at::_ops::logical_not_out>(self, out);
  return out;
}

// ---- operators without a meta function ------------------------------------------------------

at::Tensor& abs_out(const at::Tensor& self, at::Tensor& out) {
  if (!elementwise(CHIPSET_POINTWISE_OP_ABS, Accepts::kNumber, {&self}, out))
    host<at::_ops::abs_out>(self, out);
  return out;
}

at::Tensor relu(const at::Tensor& self) {
  if (at::Tensor result = simple_unary(CHIPSET_POINTWISE_OP_RELU, Accepts::kNumber, self);
      result.defined())
    return result;
  at::Tensor result;
  if (!elementwise(CHIPSET_POINTWISE_OP_RELU, Accepts::kNumber, {&self}, result))
    return host<at::_ops::relu>(self);
  return result;
}
at::Tensor& relu_(at::Tensor& self) {
  if (!elementwise(CHIPSET_POINTWISE_OP_RELU, Accepts::kNumber, {&self}, self))
    host<at::_ops::relu_>(self);
  return self;
}

at::Tensor hardswish(const at::Tensor& self) {
  at::Tensor result;
  if (!elementwise(CHIPSET_POINTWISE_OP_HARDSWISH, Accepts::kFloat, {&self}, result))
    return host<at::_ops::hardswish>(self);
  return result;
}
at::Tensor& hardswish_(at::Tensor& self) {
  if (!elementwise(CHIPSET_POINTWISE_OP_HARDSWISH, Accepts::kFloat, {&self}, self))
    host<at::_ops::hardswish_>(self);
  return self;
}
at::Tensor& hardswish_out(const at::Tensor& self, at::Tensor& out) {
  if (!elementwise(CHIPSET_POINTWISE_OP_HARDSWISH, Accepts::kFloat, {&self}, out))
    host<at::_ops::hardswish_out>(self, out);
  return out;
}

at::Tensor& conj_physical_out(const at::Tensor& self, at::Tensor& out) {
  if (!elementwise(CHIPSET_POINTWISE_OP_COPY, Accepts::kAny, {&self}, out))
    host<at::_ops::conj_physical_out>(self, out);
  return out;
}

// The largest and smallest finite numbers of a floating dtype.
double largest(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return 65504.0;
    case at::kBFloat16:
      return static_cast<double>(std::numeric_limits<c10::BFloat16>::max());
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

at::Tensor& nan_to_num_out(const at::Tensor& self, std::optional<double> nan,
                           std::optional<double> positive, std::optional<double> negative,
                           at::Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "nan_to_num: dtype of out: ", out.scalar_type(),
              " should be same as input: ", self.scalar_type());
  const auto type = self.scalar_type();
  const bool integral = at::isIntegralType(type, true);
  Params params;
  if (!integral) {
    params.p[0] = scalar(nan.value_or(0.0));
    params.p[1] = scalar(positive.value_or(largest(type)));
    params.p[2] = scalar(negative.value_or(-largest(type)));
  }
  const auto op = integral ? CHIPSET_POINTWISE_OP_COPY : CHIPSET_POINTWISE_OP_NAN_TO_NUM;
  if (!elementwise(op, Accepts::kAny, {&self}, out, params))
    host<at::_ops::nan_to_num_out>(self, nan, positive, negative, out);
  return out;
}

// neg and bitwise_not: hot, and not float.
at::Tensor neg(const at::Tensor& self) {
  return unary<at::meta::structured_neg, at::_ops::neg, CHIPSET_POINTWISE_OP_NEG, Accepts::kNumber>(
      self);
}
at::Tensor bitwise_not(const at::Tensor& self) {
  return unary<at::meta::structured_bitwise_not, at::_ops::bitwise_not,
               CHIPSET_POINTWISE_OP_BITWISE_NOT, Accepts::kIntegral>(self);
}

// ---- registration ---------------------------------------------------------------------------

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define OUT_FLOAT(NAME, OP)                                                                   \
  m.impl(#NAME ".out", TORCH_FN((unary_out<at::meta::structured_##NAME, at::_ops::NAME##_out, \
                                           CHIPSET_POINTWISE_OP_##OP, Accepts::kFloat>)));
#define HOT_FLOAT(NAME, OP)                                                  \
  OUT_FLOAT(NAME, OP)                                                        \
  m.impl(#NAME, TORCH_FN((unary<at::meta::structured_##NAME, at::_ops::NAME, \
                                CHIPSET_POINTWISE_OP_##OP, Accepts::kFloat>)));
#define OUT_NUMBER(NAME, OP)                                                                  \
  m.impl(#NAME ".out", TORCH_FN((unary_out<at::meta::structured_##NAME, at::_ops::NAME##_out, \
                                           CHIPSET_POINTWISE_OP_##OP, Accepts::kNumber>)));
#define OUT_ROUNDING(NAME, OP)                                                                   \
  m.impl(#NAME ".out", TORCH_FN((rounding_out<at::meta::structured_##NAME, at::_ops::NAME##_out, \
                                              CHIPSET_POINTWISE_OP_##OP>)));
  UNARY_FLOAT(OUT_FLOAT)
  UNARY_FLOAT_HOT(HOT_FLOAT)
  UNARY_NUMBER(OUT_NUMBER)
  OUT_NUMBER(neg, NEG)
  UNARY_ROUNDING(OUT_ROUNDING)
  m.impl("neg", TORCH_FN(neg));
  m.impl("bitwise_not", TORCH_FN(bitwise_not));
  m.impl("bitwise_not.out",
         TORCH_FN((unary_out<at::meta::structured_bitwise_not, at::_ops::bitwise_not_out,
                             CHIPSET_POINTWISE_OP_BITWISE_NOT, Accepts::kIntegral>)));
  m.impl("isposinf.out", TORCH_FN(isposinf_out));
  m.impl("isneginf.out", TORCH_FN(isneginf_out));
  m.impl("isnan", TORCH_FN(isnan));
  m.impl("logical_not.out", TORCH_FN(logical_not_out));
  m.impl("abs.out", TORCH_FN(abs_out));
  m.impl("relu", TORCH_FN(relu));
  m.impl("relu_", TORCH_FN(relu_));
  m.impl("hardswish", TORCH_FN(hardswish));
  m.impl("hardswish_", TORCH_FN(hardswish_));
  m.impl("hardswish.out", TORCH_FN(hardswish_out));
  m.impl("conj_physical.out", TORCH_FN(conj_physical_out));
  m.impl("nan_to_num.out", TORCH_FN(nan_to_num_out));
}

}  // namespace
}  // namespace chipset::bridge
