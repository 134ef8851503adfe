// SPDX-License-Identifier: Apache-2.0
// The boxed fallback: an operator that no chip kernel serves runs on the host, counted.
//
// Where the host may dereference device memory (UNIFIED) the chip's tensors are shown to the host's
// kernel in place; elsewhere they are copied to host memory and back.
#include "fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>

#include "fallback_arguments.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

FallbackMode mode_of_environment() {
  const char* text = std::getenv("CHIPSET_FALLBACK");
  const std::string_view mode = text == nullptr ? "" : text;
  if (mode.empty() || mode == "allow") return FallbackMode::kAllow;
  if (mode == "warn") return FallbackMode::kWarn;
  if (mode == "error") return FallbackMode::kError;
  TORCH_WARN("CHIPSET_FALLBACK=", std::string(mode),
             " is none of allow, warn, error; 'allow' is used");
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

std::string full_name(const c10::FunctionSchema& schema) {
  const auto& overload = schema.overload_name();
  return overload.empty() ? schema.name() : schema.name() + "." + overload;
}

// Marks the time of one fallback in the trace of CHIPSET_TRACE.
class TraceSpan {
 public:
  explicit TraceSpan(const std::string& name)
      : name_(name), start_(runtime::tracing() ? runtime::trace_now() : -1) {}
  ~TraceSpan() {
    if (start_ >= 0) {
      runtime::trace_span("fallback", name_.c_str(), start_, runtime::trace_now(), "{}");
    }
  }

 private:
  const std::string& name_;
  double start_;
};

}  // namespace

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string name = full_name(schema);
  const Inputs inputs = look_at_inputs(name, torch::jit::last(*stack, schema.arguments().size()));
  count_fallback(name, inputs.bytes, inputs.detail);
  const TraceSpan span(name);
  substitute_generators(schema, *stack, inputs.device);
  if (unified(inputs.device)) {
    run_in_place(op, *stack, inputs.device);
  } else {
    run_copied(op, *stack, inputs.device);
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace chipset::bridge
