// SPDX-License-Identifier: Apache-2.0
#include "taps.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

namespace chipset::bridge {
namespace {

int64_t clip(int64_t i, int64_t inputs) { return std::clamp<int64_t>(i, 0, inputs - 1); }

template <typename Index>
Taps one_tap(int64_t outputs, Index index) {
  Taps taps{{std::vector<int64_t>(outputs)}, {}};
  for (int64_t o = 0; o < outputs; ++o) taps.index[0][o] = index(o);
  return taps;
}

Taps blank(int64_t count, int64_t outputs) {
  return {std::vector<std::vector<int64_t>>(count, std::vector<int64_t>(outputs, 0)),
          std::vector<std::vector<double>>(count, std::vector<double>(outputs, 0.0))};
}

// Where in the input, as a real number, an output element lies.
template <typename Real>
Real source(int64_t o, int64_t inputs, int64_t outputs, std::optional<double> scale, bool align,
            bool cubic) {
  if (align) {
    const Real step =
        outputs > 1 ? static_cast<Real>(inputs - 1) / static_cast<Real>(outputs - 1) : Real(0);
    return step * static_cast<Real>(o);
  }
  const Real step = scale && *scale > 0 ? static_cast<Real>(1.0 / *scale)
                                        : static_cast<Real>(inputs) / static_cast<Real>(outputs);
  const Real at = step * (static_cast<Real>(o) + Real(0.5)) - Real(0.5);
  return !cubic && at < 0 ? Real(0) : at;
}
double source(int64_t o, int64_t inputs, int64_t outputs, std::optional<double> scale, bool align,
              bool cubic, bool single) {
  return single ? source<float>(o, inputs, outputs, scale, align, cubic)
                : source<double>(o, inputs, outputs, scale, align, cubic);
}

at::Tensor on(const at::Tensor& like, const std::vector<int64_t>& values) {
  const auto count = static_cast<int64_t>(values.size());
  const at::Tensor host = at::empty({count}, at::TensorOptions(at::kLong));
  std::copy(values.begin(), values.end(), host.mutable_data_ptr<int64_t>());
  return host.to(like.device());
}
// Broadcasts along dimension `dim` of a tensor of `rank` dimensions.
at::Tensor on(const at::Tensor& like, const std::vector<double>& values, int64_t dim) {
  at::DimVector sizes(like.dim(), 1);
  sizes[dim] = static_cast<int64_t>(values.size());
  const at::Tensor host = at::empty(sizes, at::TensorOptions(at::kDouble));
  std::copy(values.begin(), values.end(), host.mutable_data_ptr<double>());
  return host.to(like.device(), like.scalar_type());
}

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

}  // namespace

Taps reflection_taps(int64_t inputs, int64_t before, int64_t after) {
  return one_tap(inputs + before + after, [=](int64_t o) {
    const int64_t i = std::abs(o - before);
    return i < inputs ? i : 2 * (inputs - 1) - i;
  });
}

Taps replication_taps(int64_t inputs, int64_t before, int64_t after) {
  return one_tap(inputs + before + after, [=](int64_t o) { return clip(o - before, inputs); });
}

Taps nearest_taps(int64_t inputs, int64_t outputs, std::optional<double> scale, bool exact) {
  const float step = scale && *scale > 0 ? static_cast<float>(1.0 / *scale)
                                         : static_cast<float>(inputs) / static_cast<float>(outputs);
  const float offset = exact ? 0.5f : 0.0f;
  return one_tap(outputs, [=](int64_t o) {
    return clip(static_cast<int64_t>(std::floor((static_cast<float>(o) + offset) * step)), inputs);
  });
}

Taps linear_taps(int64_t inputs, int64_t outputs, std::optional<double> scale, bool align_corners,
                 bool single) {
  Taps taps = blank(2, outputs);
  for (int64_t o = 0; o < outputs; ++o) {
    const double at = source(o, inputs, outputs, scale, align_corners, false, single);
    const int64_t low = clip(static_cast<int64_t>(std::floor(at)), inputs);
    const double fraction = std::clamp(at - static_cast<double>(low), 0.0, 1.0);
    taps.index[0][o] = low;
    taps.index[1][o] = clip(low + 1, inputs);
    taps.weight[0][o] = 1.0 - fraction;
    taps.weight[1][o] = fraction;
  }
  return taps;
}

// Keys' cubic convolution with a = -0.75.
Taps cubic_taps(int64_t inputs, int64_t outputs, std::optional<double> scale, bool align_corners,
                bool single) {
  constexpr double a = -0.75;
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  Taps taps = blank(4, outputs);
  for (int64_t o = 0; o < outputs; ++o) {
    const double at = source(o, inputs, outputs, scale, align_corners, true, single);
    const double floor = std::floor(at);
    const double t = at - floor;
    const double weights[4] = {far(1 + t), near(t), near(1 - t), far(2 - t)};
    for (int64_t k = 0; k < 4; ++k) {
      taps.index[k][o] = clip(static_cast<int64_t>(floor) - 1 + k, inputs);
      taps.weight[k][o] = weights[k];
    }
  }
  return taps;
}

Taps adaptive_taps(int64_t inputs, int64_t outputs) {
  const auto first = [=](int64_t o) { return o * inputs / outputs; };
  const auto end = [=](int64_t o) { return ((o + 1) * inputs + outputs - 1) / outputs; };
  int64_t widest = 1;
  for (int64_t o = 0; o < outputs; ++o) widest = std::max(widest, end(o) - first(o));
  Taps taps = blank(widest, outputs);
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t count = end(o) - first(o);
    for (int64_t k = 0; k < widest; ++k) {
      taps.index[k][o] = clip(std::min(first(o) + k, end(o) - 1), inputs);
      taps.weight[k][o] = k < count ? 1.0 / static_cast<double>(count) : 0.0;
    }
  }
  return taps;
}

Taps window_taps(int64_t inputs, int64_t outputs, const Window& window, bool divided,
                 bool count_padding) {
  Taps taps = blank(window.size, outputs);
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t start = o * window.stride - window.padding;
    const int64_t end = std::min(start + window.size, inputs + window.padding);
    const int64_t inside = std::min(end, inputs) - std::max<int64_t>(start, 0);
    const int64_t count = count_padding ? end - start : inside;
    for (int64_t k = 0; k < window.size; ++k) {
      const int64_t i = start + k;
      const bool real = i >= 0 && i < inputs;
      taps.index[k][o] = clip(i, inputs);
      taps.weight[k][o] = !real ? 0.0 : divided ? 1.0 / static_cast<double>(count) : 1.0;
    }
  }
  return taps;
}

at::Tensor apply(const at::Tensor& x, int64_t dim, const Taps& taps) {
  if (taps.weight.empty()) return at::index_select(x, dim, on(x, taps.index[0]));
  if (is_half(x.scalar_type())) return apply(x.to(at::kFloat), dim, taps).to(x.scalar_type());
  at::Tensor sum;
  for (size_t k = 0; k < taps.index.size(); ++k) {
    const at::Tensor part = at::index_select(x, dim, on(x, taps.index[k]));
    const at::Tensor weight = on(x, taps.weight[k], dim);
    sum = sum.defined() ? sum.addcmul_(part, weight) : at::mul(part, weight);
  }
  return sum;
}

at::Tensor apply_transposed(const at::Tensor& grad, int64_t dim, const Taps& taps, int64_t inputs) {
  if (is_half(grad.scalar_type()))
    return apply_transposed(grad.to(at::kFloat), dim, taps, inputs).to(grad.scalar_type());
  at::DimVector sizes(grad.sizes());
  sizes[dim] = inputs;
  const at::Tensor out = at::zeros(sizes, grad.options());
  for (size_t k = 0; k < taps.index.size(); ++k) {
    const at::Tensor part =
        taps.weight.empty() ? grad : at::mul(grad, on(grad, taps.weight[k], dim));
    out.index_add_(dim, on(grad, taps.index[k]), part);
  }
  return out;
}

}  // namespace chipset::bridge
