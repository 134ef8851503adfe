// SPDX-License-Identifier: Apache-2.0
// What every kernel of the bridge uses to reach the waist: views of tensors, the current stream,
// calls that report UNSUPPORTED, and the host fallback.
//
// A kernel reads: build the arguments, `if (call<&chipset_api::gemm>(device, args)) return;`, and
// otherwise `host<ATEN_OP2(mm, out)>(arguments…)`, which runs the operator on the host, counted.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <chipset/chipset.h>

#include <limits>

#include "runtime.h"
#include "state.h"

namespace chipset::bridge {

// ---- dtypes ---------------------------------------------------------------------------------

// The waist's name of a torch dtype; -1 for one that the waist does not compute with.
inline int32_t compute_dtype(at::ScalarType type) noexcept {
  switch (type) {
    case at::kBool:
      return CHIPSET_DTYPE_BOOL;
    case at::kByte:
      return CHIPSET_DTYPE_U8;
    case at::kChar:
      return CHIPSET_DTYPE_I8;
    case at::kShort:
      return CHIPSET_DTYPE_I16;
    case at::kInt:
      return CHIPSET_DTYPE_I32;
    case at::kLong:
      return CHIPSET_DTYPE_I64;
    case at::kHalf:
      return CHIPSET_DTYPE_F16;
    case at::kBFloat16:
      return CHIPSET_DTYPE_BF16;
    case at::kFloat:
      return CHIPSET_DTYPE_F32;
    case at::kDouble:
      return CHIPSET_DTYPE_F64;
    case at::kFloat8_e4m3fn:
      return CHIPSET_DTYPE_F8E4M3;
    case at::kFloat8_e5m2:
      return CHIPSET_DTYPE_F8E5M2;
    default:
      return -1;
  }
}

// The dtype that only moves bits, for an element of so many bytes.
inline int32_t opaque_dtype(size_t bytes) noexcept {
  switch (bytes) {
    case 1:
      return CHIPSET_DTYPE_OPAQUE8;
    case 2:
      return CHIPSET_DTYPE_OPAQUE16;
    case 4:
      return CHIPSET_DTYPE_OPAQUE32;
    case 8:
      return CHIPSET_DTYPE_OPAQUE64;
    default:
      return CHIPSET_DTYPE_OPAQUE128;
  }
}

// compute_dtype, or the opaque one where the waist does not compute with the type (complex, …).
inline int32_t any_dtype(at::ScalarType type) noexcept {
  const int32_t dtype = compute_dtype(type);
  return dtype >= 0 ? dtype : opaque_dtype(c10::elementSize(type));
}

inline bool computes(const at::TensorBase& tensor) noexcept {
  return compute_dtype(tensor.scalar_type()) >= 0;
}

inline bool is_on_chip(const at::TensorBase& tensor) noexcept {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}
// N of chip:N; the argument of call().
inline int device_index(const at::TensorBase& tensor) noexcept { return tensor.device().index(); }

// ---- views ----------------------------------------------------------------------------------

// The tensor as the waist sees it. Its rank must be at most CHIPSET_MAX_RANK: see fits().
inline chipset_tensor view(const at::TensorBase& tensor) {
  chipset_tensor out;
  out.struct_size = sizeof(chipset_tensor);
  out.dtype = any_dtype(tensor.scalar_type());
  out.rank = static_cast<int32_t>(tensor.dim());
  out.flags = 0;
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (int32_t d = 0; d < out.rank; ++d) {
    out.shape[d] = sizes[d];
    out.stride[d] = strides[d];
  }
  // Not mutable_data_ptr: an expanded input is never written, and its check costs.
  out.data = const_cast<void*>(tensor.const_data_ptr());
  return out;
}

// True where the tensor can be described to the waist.
inline bool fits(const at::TensorBase& tensor) noexcept { return tensor.dim() <= CHIPSET_MAX_RANK; }

// Operand `index` of an iterator (outputs first), in the iterator's own coalesced shape, whose
// dimension 0 is the fastest; the waist wants it last. Check `iterator.ndim() <= CHIPSET_MAX_RANK`
// first. The operand's dtype is the tensor's own: nothing is cast here.
inline chipset_tensor view(const at::TensorIteratorBase& iterator, int index) {
  chipset_tensor out;
  out.struct_size = sizeof(chipset_tensor);
  out.dtype = any_dtype(iterator.dtype(index));
  out.flags = 0;
  const auto shape = iterator.shape();
  const auto strides = iterator.strides(index);
  const auto size = static_cast<int64_t>(iterator.element_size(index));
  out.rank = static_cast<int32_t>(shape.size());
  for (int32_t d = 0; d < out.rank; ++d) {
    const int32_t last = out.rank - 1 - d;
    out.shape[last] = shape[d];
    out.stride[last] = strides[d] / size;
  }
  out.data = iterator.data_ptr(index);
  return out;
}

inline chipset_scalar scalar(double value) noexcept {
  constexpr double kLargest = 9223372036854774784.0;  // the largest double below 2^63
  chipset_scalar out;
  out.f = value;
  out.i = value != value      ? 0
          : value > kLargest  ? std::numeric_limits<int64_t>::max()
          : value < -kLargest ? std::numeric_limits<int64_t>::min()
                              : static_cast<int64_t>(value);
  return out;
}
inline chipset_scalar scalar(int64_t value) noexcept { return {static_cast<double>(value), value}; }
// A complex scalar has no such form: the caller has sent it to the host.
inline chipset_scalar scalar(const at::Scalar& value) {
  if (value.isFloatingPoint()) return scalar(value.toDouble());
  if (value.isBoolean()) return scalar(static_cast<int64_t>(value.toBool()));
  return scalar(value.toLong());
}

// ---- calls ----------------------------------------------------------------------------------

// Calls a compute function on the current stream of the device. True: done (or enqueued). False:
// the chip does not do this (function absent, or UNSUPPORTED for these arguments), nothing was
// written, and the caller composes it or sends it to the host. Anything else is thrown.
template <auto Function, typename Arguments>
inline bool call(int device, const Arguments& arguments) {
  // The table of a launched device is complete: an absent function is a null slot.
  const auto function = device_api[device]->*Function;
  if (function == nullptr) return false;
  const chipset_status status = function(current_stream(device), &arguments);
  if (status == CHIPSET_STATUS_OK) [[likely]]
    return true;
  if (status == CHIPSET_STATUS_UNSUPPORTED) return false;
  raise(status, function_name<Function>());
}

// A zeroed argument struct with struct_size set: `auto args = arguments<chipset_gemm_args>();`
template <typename Arguments>
inline Arguments arguments() noexcept {
  Arguments out{};
  out.struct_size = sizeof(Arguments);
  return out;
}

// ---- host fallback --------------------------------------------------------------------------

// Runs the operator on the host, counted under the operator's name; throws under
// CHIPSET_FALLBACK=error and during graph capture.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The same from within a kernel: `return host<ATEN_OP2(add, out)>(self, other, alpha, out);`
template <typename Operator, typename... Arguments>
inline decltype(auto) host(Arguments&&... arguments) {
  return at::native::call_fallback_fn<&fallback, Operator>::call(
      std::forward<Arguments>(arguments)...);
}
// For operators whose schema takes SymInt.
template <typename Operator, typename... Arguments>
inline decltype(auto) host_symint(Arguments&&... arguments) {
  return at::native::call_fallback_fn_symint<&fallback, Operator>::call(
      std::forward<Arguments>(arguments)...);
}

// ---- tensors --------------------------------------------------------------------------------

// Torch checks this in code that it generates for its own devices only. A tensor elsewhere would
// be a foreign address to the chip.
[[noreturn]] void raise_other_device(const char* name, c10::Device first, c10::Device other);
template <typename... Tensors>
inline void same_device(const char* name, const at::TensorBase& first, const Tensors&... others) {
  const auto check_one = [&](const at::TensorBase& other) {
    if (other.defined() && other.device() != first.device()) [[unlikely]]
      raise_other_device(name, first.device(), other.device());
  };
  (check_one(others), ...);
}

// Gives `out` the shape and the values of a result: the end of a composed `out=` overload.
at::Tensor& store(const at::Tensor& result, at::Tensor& out);

// An uninitialised tensor on a chip; cheaper than at::empty. Contiguous.
at::Tensor empty(c10::IntArrayRef sizes, at::ScalarType type, int device);
at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType type,
                         int device);

}  // namespace chipset::bridge
