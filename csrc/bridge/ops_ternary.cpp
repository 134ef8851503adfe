// SPDX-License-Identifier: Apache-2.0
// where, clamp, lerp, addcmul, addcdiv, masked_fill: three operands, or a tensor and bounds.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/addcdiv_meta.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_meta.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/clamp_max_meta.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_meta.h>
#include <ATen/ops/clamp_min_meta.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/lerp_meta.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/where_ops.h>
#include <torch/library.h>

#include <cmath>

#include "pointwise.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

using at::Scalar;
using at::Tensor;

// ---- clamp ----------------------------------------------------------------------------------

bool is_nan(const Scalar& value) { return value.isFloatingPoint() && std::isnan(value.toDouble()); }

// A missing bound leaves one side open; a NaN bound gives NaN everywhere.
bool clamp(const at::TensorIteratorBase& iterator, at::OptionalScalarRef low,
           at::OptionalScalarRef high) {
  const auto compute = iterator.common_dtype();
  if (!accepts(Accepts::kNumber, compute)) return false;
  if ((low && is_nan(low.get())) || (high && is_nan(high.get())))
    return pointwise(iterator, CHIPSET_POINTWISE_OP_FILL, compute, {}, {{scalar(std::nan(""))}});
  if (low && high)
    return pointwise(iterator, CHIPSET_POINTWISE_OP_CLAMP, compute, {1},
                     {{scalar(low.get()), scalar(high.get())}});
  if (low)
    return pointwise(iterator, CHIPSET_POINTWISE_OP_MAXIMUM, compute, {1, scalar(low.get())});
  return pointwise(iterator, CHIPSET_POINTWISE_OP_MINIMUM, compute, {1, scalar(high.get())});
}

at::OptionalScalarRef ref(const std::optional<Scalar>& value) {
  return value ? at::OptionalScalarRef(*value) : at::OptionalScalarRef();
}

Tensor clamp_functional(const Tensor& self, const std::optional<Scalar>& low,
                        const std::optional<Scalar>& high) {
  Functional<at::meta::structured_clamp> iterator;
  iterator.meta(self, ref(low), ref(high));
  if (!clamp(iterator, ref(low), ref(high))) return host<at::_ops::clamp>(self, low, high);
  return iterator.take();
}
Tensor& clamp_out(const Tensor& self, const std::optional<Scalar>& low,
                  const std::optional<Scalar>& high, Tensor& out) {
  Out<at::meta::structured_clamp> iterator(out);
  iterator.meta(self, ref(low), ref(high));
  if (!clamp(iterator, ref(low), ref(high))) host<at::_ops::clamp_out>(self, low, high, out);
  return out;
}
Tensor& clamp_min_out(const Tensor& self, const Scalar& low, Tensor& out) {
  Out<at::meta::structured_clamp_min> iterator(out);
  iterator.meta(self, low);
  if (!clamp(iterator, low, {})) host<at::_ops::clamp_min_out>(self, low, out);
  return out;
}
Tensor& clamp_max_out(const Tensor& self, const Scalar& high, Tensor& out) {
  Out<at::meta::structured_clamp_max> iterator(out);
  iterator.meta(self, high);
  if (!clamp(iterator, {}, high)) host<at::_ops::clamp_max_out>(self, high, out);
  return out;
}

at::OptionalTensorRef ref(const std::optional<Tensor>& value) {
  return value && value->defined() ? at::OptionalTensorRef(*value) : at::OptionalTensorRef();
}

Tensor& clamp_tensor_out(const Tensor& self, const std::optional<Tensor>& low,
                         const std::optional<Tensor>& high, Tensor& out) {
  Out<at::meta::structured_clamp_Tensor> iterator(out);
  iterator.meta(self, ref(low), ref(high));
  const auto op = ref(low).has_value() ? ref(high).has_value() ? CHIPSET_POINTWISE_OP_CLAMP_TENSOR
                                                               : CHIPSET_POINTWISE_OP_MAXIMUM
                                       : CHIPSET_POINTWISE_OP_MINIMUM;
  if (!pointwise(iterator, op, Accepts::kNumber))
    host<at::_ops::clamp_Tensor_out>(self, low, high, out);
  return out;
}
Tensor& clamp_min_tensor_out(const Tensor& self, const Tensor& low, Tensor& out) {
  Out<at::meta::structured_clamp_min_Tensor> iterator(out);
  iterator.meta(self, low);
  if (!pointwise(iterator, CHIPSET_POINTWISE_OP_MAXIMUM, Accepts::kNumber))
    host<at::_ops::clamp_min_Tensor_out>(self, low, out);
  return out;
}
Tensor& clamp_max_tensor_out(const Tensor& self, const Tensor& high, Tensor& out) {
  Out<at::meta::structured_clamp_max_Tensor> iterator(out);
  iterator.meta(self, high);
  if (!pointwise(iterator, CHIPSET_POINTWISE_OP_MINIMUM, Accepts::kNumber))
    host<at::_ops::clamp_max_Tensor_out>(self, high, out);
  return out;
}

// ---- lerp, addcmul, addcdiv -----------------------------------------------------------------

Tensor& lerp_scalar_out(const Tensor& self, const Tensor& end, const Scalar& weight, Tensor& out) {
  Out<at::meta::structured_lerp_Scalar> iterator(out);
  iterator.meta(self, end, weight);
  const auto compute = iterator.common_dtype();
  if (weight.isComplex() || !accepts(Accepts::kFloat, compute) ||
      !pointwise(iterator, CHIPSET_POINTWISE_OP_LERP, compute, {1, 2, scalar(weight)}))
    host<at::_ops::lerp_Scalar_out>(self, end, weight, out);
  return out;
}
Tensor& lerp_tensor_out(const Tensor& self, const Tensor& end, const Tensor& weight, Tensor& out) {
  Out<at::meta::structured_lerp_Tensor> iterator(out);
  iterator.meta(self, end, weight);
  if (!pointwise(iterator, CHIPSET_POINTWISE_OP_LERP, Accepts::kFloat))
    host<at::_ops::lerp_Tensor_out>(self, end, weight, out);
  return out;
}

template <class Meta, class Host, chipset_pointwise_op Op, Accepts Which>
Tensor& scaled_product_out(const Tensor& self, const Tensor& x, const Tensor& y,
                           const Scalar& value, Tensor& out) {
  Out<Meta> iterator(out);
  iterator.meta(self, x, y, value);
  if (value.isComplex() || !pointwise(iterator, Op, Which, {{scalar(value)}}))
    host<Host>(self, x, y, value, out);
  return out;
}

// ---- where, masked_fill ---------------------------------------------------------------------

bool is_mask(at::ScalarType type) { return type == at::kBool || type == at::kByte; }

// out = condition ? x : y, out of the promoted dtype. `out` is allocated when undefined.
bool select(const Tensor& condition, const Tensor& x, const Tensor& y, Tensor& out) {
  const auto type = at::result_type(x, y);
  if (!accepts(Accepts::kAny, type) || (out.defined() && out.scalar_type() != type)) return false;
  TORCH_CHECK(is_mask(condition.scalar_type()),
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).allow_cpu_scalars(true).add_output(out);
  if (!out.defined()) config.declare_static_dtype(type);
  const auto iterator =
      config.add_const_input(condition).add_const_input(x).add_const_input(y).build();
  if (!pointwise(iterator, CHIPSET_POINTWISE_OP_WHERE, type, {1, 2, 3})) return false;
  if (!out.defined()) out = iterator.output();
  return true;
}

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  Tensor out;
  if (!select(condition, self, other, out))
    return host<at::_ops::where_self>(condition, self, other);
  return out;
}
Tensor& where_out(const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& out) {
  if (!select(condition, self, other, out))
    host<at::_ops::where_self_out>(condition, self, other, out);
  return out;
}

// self = mask ? value : self. The value is a number, or a tensor of one element.
bool fill_where(const Tensor& self, const Tensor& mask, Operand value, const Tensor* tensor) {
  const auto type = self.scalar_type();
  if (!accepts(Accepts::kAny, type)) return false;
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes) return false;
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).resize_outputs(false).allow_cpu_scalars(true);
  config.add_output(self).add_const_input(self).add_const_input(mask);
  if (tensor != nullptr) config.add_const_input(*tensor);
  const auto iterator = config.build();
  return pointwise(iterator, CHIPSET_POINTWISE_OP_WHERE, type, {2, value, 1});
}

Tensor& masked_fill_scalar_(Tensor& self, const Tensor& mask, const Scalar& value) {
  if (value.isComplex() || !fill_where(self, mask, scalar(value), nullptr))
    host<at::_ops::masked_fill__Scalar>(self, mask, value);
  return self;
}
Tensor& masked_fill_tensor_(Tensor& self, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  if (!fill_where(self, mask, 3, &value)) host<at::_ops::masked_fill__Tensor>(self, mask, value);
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("clamp", TORCH_FN(clamp_functional));
  m.impl("clamp.out", TORCH_FN(clamp_out));
  m.impl("clamp_min.out", TORCH_FN(clamp_min_out));
  m.impl("clamp_max.out", TORCH_FN(clamp_max_out));
  m.impl("clamp.Tensor_out", TORCH_FN(clamp_tensor_out));
  m.impl("clamp_min.Tensor_out", TORCH_FN(clamp_min_tensor_out));
  m.impl("clamp_max.Tensor_out", TORCH_FN(clamp_max_tensor_out));
  m.impl("lerp.Scalar_out", TORCH_FN(lerp_scalar_out));
  m.impl("lerp.Tensor_out", TORCH_FN(lerp_tensor_out));
  m.impl("addcmul.out",
         TORCH_FN((scaled_product_out<at::meta::structured_addcmul, at::_ops::addcmul_out,
                                      CHIPSET_POINTWISE_OP_ADDCMUL, Accepts::kNumber>)));
  m.impl("addcdiv.out",
         TORCH_FN((scaled_product_out<at::meta::structured_addcdiv, at::_ops::addcdiv_out,
                                      CHIPSET_POINTWISE_OP_ADDCDIV, Accepts::kFloat>)));
  m.impl("where.self", TORCH_FN(where));
  m.impl("where.self_out", TORCH_FN(where_out));
  m.impl("masked_fill_.Scalar", TORCH_FN(masked_fill_scalar_));
  m.impl("masked_fill_.Tensor", TORCH_FN(masked_fill_tensor_));
}

}  // namespace
}  // namespace chipset::bridge
