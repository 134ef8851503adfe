// SPDX-License-Identifier: Apache-2.0
#include "structured.h"

#include <c10/util/Exception.h>

namespace chipset::bridge {
namespace {

// Row-major strides of the dimensions in `order`, the last of them fastest.
template <size_t N>
std::array<int64_t, N> strides_in_order(at::IntArrayRef sizes, const std::array<int, N>& order) {
  std::array<int64_t, N> strides;
  int64_t step = 1;
  for (size_t k = N; k-- > 0;) {
    strides[order[k]] = step;
    step *= std::max<int64_t>(sizes[order[k]], 1);
  }
  return strides;
}

void check_kind(const at::Tensor& out, const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(),
              ", but got ", out.dtype(), " instead");
  TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ",
              options.device(), ", but got ", out.device(), " instead");
}

}  // namespace

void raise_other_device(const char* name, c10::Device first, c10::Device other) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              first, " and ", other, "! (when checking arguments of ", name, ")");
}

at::Tensor& store(const at::Tensor& result, at::Tensor& out) {
  same_device("out=", result, out);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

at::Tensor make_output(at::IntArrayRef sizes, at::IntArrayRef strides,
                       const at::TensorOptions& options) {
  const auto type = c10::typeMetaToScalarType(options.dtype());
  const int device = index_of(options.device());
  if (!strides.empty()) return empty_strided(sizes, strides, type, device);
  const auto format = options.memory_format_opt().value_or(at::MemoryFormat::Contiguous);
  if (format == at::MemoryFormat::ChannelsLast)
    return empty_strided(sizes, strides_in_order<4>(sizes, {0, 2, 3, 1}), type, device);
  if (format == at::MemoryFormat::ChannelsLast3d)
    return empty_strided(sizes, strides_in_order<5>(sizes, {0, 2, 3, 4, 1}), type, device);
  return empty(sizes, type, device);
}

void fit_output(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options) {
  check_kind(out, options);
  if (!at::native::resize_output(out, sizes)) return;
  auto* impl = out.unsafeGetTensorImpl();
  if (!strides.empty()) {
    impl->set_sizes_and_strides(sizes, strides);
  } else if (const auto format = options.memory_format_opt()) {
    impl->empty_tensor_restride(*format);
  }
}

void check_inplace(const at::Tensor& self, at::IntArrayRef sizes,
                   const at::TensorOptions& options) {
  check_kind(self, options);
  TORCH_CHECK(sizes == self.sizes(), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", sizes);
}

}  // namespace chipset::bridge
