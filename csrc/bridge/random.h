// SPDX-License-Identifier: Apache-2.0
// Random fills through the waist, and the host's own for plugins that have none (RND-001).
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <chipset/chipset.h>

#include <optional>

#include "generator.h"

namespace chipset::bridge {

struct Distribution {
  int32_t kind;  // a chipset_random_kind
  chipset_scalar first{};
  chipset_scalar second{};
  at::Tensor probability{};  // BERNOULLI only: of the filled tensor's shape, or undefined
};

// Fills every element in row-major order. Any strides, rank and real dtype.
void fill_random(const at::Tensor& self, const Distribution& distribution,
                 const std::optional<at::Generator>& generator);

// The numbers by the header's definition, computed on the host: a tensor of `count` float32,
// float64 or int64 as the dtype to be filled asks for.
at::Tensor host_random(const Distribution& distribution, PhiloxState state, int64_t count,
                       at::ScalarType filled);

}  // namespace chipset::bridge
