// SPDX-License-Identifier: Apache-2.0
// Padding by reflection and replication, interpolation, and average pooling: each is a resampling
// along one dimension after the other (taps.h).
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/div.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad3d_backward_meta.h>
#include <ATen/ops/reflection_pad3d_meta.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad3d_meta.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>
#include <torch/library.h>

#include "structured.h"
#include "taps.h"

namespace chipset::bridge {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Scale = std::optional<double>;

bool is_single(const Tensor& x) { return x.scalar_type() != at::kDouble; }

// ---- padding --------------------------------------------------------------------------------

using PadTaps = Taps (*)(int64_t inputs, int64_t before, int64_t after);

// `padding` holds (before, after) of the last dimension, then of the one before it, and so on.
Tensor pad(const Tensor& self, IntArrayRef padding, PadTaps make) {
  Tensor result = self;
  for (size_t k = 0; k < padding.size() / 2; ++k) {
    const int64_t dim = self.dim() - 1 - static_cast<int64_t>(k);
    result = apply(result, dim, make(self.size(dim), padding[2 * k], padding[2 * k + 1]));
  }
  return result;
}
Tensor pad_backward(const Tensor& grad, const Tensor& self, IntArrayRef padding, PadTaps make) {
  Tensor result = grad;
  for (size_t k = 0; k < padding.size() / 2; ++k) {
    const int64_t dim = self.dim() - 1 - static_cast<int64_t>(k);
    const int64_t inputs = self.size(dim);
    result =
        apply_transposed(result, dim, make(inputs, padding[2 * k], padding[2 * k + 1]), inputs);
  }
  return result;
}

template <class Meta, PadTaps Make>
Tensor& pad_out(const Tensor& self, IntArrayRef padding, Tensor& out) {
  Out<Meta> check(out);
  check.meta(self, padding);
  return store(pad(self, padding, Make), out);
}
template <class Meta, PadTaps Make>
Tensor& pad_backward_out(const Tensor& grad, const Tensor& self, IntArrayRef padding, Tensor& out) {
  Out<Meta> check(out);
  check.meta(grad, self, padding);
  return store(pad_backward(grad, self, padding, Make), out);
}

// Those that torch does not describe by a meta function.
void check_reflection(const Tensor& self, IntArrayRef padding) {
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other "
              "non-zero dimensions for input, but got: ",
              self.sizes());
  for (size_t k = 0; k < padding.size() / 2; ++k) {
    const int64_t dim = self.dim() - 1 - static_cast<int64_t>(k);
    TORCH_CHECK(padding[2 * k] < self.size(dim) && padding[2 * k + 1] < self.size(dim),
                "Argument #", 4 + 2 * k,
                ": Padding size should be less than the corresponding input dimension, but got: "
                "padding (",
                padding[2 * k], ", ", padding[2 * k + 1], ") at dimension ", dim, " of input ",
                self.sizes());
  }
}
Tensor reflection_pad2d(const Tensor& self, IntArrayRef padding) {
  check_reflection(self, padding);
  return pad(self, padding, reflection_taps);
}
Tensor& reflection_pad2d_out(const Tensor& self, IntArrayRef padding, Tensor& out) {
  return store(reflection_pad2d(self, padding), out);
}
template <PadTaps Make>
Tensor pad_backward_plain(const Tensor& grad, const Tensor& self, IntArrayRef padding) {
  return pad_backward(grad, self, padding, Make);
}
template <PadTaps Make>
Tensor& pad_backward_plain_out(const Tensor& grad, const Tensor& self, IntArrayRef padding,
                               Tensor& out) {
  return store(pad_backward(grad, self, padding, Make), out);
}

// ---- interpolation --------------------------------------------------------------------------

enum class Kind { kNearest, kNearestExact, kLinear, kCubic };

Taps taps_of(Kind kind, int64_t inputs, int64_t outputs, Scale scale, bool align, bool single) {
  switch (kind) {
    case Kind::kNearest:
      return nearest_taps(inputs, outputs, scale, false);
    case Kind::kNearestExact:
      return nearest_taps(inputs, outputs, scale, true);
    case Kind::kLinear:
      return linear_taps(inputs, outputs, scale, align, single);
    default:
      return cubic_taps(inputs, outputs, scale, align, single);
  }
}

// The spatial dimensions follow batch and channel.
Tensor interpolate(Kind kind, const Tensor& self, IntArrayRef outputs, bool align,
                   std::initializer_list<Scale> scales) {
  Tensor result = self;
  int64_t dim = 2;
  for (const Scale& scale : scales) {
    const int64_t size = self.size(dim);
    if (size != outputs[dim - 2] || kind == Kind::kCubic || scale.has_value())
      result =
          apply(result, dim, taps_of(kind, size, outputs[dim - 2], scale, align, is_single(self)));
    ++dim;
  }
  return result;
}
Tensor interpolate_backward(Kind kind, const Tensor& grad, IntArrayRef inputs, bool align,
                            std::initializer_list<Scale> scales) {
  Tensor result = grad;
  int64_t dim = 2;
  for (const Scale& scale : scales) {
    const auto taps = taps_of(kind, inputs[dim], grad.size(dim), scale, align, is_single(grad));
    result = apply_transposed(result, dim, taps, inputs[dim]);
    ++dim;
  }
  return result;
}

// One scale per spatial dimension.
template <Kind K, class Meta, class Backward, class... Scales>
struct Interpolation {
  static Tensor& out(const Tensor& self, IntArrayRef size, bool align, Scales... scales,
                     Tensor& out) {
    Out<Meta> check(out);
    check.meta(self, size, align, scales...);
    return store(interpolate(K, self, size, align, {scales...}), out);
  }
  static Tensor& backward(const Tensor& grad, IntArrayRef size, IntArrayRef inputs, bool align,
                          Scales... scales, Tensor& out) {
    Out<Backward> check(out);
    check.meta(grad, size, inputs, align, scales...);
    return store(interpolate_backward(K, grad, inputs, align, {scales...}), out);
  }
};
template <Kind K, class Meta, class Backward, class... Scales>
struct Nearest {
  static Tensor& out(const Tensor& self, IntArrayRef size, Scales... scales, Tensor& out) {
    Out<Meta> check(out);
    check.meta(self, size, scales...);
    return store(interpolate(K, self, size, false, {scales...}), out);
  }
  static Tensor& backward(const Tensor& grad, IntArrayRef size, IntArrayRef inputs,
                          Scales... scales, Tensor& out) {
    Out<Backward> check(out);
    check.meta(grad, size, inputs, scales...);
    return store(interpolate_backward(K, grad, inputs, false, {scales...}), out);
  }
};

// ---- average pooling ------------------------------------------------------------------------

int64_t pick(IntArrayRef values, size_t k, int64_t otherwise) {
  return values.empty() ? otherwise : values.size() == 1 ? values[0] : values[k];
}

// The last N dimensions.
template <int64_t N, class Meta, class Backward>
struct AveragePool {
  struct Geometry {
    IntArrayRef kernel, stride, padding;
    bool count_padding;
    std::optional<int64_t> divisor;
    Taps taps(size_t k, int64_t inputs, int64_t outputs) const {
      const int64_t size = pick(kernel, k, 1);
      const Window window{size, pick(stride, k, size), pick(padding, k, 0)};
      return window_taps(inputs, outputs, window, !divisor.has_value(), count_padding);
    }
  };
  static Tensor divided(const Tensor& x, std::optional<int64_t> divisor) {
    return divisor ? at::div(x, *divisor) : x;
  }
  static Tensor& out(const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                     IntArrayRef padding, bool ceil_mode, bool count_padding,
                     std::optional<int64_t> divisor, Tensor& out) {
    Out<Meta> check(out);
    check.meta(self, kernel, stride, padding, ceil_mode, count_padding, divisor);
    const Geometry geometry{kernel, stride, padding, count_padding, divisor};
    Tensor result = self;
    for (int64_t k = 0; k < N; ++k) {
      const int64_t dim = self.dim() - N + k;
      result = apply(result, dim, geometry.taps(k, self.size(dim), out.size(dim)));
    }
    return store(divided(result, divisor), out);
  }
  static Tensor& backward(const Tensor& grad, const Tensor& self, IntArrayRef kernel,
                          IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                          bool count_padding, std::optional<int64_t> divisor, Tensor& out) {
    Out<Backward> check(out);
    check.meta(grad, self, kernel, stride, padding, ceil_mode, count_padding, divisor);
    const Geometry geometry{kernel, stride, padding, count_padding, divisor};
    Tensor result = divided(grad, divisor);
    for (int64_t k = 0; k < N; ++k) {
      const int64_t dim = self.dim() - N + k;
      const int64_t inputs = self.size(dim);
      result = apply_transposed(result, dim, geometry.taps(k, inputs, grad.size(dim)), inputs);
    }
    return store(result, out);
  }
};

// Adaptive averages over the last N dimensions.
template <int64_t N>
Tensor adaptive(const Tensor& self, IntArrayRef outputs) {
  TORCH_CHECK(static_cast<int64_t>(outputs.size()) == N, "adaptive_avg_pool", N,
              "d: output_size must be ", N, " numbers");
  TORCH_CHECK(self.dim() == N + 1 || self.dim() == N + 2, "adaptive_avg_pool", N, "d(): Expected ",
              N + 1, "D or ", N + 2, "D tensor, but got ", self.sizes());
  Tensor result = self;
  for (int64_t k = 0; k < N; ++k) {
    const int64_t dim = self.dim() - N + k;
    TORCH_CHECK(self.size(dim) > 0, "adaptive_avg_pool", N,
                "d(): Expected input to have non-zero size for non-batch dimensions, but input "
                "has sizes ",
                self.sizes(), " with dimension ", dim, " being empty");
    if (self.size(dim) != outputs[k])
      result = apply(result, dim, adaptive_taps(self.size(dim), outputs[k]));
  }
  return result.is_same(self) ? self.clone() : result;
}
template <int64_t N>
Tensor adaptive_backward(const Tensor& grad, const Tensor& self) {
  Tensor result = grad;
  for (int64_t k = 0; k < N; ++k) {
    const int64_t dim = self.dim() - N + k;
    const int64_t inputs = self.size(dim);
    result = apply_transposed(result, dim, adaptive_taps(inputs, grad.size(dim)), inputs);
  }
  return result;
}
template <int64_t N>
Tensor& adaptive_out(const Tensor& self, IntArrayRef outputs, Tensor& out) {
  return store(adaptive<N>(self, outputs), out);
}
Tensor& adaptive_backward3d_out(const Tensor& grad, const Tensor& self, Tensor& out) {
  return store(adaptive_backward<3>(grad, self), out);
}

// Channel c of group g goes to position c * groups + g.
Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2,
              "channel_shuffle expects input with > 2 dims, but got input with "
              "sizes ",
              self.sizes());
  const int64_t channels = self.size(1);
  TORCH_CHECK(groups > 0,
              "Number of groups to divide channels in must be positive. Value of "
              "groups:",
              groups);
  TORCH_CHECK(channels % groups == 0, "Number of channels must be divisible by groups. Got ",
              channels, " channels and ", groups, " groups.");
  const auto parts = self.unflatten(1, {groups, channels / groups}).transpose(1, 2);
  return parts.reshape(self.sizes());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define REGISTER_PAD(NAME, KIND) \
  m.impl(#NAME ".out", TORCH_FN((pad_out<at::meta::structured_##NAME, KIND##_taps>)));
#define REGISTER_PAD_BACKWARD(NAME, KIND) \
  m.impl(#NAME "_backward.grad_input",    \
         TORCH_FN((pad_backward_out<at::meta::structured_##NAME##_backward, KIND##_taps>)));
#define REGISTER_PAD_BACKWARD_PLAIN(NAME, KIND)                           \
  m.impl(#NAME "_backward", TORCH_FN((pad_backward_plain<KIND##_taps>))); \
  m.impl(#NAME "_backward.grad_input", TORCH_FN((pad_backward_plain_out<KIND##_taps>)));
  REGISTER_PAD(reflection_pad1d, reflection)
  REGISTER_PAD(reflection_pad3d, reflection)
  REGISTER_PAD(replication_pad1d, replication)
  REGISTER_PAD(replication_pad2d, replication)
  REGISTER_PAD(replication_pad3d, replication)
  REGISTER_PAD_BACKWARD(reflection_pad1d, reflection)
  REGISTER_PAD_BACKWARD(reflection_pad3d, reflection)
  REGISTER_PAD_BACKWARD(replication_pad1d, replication)
  REGISTER_PAD_BACKWARD_PLAIN(reflection_pad2d, reflection)
  REGISTER_PAD_BACKWARD_PLAIN(replication_pad2d, replication)
  REGISTER_PAD_BACKWARD_PLAIN(replication_pad3d, replication)
  m.impl("reflection_pad2d", TORCH_FN(reflection_pad2d));
  m.impl("reflection_pad2d.out", TORCH_FN(reflection_pad2d_out));

#define REGISTER_RESAMPLE(CLASS, NAME, KIND, ...)                                \
  {                                                                              \
    using Operator = CLASS<Kind::KIND, at::meta::structured_##NAME,              \
                           at::meta::structured_##NAME##_backward, __VA_ARGS__>; \
    m.impl(#NAME ".out", TORCH_FN(Operator::out));                               \
    m.impl(#NAME "_backward.grad_input", TORCH_FN(Operator::backward));          \
  }
  REGISTER_RESAMPLE(Interpolation, upsample_linear1d, kLinear, Scale)
  REGISTER_RESAMPLE(Interpolation, upsample_bilinear2d, kLinear, Scale, Scale)
  REGISTER_RESAMPLE(Interpolation, upsample_trilinear3d, kLinear, Scale, Scale, Scale)
  REGISTER_RESAMPLE(Interpolation, upsample_bicubic2d, kCubic, Scale, Scale)
  REGISTER_RESAMPLE(Nearest, upsample_nearest1d, kNearest, Scale)
  REGISTER_RESAMPLE(Nearest, upsample_nearest2d, kNearest, Scale, Scale)
  REGISTER_RESAMPLE(Nearest, upsample_nearest3d, kNearest, Scale, Scale, Scale)
  REGISTER_RESAMPLE(Nearest, _upsample_nearest_exact1d, kNearestExact, Scale)
  REGISTER_RESAMPLE(Nearest, _upsample_nearest_exact2d, kNearestExact, Scale, Scale)
  REGISTER_RESAMPLE(Nearest, _upsample_nearest_exact3d, kNearestExact, Scale, Scale, Scale)

#define REGISTER_POOL(NAME, N)                                                               \
  {                                                                                          \
    using Operator =                                                                         \
        AveragePool<N, at::meta::structured_##NAME, at::meta::structured_##NAME##_backward>; \
    m.impl(#NAME ".out", TORCH_FN(Operator::out));                                           \
    m.impl(#NAME "_backward.grad_input", TORCH_FN(Operator::backward));                      \
  }
  REGISTER_POOL(avg_pool2d, 2)
  REGISTER_POOL(avg_pool3d, 3)
  m.impl("_adaptive_avg_pool2d", TORCH_FN(adaptive<2>));
  m.impl("_adaptive_avg_pool3d", TORCH_FN(adaptive<3>));
  m.impl("adaptive_avg_pool2d.out", TORCH_FN(adaptive_out<2>));
  m.impl("adaptive_avg_pool3d.out", TORCH_FN(adaptive_out<3>));
  m.impl("_adaptive_avg_pool2d_backward", TORCH_FN(adaptive_backward<2>));
  m.impl("_adaptive_avg_pool3d_backward", TORCH_FN(adaptive_backward<3>));
  m.impl("adaptive_avg_pool3d_backward.grad_input", TORCH_FN(adaptive_backward3d_out));
  m.impl("channel_shuffle", TORCH_FN(channel_shuffle));
}

}  // namespace
}  // namespace chipset::bridge
