// SPDX-License-Identifier: Apache-2.0
// Resampling along one dimension: element o of the result is the sum over k of
// weight[k][o] * x[index[k][o]]. Padding, interpolation and average pooling are of this form.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace chipset::bridge {

struct Taps {
  std::vector<std::vector<int64_t>> index;  // [K][outputs]
  std::vector<std::vector<double>> weight;  // [K][outputs]; empty: all ones
};

Taps reflection_taps(int64_t inputs, int64_t before, int64_t after);
Taps replication_taps(int64_t inputs, int64_t before, int64_t after);

// Interpolation. `scale` is the user's scale factor, if there was one; `single`: coordinates are
// computed in single precision, as torch does for all dtypes but double.
Taps nearest_taps(int64_t inputs, int64_t outputs, std::optional<double> scale, bool exact);
Taps linear_taps(int64_t inputs, int64_t outputs, std::optional<double> scale, bool align_corners,
                 bool single);
Taps cubic_taps(int64_t inputs, int64_t outputs, std::optional<double> scale, bool align_corners,
                bool single);

// Averages over adaptive intervals, and over windows of a fixed size (divided: by the elements in
// the window, with or without the padding; otherwise the sums are left as they are).
Taps adaptive_taps(int64_t inputs, int64_t outputs);
struct Window {
  int64_t size;
  int64_t stride;
  int64_t padding;
};
Taps window_taps(int64_t inputs, int64_t outputs, const Window& window, bool divided,
                 bool count_padding);

// The result, and the gradient of x from that of the result. Half dtypes are summed in F32 within
// one dimension.
at::Tensor apply(const at::Tensor& x, int64_t dim, const Taps& taps);
at::Tensor apply_transposed(const at::Tensor& grad, int64_t dim, const Taps& taps, int64_t inputs);

}  // namespace chipset::bridge
