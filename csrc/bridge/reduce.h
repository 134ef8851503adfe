// SPDX-License-Identifier: Apache-2.0
// One reduction through the waist.
#pragma once

#include <ATen/core/Tensor.h>

#include "pointwise.h"
#include "waist.h"

namespace chipset::bridge {

// Dimensions to reduce as bits; none given means all of them. Checks their range and repetition.
uint32_t dim_mask(const at::Tensor& input, at::OptionalIntArrayRef dims);

struct Reduction {
  chipset_reduce_op op;
  at::ScalarType compute;              // dtype of the accumulator
  double param = 0.0;                  // order of NORM, correction of VAR
  const at::Tensor* second = nullptr;  // indices of MAX and MIN, mean of VAR
};

// Writes to `output`, whose shape is the input's without the reduced dimensions, or with size 1 in
// their place; so is `second`. False: the chip does not do it and nothing was written.
bool reduce(const Reduction& what, const at::Tensor& input, uint32_t dims,
            const at::Tensor& output);

// Sizes of the output.
at::DimVector reduced_sizes(const at::Tensor& input, uint32_t dims, bool keep);

}  // namespace chipset::bridge
