// SPDX-License-Identifier: Apache-2.0
#include "fallback_arguments.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <string_view>

#include "generator.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

// Operators of which torch takes some tensor on the host although the others are on a device.
constexpr std::string_view kTakesHostTensors[] = {
    "aten::index",        "aten::_index_put_impl_", "aten::_unsafe_index", "aten::_pack_padded",
    "aten::tensor_split", "aten::_ctc_loss",        "aten::lstm",          "aten::gru",
    "aten::rnn",          "aten::_fused_adam",      "aten::_amp_",         "aten::_foreach_"};

bool takes_host_tensors(std::string_view name) {
  for (const std::string_view prefix : kTakesHostTensors) {
    if (name.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

template <typename Visit>
void for_each_tensor(c10::ArrayRef<c10::IValue> values, const Visit& visit) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      visit(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorList()) visit(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        if (tensor) visit(*tensor);
      }
    }
  }
}

}  // namespace

Inputs look_at_inputs(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  Inputs out{-1, 0, {}};
  at::Tensor host_tensor;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (!out.detail.empty()) out.detail += ", ";
    out.detail += c10::str(tensor.scalar_type(), tensor.sizes());
    if (!is_on_chip(tensor)) {
      if (tensor.dim() > 0) host_tensor = tensor;
      return;
    }
    out.bytes += tensor.nbytes();
    TORCH_CHECK(out.device < 0 || out.device == device_index(tensor),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                chip(out.device), " and ", tensor.device(), "! (", name, ")");
    out.device = device_index(tensor);
  });
  if (out.device >= 0 && host_tensor.defined()) {
    TORCH_CHECK(takes_host_tensors(name),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                chip(out.device), " and ", host_tensor.device(), "! (", name, ")");
  }
  for (const c10::IValue& value : arguments) {
    if (out.device < 0 && value.isDevice()) out.device = index_of(value.toDevice());
  }
  if (out.device < 0) out.device = current_device();
  return out;
}

void substitute_generators(const c10::FunctionSchema& schema, torch::jit::Stack& stack,
                           int device) {
  const auto& parameters = schema.arguments();
  const size_t first = stack.size() - parameters.size();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto type = parameters[i].real_type();
    const bool optional = type->kind() == c10::TypeKind::OptionalType;
    const auto kind = optional ? type->containedType(0)->kind() : type->kind();
    if (kind != c10::TypeKind::GeneratorType) continue;
    c10::IValue& value = stack[first + i];
    std::optional<at::Generator> given;
    if (!value.isNone()) given = value.toGenerator();
    // Two words per element at most is what `draw` counts; the host's kernel draws from its own
    // stream, of which (seed, offset) only makes the start.
    const PhiloxState state = generator_for(given, device)->draw(2);
    value = at::detail::createCPUGenerator(state.seed * 0x9E3779B97F4A7C15ULL + state.offset);
  }
}

}  // namespace chipset::bridge
