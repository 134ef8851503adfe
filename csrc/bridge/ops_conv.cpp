// SPDX-License-Identifier: Apache-2.0
// Convolution of any number of dimensions, forward and backward, composed: the windows of the
// padded input are a strided view (im2col), so that one batched matrix product does the rest.
// Depthwise convolution (one input channel per group) is a sum of shifted products instead.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "waist.h"

namespace chipset::bridge {
namespace {

using at::DimVector;
using at::Tensor;

// One value per spatial dimension, as the arguments come (one value for all is legal).
struct Geometry {
  DimVector stride, padding, dilation, kernel;
  int64_t groups;

  int64_t dims() const { return static_cast<int64_t>(kernel.size()); }
};

DimVector per_dim(at::IntArrayRef given, int64_t dims) {
  return given.size() == 1 ? DimVector(dims, given[0]) : DimVector(given);
}

Geometry geometry(const Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
                  at::IntArrayRef dilation, int64_t groups) {
  const int64_t dims = weight.dim() - 2;
  return {per_dim(stride, dims), per_dim(padding, dims), per_dim(dilation, dims),
          DimVector(weight.sizes().slice(2)), groups};
}

DimVector output_size(const Tensor& x, const Geometry& g) {
  DimVector out;
  for (int64_t d = 0; d < g.dims(); ++d) {
    const int64_t reach = g.dilation[d] * (g.kernel[d] - 1) + 1;
    out.push_back((x.size(d + 2) + 2 * g.padding[d] - reach) / g.stride[d] + 1);
  }
  return out;
}

Tensor pad(const Tensor& x, const Geometry& g) {
  DimVector amounts;  // last dimension first
  bool any = false;
  for (int64_t d = g.dims() - 1; d >= 0; --d) {
    amounts.push_back(g.padding[d]);
    amounts.push_back(g.padding[d]);
    any = any || g.padding[d] != 0;
  }
  return any ? at::constant_pad_nd(x, amounts, 0) : x;
}

Tensor unpad(const Tensor& padded, const Geometry& g) {
  Tensor out = padded;
  for (int64_t d = 0; d < g.dims(); ++d)
    out = out.narrow(d + 2, g.padding[d], padded.size(d + 2) - 2 * g.padding[d]);
  return out;
}

// Windows of a padded tensor: [N, C, kernel…, out…], no memory moved.
Tensor windows(const Tensor& padded, const Geometry& g, at::IntArrayRef out) {
  DimVector sizes{padded.size(0), padded.size(1)}, strides{padded.stride(0), padded.stride(1)};
  for (int64_t d = 0; d < g.dims(); ++d) {
    sizes.push_back(g.kernel[d]);
    strides.push_back(padded.stride(d + 2) * g.dilation[d]);
  }
  for (int64_t d = 0; d < g.dims(); ++d) {
    sizes.push_back(out[d]);
    strides.push_back(padded.stride(d + 2) * g.stride[d]);
  }
  return padded.as_strided(sizes, strides, padded.storage_offset());
}

int64_t product(at::IntArrayRef values) { return c10::multiply_integers(values); }

// [N, groups, C/groups * kernel, positions]
Tensor columns(const Tensor& x, const Geometry& g, at::IntArrayRef out) {
  return windows(pad(x, g), g, out)
      .reshape({x.size(0), g.groups, x.size(1) / g.groups * product(g.kernel), product(out)});
}

// [groups, O/groups, C/groups * kernel]
Tensor weight_matrix(const Tensor& weight, const Geometry& g) {
  return weight.reshape({g.groups, weight.size(0) / g.groups, -1});
}

bool depthwise(const Tensor& weight, int64_t channels, const Geometry& g) {
  return g.groups == channels && weight.size(1) == 1 && weight.size(0) == channels;
}

// Calls body(window of the padded tensor that tap reads [N, C, out…], index of the tap).
template <typename Body>
void for_each_tap(const Tensor& padded, const Geometry& g, at::IntArrayRef out, Body&& body) {
  const Tensor all = windows(padded, g, out);
  const int64_t taps = product(g.kernel);
  for (int64_t tap = 0; tap < taps; ++tap) {
    Tensor window = all;
    int64_t rest = tap;
    for (int64_t d = g.dims() - 1; d >= 0; --d) {
      window = window.select(d + 2, rest % g.kernel[d]);
      rest /= g.kernel[d];
    }
    body(window, tap);
  }
}

// A [C] vector in the rank of [N, C, …].
Tensor per_channel(const Tensor& values, int64_t rank) {
  std::vector<int64_t> shape(rank, 1);
  shape[1] = values.numel();
  return values.reshape(shape);
}

// ---- the three products ---------------------------------------------------------------------

Tensor forward(const Tensor& x, const Tensor& weight, const Geometry& g, at::IntArrayRef out) {
  DimVector sizes{x.size(0), weight.size(0)};
  sizes.append(out.begin(), out.end());
  if (depthwise(weight, x.size(1), g)) {
    Tensor y = at::zeros(sizes, x.options());
    const Tensor taps = weight.reshape({weight.size(0), -1});
    for_each_tap(pad(x, g), g, out, [&](const Tensor& window, int64_t tap) {
      y.addcmul_(window, per_channel(taps.select(1, tap), x.dim()));
    });
    return y;
  }
  return at::matmul(weight_matrix(weight, g).unsqueeze(0), columns(x, g, out)).view(sizes);
}

// The gradient of x, of the given shape; also the forward of a transposed convolution.
Tensor input_gradient(const Tensor& dy, const Tensor& weight, at::IntArrayRef x_sizes,
                      const Geometry& g) {
  DimVector padded_sizes(x_sizes);
  for (int64_t d = 0; d < g.dims(); ++d) padded_sizes[d + 2] += 2 * g.padding[d];
  const Tensor padded = at::zeros(padded_sizes, dy.options());
  const at::IntArrayRef out = dy.sizes().slice(2);
  if (depthwise(weight, x_sizes[1], g)) {
    const Tensor taps = weight.reshape({weight.size(0), -1});
    for_each_tap(padded, g, out, [&](const Tensor& window, int64_t tap) {
      Tensor(window).addcmul_(dy, per_channel(taps.select(1, tap), dy.dim()));
    });
    return unpad(padded, g).contiguous();
  }
  const Tensor grad = dy.reshape({dy.size(0), g.groups, weight.size(0) / g.groups, -1});
  const int64_t taps = product(g.kernel);
  DimVector shape{dy.size(0), x_sizes[1], taps};
  shape.append(out.begin(), out.end());
  const Tensor cols =
      at::matmul(weight_matrix(weight, g).transpose(1, 2).unsqueeze(0), grad).view(shape);
  // Windows of different taps overlap, those of one tap do not.
  for_each_tap(padded, g, out, [&](const Tensor& window, int64_t tap) {
    Tensor(window).add_(cols.select(2, tap));
  });
  return unpad(padded, g).contiguous();
}

Tensor weight_gradient(const Tensor& dy, const Tensor& x, at::IntArrayRef weight_sizes,
                       const Geometry& g) {
  const at::IntArrayRef out = dy.sizes().slice(2);
  const bool one_channel =
      g.groups == x.size(1) && weight_sizes[1] == 1 && weight_sizes[0] == x.size(1);
  if (one_channel) {
    const Tensor result = at::zeros({weight_sizes[0], product(g.kernel)}, dy.options());
    DimVector others{0};
    for (int64_t d = 2; d < dy.dim(); ++d) others.push_back(d);
    for_each_tap(pad(x, g), g, out, [&](const Tensor& window, int64_t tap) {
      result.select(1, tap).copy_(window.mul(dy).sum(others));
    });
    return result.view(weight_sizes);
  }
  const Tensor grad = dy.reshape({dy.size(0), g.groups, weight_sizes[0] / g.groups, -1});
  // Summed over the batch as one product: positions of all samples side by side.
  const Tensor left =
      grad.permute({1, 2, 0, 3}).reshape({g.groups, weight_sizes[0] / g.groups, -1});
  const Tensor cols = columns(x, g, out);
  const Tensor right = cols.permute({1, 0, 3, 2}).reshape({g.groups, -1, cols.size(2)});
  return at::matmul(left, right).view(weight_sizes);
}

// ---- the operators --------------------------------------------------------------------------

bool convolves(const Tensor& x, const Tensor& weight) {
  return at::isFloatingType(x.scalar_type()) && x.numel() > 0 && weight.numel() > 0 &&
         2 * x.dim() - 2 <= CHIPSET_MAX_RANK;
}

DimVector transposed_size(const Tensor& x, const Geometry& g, at::IntArrayRef extra,
                          int64_t channels) {
  DimVector out{x.size(0), channels};
  for (int64_t d = 0; d < g.dims(); ++d)
    out.push_back((x.size(d + 2) - 1) * g.stride[d] - 2 * g.padding[d] +
                  g.dilation[d] * (g.kernel[d] - 1) + extra[d] + 1);
  return out;
}

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                   at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                   bool transposed, at::IntArrayRef output_padding, int64_t groups) {
  if (!convolves(x, weight))
    return host<at::_ops::convolution>(x, weight, bias, stride, padding, dilation, transposed,
                                       output_padding, groups);
  const Geometry g = geometry(weight, stride, padding, dilation, groups);
  Tensor y = transposed ? input_gradient(x, weight,
                                         transposed_size(x, g, per_dim(output_padding, g.dims()),
                                                         weight.size(1) * groups),
                                         g)
                        : forward(x, weight, g, output_size(x, g));
  if (bias.has_value() && bias->defined()) y.add_(per_channel(*bias, y.dim()));
  return y;
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& dy, const Tensor& x, const Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  if (!convolves(x, weight)) {
    auto [dx, dw, db] = host<at::_ops::convolution_backward>(
        dy, x, weight, at::OptionalIntArrayRef(at::IntArrayRef{weight.size(0)}), stride, padding,
        dilation, transposed, output_padding, groups, wanted);
    return {dx, dw, db};
  }
  const Geometry g = geometry(weight, stride, padding, dilation, groups);
  Tensor dx, dweight, dbias;
  // A transposed convolution is the input gradient of one whose input is dy. Its output padding
  // may leave room for one window more than x has elements, so x says how many there are.
  if (wanted[0])
    dx = transposed ? forward(dy, weight, g, x.sizes().slice(2))
                    : input_gradient(dy, weight, x.sizes(), g);
  if (wanted[1])
    dweight = transposed ? weight_gradient(x, dy, weight.sizes(), g)
                         : weight_gradient(dy, x, weight.sizes(), g);
  if (wanted[2]) {
    DimVector others{0};
    for (int64_t d = 2; d < dy.dim(); ++d) others.push_back(d);
    dbias = dy.sum(others);
  }
  return {dx, dweight, dbias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

}  // namespace chipset::bridge
