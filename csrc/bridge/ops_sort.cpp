// SPDX-License-Identifier: Apache-2.0
// Sorting by the waist's sort: sort, topk, and the order statistics that follow from it.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sort_meta.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/topk_meta.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "structured.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

using at::Tensor;

enum class Order { kAscending, kDescending };

// The first values.size(dim) elements of the order along dim.
bool sort_into(const Tensor& self, int64_t dim, Order order, bool stable, const Tensor& values,
               const Tensor& indices) {
  if (self.numel() == 0 || values.numel() == 0) return true;
  if (!fits(self) || !computes(self)) return false;
  const auto at_least_1d = [](const Tensor& t) { return t.dim() == 0 ? t.unsqueeze(0) : t; };
  const chipset_tensor input = view(at_least_1d(self)), first = view(at_least_1d(values)),
                       where = view(at_least_1d(indices));
  auto args = arguments<chipset_sort_args>();
  args.dim = static_cast<int32_t>(at::maybe_wrap_dim(dim, self.dim()));
  args.descending = order == Order::kDescending;
  args.stable = stable;
  args.k = first.shape[args.dim];
  args.input = &input;
  args.values = &first;
  args.indices = &where;
  return call<&chipset_api::sort>(self.get_device(), args);
}

Order order_of(bool descending) { return descending ? Order::kDescending : Order::kAscending; }

// ---- sort and topk --------------------------------------------------------------------------

std::tuple<Tensor, Tensor> sort_stable(const Tensor& self, std::optional<bool> stable, int64_t dim,
                                       bool descending) {
  Functional<at::meta::structured_sort_stable, 2> op;
  op.meta(self, stable, dim, descending);
  Tensor values = op.take(0), indices = op.take(1);
  if (sort_into(self, dim, order_of(descending), stable.value_or(false), values, indices))
    return {values, indices};
  return host<at::_ops::sort_stable>(self, stable, dim, descending);
}

std::tuple<Tensor&, Tensor&> sort_stable_out(const Tensor& self, std::optional<bool> stable,
                                             int64_t dim, bool descending, Tensor& values,
                                             Tensor& indices) {
  Out<at::meta::structured_sort_stable, 2> op(values, indices);
  op.meta(self, stable, dim, descending);
  if (sort_into(self, dim, order_of(descending), stable.value_or(false), values, indices))
    return {values, indices};
  return host<at::_ops::sort_values_stable>(self, stable, dim, descending, values, indices);
}

std::tuple<Tensor, Tensor> topk(const Tensor& self, int64_t k, int64_t dim, bool largest,
                                bool sorted) {
  Functional<at::meta::structured_topk, 2> op;
  op.meta(self, k, dim, largest, sorted);
  Tensor values = op.take(0), indices = op.take(1);
  if (sort_into(self, dim, order_of(largest), false, values, indices)) return {values, indices};
  return host<at::_ops::topk>(self, k, dim, largest, sorted);
}

std::tuple<Tensor&, Tensor&> topk_out(const Tensor& self, int64_t k, int64_t dim, bool largest,
                                      bool sorted, Tensor& values, Tensor& indices) {
  Out<at::meta::structured_topk, 2> op(values, indices);
  op.meta(self, k, dim, largest, sorted);
  if (sort_into(self, dim, order_of(largest), false, values, indices)) return {values, indices};
  return host<at::_ops::topk_values>(self, k, dim, largest, sorted, values, indices);
}

// ---- order statistics -----------------------------------------------------------------------

// Element `rank` (I64, in the shape of self but for size 1 along dim) of the ascending order.
struct Ranked {
  Tensor value, index;
};
Ranked element_of_order(const Tensor& sorted, const Tensor& order, int64_t dim, const Tensor& rank,
                        bool keepdim) {
  const Tensor value = sorted.gather(dim, rank), index = order.gather(dim, rank);
  if (keepdim) return {value, index};
  return {value.squeeze(dim), index.squeeze(dim)};
}

void store(const Ranked& found, Tensor& values, Tensor& indices) {
  at::native::resize_output(values, found.value.sizes());
  at::native::resize_output(indices, found.index.sizes());
  values.copy_(found.value);
  indices.copy_(found.index);
}

void check_not_empty(const Tensor& self, int64_t dim, const char* name) {
  TORCH_CHECK_INDEX(self.dim() == 0 || self.size(dim) > 0, name, "(): Expected reduction dim ", dim,
                    " to have non-zero size.");
}

std::tuple<Tensor&, Tensor&> kthvalue_values(const Tensor& self, int64_t k, int64_t dim,
                                             bool keepdim, Tensor& values, Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t size = self.dim() == 0 ? 1 : self.size(dim);
  check_not_empty(self, dim, "kthvalue");
  TORCH_CHECK(k >= 1 && k <= size, "kthvalue(): selected number k out of range for dimension ",
              dim);
  const Tensor x = self.dim() == 0 ? self.unsqueeze(0) : self;
  const auto [sorted, order] = at::sort(x, /*stable=*/std::optional<bool>(true), dim);
  Ranked found{sorted.select(dim, k - 1), order.select(dim, k - 1)};
  if (keepdim && self.dim() > 0) {
    found.value = found.value.unsqueeze(dim);
    found.index = found.index.unsqueeze(dim);
  }
  store(found, values, indices);
  return {values, indices};
}

// The lower of the two middle elements. NaN sorts last: with ignore_nan it does not count, and
// otherwise the first NaN is the median.
enum class Nan { kPropagates, kIgnored };
Ranked median_along(const Tensor& self, int64_t dim, bool keepdim, Nan nan) {
  const auto [sorted, order] = at::sort(self, /*stable=*/std::optional<bool>(true), dim);
  const int64_t size = self.size(dim);
  const Tensor nans = at::isnan(self).sum(dim, /*keepdim=*/true);
  const Tensor numbers = nans.neg().add_(size);
  Tensor rank;
  if (nan == Nan::kIgnored) {
    rank = numbers.sub(1).clamp_min_(0).div(2, "floor");
  } else {
    rank = at::where(nans.gt(0), numbers, at::full_like(numbers, (size - 1) / 2));
  }
  return element_of_order(sorted, order, dim, rank, keepdim);
}

template <Nan nan>
std::tuple<Tensor&, Tensor&> median_dim(const Tensor& self, int64_t dim, bool keepdim,
                                        Tensor& values, Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  check_not_empty(self, dim, "median");
  Ranked found;
  if (self.dim() == 0) {
    found = median_along(self.unsqueeze(0), 0, false, nan);
  } else {
    found = median_along(self, dim, keepdim, nan);
  }
  store(found, values, indices);
  return {values, indices};
}

template <Nan nan>
Tensor median_all(const Tensor& self) {
  if (self.numel() == 0)
    return at::full({}, std::numeric_limits<double>::quiet_NaN(), self.options());
  return median_along(self.reshape({-1}), 0, false, nan).value;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("sort.stable", sort_stable);
  m.impl("sort.values_stable", sort_stable_out);
  m.impl("topk", topk);
  m.impl("topk.values", topk_out);
  m.impl("kthvalue.values", kthvalue_values);
  m.impl("median", median_all<Nan::kPropagates>);
  m.impl("median.dim_values", median_dim<Nan::kPropagates>);
  m.impl("nanmedian", median_all<Nan::kIgnored>);
  m.impl("nanmedian.dim_values", median_dim<Nan::kIgnored>);
}

}  // namespace chipset::bridge
