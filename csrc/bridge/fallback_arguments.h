// SPDX-License-Identifier: Apache-2.0
// How the arguments of a boxed operator are shown to the host's kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

namespace chipset::bridge {

struct Inputs {
  int device;          // the chip of the tensors, or the one named, or the current one
  size_t bytes;        // of all tensors on the chip
  std::string detail;  // dtypes and shapes, for messages
};

// Throws where tensors of several chips, or of chip and host, are mixed as torch does not allow.
Inputs look_at_inputs(const std::string& name, c10::ArrayRef<c10::IValue> arguments);

// Replaces generators of the chip (and an absent one) by a host generator seeded from it, so that
// the numbers depend on torch.manual_seed and differ from call to call.
void substitute_generators(const c10::FunctionSchema& schema, torch::jit::Stack& stack, int device);

// Runs the host's kernel on the chip's memory. For devices with capability UNIFIED.
void run_in_place(const c10::OperatorHandle& op, torch::jit::Stack& stack, int device);

// Runs the host's kernel on copies. For all others.
void run_copied(const c10::OperatorHandle& op, torch::jit::Stack& stack, int device);

}  // namespace chipset::bridge
