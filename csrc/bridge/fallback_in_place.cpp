// SPDX-License-Identifier: Apache-2.0
// The fallback for memory that host and device share: no tensor is copied on the way in, and what
// the host's kernel writes is where it belongs. Only new results are copied, into memory of the
// chip's allocator, so that the accounting, the order of streams and the checked layer hold.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <vector>

#include "allocator.h"
#include "fallback_arguments.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

// Host tensors over the chip's memory, and the way back.
class Aliases {
 public:
  at::Tensor host(const at::Tensor& tensor) {
    if (!tensor.defined() || !is_on_chip(tensor)) return tensor;
    for (const Pair& pair : pairs_) {
      if (pair.chip.is_same(tensor)) return pair.host;
    }
    at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(
        host_storage(tensor), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    c10::TensorImpl* impl = out.unsafeGetTensorImpl();
    impl->set_storage_offset(tensor.storage_offset());
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    if (tensor.is_conj()) out._set_conj(true);
    if (tensor.is_neg()) out._set_neg(true);
    pairs_.push_back({tensor, out});
    return out;
  }

  // The chip's tensor for a result: the argument itself, a view of an argument, or a new one.
  at::Tensor back(const at::Tensor& result, int device) {
    if (!result.defined() || !result.device().is_cpu()) return result;
    for (const Pair& pair : pairs_) {
      if (pair.host.is_same(result)) return pair.chip;
    }
    for (const Shared& shared : shared_) {
      if (shared.host.unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl() &&
          shared.host.data() == shared.chip.data()) {
        return with_geometry(shared.chip, result);
      }
    }
    return copied(result, device);
  }

  // Gives the chip's tensors the shape and, where it was moved, the contents of their aliases.
  void settle() {
    for (const Pair& pair : pairs_) {
      const bool moved = pair.host.storage().data() != pair.chip.storage().data();
      const bool reshaped =
          pair.host.sizes() != pair.chip.sizes() || pair.host.strides() != pair.chip.strides();
      if (moved) {
        resize_storage(pair.chip.storage().unsafeGetStorageImpl(), pair.host.storage().nbytes());
        settle_stream(device_index(pair.chip));
        std::memcpy(pair.chip.storage().mutable_data(), pair.host.storage().data(),
                    pair.host.storage().nbytes());
      }
      if (moved || reshaped) {
        c10::TensorImpl* impl = pair.chip.unsafeGetTensorImpl();
        impl->set_storage_offset(pair.host.storage_offset());
        impl->set_sizes_and_strides(pair.host.sizes(), pair.host.strides());
      }
    }
  }

  // The host may touch the memory only when the stream that wrote it has run.
  static void settle_stream(int device) {
    if (device_capabilities[device] & CHIPSET_CAPABILITY_INLINE) return;
    check(device_api[device]->stream_sync(current_stream(device)), "stream_sync");
  }

 private:
  struct Pair {
    at::Tensor chip, host;
  };
  struct Shared {
    c10::Storage chip, host;
  };

  // One host storage for each of the chip's, so that views of one another stay so.
  c10::Storage host_storage(const at::Tensor& tensor) {
    const c10::Storage& chip = tensor.storage();
    for (const Shared& shared : shared_) {
      if (shared.chip.unsafeGetStorageImpl() == chip.unsafeGetStorageImpl()) return shared.host;
    }
    // Owns nothing: the argument keeps the memory alive during the call. Resizable, for out=.
    c10::DataPtr borrowed(chip.mutable_data(), c10::Device(c10::DeviceType::CPU));
    c10::Storage host(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            chip.nbytes(), std::move(borrowed),
                                                            c10::GetCPUAllocator(), true));
    shared_.push_back({chip, host});
    return host;
  }

  static at::Tensor with_geometry(const c10::Storage& storage, const at::Tensor& like) {
    at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), like.dtype());
    out.unsafeGetTensorImpl()->set_storage_offset(like.storage_offset());
    out.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
    if (like.is_conj()) out._set_conj(true);
    if (like.is_neg()) out._set_neg(true);
    return out;
  }

  static at::Tensor copied(const at::Tensor& result, int device) {
    const at::Tensor dense = result.is_non_overlapping_and_dense() ? result : result.contiguous();
    at::Tensor out =
        bridge::empty_strided(dense.sizes(), dense.strides(), dense.scalar_type(), device);
    if (dense.numel() > 0) {
      settle_stream(device);
      std::memcpy(out.mutable_data_ptr(), dense.const_data_ptr(), dense.nbytes());
    }
    if (dense.is_conj()) out._set_conj(true);
    if (dense.is_neg()) out._set_neg(true);
    return out;
  }

  std::vector<Pair> pairs_;
  std::vector<Shared> shared_;
};

void show_to_host(c10::IValue& value, Aliases& aliases) {
  if (value.isTensor()) {
    value = aliases.host(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> hosts;
    for (const at::Tensor& tensor : value.toTensorList()) hosts.push_back(aliases.host(tensor));
    value = std::move(hosts);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> hosts;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      hosts.push_back(tensor ? std::optional(aliases.host(*tensor)) : std::nullopt);
    }
    value = std::move(hosts);
  } else if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1) {
    value = c10::Device(c10::DeviceType::CPU);
  }
}

void show_to_chip(c10::IValue& value, Aliases& aliases, int device) {
  if (value.isTensor()) {
    value = aliases.back(value.toTensor(), device);
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> chips;
    for (const at::Tensor& tensor : value.toTensorList()) {
      chips.push_back(aliases.back(tensor, device));
    }
    value = std::move(chips);
  }
}

}  // namespace

void run_in_place(const c10::OperatorHandle& op, torch::jit::Stack& stack, int device) {
  Aliases aliases;
  const size_t first = stack.size() - op.schema().arguments().size();
  for (size_t i = first; i < stack.size(); ++i) show_to_host(stack[i], aliases);
  Aliases::settle_stream(device);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  const size_t results = stack.size() - op.schema().returns().size();
  aliases.settle();
  for (size_t i = results; i < stack.size(); ++i) show_to_chip(stack[i], aliases, device);
}

}  // namespace chipset::bridge
