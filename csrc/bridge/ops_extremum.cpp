// SPDX-License-Identifier: Apache-2.0
// Extrema, and where they lie.
#include <ATen/ops/amax.h>
#include <ATen/ops/amax_meta.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/amin_meta.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/argmax_meta.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/argmin_meta.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/min_meta.h>
#include <ATen/ops/min_ops.h>
#include <torch/library.h>

#include "reduce.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

using at::IntArrayRef;
using at::Tensor;

// The extremum of bools is a logical operation, in case a chip reduces numbers only.
chipset_reduce_op for_type(chipset_reduce_op op, at::ScalarType type) {
  if (type != at::kBool) return op;
  if (op == CHIPSET_REDUCE_OP_MAX) return CHIPSET_REDUCE_OP_ANY;
  if (op == CHIPSET_REDUCE_OP_MIN) return CHIPSET_REDUCE_OP_ALL;
  return op;
}

bool extremum(chipset_reduce_op op, const Tensor& self, uint32_t dims, const Tensor& out,
              const Tensor* indices = nullptr) {
  const auto type = self.scalar_type();
  if (!accepts(Accepts::kAny, type)) return false;
  if (indices == nullptr) op = for_type(op, type);
  return reduce({op, type, 0.0, indices}, self, dims, out);
}

// ---- values ---------------------------------------------------------------------------------

template <class Meta, class Host, chipset_reduce_op Op>
Tensor& values_out(const Tensor& self, IntArrayRef dim, bool keepdim, Tensor& out) {
  Out<Meta> meta(out);
  meta.meta(self, dim, keepdim);
  if (!extremum(Op, self, dim_mask(self, dim), out)) host<Host>(self, dim, keepdim, out);
  return out;
}

void check_not_empty(const Tensor& self, const char* name) {
  TORCH_CHECK(self.numel() > 0, name,
              "(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
}

template <class Host, chipset_reduce_op Op>
Tensor value(const Tensor& self) {
  check_not_empty(self, Op == CHIPSET_REDUCE_OP_MAX ? "max" : "min");
  Tensor out = empty({}, self.scalar_type(), self.device().index());
  if (!extremum(Op, self, dim_mask(self, {}), out)) return host<Host>(self);
  return out;
}
template <class Host, chipset_reduce_op Op>
Tensor& value_out(const Tensor& self, Tensor& out) {
  check_not_empty(self, Op == CHIPSET_REDUCE_OP_MAX ? "max" : "min");
  at::native::resize_output(out, {});
  if (out.scalar_type() != self.scalar_type() || !extremum(Op, self, dim_mask(self, {}), out))
    host<Host>(self, out);
  return out;
}

// ---- positions ------------------------------------------------------------------------------

template <class Meta, class Host, chipset_reduce_op Op>
Tensor& position_out(const Tensor& self, std::optional<int64_t> dim, bool keepdim, Tensor& out) {
  Out<Meta> meta(out);
  meta.meta(self, dim, keepdim);
  const uint32_t mask = dim ? dim_mask(self, IntArrayRef(*dim)) : dim_mask(self, {});
  const auto type = self.scalar_type();
  if (!accepts(Accepts::kNumber, type) || !reduce({Op, type}, self, mask, out))
    host<Host>(self, dim, keepdim, out);
  return out;
}

template <class Meta, class Host, chipset_reduce_op Op>
std::tuple<Tensor&, Tensor&> both_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values,
                                      Tensor& indices) {
  Out<Meta, 2> meta(values, indices);
  meta.meta(self, dim, keepdim);
  // Over no dimension (rank 0) the only index is 0.
  if (self.dim() == 0) {
    values.copy_(self);
    indices.zero_();
    return {values, indices};
  }
  if (!extremum(Op, self, dim_mask(self, IntArrayRef(dim)), values, &indices))
    host<Host>(self, dim, keepdim, values, indices);
  return {values, indices};
}

template <class Meta, class Host, chipset_reduce_op Op>
std::tuple<Tensor, Tensor> both(const Tensor& self, int64_t dim, bool keepdim) {
  Functional<Meta, 2> meta;
  meta.meta(self, dim, keepdim);
  const Tensor& values = meta.maybe_get_output(0);
  const Tensor& indices = meta.maybe_get_output(1);
  if (self.dim() == 0) {
    values.copy_(self);
    indices.zero_();
  } else if (!extremum(Op, self, dim_mask(self, IntArrayRef(dim)), values, &indices)) {
    return host<Host>(self, dim, keepdim);
  }
  return {meta.take(0), meta.take(1)};
}

std::tuple<Tensor&, Tensor&> aminmax_out(const Tensor& self, std::optional<int64_t> dim,
                                         bool keepdim, Tensor& low, Tensor& high) {
  Out<at::meta::structured_aminmax, 2> meta(low, high);
  meta.meta(self, dim, keepdim);
  const uint32_t mask = dim ? dim_mask(self, IntArrayRef(*dim)) : dim_mask(self, {});
  if (!extremum(CHIPSET_REDUCE_OP_MIN, self, mask, low) ||
      !extremum(CHIPSET_REDUCE_OP_MAX, self, mask, high))
    host<at::_ops::aminmax_out>(self, dim, keepdim, low, high);
  return {low, high};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl(
      "amax.out",
      TORCH_FN((values_out<at::meta::structured_amax, at::_ops::amax_out, CHIPSET_REDUCE_OP_MAX>)));
  m.impl(
      "amin.out",
      TORCH_FN((values_out<at::meta::structured_amin, at::_ops::amin_out, CHIPSET_REDUCE_OP_MIN>)));
  m.impl("max", TORCH_FN((value<at::_ops::max, CHIPSET_REDUCE_OP_MAX>)));
  m.impl("min", TORCH_FN((value<at::_ops::min, CHIPSET_REDUCE_OP_MIN>)));
  m.impl("max.unary_out", TORCH_FN((value_out<at::_ops::max_unary_out, CHIPSET_REDUCE_OP_MAX>)));
  m.impl("min.unary_out", TORCH_FN((value_out<at::_ops::min_unary_out, CHIPSET_REDUCE_OP_MIN>)));
  m.impl("argmax.out", TORCH_FN((position_out<at::meta::structured_argmax, at::_ops::argmax_out,
                                              CHIPSET_REDUCE_OP_ARGMAX>)));
  m.impl("argmin.out", TORCH_FN((position_out<at::meta::structured_argmin, at::_ops::argmin_out,
                                              CHIPSET_REDUCE_OP_ARGMIN>)));
  m.impl("max.dim",
         TORCH_FN((both<at::meta::structured_max_dim, at::_ops::max_dim, CHIPSET_REDUCE_OP_MAX>)));
  m.impl("min.dim",
         TORCH_FN((both<at::meta::structured_min_dim, at::_ops::min_dim, CHIPSET_REDUCE_OP_MIN>)));
  m.impl(
      "max.dim_max",
      TORCH_FN(
          (both_out<at::meta::structured_max_dim, at::_ops::max_dim_max, CHIPSET_REDUCE_OP_MAX>)));
  m.impl(
      "min.dim_min",
      TORCH_FN(
          (both_out<at::meta::structured_min_dim, at::_ops::min_dim_min, CHIPSET_REDUCE_OP_MIN>)));
  m.impl("aminmax.out", TORCH_FN(aminmax_out));
}

}  // namespace
}  // namespace chipset::bridge
