// SPDX-License-Identifier: Apache-2.0
// Operators that write along one dimension by an index: scatter and its kin, index_add, index_copy,
// index_fill, index_reduce, put, and the gradient of embedding.
#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/NonSymbolicBC.h>
#include <ATen/native/ReductionType.h>
#include <ATen/ops/div.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_copy_meta.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/index_fill_ops.h>
#include <ATen/ops/index_reduce_meta.h>
#include <ATen/ops/index_reduce_ops.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/put_ops.h>
#include <ATen/ops/scatter_add_meta.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_meta.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/scatter_reduce_meta.h>
#include <ATen/ops/scatter_reduce_ops.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "indexing.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

using at::native::ReductionType;

int32_t scatter_op_of(ReductionType reduction) {
  switch (reduction) {
    case ReductionType::SUM:
    case ReductionType::MEAN:
      return CHIPSET_SCATTER_OP_ADD;
    case ReductionType::PROD:
      return CHIPSET_SCATTER_OP_MUL;
    case ReductionType::MAX:
      return CHIPSET_SCATTER_OP_MAX;
    case ReductionType::MIN:
      return CHIPSET_SCATTER_OP_MIN;
  }
  TORCH_CHECK(false, "unknown reduction");
}

// What leaves every other element as it is.
at::Scalar identity_of(ReductionType reduction, at::ScalarType type) {
  if (reduction == ReductionType::SUM || reduction == ReductionType::MEAN) return 0;
  if (reduction == ReductionType::PROD) return 1;
  const bool largest = reduction == ReductionType::MIN;
  if (at::isFloatingType(type)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return largest ? infinity : -infinity;
  }
  switch (type) {
    case at::kBool:
      return largest;
    case at::kByte:
      return largest ? 255 : 0;
    case at::kChar:
      return largest ? 127 : -128;
    case at::kShort:
      return largest ? 32767 : -32768;
    case at::kInt:
      return largest ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int32_t>::min();
    default:
      return largest ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
  }
}

// ---- scatter along a dimension, index of any rank ------------------------------------------

// out[…, index[p], …] op= src[p] for every p of index's shape; src is a number where undefined.
bool scatter_into(int32_t op, const at::Tensor& out, int64_t dim, const at::Tensor& index,
                  const at::Tensor& src, const at::Scalar& value) {
  same_device("scatter", out, index, src);
  if (index.numel() == 0) return true;
  if (!fits(out) || !fits(index)) return false;
  if (!computes(out) && (op != CHIPSET_SCATTER_OP_SET || !src.defined())) return false;
  dim = at::maybe_wrap_dim(dim, out.dim());
  const at::Tensor at = index.dim() == 0 ? index.unsqueeze(0) : index;
  const IndexedDim along{view(at), size_along(out, dim), stride_along(out, dim), dim};
  chipset_tensor source;
  if (src.defined()) {
    at::DimVector strides(src.strides());
    strides.resize(at.dim(), 0);
    source = restrided(src, at.sizes(), strides);
  } else {
    source = restrided(out, at.sizes(), at::DimVector(at.dim(), 0));
    source.data = nullptr;
  }
  return scatter(OutOfRange::kAlong, out.get_device(), op, restrided_along(out, dim, at.sizes()),
                 source, src.defined() ? chipset_scalar{} : scalar(value), along);
}

void begin_with(const at::Tensor& self, const at::Tensor& out) {
  if (!out.is_same(self)) out.copy_(self);
}

// A source that shares memory with what is written is read first.
at::Tensor apart(const at::Tensor& src, const at::Tensor& out) {
  return src.is_alias_of(out) ? src.clone() : src;
}

at::Tensor& scatter_src_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                            const at::Tensor& src, at::Tensor& out) {
  Out<at::meta::structured_scatter_src> op(out);
  op.meta(self, dim, index, src);
  const at::Tensor source = apart(src, out);
  begin_with(self, out);
  if (scatter_into(CHIPSET_SCATTER_OP_SET, out, dim, index, source, {})) return out;
  return host<at::_ops::scatter_src_out>(self, dim, index, src, out);
}

at::Tensor& scatter_value_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                              const at::Scalar& value, at::Tensor& out) {
  Out<at::meta::structured_scatter_value> op(out);
  op.meta(self, dim, index, value);
  begin_with(self, out);
  if (scatter_into(CHIPSET_SCATTER_OP_SET, out, dim, index, {}, value)) return out;
  return host<at::_ops::scatter_value_out>(self, dim, index, value, out);
}

ReductionType old_reduction(c10::string_view reduce) {
  return at::native::get_operator_enum(reduce, /*use_new_options=*/false);
}

at::Tensor& scatter_reduce_old_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                                   const at::Tensor& src, c10::string_view reduce,
                                   at::Tensor& out) {
  Out<at::meta::structured_scatter_reduce> op(out);
  op.meta(self, dim, index, src, reduce);
  const at::Tensor source = apart(src, out);
  begin_with(self, out);
  if (scatter_into(scatter_op_of(old_reduction(reduce)), out, dim, index, source, {})) return out;
  return host<at::_ops::scatter_reduce_out>(self, dim, index, src, reduce, out);
}

at::Tensor& scatter_value_reduce_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                                     const at::Scalar& value, c10::string_view reduce,
                                     at::Tensor& out) {
  Out<at::meta::structured_scatter_value_reduce> op(out);
  op.meta(self, dim, index, value, reduce);
  begin_with(self, out);
  if (scatter_into(scatter_op_of(old_reduction(reduce)), out, dim, index, {}, value)) return out;
  return host<at::_ops::scatter_value_reduce_out>(self, dim, index, value, reduce, out);
}

at::Tensor& scatter_add_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                            const at::Tensor& src, at::Tensor& out) {
  Out<at::meta::structured_scatter_add> op(out);
  op.meta(self, dim, index, src);
  const at::Tensor source = apart(src, out);
  begin_with(self, out);
  if (scatter_into(CHIPSET_SCATTER_OP_ADD, out, dim, index, source, {})) return out;
  return host<at::_ops::scatter_add_out>(self, dim, index, src, out);
}

// The mean: sums divided by how many terms each has (and self's own, where it counts).
void divide_by(const at::Tensor& out, const at::Tensor& count) {
  const at::Tensor terms = count.clamp_min(1);
  if (at::isFloatingType(out.scalar_type())) {
    out.div_(terms);
  } else {
    out.div_(terms, "floor");
  }
}

at::Tensor& scatter_reduce_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                               const at::Tensor& src, c10::string_view reduce, bool include_self,
                               at::Tensor& out) {
  Out<at::meta::structured_scatter_reduce_two> op(out);
  op.meta(self, dim, index, src, reduce, include_self);
  const at::Tensor source = apart(src, out);
  begin_with(self, out);
  if (index.numel() == 0) return out;
  const ReductionType reduction = at::native::get_operator_enum(reduce, /*use_new_options=*/true);
  const auto on_host = [&]() -> at::Tensor& {
    return host<at::_ops::scatter_reduce_two_out>(self, dim, index, src, reduce, include_self, out);
  };
  if (!include_self && !scatter_into(CHIPSET_SCATTER_OP_SET, out, dim, index, {},
                                     identity_of(reduction, out.scalar_type())))
    return on_host();
  if (!scatter_into(scatter_op_of(reduction), out, dim, index, source, {})) return on_host();
  if (reduction != ReductionType::MEAN) return out;
  const at::Tensor count = include_self ? at::ones_like(out) : at::zeros_like(out);
  if (!scatter_into(CHIPSET_SCATTER_OP_ADD, count, dim, index, {}, 1)) return on_host();
  divide_by(out, count);
  return out;
}

// ---- a vector of indices along one dimension ------------------------------------------------

// The slice index[i] of out along dim op= slice i of source; a number where source is undefined.
bool slices_into(OutOfRange words, int32_t op, const at::Tensor& out, int64_t dim,
                 const at::Tensor& index, const at::Tensor& source, const at::Scalar& value) {
  same_device("index", out, index, source);
  if (!fits(out)) return false;
  if (!computes(out) && (op != CHIPSET_SCATTER_OP_SET || !source.defined())) return false;
  dim = at::maybe_wrap_dim(dim, out.dim());
  at::DimVector shape(out.sizes());
  if (shape.empty()) shape.push_back(1);
  shape[dim] = index.numel();
  if (c10::multiply_integers(shape) == 0) return true;
  at::DimVector step(shape.size(), 0);
  step[dim] = index.dim() == 0 ? 0 : index.stride(0);
  const IndexedDim along{restrided(index, shape, step), size_along(out, dim),
                         stride_along(out, dim), dim};
  chipset_tensor from;
  if (source.defined()) {
    from = view(source.expand(shape));
  } else {
    from = restrided(out, shape, at::DimVector(shape.size(), 0));
    from.data = nullptr;
  }
  return scatter(words, out.get_device(), op, restrided_along(out, dim, shape), from,
                 source.defined() ? chipset_scalar{} : scalar(value), along);
}

at::Tensor& index_add_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                          const at::Tensor& source, const at::Scalar& alpha, at::Tensor& out) {
  Out<at::meta::structured_index_add> op(out);
  op.meta(self, dim, index, source, alpha);
  const at::Tensor terms = alpha.equal(1) ? apart(source, out) : source.mul(alpha);
  begin_with(self, out);
  if (slices_into(OutOfRange::kAlong, CHIPSET_SCATTER_OP_ADD, out, dim, index,
                  terms.to(out.scalar_type()), {}))
    return out;
  return host<at::_ops::index_add_out>(self, dim, index, source, alpha, out);
}

at::Tensor& index_copy_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                           const at::Tensor& source, at::Tensor& out) {
  Out<at::meta::structured_index_copy> op(out);
  op.meta(self, dim, index, source);
  const at::Tensor from = apart(source, out);
  begin_with(self, out);
  if (slices_into(OutOfRange::kCopy, CHIPSET_SCATTER_OP_SET, out, dim, index, from, {})) return out;
  return host<at::_ops::index_copy_out>(self, dim, index, source, out);
}

at::Tensor& index_fill_scalar(at::Tensor& self, int64_t dim, const at::Tensor& index,
                              const at::Scalar& value) {
  at::assert_no_internal_overlap(self);
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
                    "index_fill_(): Expected dtype int32/int64 for index.");
  TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
  TORCH_CHECK(!(value.isComplex() && !self.is_complex()), "index_fill_(): Converting complex ",
              "Scalar to non-complex type is not supported");
  if (slices_into(OutOfRange::kIndex, CHIPSET_SCATTER_OP_SET, self, dim, index, {}, value))
    return self;
  return host<at::_ops::index_fill__int_Scalar>(self, dim, index, value);
}

at::Tensor& index_fill_tensor(at::Tensor& self, int64_t dim, const at::Tensor& index,
                              const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "index_fill_ only supports a 0-dimensional value tensor, but got ",
              "tensor with ", value.dim(), " dimension(s).");
  at::assert_no_internal_overlap(self);
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
                    "index_fill_(): Expected dtype int32/int64 for index.");
  TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
  const at::Tensor filler = value.to(self.options());
  if (slices_into(OutOfRange::kIndex, CHIPSET_SCATTER_OP_SET, self, dim, index, filler, {}))
    return self;
  return host<at::_ops::index_fill__int_Tensor>(self, dim, index, value);
}

at::Tensor& index_reduce_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                             const at::Tensor& source, c10::string_view reduce, bool include_self,
                             at::Tensor& out) {
  Out<at::meta::structured_index_reduce> op(out);
  op.meta(self, dim, index, source, reduce, include_self);
  const at::Tensor from = apart(source, out);
  begin_with(self, out);
  const ReductionType reduction = at::native::get_operator_enum(reduce, /*use_new_options=*/true);
  const auto on_host = [&]() -> at::Tensor& {
    return host<at::_ops::index_reduce_out>(self, dim, index, source, reduce, include_self, out);
  };
  if (!include_self && !slices_into(OutOfRange::kSelect, CHIPSET_SCATTER_OP_SET, out, dim, index,
                                    {}, identity_of(reduction, out.scalar_type())))
    return on_host();
  if (!slices_into(OutOfRange::kSelect, scatter_op_of(reduction), out, dim, index, from, {}))
    return on_host();
  if (reduction != ReductionType::MEAN) return out;
  const at::Tensor count = include_self ? at::ones_like(out) : at::zeros_like(out);
  if (!slices_into(OutOfRange::kSelect, CHIPSET_SCATTER_OP_ADD, count, dim, index, {}, 1))
    return on_host();
  divide_by(out, count);
  return out;
}

// ---- put ------------------------------------------------------------------------------------

at::Tensor& put_(at::Tensor& self, const at::Tensor& index, const at::Tensor& source,
                 bool accumulate) {
  TORCH_CHECK(index.scalar_type() == at::kLong, "put_(): Expected a long tensor for index, but ",
              "got ", index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), "put_(): self and source expected to ",
              "have the same dtype, but got self.dtype = ", self.scalar_type(),
              " and source.dtype = ", source.scalar_type());
  TORCH_CHECK(index.numel() == source.numel(), "put_(): Expected source and index to have the ",
              "same number of elements, but got source.numel() = ", source.numel(),
              ", index.numel() = ", index.numel());
  same_device("put_", self, index, source);
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0,
                    "put_(): Tried to put elements into an empty tensor");
  at::assert_no_internal_overlap(self);
  if (index.numel() == 0) return self;
  if (accumulate && !computes(self)) return host<at::_ops::put_>(self, index, source, accumulate);
  const at::Tensor flat = self.is_contiguous() ? self : self.contiguous();
  const at::Tensor at = index.reshape({-1});
  const at::Tensor from = apart(source, self).reshape({-1});
  const IndexedDim all{view(at), flat.numel(), 1, 0};
  if (!scatter(OutOfRange::kTake, self.get_device(),
               accumulate ? CHIPSET_SCATTER_OP_ADD : CHIPSET_SCATTER_OP_SET,
               restrided(flat, at.sizes(), {0}), view(from), {}, all))
    return host<at::_ops::put_>(self, index, source, accumulate);
  if (!flat.is_same(self)) self.copy_(flat);
  return self;
}

// ---- gradient of embedding ------------------------------------------------------------------

at::Tensor embedding_dense_backward(const at::Tensor& grad, const at::Tensor& indices,
                                    int64_t num_weights, int64_t padding_idx,
                                    bool scale_grad_by_freq) {
  TORCH_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
              "embedding_backward: expected int32 or int64 indices, but got ",
              indices.scalar_type());
  const int64_t width = grad.size(-1);
  const at::Tensor at = indices.reshape({-1});
  at::Tensor rows = grad.reshape({at.numel(), width});
  if (scale_grad_by_freq) {
    const at::Tensor count = at::zeros({num_weights}, grad.options());
    if (!slices_into(OutOfRange::kSelect, CHIPSET_SCATTER_OP_ADD, count, 0, at, {}, 1))
      return host<at::_ops::embedding_dense_backward>(grad, indices, num_weights, padding_idx,
                                                      scale_grad_by_freq);
    rows = rows.div(count.index_select(0, at).unsqueeze(1));
  }
  const at::Tensor out = at::zeros({num_weights, width}, grad.options());
  if (!slices_into(OutOfRange::kSelect, CHIPSET_SCATTER_OP_ADD, out, 0, at, rows, {}))
    return host<at::_ops::embedding_dense_backward>(grad, indices, num_weights, padding_idx,
                                                    scale_grad_by_freq);
  // Only rows whose index is padding_idx were added there.
  if (padding_idx >= 0 && padding_idx < num_weights) out.select(0, padding_idx).zero_();
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("scatter.src_out", scatter_src_out);
  m.impl("scatter.value_out", scatter_value_out);
  m.impl("scatter.reduce_out", scatter_reduce_old_out);
  m.impl("scatter.value_reduce_out", scatter_value_reduce_out);
  m.impl("scatter_add.out", scatter_add_out);
  m.impl("scatter_reduce.two_out", scatter_reduce_out);
  m.impl("index_add.out", index_add_out);
  m.impl("index_copy.out", index_copy_out);
  m.impl("index_fill_.int_Scalar", index_fill_scalar);
  m.impl("index_fill_.int_Tensor", index_fill_tensor);
  m.impl("index_reduce.out", index_reduce_out);
  m.impl("put_", put_);
  m.impl("embedding_dense_backward", embedding_dense_backward);
}

}  // namespace chipset::bridge
