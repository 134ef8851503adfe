// SPDX-License-Identifier: Apache-2.0
// Arithmetic of two operands: add, mul, div, pow, maximum, bitwise operations, …
#include <ATen/ScalarOps.h>
#include <ATen/ops/add_meta.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/atan2_meta.h>
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/bitwise_and_meta.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_left_shift_meta.h>
#include <ATen/ops/bitwise_left_shift_ops.h>
#include <ATen/ops/bitwise_or_meta.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_right_shift_meta.h>
#include <ATen/ops/bitwise_right_shift_ops.h>
#include <ATen/ops/bitwise_xor_meta.h>
#include <ATen/ops/bitwise_xor_ops.h>
#include <ATen/ops/copysign_meta.h>
#include <ATen/ops/copysign_ops.h>
#include <ATen/ops/div.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/floor_divide_ops.h>
#include <ATen/ops/fmax_meta.h>
#include <ATen/ops/fmax_ops.h>
#include <ATen/ops/fmin_meta.h>
#include <ATen/ops/fmin_ops.h>
#include <ATen/ops/fmod_meta.h>
#include <ATen/ops/fmod_ops.h>
#include <ATen/ops/gcd_meta.h>
#include <ATen/ops/gcd_ops.h>
#include <ATen/ops/heaviside_meta.h>
#include <ATen/ops/heaviside_ops.h>
#include <ATen/ops/hypot_meta.h>
#include <ATen/ops/hypot_ops.h>
#include <ATen/ops/lcm_meta.h>
#include <ATen/ops/lcm_ops.h>
#include <ATen/ops/logaddexp2_meta.h>
#include <ATen/ops/logaddexp2_ops.h>
#include <ATen/ops/logaddexp_meta.h>
#include <ATen/ops/logaddexp_ops.h>
#include <ATen/ops/maximum_meta.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_meta.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/nextafter_meta.h>
#include <ATen/ops/nextafter_ops.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/pow_meta.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/remainder_meta.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sub_meta.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/xlogy_meta.h>
#include <ATen/ops/xlogy_ops.h>
#include <torch/library.h>

#include "pointwise.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

using at::Scalar;
using at::Tensor;

// clang-format off
// Operator, suffix of its meta function, overload of its out form, opcode, compute dtypes.
#define BINARY(X) \
  X(fmax, , out, FMAX, kNumber) X(fmin, , out, FMIN, kNumber) \
  X(atan2, , out, ATAN2, kFloat) X(hypot, , out, HYPOT, kFloat) \
  X(copysign, _Tensor, out, COPYSIGN, kFloat) \
  X(logaddexp, , out, LOGADDEXP, kFloat) X(logaddexp2, , out, LOGADDEXP2, kFloat) \
  X(xlogy, _Tensor, OutTensor, XLOGY, kFloat) X(nextafter, , out, NEXTAFTER, kFloat) \
  X(gcd, , out, GCD, kNumber) X(lcm, , out, LCM, kNumber) X(heaviside, , out, HEAVISIDE, kNumber) \
  X(bitwise_and, _Tensor, Tensor_out, BITWISE_AND, kIntegral) \
  X(bitwise_or, _Tensor, Tensor_out, BITWISE_OR, kIntegral) \
  X(bitwise_xor, _Tensor, Tensor_out, BITWISE_XOR, kIntegral) \
  X(remainder, _Tensor, Tensor_out, REMAINDER, kNumber) X(fmod, _Tensor, Tensor_out, FMOD, kNumber)
// clang-format on

// Addition of bools is a logical or, multiplication a logical and, and so on.
chipset_pointwise_op for_bool(chipset_pointwise_op op) {
  switch (op) {
    case CHIPSET_POINTWISE_OP_ADD:
    case CHIPSET_POINTWISE_OP_MAXIMUM:
      return CHIPSET_POINTWISE_OP_LOGICAL_OR;
    case CHIPSET_POINTWISE_OP_MUL:
    case CHIPSET_POINTWISE_OP_MINIMUM:
      return CHIPSET_POINTWISE_OP_LOGICAL_AND;
    default:
      return op;
  }
}

// Runs the binary operation of an iterator; alpha is the multiplier of add and sub.
bool run(const at::TensorIteratorBase& iterator, chipset_pointwise_op op, Accepts which,
         const Scalar& alpha = 1) {
  if (alpha.isComplex()) return false;
  const Params params{{scalar(alpha)}};
  if (iterator.common_dtype() != at::kBool) return pointwise(iterator, op, which, params);
  if (op == CHIPSET_POINTWISE_OP_ADD && !alpha.toBool()) return false;
  return pointwise(iterator, for_bool(op), which, params);
}

template <class Meta, class Host, chipset_pointwise_op Op, Accepts Which>
Tensor& binary_out(const Tensor& self, const Tensor& other, Tensor& out) {
  Out<Meta> iterator(out);
  iterator.meta(self, other);
  if (!run(iterator, Op, Which)) host<Host>(self, other, out);
  return out;
}

template <class Meta, class Host, chipset_pointwise_op Op, Accepts Which>
Tensor binary(const Tensor& self, const Tensor& other) {
  if constexpr (Which != Accepts::kAny) {
    if (Tensor result = simple_binary(Op, Which, self, other); result.defined()) return result;
  } else {
    if (self.scalar_type() != at::kBool)
      if (Tensor result = simple_binary(Op, Which, self, other); result.defined()) return result;
  }
  Functional<Meta> iterator;
  iterator.meta(self, other);
  if (!run(iterator, Op, Which)) return host<Host>(self, other);
  return iterator.take();
}

template <class Meta, class Host, chipset_pointwise_op Op, Accepts Which>
Tensor& binary_(Tensor& self, const Tensor& other) {
  if (self.scalar_type() != at::kBool && simple_inplace(Op, Which, self, other)) return self;
  Inplace<Meta> iterator(self);
  iterator.meta(self, other);
  if (!run(iterator, Op, Which)) host<Host>(self, other);
  return self;
}

// ---- add and sub: a multiplier of the second operand -----------------------------------------

// True where the multiplier needs no check against the dtype: it is the plain 1 of `a + b`.
bool is_one(const Scalar& alpha) { return alpha.isIntegral(false) && alpha.toLong() == 1; }

template <class Meta, class Host, chipset_pointwise_op Op>
Tensor scaled(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (is_one(alpha) && self.scalar_type() != at::kBool) {
    const Params params{{scalar(int64_t{1})}};
    if (Tensor result = simple_binary(Op, Accepts::kNumber, self, other, params); result.defined())
      return result;
  }
  Functional<Meta> iterator;
  iterator.meta(self, other, alpha);
  if (!run(iterator, Op, Accepts::kAny, alpha)) return host<Host>(self, other, alpha);
  return iterator.take();
}

template <class Meta, class Host, chipset_pointwise_op Op>
Tensor& scaled_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (is_one(alpha) && self.scalar_type() != at::kBool) {
    const Params params{{scalar(int64_t{1})}};
    if (simple_inplace(Op, Accepts::kNumber, self, other, params)) return self;
  }
  Inplace<Meta> iterator(self);
  iterator.meta(self, other, alpha);
  if (!run(iterator, Op, Accepts::kAny, alpha)) host<Host>(self, other, alpha);
  return self;
}

template <class Meta, class Host, chipset_pointwise_op Op>
Tensor& scaled_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  Out<Meta> iterator(out);
  iterator.meta(self, other, alpha);
  if (!run(iterator, Op, Accepts::kAny, alpha)) host<Host>(self, other, alpha, out);
  return out;
}

Tensor rsub(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  return at::sub(other, self, alpha);
}

// ---- division -------------------------------------------------------------------------------

Tensor& div_mode_out(const Tensor& self, const Tensor& other,
                     std::optional<std::string_view> rounding, Tensor& out) {
  Out<at::meta::structured_div_Tensor_mode> iterator(out);
  iterator.meta(self, other, rounding);
  const bool done = !rounding ? run(iterator, CHIPSET_POINTWISE_OP_DIV, Accepts::kFloat)
                    : *rounding == "floor"
                        ? run(iterator, CHIPSET_POINTWISE_OP_DIV_FLOOR, Accepts::kNumber)
                        : run(iterator, CHIPSET_POINTWISE_OP_DIV_TRUNC, Accepts::kNumber);
  if (!done) host<at::_ops::div_out_mode>(self, other, rounding, out);
  return out;
}

Tensor floor_divide(const Tensor& self, const Tensor& other) {
  return at::div(self, other, "floor");
}
Tensor& floor_divide_(Tensor& self, const Tensor& other) {
  return at::div_out(self, self, other, "floor");
}
Tensor& floor_divide_out(const Tensor& self, const Tensor& other, Tensor& out) {
  return at::div_out(out, self, other, "floor");
}

Tensor scalar_remainder(const Scalar& self, const Tensor& other) {
  return at::remainder(at::native::wrapped_scalar_tensor(self), other);
}

// ---- pow ------------------------------------------------------------------------------------

// x**n for the exponents that have a cheaper form, as torch's own kernels do.
bool pow_scalar(const at::TensorIteratorBase& iterator, const Scalar& exponent) {
  const auto compute = iterator.common_dtype();
  if (exponent.isComplex() || !accepts(Accepts::kNumber, compute)) return false;
  const double n = exponent.toDouble();
  const bool real = at::isFloatingType(compute);
  if (n == 0.0)
    return pointwise(iterator, CHIPSET_POINTWISE_OP_FILL, compute, {}, {{scalar(int64_t{1})}});
  if (n == 1.0) return pointwise(iterator, CHIPSET_POINTWISE_OP_COPY, compute, {1});
  if (n == 2.0) return pointwise(iterator, CHIPSET_POINTWISE_OP_MUL, compute, {1, 1});
  if (real && n == 0.5) return pointwise(iterator, CHIPSET_POINTWISE_OP_SQRT, compute, {1});
  if (real && n == -0.5) return pointwise(iterator, CHIPSET_POINTWISE_OP_RSQRT, compute, {1});
  if (real && n == -1.0) return pointwise(iterator, CHIPSET_POINTWISE_OP_RECIPROCAL, compute, {1});
  return pointwise(iterator, CHIPSET_POINTWISE_OP_POW, compute, {1, scalar(exponent)});
}

Tensor& pow_scalar_out(const Tensor& self, const Scalar& exponent, Tensor& out) {
  Out<at::meta::structured_pow_Tensor_Scalar> iterator(out);
  iterator.meta(self, exponent);
  if (!pow_scalar(iterator, exponent)) host<at::_ops::pow_Tensor_Scalar_out>(self, exponent, out);
  return out;
}

Tensor pow_scalar_functional(const Tensor& self, const Scalar& exponent) {
  if (exponent.isIntegral(false) && exponent.toLong() == 2) {
    Tensor result = simple_binary(CHIPSET_POINTWISE_OP_MUL, Accepts::kNumber, self, self);
    if (result.defined()) return result;
  }
  Functional<at::meta::structured_pow_Tensor_Scalar> iterator;
  iterator.meta(self, exponent);
  if (!pow_scalar(iterator, exponent)) return host<at::_ops::pow_Tensor_Scalar>(self, exponent);
  return iterator.take();
}

Tensor& pow_out(const Tensor& self, const Tensor& exponent, Tensor& out) {
  Out<at::meta::structured_pow_Tensor_Tensor> iterator(out);
  iterator.meta(self, exponent);
  // Integer exponents may be negative, which the waist leaves open: torch's own kernel decides.
  if (!pointwise(iterator, CHIPSET_POINTWISE_OP_POW, Accepts::kFloat))
    host<at::_ops::pow_Tensor_Tensor_out>(self, exponent, out);
  return out;
}

Tensor& pow_base_out(const Scalar& base, const Tensor& exponent, Tensor& out) {
  Out<at::meta::structured_pow_Scalar> check(out);
  check.meta(base, exponent);
  return at::pow_out(out, at::native::wrapped_scalar_tensor(base), exponent);
}

// ---- shifts ---------------------------------------------------------------------------------

template <class Meta, class Host, chipset_pointwise_op Op>
Tensor& shift_out(const Tensor& self, const Tensor& other, Tensor& out) {
  Out<Meta> iterator(out);
  iterator.meta(self, other);
  if (iterator.common_dtype() == at::kBool || !run(iterator, Op, Accepts::kIntegral))
    host<Host>(self, other, out);
  return out;
}
Tensor shift_left(const Tensor& self, const Tensor& other) {
  return at::bitwise_left_shift(self, other);
}
Tensor shift_left_scalar(const Tensor& self, const Scalar& other) {
  return at::bitwise_left_shift(self, other);
}
Tensor& shift_left_(Tensor& self, const Tensor& other) {
  return at::bitwise_left_shift_out(self, self, other);
}
Tensor& shift_left_scalar_(Tensor& self, const Scalar& other) {
  return at::bitwise_left_shift_out(self, self, at::native::wrapped_scalar_tensor(other));
}
Tensor shift_right(const Tensor& self, const Tensor& other) {
  return at::bitwise_right_shift(self, other);
}
Tensor shift_right_scalar(const Tensor& self, const Scalar& other) {
  return at::bitwise_right_shift(self, other);
}
Tensor& shift_right_(Tensor& self, const Tensor& other) {
  return at::bitwise_right_shift_out(self, self, other);
}
Tensor& shift_right_scalar_(Tensor& self, const Scalar& other) {
  return at::bitwise_right_shift_out(self, self, at::native::wrapped_scalar_tensor(other));
}

// ---- registration ---------------------------------------------------------------------------

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define REGISTER_OUT(NAME, SUFFIX, OVERLOAD, OP, WHICH)                                         \
  m.impl(#NAME "." #OVERLOAD,                                                                   \
         TORCH_FN((binary_out<at::meta::structured_##NAME##SUFFIX, at::_ops::NAME##_##OVERLOAD, \
                              CHIPSET_POINTWISE_OP_##OP, Accepts::WHICH>)));
  BINARY(REGISTER_OUT)

// Masks of attention and of generation.
#define REGISTER_HOT_FUNCTION(NAME, OP)                                                  \
  m.impl(#NAME ".Tensor",                                                                \
         TORCH_FN((binary<at::meta::structured_##NAME##_Tensor, at::_ops::NAME##_Tensor, \
                          CHIPSET_POINTWISE_OP_##OP, Accepts::kIntegral>)));

// All three forms, for operators that models call in every layer.
#define REGISTER_SCALED(NAME, OP)                                                                  \
  m.impl(#NAME ".Tensor", TORCH_FN((scaled<at::meta::structured_##NAME##_Tensor,                   \
                                           at::_ops::NAME##_Tensor, CHIPSET_POINTWISE_OP_##OP>))); \
  m.impl(#NAME "_.Tensor",                                                                         \
         TORCH_FN((scaled_<at::meta::structured_##NAME##_Tensor, at::_ops::NAME##__Tensor,         \
                           CHIPSET_POINTWISE_OP_##OP>)));                                          \
  m.impl(#NAME ".out", TORCH_FN((scaled_out<at::meta::structured_##NAME##_Tensor,                  \
                                            at::_ops::NAME##_out, CHIPSET_POINTWISE_OP_##OP>)));
  REGISTER_SCALED(add, ADD)
  REGISTER_SCALED(sub, SUB)
#define REGISTER_HOT(NAME, OP, WHICH)                                                      \
  m.impl(#NAME ".Tensor",                                                                  \
         TORCH_FN((binary<at::meta::structured_##NAME##_Tensor, at::_ops::NAME##_Tensor,   \
                          CHIPSET_POINTWISE_OP_##OP, Accepts::WHICH>)));                   \
  m.impl(#NAME "_.Tensor",                                                                 \
         TORCH_FN((binary_<at::meta::structured_##NAME##_Tensor, at::_ops::NAME##__Tensor, \
                           CHIPSET_POINTWISE_OP_##OP, Accepts::WHICH>)));                  \
  REGISTER_OUT(NAME, _Tensor, out, OP, WHICH)
  REGISTER_HOT(mul, MUL, kAny)
  REGISTER_HOT(div, DIV, kFloat)
  REGISTER_HOT_FUNCTION(bitwise_and, BITWISE_AND)
  REGISTER_HOT_FUNCTION(bitwise_or, BITWISE_OR)
  REGISTER_HOT_FUNCTION(bitwise_xor, BITWISE_XOR)
#define REGISTER_EXTREMUM(NAME, OP)                                           \
  REGISTER_OUT(NAME, , out, OP, kAny)                                         \
  m.impl(#NAME, TORCH_FN((binary<at::meta::structured_##NAME, at::_ops::NAME, \
                                 CHIPSET_POINTWISE_OP_##OP, Accepts::kAny>)));
  REGISTER_EXTREMUM(maximum, MAXIMUM)
  REGISTER_EXTREMUM(minimum, MINIMUM)

  m.impl("rsub.Tensor", TORCH_FN(rsub));
  m.impl("div.out_mode", TORCH_FN(div_mode_out));
  m.impl("floor_divide", TORCH_FN(floor_divide));
  m.impl("floor_divide_.Tensor", TORCH_FN(floor_divide_));
  m.impl("floor_divide.out", TORCH_FN(floor_divide_out));
  m.impl("remainder.Scalar_Tensor", TORCH_FN(scalar_remainder));
  m.impl("pow.Tensor_Scalar", TORCH_FN(pow_scalar_functional));
  m.impl("pow.Tensor_Scalar_out", TORCH_FN(pow_scalar_out));
  m.impl("pow.Tensor_Tensor_out", TORCH_FN(pow_out));
  m.impl("pow.Scalar_out", TORCH_FN(pow_base_out));
  m.impl("bitwise_left_shift.Tensor_out",
         TORCH_FN((
             shift_out<at::meta::structured_bitwise_left_shift_Tensor,
                       at::_ops::bitwise_left_shift_Tensor_out, CHIPSET_POINTWISE_OP_SHIFT_LEFT>)));
  m.impl(
      "bitwise_right_shift.Tensor_out",
      TORCH_FN(
          (shift_out<at::meta::structured_bitwise_right_shift_Tensor,
                     at::_ops::bitwise_right_shift_Tensor_out, CHIPSET_POINTWISE_OP_SHIFT_RIGHT>)));
  m.impl("__lshift__.Tensor", TORCH_FN(shift_left));
  m.impl("__lshift__.Scalar", TORCH_FN(shift_left_scalar));
  m.impl("__ilshift__.Tensor", TORCH_FN(shift_left_));
  m.impl("__ilshift__.Scalar", TORCH_FN(shift_left_scalar_));
  m.impl("__rshift__.Tensor", TORCH_FN(shift_right));
  m.impl("__rshift__.Scalar", TORCH_FN(shift_right_scalar));
  m.impl("__irshift__.Tensor", TORCH_FN(shift_right_));
  m.impl("__irshift__.Scalar", TORCH_FN(shift_right_scalar_));
}

}  // namespace
}  // namespace chipset::bridge
