// SPDX-License-Identifier: Apache-2.0
// Tensors without values: empty, views, and what changes a tensor's storage or shape.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_efficientzerotensor_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "allocator.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

constexpr c10::DispatchKeySet kChipKeys{c10::DispatchKey::PrivateUse1};

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided,
                              "chip: only strided tensors can be made, not layout ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false),
              "Only dense CPU tensors can be pinned, not a tensor on a chip");
}

at::Tensor make(c10::DataPtr data, size_t bytes, at::ScalarType type) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       std::move(data), device_allocator(), true);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kChipKeys,
                                                  c10::scalarTypeToTypeMeta(type));
}

at::Tensor empty_memory_format(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> format) {
  check_options(layout, pin_memory);
  const at::ScalarType dtype = type ? *type : c10::get_default_dtype_as_scalartype();
  at::Tensor out = empty(sizes, dtype, device ? existing_index(*device) : current_device());
  // Contiguous is what empty() made; other formats restride it.
  if (format && *format != at::MemoryFormat::Contiguous) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return out;
}

at::Tensor empty_strided_op(at::IntArrayRef sizes, at::IntArrayRef strides,
                            std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                            std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const at::ScalarType dtype = type ? *type : c10::get_default_dtype_as_scalartype();
  return empty_strided(sizes, strides, dtype, device ? existing_index(*device) : current_device());
}

// A tensor of real zeros in the place of torch's tensor without memory: every kernel can read it.
at::Tensor efficientzerotensor(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory) {
  return at::zeros(sizes, type, layout, device, pin_memory);
}

// ---- changes of storage and shape -----------------------------------------------------------

// Sets the geometry and makes the storage large enough for it.
void resize_impl(at::TensorImpl* self, at::IntArrayRef sizes, at::OptionalIntArrayRef strides) {
  if (self->sizes() == sizes && (!strides || self->strides() == *strides)) return;
  if (strides) {
    self->set_sizes_and_strides(sizes, *strides);
  } else {
    self->set_sizes_contiguous(sizes);
  }
  if (self->numel() == 0) return;
  const size_t bytes = at::detail::computeStorageNbytes(
      self->sizes(), self->strides(), self->dtype().itemsize(), self->storage_offset());
  c10::StorageImpl* storage = self->unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) resize_storage(storage, bytes);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  resize_impl(impl, sizes, std::nullopt);
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset,
                               at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::native::checkSetStorage(self, source, offset, sizes, strides);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  resize_impl(self.unsafeGetTensorImpl(), sizes,
              strides.data() != nullptr ? at::OptionalIntArrayRef(strides) : std::nullopt);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, elements, {});
}

at::Tensor& set_empty(at::Tensor& self) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, allocate(0, index_of(self.device())),
                       device_allocator(), true);
  return set_storage_offset(self, std::move(storage), 0, {0}, {});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& source) {
  return self.storage().unsafeGetStorageImpl() == source.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == source.storage_offset() && self.sizes() == source.sizes() &&
         self.strides() == source.strides();
}

// Whether `self.data = from` can take over what `from` is. Torch has a list of devices between
// which a plain tensor may move so, in which an out-of-tree one has no place.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto plain = [](const at::Tensor& t) {
    return (t.is_cpu() || is_on_chip(t)) && t.layout() == at::kStrided &&
           !t.key_set().has(c10::DispatchKey::Python);
  };
  if (plain(self) && plain(from)) return true;
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

void record_stream(at::Tensor& self, at::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

at::Tensor empty(c10::IntArrayRef sizes, at::ScalarType type, int device) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
    TORCH_CHECK(!__builtin_mul_overflow(elements, size, &elements),
                "Storage size calculation overflowed with sizes=", sizes);
  }
  size_t bytes;
  TORCH_CHECK(
      !__builtin_mul_overflow(static_cast<size_t>(elements), c10::elementSize(type), &bytes),
      "Storage size calculation overflowed with sizes=", sizes);
  at::Tensor out = make(allocate(bytes, device), bytes, type);
  // A fresh TensorImpl has sizes {0}.
  if (sizes.size() != 1 || sizes[0] != 0) out.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return out;
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType type,
                         int device) {
  TORCH_CHECK(sizes.size() == strides.size(), "dimensionality of sizes (", sizes.size(),
              ") must match dimensionality of strides (", strides.size(), ")");
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
  }
  for (const int64_t stride : strides) {
    TORCH_CHECK(stride >= 0, "Trying to create tensor with negative stride ", stride, ": ",
                strides);
  }
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type));
  at::Tensor out = make(allocate(bytes, device), bytes, type);
  out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_memory_format);
  m.impl("empty_strided", &empty_strided_op);
  m.impl("_efficientzerotensor", &efficientzerotensor);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view",
         static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("resize_", &resize_);
  m.impl("set_", &set_empty);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  m.impl("is_set_to", &is_set_to);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  m.impl("record_stream", &record_stream);
}

}  // namespace chipset::bridge
