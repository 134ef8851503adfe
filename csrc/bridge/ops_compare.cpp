// SPDX-License-Identifier: Apache-2.0
// Comparisons and logical operations: the result is bool, or the dtype of `out`.
#include <ATen/ops/all.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/eq_meta.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/equal_ops.h>
#include <ATen/ops/ge_meta.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_meta.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/le_meta.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/logical_xor_ops.h>
#include <ATen/ops/lt_meta.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/ne_meta.h>
#include <ATen/ops/ne_ops.h>
#include <torch/library.h>

#include "pointwise.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

using at::Scalar;
using at::Tensor;

#define COMPARISONS(X) X(eq, EQ) X(ne, NE) X(lt, LT) X(le, LE) X(gt, GT) X(ge, GE)
#define LOGICALS(X) \
  X(logical_and, LOGICAL_AND) X(logical_or, LOGICAL_OR) X(logical_xor, LOGICAL_XOR)

template <class Meta, class Host, chipset_pointwise_op Op, class Other>
Tensor compare(const Tensor& self, const Other& other) {
  Functional<Meta> iterator;
  iterator.meta(self, other);
  if (!pointwise(iterator, Op, Accepts::kAny)) return host<Host>(self, other);
  return iterator.take();
}

template <class Meta, class Host, chipset_pointwise_op Op, class Other>
Tensor& compare_out(const Tensor& self, const Other& other, Tensor& out) {
  Out<Meta> iterator(out);
  iterator.meta(self, other);
  if (!pointwise(iterator, Op, Accepts::kAny)) host<Host>(self, other, out);
  return out;
}

template <class Host, chipset_pointwise_op Op>
Tensor& logical_out(const Tensor& self, const Tensor& other, Tensor& out) {
  const auto iterator = at::TensorIterator::comparison_op(out, self, other);
  if (!pointwise(iterator, Op, Accepts::kAny)) host<Host>(self, other, out);
  return out;
}

bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", other.device(), "!");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected object of data type ",
              self.scalar_type(), " but got data type ", other.scalar_type(),
              " for argument 'other' in call to equal");
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0) return true;
  return at::all(at::eq(self, other)).item<bool>();
}

// The waist has no assertion in a stream: the value is read, so these synchronise.
void assert_async(const Tensor& self) {
  TORCH_CHECK(self.item().toBool(), "Expected Tensor with single nonzero value, but got zero");
}
void assert_async_message(const Tensor& self, std::string_view message) {
  TORCH_CHECK(self.item().toBool(), message);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define REGISTER_COMPARISON(NAME, OP)                                                             \
  m.impl(#NAME ".Tensor",                                                                         \
         TORCH_FN((compare<at::meta::structured_##NAME##_Tensor, at::_ops::NAME##_Tensor,         \
                           CHIPSET_POINTWISE_OP_##OP, Tensor>)));                                 \
  m.impl(#NAME ".Tensor_out",                                                                     \
         TORCH_FN((compare_out<at::meta::structured_##NAME##_Tensor, at::_ops::NAME##_Tensor_out, \
                               CHIPSET_POINTWISE_OP_##OP, Tensor>)));                             \
  m.impl(#NAME ".Scalar",                                                                         \
         TORCH_FN((compare<at::meta::structured_##NAME##_Scalar, at::_ops::NAME##_Scalar,         \
                           CHIPSET_POINTWISE_OP_##OP, Scalar>)));                                 \
  m.impl(#NAME ".Scalar_out",                                                                     \
         TORCH_FN((compare_out<at::meta::structured_##NAME##_Scalar, at::_ops::NAME##_Scalar_out, \
                               CHIPSET_POINTWISE_OP_##OP, Scalar>)));
  COMPARISONS(REGISTER_COMPARISON)
#define REGISTER_LOGICAL(NAME, OP) \
  m.impl(#NAME ".out", TORCH_FN((logical_out<at::_ops::NAME##_out, CHIPSET_POINTWISE_OP_##OP>)));
  LOGICALS(REGISTER_LOGICAL)
  m.impl("equal", TORCH_FN(equal));
  m.impl("_assert_async", TORCH_FN(assert_async));
  m.impl("_assert_async.msg", TORCH_FN(assert_async_message));
}

}  // namespace
}  // namespace chipset::bridge
