// SPDX-License-Identifier: Apache-2.0
// The boxed fallback: an operator that no chip kernel serves runs on the host, counted.
#include "fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>

#include "waist.h"

namespace chipset::bridge {
namespace {

FallbackMode mode_of_environment() {
  const char* text = std::getenv("CHIPSET_FALLBACK");
  const std::string_view mode = text == nullptr ? "" : text;
  if (mode.empty() || mode == "allow") return FallbackMode::kAllow;
  if (mode == "warn") return FallbackMode::kWarn;
  if (mode == "error") return FallbackMode::kError;
  TORCH_WARN("CHIPSET_FALLBACK=", mode, " is none of allow, warn, error; 'allow' is used");
  return FallbackMode::kAllow;
}

struct State {
  std::mutex mutex;
  FallbackMode mode = mode_of_environment();
  std::map<std::string, FallbackCount> counts;
  std::set<std::string> warned;
};
State& state() {
  static State* state = new State();  // never destroyed: threads may outlive main
  return *state;
}

}  // namespace

void set_fallback_mode(FallbackMode mode) {
  const std::lock_guard lock(state().mutex);
  state().mode = mode;
  state().warned.clear();
}

FallbackMode fallback_mode() {
  const std::lock_guard lock(state().mutex);
  return state().mode;
}

std::map<std::string, FallbackCount> fallback_counts() {
  const std::lock_guard lock(state().mutex);
  return state().counts;
}

void reset_fallback_counts() {
  const std::lock_guard lock(state().mutex);
  state().counts.clear();
  state().warned.clear();
}

void count_fallback(const std::string& name, size_t bytes, const std::string& detail) {
  if (capturing()) refuse_capture(c10::str(name, " on the host (", detail, ")").c_str());
  const std::lock_guard lock(state().mutex);
  TORCH_CHECK(state().mode != FallbackMode::kError, "chip: ", name, " (", detail,
              ") has no kernel on this chip, and CHIPSET_FALLBACK=error forbids running it on the "
              "host; set CHIPSET_FALLBACK=allow (or warn) to let the host do it");
  FallbackCount& count = state().counts[name];
  ++count.count;
  count.bytes += bytes;
  if (state().mode == FallbackMode::kWarn && state().warned.insert(name).second) {
    TORCH_WARN("chip: ", name, " (", detail, ") has no kernel on this chip; the host runs it");
  }
}

namespace {

struct Summary {
  size_t bytes = 0;
  std::string detail;
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (!detail.empty()) detail += ", ";
    detail += c10::str(tensor.scalar_type(), tensor.sizes());
    if (tensor.device().type() == c10::DeviceType::PrivateUse1) bytes += tensor.nbytes();
  }
};

Summary summarise(c10::ArrayRef<c10::IValue> values) {
  Summary out;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      out.add(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorList()) out.add(tensor);
    }
  }
  return out;
}

}  // namespace

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto inputs = torch::jit::last(*stack, schema.arguments().size());
  const Summary summary = summarise(inputs);
  const auto& overload = schema.overload_name();
  count_fallback(overload.empty() ? schema.name() : schema.name() + "." + overload, summary.bytes,
                 summary.detail);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace chipset::bridge
