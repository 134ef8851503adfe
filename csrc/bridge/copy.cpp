// SPDX-License-Identifier: Apache-2.0
// Copies in every direction, behind Tensor.copy_, .to, .clone, .contiguous and .item.
#include "copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_copy_from_native.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include <cstring>

#include "fallback.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

// Both tensors hold their elements in one piece and in the same order, so bytes can be moved.
bool same_dense_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_contiguous() && b.is_contiguous()) return true;
  return a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

// The tensor without its conjugate and negative bits: the bits in memory.
at::Tensor plain(const at::Tensor& tensor) {
  if (!tensor.is_conj() && !tensor.is_neg()) return tensor;
  at::Tensor out = tensor.alias();
  out._set_conj(false);
  out._set_neg(false);
  return out;
}

// ---- within a device ------------------------------------------------------------------------

// The tensor as one row, for tensors that hold their elements in one piece.
chipset_tensor flat_view(const at::Tensor& tensor) {
  chipset_tensor out;
  out.struct_size = sizeof(chipset_tensor);
  out.dtype = any_dtype(tensor.scalar_type());
  out.rank = 1;
  out.flags = 0;
  out.shape[0] = tensor.numel();
  out.stride[0] = 1;
  out.data = const_cast<void*>(tensor.const_data_ptr());
  return out;
}

bool pointwise(int32_t op, int device, const chipset_tensor& output, const chipset_tensor& input) {
  auto args = arguments<chipset_pointwise_args>();
  args.op = op;
  args.compute_dtype = output.dtype;
  args.num_inputs = 1;
  args.output = &output;
  args.input[0] = &input;
  return call<&chipset_api::pointwise>(device, args);
}

// destination = op(source) for COPY and NEG. Strided tensors go through the iterator, which
// coalesces dimensions and checks for overlap.
bool pointwise(int32_t op, const at::Tensor& destination, const at::Tensor& source) {
  const int device = device_index(destination);
  if (!destination.is_alias_of(source) && same_dense_layout(destination, source)) {
    return pointwise(op, device, flat_view(destination), flat_view(source));
  }
  const auto iterator = at::TensorIteratorConfig()
                            .add_output(destination)
                            .add_const_input(source)
                            .set_check_mem_overlap(true)
                            .resize_outputs(false)
                            .check_all_same_dtype(false)
                            .check_all_same_device(true)
                            .build();
  if (iterator.numel() == 0) return true;
  if (iterator.ndim() > CHIPSET_MAX_RANK) return false;
  return pointwise(op, device, view(iterator, 0), view(iterator, 1));
}

void move_bytes(int device, void* destination, const void* source, size_t bytes, int32_t kind) {
  if (bytes == 0 || destination == source) return;
  check(device_api[device]->mem_copy(current_stream(device), destination, source, bytes, kind),
        "mem_copy");
}

// The same bits from one strided tensor to another of the same dtype.
bool copy_bits(const at::Tensor& destination, const at::Tensor& source) {
  if (same_dense_layout(destination, source)) {
    const char* to = static_cast<const char*>(destination.const_data_ptr());
    const char* from = static_cast<const char*>(source.const_data_ptr());
    const auto bytes = static_cast<int64_t>(destination.nbytes());
    if (to == from || to + bytes <= from || from + bytes <= to) {
      move_bytes(device_index(destination), destination.mutable_data_ptr(), from, bytes,
                 CHIPSET_COPY_KIND_DEVICE_TO_DEVICE);
      return true;
    }
  }
  return pointwise(CHIPSET_POINTWISE_OP_COPY, destination, source);
}

bool copy_values(const at::Tensor& destination, const at::Tensor& source);

// Complex numbers are moved as pairs of reals.
bool copy_complex(const at::Tensor& destination, const at::Tensor& source) {
  if (destination.scalar_type() == at::kBool) {  // true where either part is not zero
    const at::Tensor parts = at::view_as_real(plain(source));
    const at::Tensor imaginary =
        bridge::empty(destination.sizes(), at::kBool, device_index(destination));
    if (!copy_values(destination, parts.select(-1, 0)) ||
        !copy_values(imaginary, parts.select(-1, 1))) {
      return false;
    }
    const_cast<at::Tensor&>(destination).logical_or_(imaginary);
    return true;
  }
  if (!destination.is_complex()) {  // the imaginary part is dropped, as torch warned
    return copy_values(destination, at::view_as_real(plain(source)).select(-1, 0));
  }
  const at::Tensor to = at::view_as_real(plain(destination));
  if (!source.is_complex()) {
    to.select(-1, 1).zero_();
    return copy_values(to.select(-1, 0), source);
  }
  const at::Tensor from = at::view_as_real(plain(source));
  at::Tensor imaginary = from.select(-1, 1);
  if (source.is_conj() != destination.is_conj()) imaginary = imaginary._neg_view();
  return copy_values(to.select(-1, 0), from.select(-1, 0)) &&
         copy_values(to.select(-1, 1), imaginary);
}

// The general copy on one device; false where the chip cannot do it.
bool copy_values(const at::Tensor& destination, const at::Tensor& source) {
  const bool same_bits =
      destination.is_conj() == source.is_conj() && destination.is_neg() == source.is_neg();
  if (destination.scalar_type() == source.scalar_type() && same_bits) {
    return copy_bits(plain(destination), plain(source));
  }
  if (destination.is_complex() || source.is_complex()) {
    if (destination.is_neg() || source.is_neg()) {  // rare: settle the bit first
      at::Tensor settled = at::empty_like(plain(source));
      const at::Tensor reals = at::view_as_real(plain(source));
      const int32_t op = destination.is_neg() != source.is_neg() ? CHIPSET_POINTWISE_OP_NEG
                                                                 : CHIPSET_POINTWISE_OP_COPY;
      if (!source.is_complex() || !pointwise(op, at::view_as_real(settled), reals)) return false;
      settled._set_conj(source.is_conj());
      at::Tensor target = destination.alias();
      target._set_neg(false);
      return copy_values(target, settled);
    }
    return copy_complex(destination, source);
  }
  if (!computes(destination) || !computes(source)) return false;
  return pointwise(destination.is_neg() == source.is_neg() ? CHIPSET_POINTWISE_OP_COPY
                                                           : CHIPSET_POINTWISE_OP_NEG,
                   plain(destination), plain(source));
}

// ---- between host and device ----------------------------------------------------------------

void to_chip(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  refuse_capture("a copy from host memory");
  const int device = device_index(destination);
  // Conversion and broadcast are done on the host; what crosses is one piece of bits.
  at::Tensor from = source.to(destination.scalar_type()).resolve_conj().resolve_neg();
  const at::Tensor to = plain(destination);
  const bool direct = same_dense_layout(to, from) && !destination.is_conj() &&
                      !destination.is_neg() && to.is_non_overlapping_and_dense();
  if (!direct) from = from.contiguous();
  const at::Tensor landing =
      direct ? to : bridge::empty(from.sizes(), destination.scalar_type(), device);
  const bool pinned = runtime::is_pinned(from.const_data_ptr());
  move_bytes(device, landing.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(),
             CHIPSET_COPY_KIND_HOST_TO_DEVICE);
  if (pinned && !(non_blocking && from.is_same(source))) {
    check(device_api[device]->stream_sync(current_stream(device)), "stream_sync");
  } else if (pinned) {
    runtime::record_host(from.const_data_ptr(), current_stream(device));
  }
  if (!direct) copy_on_chip(destination, landing);
}

void to_host(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  refuse_capture("a copy to host memory");
  const int device = device_index(source);
  at::Tensor from = plain(source);
  const bool bits =
      source.is_conj() || source.is_neg() || destination.is_conj() || destination.is_neg();
  const bool direct = !bits && destination.scalar_type() == source.scalar_type() &&
                      same_dense_layout(destination, from) &&
                      destination.is_non_overlapping_and_dense();
  if (!direct && !from.is_non_overlapping_and_dense()) from = contiguous(from);
  at::Tensor landing =
      direct ? destination
             : at::empty_strided(from.sizes(), from.strides(),
                                 at::TensorOptions(at::kCPU).dtype(from.scalar_type()));
  const bool pinned = runtime::is_pinned(landing.const_data_ptr());
  move_bytes(device, landing.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(),
             CHIPSET_COPY_KIND_DEVICE_TO_HOST);
  if (pinned && !(non_blocking && direct)) {
    check(device_api[device]->stream_sync(current_stream(device)), "stream_sync");
  } else if (pinned) {
    runtime::record_host(landing.const_data_ptr(), current_stream(device));
  }
  if (direct) return;
  landing._set_conj(source.is_conj());
  landing._set_neg(source.is_neg());
  destination.copy_(landing);
}

// ---- between devices ------------------------------------------------------------------------

// Makes what `waiter` does from now on wait for what `source` has done so far.
void order_after(int waiter, int source) {
  const chipset_event event = guarded("event", [&] { return runtime::acquire_event(source, 0); });
  check(device_api[source]->event_record(event, current_stream(source)), "event_record");
  check(device_api[waiter]->stream_wait(current_stream(waiter), event), "stream_wait");
  runtime::release_event(source, 0, event);
}

bool same_plugin(int a, int b) { return runtime::device(a).plugin == runtime::device(b).plugin; }

// Moves the bytes of a contiguous tensor to a contiguous tensor on another chip.
void move_between(const at::Tensor& destination, const at::Tensor& source) {
  const int to = device_index(destination), from = device_index(source);
  const size_t bytes = source.nbytes();
  if (bytes == 0) return;
  if (same_plugin(to, from) && device_api[to]->mem_copy_peer != nullptr) {
    order_after(to, from);
    const chipset_status status =
        device_api[to]->mem_copy_peer(current_stream(to), destination.mutable_data_ptr(),
                                      source.const_data_ptr(), runtime::device(from).local, bytes);
    if (status == CHIPSET_STATUS_OK) {
      order_after(from, to);  // the source's memory may be reused only after the copy
      return;
    }
    if (status != CHIPSET_STATUS_UNSUPPORTED) raise(status, "mem_copy_peer");
  }
  refuse_capture("a copy between chips through host memory");
  const at::Tensor staging = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  move_bytes(from, staging.mutable_data_ptr(), source.const_data_ptr(), bytes,
             CHIPSET_COPY_KIND_DEVICE_TO_HOST);
  move_bytes(to, destination.mutable_data_ptr(), staging.const_data_ptr(), bytes,
             CHIPSET_COPY_KIND_HOST_TO_DEVICE);
}

void between_chips(const at::Tensor& destination, const at::Tensor& source) {
  at::Tensor from = contiguous(plain(source));
  at::Tensor landing = bridge::empty(from.sizes(), from.scalar_type(), device_index(destination));
  move_between(landing, from);
  landing._set_conj(source.is_conj());
  landing._set_neg(source.is_neg());
  copy_on_chip(destination, landing);
}

// ---- operators ------------------------------------------------------------------------------

// The source in the destination's shape; shapes that do not fit are torch's errors for copy_.
at::Tensor spread(const at::Tensor& source, const at::Tensor& destination) {
  const at::DimVector shape = at::infer_size_dimvector(destination.sizes(), source.sizes());
  TORCH_CHECK(destination.sizes() == shape, "output with shape ", destination.sizes(),
              " doesn't match the broadcast shape ", at::IntArrayRef(shape));
  return source.expand(shape);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  if (destination.numel() == 0 || self.is_same(destination)) return destination;
  if (self._is_zerotensor()) {
    const_cast<at::Tensor&>(destination).zero_();
    return destination;
  }
  const at::Tensor source = self.sizes() == destination.sizes() ? self : spread(self, destination);
  if (!is_on_chip(source)) {
    to_chip(destination, source, non_blocking);
  } else if (!is_on_chip(destination)) {
    to_host(destination, source, non_blocking);
  } else if (device_index(source) != device_index(destination)) {
    between_chips(destination, source);
  } else {
    copy_on_chip(destination, source);
  }
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  if (self.sizes() != destination.sizes()) {
    const_cast<at::Tensor&>(destination).resize_(self.sizes());
  }
  return copy_from(self, destination, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  alignas(16) char bytes[16];
  read_bytes(bytes, self);
  switch (self.scalar_type()) {
#define CHIPSET_SCALAR(type, name)             \
  case at::ScalarType::name: {                 \
    type value;                                \
    std::memcpy(&value, bytes, sizeof(value)); \
    return value;                              \
  }
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_EXCEPT_COMPLEX_HALF_F8NZ(CHIPSET_SCALAR)
#undef CHIPSET_SCALAR
    default: {  // the rare dtypes, as the host reads them
      const at::Tensor on_host =
          at::empty({}, at::TensorOptions(at::kCPU).dtype(self.scalar_type()));
      std::memcpy(on_host.mutable_data_ptr(), bytes, self.element_size());
      return at::_local_scalar_dense(on_host);
    }
  }
}

// As torch's own, without the way through empty_like and copy_.
at::Tensor clone(const at::Tensor& self, std::optional<at::MemoryFormat> format) {
  const auto wanted = format.value_or(at::MemoryFormat::Preserve);
  const int device = device_index(self);
  at::Tensor out;
  if (wanted == at::MemoryFormat::Contiguous) {
    out = bridge::empty(self.sizes(), self.scalar_type(), device);
  } else if (wanted == at::MemoryFormat::Preserve && self.is_non_overlapping_and_dense()) {
    out = bridge::empty_strided(self.sizes(), self.strides(), self.scalar_type(), device);
  } else {
    out = at::empty_like(self, self.options(), wanted);
  }
  if (self.numel() > 0) copy_on_chip(out, self);
  return out;
}

}  // namespace

void copy_on_chip(const at::Tensor& destination, const at::Tensor& source) {
  if (copy_values(destination, source)) return;
  if (destination.dim() > CHIPSET_MAX_RANK) {
    for (int64_t i = 0; i < destination.size(0); ++i) {
      copy_on_chip(destination.select(0, i), source.select(0, i));
    }
    return;
  }
  TORCH_CHECK(destination.scalar_type() != source.scalar_type(),
              "chip: the plugin does not copy strided tensors of ", source.scalar_type(),
              ", which every plugin must (pointwise COPY)");
  // A dtype that the waist does not convert (uint16, float8_e4m3fnuz, …).
  count_fallback("aten::_copy_from", destination.nbytes() + source.nbytes(),
                 c10::str("from ", source.scalar_type(), " to ", destination.scalar_type()));
  const at::Tensor on_host = at::empty(source.sizes(), source.options().device(at::kCPU));
  to_host(on_host, source, false);
  to_chip(destination, on_host, false);
}

at::Tensor contiguous(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  at::Tensor out = bridge::empty(tensor.sizes(), tensor.scalar_type(), device_index(tensor));
  copy_on_chip(out, tensor);
  return out;
}

void read_bytes(void* destination, const at::Tensor& source) {
  refuse_capture("reading a value back (.item(), a size that depends on data)");
  const int device = device_index(source);
  // Pageable memory: the copy has been done when it returns (ASY-002).
  move_bytes(device, destination, source.const_data_ptr(), source.nbytes(),
             CHIPSET_COPY_KIND_DEVICE_TO_HOST);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("clone", &clone);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

// The copy itself looks at these bits. Torch's own kernels for them would resolve the bit by a
// copy, which comes back here, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, ZeroTensor, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace chipset::bridge
