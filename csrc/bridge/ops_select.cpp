// SPDX-License-Identifier: Apache-2.0
// Operators whose result depends on which elements hold something: nonzero, masked_select,
// masked_scatter, unique, repeat_interleave. Their size is data, so they read it on the host.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_unique2_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/nonzero_ops.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/unique_consecutive_ops.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "waist.h"

namespace chipset::bridge {
namespace {

using at::Tensor;

// Positions of the true elements of a bool vector, ascending.
Tensor positions(const Tensor& flags) {
  const int64_t n = flags.numel();
  if (n == 0) return at::empty({0}, flags.options().dtype(at::kLong));
  const Tensor rank = at::cumsum(flags, 0);
  const int64_t found = rank.select(0, n - 1).item<int64_t>();
  // The false ones share one place behind the result.
  const Tensor target = at::where(flags, rank.sub(1), rank.new_full({}, found));
  return at::empty({found + 1}, rank.options())
      .scatter_(0, target, at::arange(n, rank.options()))
      .narrow(0, 0, found);
}

// ---- nonzero --------------------------------------------------------------------------------

Tensor nonzero(const Tensor& self) {
  if (!computes(self)) return host<at::_ops::nonzero>(self);
  const Tensor flags = self.scalar_type() == at::kBool ? self : self.ne(0);
  const Tensor at = positions(flags.reshape({-1}));
  if (self.dim() == 1) return at.unsqueeze(1);
  const Tensor out = at::empty({at.numel(), self.dim()}, at.options());
  Tensor rest = at;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    const int64_t size = std::max<int64_t>(self.size(d), 1);
    out.select(1, d).copy_(d == 0 ? rest : rest.remainder(size));
    if (d > 0) rest = rest.div(size, "floor");
  }
  return out;
}

Tensor& nonzero_out(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong, "Expected object of scalar type Long as out, but ",
              "got ", out.scalar_type());
  return store(nonzero(self), out);
}

// ---- masked_select, masked_scatter ----------------------------------------------------------

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto [x, chosen] = at::expand_outplace(self, mask);
  return x->reshape({-1}).index_select(0, positions(chosen->reshape({-1})));
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "masked_select(): self and result must ",
              "have the same scalar type");
  return store(masked_select(self, mask), out);
}

Tensor& masked_scatter_(Tensor& self, const Tensor& mask, const Tensor& source) {
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), "masked_scatter_: expected self and ",
              "source to have same dtypes but got ", self.scalar_type(), " and ",
              source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_scatter_ only supports boolean masks, but ",
              "got mask with dtype ", mask.scalar_type());
  const Tensor chosen = mask.expand(self.sizes()).reshape({-1});
  if (chosen.numel() == 0) return self;
  if (source.numel() == 0) {
    TORCH_CHECK(!chosen.any().item<bool>(),
                "masked_scatter: expected source to have at least as many elements as mask has ",
                "ones, but it is empty");
    return self;
  }
  // The k-th true element takes source[k]; an index past the end is reported by gather.
  const Tensor rank = at::cumsum(chosen, 0).sub_(1).mul_(chosen);
  const Tensor filler = source.reshape({-1}).index_select(0, rank).view(self.sizes());
  return self.copy_(at::where(chosen.view(self.sizes()), filler, self));
}

// ---- unique ---------------------------------------------------------------------------------

struct Runs {
  Tensor begins;  // positions where a run of equal elements begins
  Tensor number;  // of the run that each element belongs to
};

Runs runs_of(const Tensor& flat) {
  const int64_t n = flat.numel();
  const auto flags = flat.options().dtype(at::kBool);
  const Tensor begins =
      n == 0
          ? at::empty({0}, flags)
          : at::cat({at::ones({1}, flags), flat.narrow(0, 1, n - 1).ne(flat.narrow(0, 0, n - 1))});
  return {positions(begins), at::cumsum(begins, 0).sub_(1)};
}

Tensor lengths(const Tensor& begins, int64_t n) {
  const Tensor ends = at::cat({begins.slice(0, 1), begins.new_full({begins.numel() > 0}, n)});
  return ends.sub(begins);
}

using Three = std::tuple<Tensor, Tensor, Tensor>;

Three unique2(const Tensor& self, bool sorted, bool return_inverse, bool return_counts) {
  if (!computes(self)) return host<at::_ops::_unique2>(self, sorted, return_inverse, return_counts);
  const auto [ascending, order] = at::sort(self.reshape({-1}), std::optional<bool>(true), 0);
  const Runs runs = runs_of(ascending);
  const auto none = self.options().dtype(at::kLong);
  Tensor inverse = at::empty({0}, none), counts = at::empty({0}, none);
  if (return_inverse)
    inverse =
        at::empty(self.sizes(), none).view({-1}).scatter_(0, order, runs.number).view(self.sizes());
  if (return_counts) counts = lengths(runs.begins, self.numel());
  return {ascending.index_select(0, runs.begins), inverse, counts};
}

std::tuple<Tensor, Tensor> unique(const Tensor& self, bool sorted, bool return_inverse) {
  auto [values, inverse, counts] = unique2(self, sorted, return_inverse, false);
  return {values, inverse};
}

Three unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts,
                         std::optional<int64_t> dim) {
  const bool one_row = dim.has_value() && self.dim() == 1;
  if ((dim.has_value() && !one_row) || !computes(self))
    return host<at::_ops::unique_consecutive>(self, return_inverse, return_counts, dim);
  const Tensor flat = self.reshape({-1});
  const Runs runs = runs_of(flat);
  const auto none = self.options().dtype(at::kLong);
  return {flat.index_select(0, runs.begins),
          return_inverse ? runs.number.view(self.sizes()) : at::empty({0}, none),
          return_counts ? lengths(runs.begins, flat.numel()) : at::empty({0}, none)};
}

// ---- repeat_interleave ----------------------------------------------------------------------

Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.numel() == 0) return at::empty({0}, repeats.options());
  const Tensor ends = at::cumsum(repeats, 0);
  int64_t total = output_size.value_or(0);
  if (!output_size.has_value()) {
    TORCH_CHECK(repeats.min().item<int64_t>() >= 0, "repeats can not be negative");
    total = ends.select(0, -1).item<int64_t>();
  }
  const Tensor place = at::arange(total, ends.options());
  return at::searchsorted(ends, place, /*out_int32=*/repeats.scalar_type() == at::kInt,
                          /*right=*/true);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", nonzero);
  m.impl("nonzero.out", nonzero_out);
  m.impl("masked_select", masked_select);
  m.impl("masked_select.out", masked_select_out);
  m.impl("masked_scatter_", masked_scatter_);
  m.impl("_unique2", unique2);
  m.impl("_unique", unique);
  m.impl("unique_consecutive", unique_consecutive);
  m.impl("repeat_interleave.Tensor", repeat_interleave);
}

}  // namespace chipset::bridge
