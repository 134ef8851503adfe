// SPDX-License-Identifier: Apache-2.0
// Where values lie among others: isin, searchsorted, bucketize; and how many: histc, bincount.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isin_meta.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>

#include "structured.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

using at::Scalar;
using at::Tensor;

// ---- isin -----------------------------------------------------------------------------------

// Comparing every pair is quickest while there are few; a search costs more calls.
constexpr int64_t kMostPairs = int64_t{1} << 22;

Tensor is_in(const Tensor& elements, const Tensor& test) {
  const int64_t n = test.numel();
  if (n == 0 || elements.numel() == 0)
    return at::zeros(elements.sizes(), elements.options().dtype(at::kBool));
  if (n == 1) return elements.eq(test.reshape({}));
  if (elements.numel() * n <= kMostPairs && elements.dim() < CHIPSET_MAX_RANK)
    return elements.unsqueeze(-1).eq(test.reshape({-1})).any(-1);
  const at::ScalarType type = at::result_type(elements, test);
  const Tensor values = elements.to(type);
  const Tensor sorted = std::get<0>(at::sort(test.reshape({-1}).to(type)));
  const Tensor nearest = at::searchsorted(sorted, values.contiguous()).clamp_max_(n - 1);
  return sorted.take(nearest).eq(values);
}

// Generation asks it once a token, whether the token ends the text.
Tensor isin(const Tensor& elements, const Tensor& test, bool unique, bool invert) {
  Functional<at::meta::structured_isin_Tensor_Tensor> op;
  op.meta(elements, test, unique, invert);
  const Tensor found = is_in(elements, test);
  return invert ? found.logical_not() : found;
}

Tensor& isin_out(const Tensor& elements, const Tensor& test, bool unique, bool invert,
                 Tensor& out) {
  Out<at::meta::structured_isin_Tensor_Tensor> op(out);
  op.meta(elements, test, unique, invert);
  const Tensor found = is_in(elements, test);
  return out.copy_(invert ? found.logical_not() : found);
}

Tensor& isin_scalar_out(const Tensor& elements, const Scalar& test, bool unique, bool invert,
                        Tensor& out) {
  Out<at::meta::structured_isin_Tensor_Scalar> op(out);
  op.meta(elements, test, unique, invert);
  return out.copy_(invert ? elements.ne(test) : elements.eq(test));
}

Tensor& scalar_isin_out(const Scalar& element, const Tensor& test, bool unique, bool invert,
                        Tensor& out) {
  Out<at::meta::structured_isin_Scalar_Tensor> op(out);
  op.meta(element, test, unique, invert);
  const Tensor found = test.eq(element).any();
  return out.copy_(invert ? found.logical_not() : found);
}

// ---- searchsorted, bucketize ----------------------------------------------------------------

// All searches advance together: log2(n) rounds of a gather and a comparison.
Tensor search(const Tensor& sequence, const Tensor& values, bool right) {
  const auto longs = values.options().dtype(at::kLong);
  Tensor low = at::zeros(values.sizes(), longs);
  const int64_t n = sequence.size(-1);
  if (values.numel() == 0 || n == 0) return low;
  Tensor high = at::full_like(low, n);
  for (int64_t span = n; span > 0; span /= 2) {
    const Tensor middle = low.add(high).div_(2, "floor");
    const Tensor reachable = middle.clamp_max(n - 1);
    const Tensor found =
        sequence.dim() == 1 ? sequence.take(reachable) : sequence.gather(-1, reachable);
    // As torch's own search: NaN is past everything.
    const Tensor past = (right ? found.gt(values) : found.ge(values)).logical_not_();
    const Tensor onward = past.logical_and_(low.lt(high));
    low = at::where(onward, middle.add(1), low);
    high = at::where(onward, high, middle);
  }
  return low;
}

Tensor& searchsorted_out(const Tensor& sequence, const Tensor& values, bool out_int32, bool right,
                         const std::optional<std::string_view> side,
                         const std::optional<Tensor>& sorter, Tensor& out) {
  const Tensor order = sorter.value_or(Tensor());
  at::native::searchsorted_pre_check(sequence, values, out, out_int32, right, side, order);
  same_device("searchsorted", sequence, values, out);
  at::native::resize_output(out, values.sizes());
  Tensor sorted = order.defined() ? sequence.gather(-1, order) : sequence;
  at::ScalarType type = at::result_type(sorted, values);
  const Tensor found = search(sorted.to(type), values.to(type), right || side == "right");
  return out.copy_(found);
}

Tensor searchsorted_op(const Tensor& sequence, const Tensor& values, bool out_int32, bool right,
                       const std::optional<std::string_view> side,
                       const std::optional<Tensor>& sorter) {
  Tensor out = empty({0}, out_int32 ? at::kInt : at::kLong, sequence.get_device());
  return searchsorted_out(sequence, values, out_int32, right, side, sorter, out);
}

Tensor searchsorted_scalar(const Tensor& sequence, const Scalar& value, bool out_int32, bool right,
                           const std::optional<std::string_view> side,
                           const std::optional<Tensor>& sorter) {
  const Tensor values = at::scalar_tensor(value, sequence.options());
  return searchsorted_op(sequence, values, out_int32, right, side, sorter);
}

Tensor bucketize(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(",
              boundaries.dim(), ")");
  return searchsorted_op(boundaries, self, out_int32, right, std::nullopt, std::nullopt);
}

Tensor& bucketize_out(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right,
                      Tensor& out) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(",
              boundaries.dim(), ")");
  return searchsorted_out(boundaries, self, out_int32, right, std::nullopt, std::nullopt, out);
}

Tensor bucketize_scalar(const Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  return bucketize(at::scalar_tensor(self, boundaries.options()), boundaries, out_int32, right);
}

// ---- histc, bincount ------------------------------------------------------------------------

// Numbers of `flat` in `bins` equal steps from low to high (inclusive); others do not count.
Tensor count_in_steps(const Tensor& flat, int64_t bins, const Scalar& low, const Scalar& high) {
  const Tensor inside = flat.ge(low).logical_and_(flat.le(high));
  Tensor step;
  if (at::isIntegralType(flat.scalar_type(), false)) {
    const int64_t width = high.toLong() - low.toLong();
    step = flat.to(at::kLong).sub(low.toLong()).mul_(bins).div_(width, "floor");
  } else {
    step = flat.sub(low).div_(high.toDouble() - low.toDouble()).mul_(bins).floor_();
  }
  // One more bin, dropped at the end, takes the others.
  step = at::where(inside, step.clamp_max(bins - 1), step.new_full({}, bins)).to(at::kLong);
  const Tensor counts = at::zeros({bins + 1}, flat.options());
  return counts.scatter_add_(0, step, flat.new_ones({1}).expand({flat.numel()})).narrow(0, 0, bins);
}

Tensor histc(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  TORCH_CHECK(bins > 0, "bins must be > 0");
  Scalar low = min, high = max;
  const Tensor flat = self.reshape({-1});
  if (low.equal(high.toDouble()) && flat.numel() > 0) {
    low = flat.min().item();
    high = flat.max().item();
  }
  if (low.toDouble() == high.toDouble()) {
    low = at::isFloatingType(self.scalar_type()) ? Scalar(low.toDouble() - 1)
                                                 : Scalar(low.toLong() - 1);
    high = at::isFloatingType(self.scalar_type()) ? Scalar(high.toDouble() + 1)
                                                  : Scalar(high.toLong() + 1);
  }
  TORCH_CHECK(std::isfinite(low.toDouble()) && std::isfinite(high.toDouble()),
              "torch.histc: range of [", low.toDouble(), ", ", high.toDouble(), "] is not finite");
  TORCH_CHECK(low.toDouble() < high.toDouble(), "torch.histc: max must be larger than min");
  return count_in_steps(flat, bins, low, high).clone();
}

Tensor& histc_out(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max,
                  Tensor& out) {
  return store(histc(self, bins, min, max), out);
}

Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights, int64_t minlength) {
  const bool weighted = weights.has_value() && weights->defined();
  const bool empty_input = self.dim() == 1 && self.numel() == 0;
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1 && at::isIntegralType(self.scalar_type(), false) &&
                  (empty_input || self.min().item<int64_t>() >= 0),
              "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->numel() == self.numel()),
              "weights should be 1-d and have the same length as input");
  const at::ScalarType type = !weighted                              ? at::kLong
                              : weights->scalar_type() == at::kFloat ? at::kFloat
                                                                     : at::kDouble;
  const int64_t largest = empty_input ? -1 : self.max().item<int64_t>();
  const Tensor counts = at::zeros({std::max(minlength, largest + 1)}, self.options().dtype(type));
  if (empty_input) return counts;
  const Tensor terms = weighted ? weights->to(type) : counts.new_ones({1}).expand({self.numel()});
  return counts.scatter_add_(0, self.to(at::kLong), terms);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("isin.Tensor_Tensor", isin);
  m.impl("isin.Tensor_Tensor_out", isin_out);
  m.impl("isin.Tensor_Scalar_out", isin_scalar_out);
  m.impl("isin.Scalar_Tensor_out", scalar_isin_out);
  m.impl("searchsorted.Tensor", searchsorted_op);
  m.impl("searchsorted.Tensor_out", searchsorted_out);
  m.impl("searchsorted.Scalar", searchsorted_scalar);
  m.impl("bucketize.Tensor", bucketize);
  m.impl("bucketize.Tensor_out", bucketize_out);
  m.impl("bucketize.Scalar", bucketize_scalar);
  m.impl("histc", histc);
  m.impl("histc.out", histc_out);
  m.impl("bincount", bincount);
}

}  // namespace chipset::bridge
