// SPDX-License-Identifier: Apache-2.0
// Maximum pooling with indices, and its reverse. Windows are views of the padded input, so that one
// reduction finds the values and one the positions.
#include <ATen/native/Pool.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/max_pool3d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool3d_with_indices_ops.h>
#include <ATen/ops/max_unpool2d_ops.h>
#include <ATen/ops/max_unpool3d_ops.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <limits>

#include "reduce.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

using at::IntArrayRef;
using at::Tensor;

int64_t pick(IntArrayRef values, int64_t k, int64_t otherwise) {
  return values.empty() ? otherwise : values.size() == 1 ? values[0] : values[k];
}

// Shape along dimension k of the last N: from dimension `rank - N + k`.
Tensor along(const Tensor& row, int64_t rank, int64_t dim) {
  at::DimVector sizes(rank, 1);
  sizes[dim] = row.numel();
  return row.view(sizes);
}

Tensor host_row(const std::vector<int64_t>& values, const Tensor& like) {
  const Tensor row = at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions(at::kLong));
  std::copy(values.begin(), values.end(), row.mutable_data_ptr<int64_t>());
  return row.to(like.device());
}

// Values and row-major positions within the windows, which are the last `dims` dimensions.
bool reduce_windows(const Tensor& windows, int64_t dims, const Tensor& values, Tensor* positions) {
  const int64_t rank = windows.dim();
  if (rank > CHIPSET_MAX_RANK || !accepts(Accepts::kFloat, windows.scalar_type())) return false;
  const uint32_t mask = ((1u << dims) - 1u) << (rank - dims);
  *positions = empty(values.sizes(), at::kLong, values.device().index());
  const auto type = windows.scalar_type();
  return reduce({CHIPSET_REDUCE_OP_MAX, type}, windows, mask, values) &&
         reduce({CHIPSET_REDUCE_OP_ARGMAX, type}, windows, mask, *positions);
}

// From positions in the windows to positions in the plane. `offsets[k]`: where each window starts
// along dimension k; a step within the window is `dilation[k]` elements, at most to the last one
// that `limits[k]` allows.
Tensor plane_indices(const Tensor& self, const Tensor& positions, IntArrayRef kernel,
                     IntArrayRef dilation, const std::vector<Tensor>& offsets) {
  const auto dims = static_cast<int64_t>(offsets.size());
  const int64_t rank = positions.dim();
  Tensor rest = positions;
  Tensor flat;
  int64_t stride = 1;
  for (int64_t k = dims - 1; k >= 0; --k) {
    const Tensor step = at::remainder(rest, kernel[k]);
    rest = at::div(rest, kernel[k], "floor");
    const int64_t size = self.size(self.dim() - dims + k);
    const Tensor start = along(offsets[k], rank, rank - dims + k);
    // A window of -inf alone may have found its padding: the nearest element is as good.
    const Tensor at = at::clamp(at::add(start, step, dilation[k]), 0, size - 1);
    flat = flat.defined() ? at::add(flat, at, stride) : at::mul(at, stride);
    stride *= size;
  }
  return flat;
}

struct Pooled {
  Tensor values;
  Tensor indices;  // undefined when the chip does not do it
};

// ---- fixed windows --------------------------------------------------------------------------

struct Geometry {
  at::DimVector kernel, stride, padding, dilation, outputs;
};

Geometry geometry_of(const Tensor& self, int64_t dims, IntArrayRef kernel, IntArrayRef stride,
                     IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  Geometry g;
  for (int64_t k = 0; k < dims; ++k) {
    g.kernel.push_back(pick(kernel, k, 1));
    g.stride.push_back(pick(stride, k, g.kernel[k]));
    g.padding.push_back(pick(padding, k, 0));
    g.dilation.push_back(pick(dilation, k, 1));
    g.outputs.push_back(at::native::pooling_output_shape<int64_t>(
        self.size(self.dim() - dims + k), g.kernel[k], g.padding[k], g.stride[k], g.dilation[k],
        ceil_mode));
  }
  return g;
}

at::DimVector pooled_sizes(const Tensor& self, const Geometry& g) {
  const auto dims = static_cast<int64_t>(g.outputs.size());
  at::DimVector sizes(self.sizes().slice(0, self.dim() - dims));
  sizes.append(g.outputs.begin(), g.outputs.end());
  return sizes;
}

Pooled pool(const Tensor& self, const Geometry& g) {
  const auto dims = static_cast<int64_t>(g.kernel.size());
  const int64_t lead = self.dim() - dims;
  if (self.dim() + dims > CHIPSET_MAX_RANK || !accepts(Accepts::kFloat, self.scalar_type()))
    return {};
  at::DimVector pads;
  for (int64_t k = dims - 1; k >= 0; --k) {
    const int64_t last = (g.outputs[k] - 1) * g.stride[k] + (g.kernel[k] - 1) * g.dilation[k] + 1;
    pads.push_back(g.padding[k]);
    pads.push_back(std::max<int64_t>(0, last - g.padding[k] - self.size(lead + k)));
  }
  const Tensor padded =
      at::constant_pad_nd(self, pads, -std::numeric_limits<double>::infinity()).contiguous();
  at::DimVector sizes = pooled_sizes(self, g);
  at::DimVector strides(padded.strides());
  std::vector<Tensor> offsets;
  for (int64_t k = 0; k < dims; ++k) {
    sizes.push_back(g.kernel[k]);
    strides.push_back(padded.stride(lead + k) * g.dilation[k]);
    strides[lead + k] *= g.stride[k];
    const int64_t end = g.outputs[k] * g.stride[k];
    offsets.push_back(at::arange(-g.padding[k], end - g.padding[k], g.stride[k],
                                 self.options().dtype(at::kLong)));
  }
  Pooled out{empty(pooled_sizes(self, g), self.scalar_type(), self.device().index()), {}};
  Tensor positions;
  if (out.values.numel() == 0 ||
      reduce_windows(padded.as_strided(sizes, strides), dims, out.values, &positions))
    out.indices = out.values.numel() == 0
                      ? at::empty(out.values.sizes(), self.options().dtype(at::kLong))
                      : plane_indices(self, positions, g.kernel, g.dilation, offsets);
  return out;
}

// ---- adaptive windows -----------------------------------------------------------------------

// Windows of different sizes, each filled up to the widest with its last element.
Pooled adaptive_pool(const Tensor& self, IntArrayRef outputs) {
  const auto dims = static_cast<int64_t>(outputs.size());
  const int64_t lead = self.dim() - dims;
  if (self.dim() + dims > CHIPSET_MAX_RANK || !accepts(Accepts::kFloat, self.scalar_type()))
    return {};
  Tensor windows = self;
  at::DimVector kernel;
  at::DimVector split(self.sizes().slice(0, lead));
  at::DimVector sizes = split;
  at::DimVector order;
  std::vector<Tensor> offsets;
  for (int64_t d = 0; d < lead; ++d) order.push_back(d);
  for (int64_t k = 0; k < dims; ++k) {
    const int64_t inputs = self.size(lead + k);
    std::vector<int64_t> first(outputs[k]);
    std::vector<int64_t> end(outputs[k]);
    int64_t widest = 1;
    for (int64_t o = 0; o < outputs[k]; ++o) {
      first[o] = o * inputs / outputs[k];
      end[o] = ((o + 1) * inputs + outputs[k] - 1) / outputs[k];
      widest = std::max(widest, end[o] - first[o]);
    }
    std::vector<int64_t> index;
    for (int64_t o = 0; o < outputs[k]; ++o)
      for (int64_t i = 0; i < widest; ++i) index.push_back(std::min(first[o] + i, end[o] - 1));
    windows = at::index_select(windows, lead + k, host_row(index, self));
    offsets.push_back(host_row(first, self));
    kernel.push_back(widest);
    split.push_back(outputs[k]);
    split.push_back(widest);
    sizes.push_back(outputs[k]);
    order.push_back(lead + 2 * k);
  }
  for (int64_t k = 0; k < dims; ++k) order.push_back(lead + 2 * k + 1);
  Pooled out{empty(sizes, self.scalar_type(), self.device().index()), {}};
  Tensor positions;
  const at::DimVector dilation(dims, 1);
  // The first of equal maxima wins, so that a filled-up place is never the one found.
  if (reduce_windows(windows.view(split).permute(order), dims, out.values, &positions))
    out.indices = plane_indices(self, positions, kernel, dilation, offsets);
  return out;
}

// ---- gradients and the reverse --------------------------------------------------------------

// Adds each value at its index of a plane of zeros.
Tensor scatter_planes(const Tensor& values, const Tensor& indices, IntArrayRef sizes, int64_t dims,
                      bool add) {
  at::DimVector planes(sizes.slice(0, sizes.size() - dims));
  int64_t plane = 1;
  for (const int64_t size : sizes.slice(sizes.size() - dims)) plane *= size;
  planes.push_back(plane);
  Tensor out = at::zeros(planes, values.options());
  const Tensor flat = values.flatten(-dims);
  const Tensor at = indices.flatten(-dims);
  if (add) {
    out.scatter_add_(-1, at, flat);
  } else {
    out.scatter_(-1, at, flat);
  }
  return out.view(sizes);
}

// ---- operators ------------------------------------------------------------------------------

std::tuple<Tensor&, Tensor&> pool2d_out(const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                                        IntArrayRef padding, IntArrayRef dilation, bool ceil_mode,
                                        Tensor& out, Tensor& indices) {
  Out<at::meta::structured_max_pool2d_with_indices, 2> check(out, indices);
  check.meta(self, kernel, stride, padding, dilation, ceil_mode);
  const auto pooled =
      pool(self, geometry_of(self, 2, kernel, stride, padding, dilation, ceil_mode));
  if (!pooled.indices.defined())
    return host<at::_ops::max_pool2d_with_indices_out>(self, kernel, stride, padding, dilation,
                                                       ceil_mode, out, indices);
  out.copy_(pooled.values);
  indices.copy_(pooled.indices);
  return {out, indices};
}
Tensor& pool2d_backward_out(const Tensor& grad, const Tensor& self, IntArrayRef kernel,
                            IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                            bool ceil_mode, const Tensor& indices, Tensor& out) {
  Out<at::meta::structured_max_pool2d_with_indices_backward> check(out);
  check.meta(grad, self, kernel, stride, padding, dilation, ceil_mode, indices);
  return store(scatter_planes(grad, indices, self.sizes(), 2, true), out);
}

std::tuple<Tensor, Tensor> pool3d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                                  IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  // torch's own kernel knows what to say about shapes that do not fit.
  const bool sane = (self.dim() == 4 || self.dim() == 5) && self.numel() > 0;
  const Pooled pooled =
      sane ? pool(self, geometry_of(self, 3, kernel, stride, padding, dilation, ceil_mode))
           : Pooled{};
  if (!pooled.indices.defined())
    return host<at::_ops::max_pool3d_with_indices>(self, kernel, stride, padding, dilation,
                                                   ceil_mode);
  return {pooled.values, pooled.indices};
}
Tensor pool3d_backward(const Tensor& grad, const Tensor& self, IntArrayRef, IntArrayRef,
                       IntArrayRef, IntArrayRef, bool, const Tensor& indices) {
  return scatter_planes(grad, indices, self.sizes(), 3, true);
}

template <class Meta>
std::tuple<Tensor&, Tensor&> adaptive_out(const Tensor& self, IntArrayRef size, Tensor& out,
                                          Tensor& indices) {
  Out<Meta, 2> check(out, indices);
  check.meta(self, size);
  if (out.numel() == 0) return {out, indices};
  const Pooled pooled = adaptive_pool(self, size);
  TORCH_CHECK(pooled.indices.defined(), "adaptive_max_pool: dtype ", self.scalar_type(),
              " is not supported");
  out.copy_(pooled.values);
  indices.copy_(pooled.indices);
  return {out, indices};
}
template <class Meta, int64_t Dims>
Tensor& adaptive_backward_out(const Tensor& grad, const Tensor& self, const Tensor& indices,
                              Tensor& out) {
  Out<Meta> check(out);
  check.meta(grad, self, indices);
  return store(scatter_planes(grad, indices, self.sizes(), Dims, true), out);
}

template <int64_t Dims>
at::DimVector unpooled_sizes(const Tensor& self, const Tensor& indices, IntArrayRef outputs) {
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(static_cast<int64_t>(outputs.size()) == Dims, "There should be exactly ", Dims,
              " elements in output_size, but got ", outputs.size(), " elements.");
  TORCH_CHECK(self.dim() == Dims + 1 || self.dim() == Dims + 2, "Input to max_unpooling", Dims,
              "d should be a ", Dims + 1, "d or ", Dims + 2, "d Tensor, but got a tensor with dim ",
              self.dim());
  TORCH_CHECK(self.sizes() == indices.sizes(),
              "Expected shape of indices to be same as that of the input tensor (", self.sizes(),
              ") but got indices tensor with shape: ", indices.sizes());
  same_device("max_unpool", self, indices);
  at::DimVector sizes(self.sizes().slice(0, self.dim() - Dims));
  sizes.append(outputs.begin(), outputs.end());
  return sizes;
}
Tensor unpool2d(const Tensor& self, const Tensor& indices, IntArrayRef outputs) {
  return scatter_planes(self, indices, unpooled_sizes<2>(self, indices, outputs), 2, false);
}
Tensor& unpool2d_out(const Tensor& self, const Tensor& indices, IntArrayRef outputs, Tensor& out) {
  return store(unpool2d(self, indices, outputs), out);
}
Tensor unpool3d(const Tensor& self, const Tensor& indices, IntArrayRef outputs, IntArrayRef,
                IntArrayRef) {
  return scatter_planes(self, indices, unpooled_sizes<3>(self, indices, outputs), 3, false);
}
Tensor& unpool3d_out(const Tensor& self, const Tensor& indices, IntArrayRef outputs,
                     IntArrayRef stride, IntArrayRef padding, Tensor& out) {
  return store(unpool3d(self, indices, outputs, stride, padding), out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("max_pool2d_with_indices.out", TORCH_FN(pool2d_out));
  m.impl("max_pool2d_with_indices_backward.grad_input", TORCH_FN(pool2d_backward_out));
  m.impl("max_pool3d_with_indices", TORCH_FN(pool3d));
  m.impl("max_pool3d_with_indices_backward", TORCH_FN(pool3d_backward));
  m.impl("adaptive_max_pool2d.out",
         TORCH_FN(adaptive_out<at::meta::structured_adaptive_max_pool2d>));
  m.impl("adaptive_max_pool3d.out",
         TORCH_FN(adaptive_out<at::meta::structured_adaptive_max_pool3d>));
  m.impl("adaptive_max_pool2d_backward.grad_input",
         TORCH_FN((adaptive_backward_out<at::meta::structured_adaptive_max_pool2d_backward, 2>)));
  m.impl("adaptive_max_pool3d_backward.grad_input",
         TORCH_FN((adaptive_backward_out<at::meta::structured_adaptive_max_pool3d_backward, 3>)));
  m.impl("max_unpool2d", TORCH_FN(unpool2d));
  m.impl("max_unpool2d.out", TORCH_FN(unpool2d_out));
  m.impl("max_unpool3d", TORCH_FN(unpool3d));
  m.impl("max_unpool3d.out", TORCH_FN(unpool3d_out));
}

}  // namespace
}  // namespace chipset::bridge
