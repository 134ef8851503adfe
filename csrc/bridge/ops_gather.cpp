// SPDX-License-Identifier: Apache-2.0
// Operators that read along one dimension by an index: gather, index_select (and with it
// embedding), take, flip.
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/flip_ops.h>
#include <ATen/ops/gather_meta.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/take_ops.h>
#include <torch/library.h>

#include "indexing.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

// ---- gather ---------------------------------------------------------------------------------

bool gather_into(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                 const at::Tensor& out) {
  same_device("gather", self, index, out);
  if (out.numel() == 0) return true;
  if (!fits(self) || !fits(index)) return false;
  dim = at::maybe_wrap_dim(dim, self.dim());
  const at::Tensor at = index.dim() == 0 ? index.unsqueeze(0) : index;
  const IndexedDim along{view(at), size_along(self, dim), stride_along(self, dim), dim};
  return gather(OutOfRange::kAlong, self.get_device(),
                view(out.dim() == 0 ? out.unsqueeze(0) : out),
                restrided_along(self, dim, at.sizes()), along);
}

at::Tensor gather_op(const at::Tensor& self, int64_t dim, const at::Tensor& index, bool sparse) {
  Functional<at::meta::structured_gather> op;
  op.meta(self, dim, index, sparse);
  if (gather_into(self, dim, index, op.maybe_get_output(0))) return op.maybe_get_output(0);
  return host<at::_ops::gather>(self, dim, index, sparse);
}

at::Tensor& gather_out(const at::Tensor& self, int64_t dim, const at::Tensor& index, bool sparse,
                       at::Tensor& out) {
  Out<at::meta::structured_gather> op(out);
  op.meta(self, dim, index, sparse);
  if (gather_into(self, dim, index, out)) return out;
  return host<at::_ops::gather_out>(self, dim, index, sparse, out);
}

// ---- index_select ---------------------------------------------------------------------------

at::DimVector index_select_sizes(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector, but got ",
                    "dim: ", index.dim(), " with type: ", index.scalar_type(),
                    " and size: ", index.sizes());
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(index.device() == self.device(), "Expected all tensors to be on the same device, ",
              "but got index is on ", index.device(), ", different from other tensors on ",
              self.device(), " (when checking argument in method index_select)");
  TORCH_CHECK(self.dim() > 0 || index.numel() == 1, "index_select(): Index to scalar can have ",
              "only 1 value, got ", index.numel(), " value(s)");
  at::DimVector sizes(self.sizes());
  if (!sizes.empty()) sizes[dim] = index.numel();
  return sizes;
}

bool index_select_into(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                       const at::Tensor& out) {
  same_device("index_select", self, out);
  if (out.numel() == 0) return true;
  if (!fits(self)) return false;
  const at::Tensor target = out.dim() == 0 ? out.unsqueeze(0) : out;
  at::DimVector strides(target.dim(), 0);
  strides[dim] = index.dim() == 0 ? 0 : index.stride(0);
  const IndexedDim along{restrided(index, target.sizes(), strides), size_along(self, dim),
                         stride_along(self, dim), dim};
  return gather(OutOfRange::kSelect, self.get_device(), view(target),
                restrided_along(self, dim, target.sizes()), along);
}

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::Tensor out =
      empty(index_select_sizes(self, dim, index), self.scalar_type(), self.get_device());
  if (index_select_into(self, dim, index, out)) return out;
  return host<at::_ops::index_select>(self, dim, index);
}

at::Tensor& index_select_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                             at::Tensor& out) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::native::resize_output(out, index_select_sizes(self, dim, index));
  if (index_select_into(self, dim, index, out)) return out;
  return host<at::_ops::index_select_out>(self, dim, index, out);
}

// ---- take -----------------------------------------------------------------------------------

at::Tensor& take_out(const at::Tensor& self, const at::Tensor& index, at::Tensor& out) {
  TORCH_CHECK(index.scalar_type() == at::kLong, "take(): Expected a long tensor for index, but ",
              "got ", index.scalar_type());
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), "take(): self and out expected to have ",
              "the same dtype, but got self.dtype = ", self.scalar_type(),
              " and out.dtype = ", out.scalar_type());
  same_device("take", self, index, out);
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0, "take(): tried to take from an empty ",
                    "tensor");
  at::native::resize_output(out, index.sizes());
  if (index.numel() == 0) return out;
  if (!fits(index)) return host<at::_ops::take_out>(self, index, out);
  const at::Tensor flat = self.contiguous();
  const at::DimVector fixed(index.dim(), 0);
  const IndexedDim all{view(index), flat.numel(), 1, 0};
  if (gather(OutOfRange::kTake, self.get_device(), view(out), restrided(flat, index.sizes(), fixed),
             all))
    return out;
  return host<at::_ops::take_out>(self, index, out);
}

at::Tensor take(const at::Tensor& self, const at::Tensor& index) {
  at::Tensor out = empty({0}, self.scalar_type(), self.get_device());
  return take_out(self, index, out);
}

// ---- flip -----------------------------------------------------------------------------------

at::Tensor flip(const at::Tensor& self, at::IntArrayRef dims) {
  const auto flipped = at::dim_list_to_bitset(dims, self.dim());
  at::Tensor out = at::empty_like(self, at::MemoryFormat::Preserve);
  if (out.numel() == 0) return out;
  if (self.dim() == 0 || flipped.none()) return out.copy_(self);
  if (!fits(self)) return host<at::_ops::flip>(self, dims);
  // Index n-1, n-2, … along each flipped dimension: the waist has no negative strides.
  at::DimVector strides(self.strides());
  std::vector<at::Tensor> kept;
  IndexedDims along;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!flipped[d]) continue;
    strides[d] = 0;
    kept.push_back(at::arange(self.size(d) - 1, -1, -1, self.options().dtype(at::kLong)));
    at::DimVector step(self.dim(), 0);
    step[d] = 1;
    along.push_back({restrided(kept.back(), self.sizes(), step), self.size(d), self.stride(d), d});
  }
  if (gather(OutOfRange::kIndex, self.get_device(), view(out),
             restrided(self, self.sizes(), strides), along))
    return out;
  return host<at::_ops::flip>(self, dims);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("gather", gather_op);
  m.impl("gather.out", gather_out);
  m.impl("index_select", index_select);
  m.impl("index_select.out", index_select_out);
  m.impl("take", take);
  m.impl("take.out", take_out);
  m.impl("flip", flip);
}

}  // namespace chipset::bridge
