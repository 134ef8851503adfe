// SPDX-License-Identifier: Apache-2.0
// Operators that rearrange whole tensors: cat (and with it stack), roll, tril and triu.
#include <ATen/WrapDimUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cat_meta.h>

#include <ATen/ops/tril_meta.h>
#include <ATen/ops/triu_meta.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "structured.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

// ---- cat ------------------------------------------------------------------------------------

// torch has always let empty vectors stand between tensors of any rank.
bool skipped(const at::Tensor& t) { return t.dim() == 1 && t.size(0) == 0; }

// Copies a tensor to its place in out, converting the dtype.
void place(const at::Tensor& from, const at::Tensor& out, int64_t dim, int64_t start) {
  if (from.numel() == 0) return;
  const bool converts = from.scalar_type() != out.scalar_type();
  if (!fits(out) || (converts && !(computes(from) && computes(out))) || from.is_neg() ||
      from.is_conj()) {
    out.narrow(dim, start, from.size(dim)).copy_(from);
    return;
  }
  const chipset_tensor in = view(from);
  chipset_tensor to = view(out);
  to.shape[dim] = from.size(dim);
  to.data = static_cast<char*>(to.data) + start * to.stride[dim] * out.element_size();
  auto args = arguments<chipset_pointwise_args>();
  args.op = CHIPSET_POINTWISE_OP_COPY;
  args.compute_dtype = to.dtype;
  args.num_inputs = 1;
  args.output = &to;
  args.input[0] = &in;
  if (!call<&chipset_api::pointwise>(out.get_device(), args))
    out.narrow(dim, start, from.size(dim)).copy_(from);
}

void cat_into(const at::ITensorListRef& tensors, int64_t dim, const at::Tensor& out) {
  int64_t start = 0;
  for (const at::Tensor& t : tensors) {
    if (skipped(t)) continue;
    TORCH_CHECK(t.device() == out.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                out.device(), " and ", t.device(), "! (torch.cat)");
    place(t, out, dim, start);
    start += t.size(dim);
  }
}

at::Tensor cat_op(const at::ITensorListRef& tensors, int64_t dim) {
  Functional<at::meta::structured_cat> op;
  const auto found = op.meta(tensors, dim);
  at::Tensor out = op.take();
  cat_into(tensors, found.dim, out);
  return out;
}

at::Tensor& cat_out(const at::ITensorListRef& tensors, int64_t dim, at::Tensor& out) {
  if (out.scalar_type() != at::native::result_type(tensors)) {  // out= of another dtype is legal
    at::native::resize_output(out, {0});
    const at::Tensor result = cat_op(tensors, dim);
    TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()),
                "torch.cat(): input types can't be cast to the desired output type ",
                out.scalar_type());
    return store(result, out);
  }
  Out<at::meta::structured_cat> op(out);
  const auto found = op.meta(tensors, dim);
  cat_into(tensors, found.dim, out);
  return out;
}

// ---- roll -----------------------------------------------------------------------------------

at::Tensor roll_along(const at::Tensor& self, int64_t shift, int64_t dim) {
  const int64_t size = self.size(dim);
  shift = ((shift % size) + size) % size;
  if (shift == 0) return self.clone();
  return at::cat({self.narrow(dim, size - shift, shift), self.narrow(dim, 0, size - shift)}, dim);
}

at::Tensor roll(const at::Tensor& self, at::IntArrayRef shifts, at::IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1) {
    if (self.numel() == 0) return self.clone(at::MemoryFormat::Preserve);
    return roll_along(self.contiguous().view({-1}), shifts[0], 0).view(self.sizes());
  }
  TORCH_CHECK(shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  at::Tensor out = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = at::maybe_wrap_dim(dims[i], self.dim());
    if (self.numel() > 0) out = roll_along(out, shifts[i], dim);
  }
  return out.is_same(self) ? self.clone(at::MemoryFormat::Preserve) : out;
}

// ---- tril, triu -----------------------------------------------------------------------------

enum class Part { kLower, kUpper };

// True where element (i, j) of the last two dimensions is kept.
at::Tensor triangle(const at::Tensor& self, int64_t diagonal, Part part) {
  const auto options = self.options().dtype(at::kLong);
  const at::Tensor column = at::arange(self.size(-1), options);
  const at::Tensor row = at::arange(diagonal, diagonal + self.size(-2), options).unsqueeze(1);
  return part == Part::kLower ? column.le(row) : column.ge(row);
}

template <class Meta, Part part>
at::Tensor& triangle_out(const at::Tensor& self, int64_t diagonal, at::Tensor& out) {
  Out<Meta> op(out);
  op.meta(self, diagonal);
  if (self.numel() == 0) return out;
  const at::Tensor kept = triangle(self, diagonal, part);
  if (!out.is_same(self)) {
    if (computes(self)) {
      at::where_out(out, kept, self, self.new_zeros({}));
      return out;
    }
    out.copy_(self);
  }
  out.masked_fill_(kept.logical_not(), 0);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cat", cat_op);
  m.impl("cat.out", cat_out);
  m.impl("roll", roll);
  m.impl("tril.out", triangle_out<at::meta::structured_tril, Part::kLower>);
  m.impl("triu.out", triangle_out<at::meta::structured_triu, Part::kUpper>);
}

}  // namespace chipset::bridge
