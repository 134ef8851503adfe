// SPDX-License-Identifier: Apache-2.0
// Tensors filled with one number or with an arithmetic sequence.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/eye_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/linspace_ops.h>
#include <ATen/ops/logspace_ops.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/range_ops.h>
#include <ATen/ops/zero_ops.h>
#include <torch/library.h>

#include <cmath>

#include "pointwise.h"

namespace chipset::bridge {
namespace {

using at::Scalar;
using at::Tensor;

// ---- one number -----------------------------------------------------------------------------

bool fill(const Tensor& self, const chipset_scalar& value) {
  if (!accepts(Accepts::kAny, self.scalar_type())) return false;
  if (self.numel() == 0) return true;
  auto args = arguments<chipset_pointwise_args>();
  args.op = CHIPSET_POINTWISE_OP_FILL;
  args.compute_dtype = compute_dtype(self.scalar_type());
  args.param[0] = value;
  if (self.is_contiguous() && fits(self)) {
    const chipset_tensor output = view(self);
    args.output = &output;
    return call<&chipset_api::pointwise>(self.device().index(), args);
  }
  // Of an expanded dimension one element is enough (SHP-002).
  Tensor distinct = self;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (self.stride(d) == 0 && self.size(d) > 1) distinct = distinct.narrow(d, 0, 1);
  if (at::has_internal_overlap(distinct) == at::MemOverlap::Yes) return false;
  at::TensorIteratorConfig config;
  const auto iterator =
      config.resize_outputs(false).check_all_same_dtype(false).add_output(distinct).build();
  return pointwise(iterator, CHIPSET_POINTWISE_OP_FILL, self.scalar_type(), {}, {{value}});
}

Tensor& fill_scalar_(Tensor& self, const Scalar& value) {
  if (value.isComplex() || !fill(self, scalar(value))) host<at::_ops::fill__Scalar>(self, value);
  return self;
}

// A value on the chip is broadcast there: no synchronisation.
Tensor& fill_tensor_(Tensor& self, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  if (value.device().type() == c10::DeviceType::CPU) return fill_scalar_(self, value.item());
  return self.copy_(value);
}

Tensor& zero_(Tensor& self) {
  if (fill(self, scalar(int64_t{0}))) return self;
  // A dtype that the waist only moves (complex, …): its zero is all bits zero.
  if (self.is_non_overlapping_and_dense()) {
    const int device = self.device().index();
    check(runtime::device(device).api->mem_fill(current_stream(device), self.mutable_data_ptr(), 0,
                                                self.nbytes()),
          "mem_fill");
    return self;
  }
  host<at::_ops::zero_>(self);
  return self;
}

// ---- sequences ------------------------------------------------------------------------------

// Element i of the one-dimensional tensor becomes start + i * step. Floats are computed in F64, as
// torch does, where the chip can.
bool sequence(const Tensor& out, const chipset_scalar& start, const chipset_scalar& step) {
  const auto type = out.scalar_type();
  if (!accepts(Accepts::kNumber, type)) return false;
  if (out.numel() == 0) return true;
  const chipset_tensor output = view(out);
  auto args = arguments<chipset_pointwise_args>();
  args.op = CHIPSET_POINTWISE_OP_ARANGE;
  args.output = &output;
  args.param[0] = start;
  args.param[1] = step;
  const int device = out.device().index();
  if (!at::isFloatingType(type)) {
    args.compute_dtype = CHIPSET_DTYPE_I64;
    return call<&chipset_api::pointwise>(device, args);
  }
  args.compute_dtype = CHIPSET_DTYPE_F64;
  if (call<&chipset_api::pointwise>(device, args)) return true;
  args.compute_dtype = CHIPSET_DTYPE_F32;
  return call<&chipset_api::pointwise>(device, args);
}

Tensor& arange_out(const Scalar& start, const Scalar& end, const Scalar& step, Tensor& out) {
  const auto type = out.scalar_type();
  if (!accepts(Accepts::kNumber, type) || start.isComplex() || end.isComplex() || step.isComplex())
    return host<at::_ops::arange_start_out>(start, end, step, out);
  const int64_t size = type == at::kLong
                           ? at::native::compute_arange_size<int64_t>(start, end, step)
                           : at::native::compute_arange_size<double>(start, end, step);
  const int64_t numel = out.numel();
  if (numel != size) {
    if (numel > 0)
      TORCH_WARN("The number of elements in the out tensor of shape ", out.sizes(), " is ", numel,
                 " which does not match the computed number of elements ", size,
                 ". Note that this may occur as a result of rounding error. The out tensor will "
                 "be resized to a tensor of shape (",
                 size, ",).");
    out.resize_({size});
  }
  if (out.dim() == 1 && sequence(out, scalar(start), scalar(step))) return out;
  return host<at::_ops::arange_start_out>(start, end, step, out);
}

Tensor& range_out(const Scalar& start, const Scalar& end, const Scalar& step, Tensor& out) {
  at::native::arange_check_bounds(start, end, step);
  const double size = std::floor((end.toDouble() - start.toDouble()) / step.toDouble()) + 1;
  out.resize_({static_cast<int64_t>(size)});
  if (sequence(out, scalar(start), scalar(step))) return out;
  return host<at::_ops::range_out>(start, end, step, out);
}

// Torch counts from both ends, so that the last element is exactly `end`.
bool linspace(const Tensor& out, const Scalar& start, const Scalar& end, int64_t steps) {
  if (!accepts(Accepts::kFloat, out.scalar_type()) || start.isComplex() || end.isComplex())
    return false;
  if (steps == 0) return true;
  if (steps == 1) return fill(out, scalar(start));
  const double first = start.toDouble();
  const double last = end.toDouble();
  const double step = (last - first) / static_cast<double>(steps - 1);
  const int64_t half = steps / 2;
  const double middle = last - step * static_cast<double>(steps - 1 - half);
  return sequence(out.narrow(0, 0, half), scalar(first), scalar(step)) &&
         sequence(out.narrow(0, half, steps - half), scalar(middle), scalar(step));
}

Tensor& linspace_out(const Scalar& start, const Scalar& end, int64_t steps, Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  if (out.dim() == 1 && linspace(out, start, end, steps)) return out;
  return host<at::_ops::linspace_out>(start, end, steps, out);
}

Tensor& logspace_out(const Scalar& start, const Scalar& end, int64_t steps, double base,
                     Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  if (out.dim() == 1 && linspace(out, start, end, steps)) return at::pow_out(out, base, out);
  return host<at::_ops::logspace_out>(start, end, steps, base, out);
}

Tensor& eye_m_out(int64_t n, int64_t m, Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  out.resize_({n, m});
  out.zero_();
  out.diagonal().fill_(1);
  return out;
}
Tensor& eye_out(int64_t n, Tensor& out) { return eye_m_out(n, n, out); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("fill_.Scalar", TORCH_FN(fill_scalar_));
  m.impl("fill_.Tensor", TORCH_FN(fill_tensor_));
  m.impl("zero_", TORCH_FN(zero_));
  m.impl("arange.start_out", TORCH_FN(arange_out));
  m.impl("range.out", TORCH_FN(range_out));
  m.impl("linspace.out", TORCH_FN(linspace_out));
  m.impl("logspace.out", TORCH_FN(logspace_out));
  m.impl("eye.out", TORCH_FN(eye_out));
  m.impl("eye.m_out", TORCH_FN(eye_m_out));
}

}  // namespace
}  // namespace chipset::bridge
