// SPDX-License-Identifier: Apache-2.0
// The fallback for memory that the host may not touch: operands are copied to the host, and what
// the host's kernel wrote is copied back. An `out=` operand goes one way only: it may hold nothing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include <vector>

#include "fallback_arguments.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

enum class Use { kRead, kUpdate, kWrite };

Use use_of(const c10::Argument& argument) {
  if (argument.is_out()) return Use::kWrite;
  const c10::AliasInfo* alias = argument.alias_info();
  return alias != nullptr && alias->isWrite() ? Use::kUpdate : Use::kRead;
}

// Operands on the host, and the way back.
class Copies {
 public:
  at::Tensor host(const at::Tensor& chip, Use use) {
    if (!chip.defined() || !is_on_chip(chip)) return chip;
    for (Pair& pair : pairs_) {
      if (!pair.chip.is_same(chip)) continue;
      pair.written = pair.written || use != Use::kRead;
      return pair.host;
    }
    at::Tensor copy = use == Use::kWrite ? at::empty_strided(chip.sizes(), chip.strides(),
                                                             chip.options().device(at::kCPU))
                                         : chip.to(at::kCPU);
    if (chip.unsafeGetTensorImpl()->is_wrapped_number()) {
      if (copy.is_same(chip)) copy = copy.clone();
      copy.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    pairs_.push_back({chip, copy, use != Use::kRead});
    return copy;
  }

  // The chip's tensor for a result: the operand itself, or a new one.
  at::Tensor back(const at::Tensor& result, int device) const {
    if (!result.defined() || !result.device().is_cpu()) return result;
    for (const Pair& pair : pairs_) {
      if (pair.host.is_same(result)) return pair.chip;
    }
    return result.to(chip(device));
  }

  // Gives the chip's tensors what the host wrote.
  void settle() const {
    for (const Pair& pair : pairs_) {
      if (!pair.written) continue;
      if (pair.chip.sizes() != pair.host.sizes()) pair.chip.resize_(pair.host.sizes());
      pair.chip.copy_(pair.host);
    }
  }

 private:
  struct Pair {
    at::Tensor chip, host;
    bool written;
  };
  std::vector<Pair> pairs_;
};

void to_host(c10::IValue& value, Use use, Copies& copies) {
  if (value.isTensor()) {
    value = copies.host(value.toTensor(), use);
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> hosts;
    for (const at::Tensor& tensor : value.toTensorList()) {
      hosts.push_back(copies.host(tensor, use));
    }
    value = std::move(hosts);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> hosts;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      hosts.push_back(tensor ? std::optional(copies.host(*tensor, use)) : std::nullopt);
    }
    value = std::move(hosts);
  } else if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1) {
    value = c10::Device(c10::DeviceType::CPU);
  }
}

void to_chip(c10::IValue& value, const Copies& copies, int device) {
  if (value.isTensor()) {
    value = copies.back(value.toTensor(), device);
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> chips;
    for (const at::Tensor& tensor : value.toTensorList()) {
      chips.push_back(copies.back(tensor, device));
    }
    value = std::move(chips);
  }
}

// A result that shares memory with an operand cannot be had by copying.
void refuse_views(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    const c10::AliasInfo* alias = result.alias_info();
    TORCH_CHECK_NOT_IMPLEMENTED(alias == nullptr || alias->isWrite(), "chip: ", schema.name(),
                                " makes a view, and the host cannot make one of memory that it "
                                "may not touch; copy the tensor to the host first (.cpu())");
  }
}

}  // namespace

void run_copied(const c10::OperatorHandle& op, torch::jit::Stack& stack, int device) {
  const c10::FunctionSchema& schema = op.schema();
  refuse_views(schema);
  Copies copies;
  const size_t first = stack.size() - schema.arguments().size();
  for (size_t i = first; i < stack.size(); ++i) {
    to_host(stack[i], use_of(schema.arguments()[i - first]), copies);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  copies.settle();
  const size_t results = stack.size() - schema.returns().size();
  for (size_t i = results; i < stack.size(); ++i) to_chip(stack[i], copies, device);
}

}  // namespace chipset::bridge
