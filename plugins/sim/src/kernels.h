// SPDX-License-Identifier: Apache-2.0
// The compute functions: checks, then the borrowed kernel on the private addresses.
#pragma once

#include "functions.h"

namespace chipset::sim {

// Reads that depend on data which the call does not show: only some of the bytes are touched.
inline bool reads_everything(Fn function, const Operand& o) {
  const std::string_view name = o.name;
  if (function == Fn::gather || function == Fn::scatter) return o.tensor != nullptr;
  if (function == Fn::attention_paged) return name != "k_cache" && name != "v_cache" && name != "q";
  return true;
}

template <class T>
std::int32_t main_dtype(const T& args) {
  std::int32_t dtype = CHIPSET_DTYPE_F32;
  bool found = false;
  each_pointer(
      const_cast<T&>(args),
      [&](const chipset_tensor*& t, std::uint64_t n) {
        if (!found && n > 0) dtype = t->dtype;
        found = true;
      },
      [](const void*&) {});
  return dtype;
}

template <Fn F, class T>
chipset_status run_kernel(chipset_status (*kernel)(chipset_stream, const T*), chipset_stream handle,
                          const T* given) {
  if (given == nullptr || given->struct_size < 2 * sizeof(std::uint32_t))
    return fault(text("VER-002: ", text_of(current_call()),
                      ": the argument struct is NULL or its struct_size is not set"));
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  if (stream == nullptr) return unknown_stream(handle);
  const auto call = copy_args(*given, [](const void* p) { return const_cast<void*>(p); });
  const T* args = &call->args;  // const: the overloads of the runtime's headers ask for it
  const Operands operands = runtime::operands_of<F>(handle, args);
  if (const auto s = check_placement(operands, stream->device); s != CHIPSET_STATUS_OK) return s;
  lock.unlock();
  const Answer answer = rehearse(F, kernel, call->args, operands);
  lock.lock();
  if (answer.status != CHIPSET_STATUS_OK)
    return fail(answer.status, text(name_of(F), ": ", answer.text));
  Operands reads;
  for (const Operand& o : operands)
    if (reads_everything(F, o)) reads.push_back(o);
  // While it is captured nothing runs: what a replay finds may be written until then.
  if (stream->capture == nullptr)
    if (const auto s = check_contents(reads); s != CHIPSET_STATUS_OK) return s;
  mark_outputs(operands);

  Work work;
  work.call = current_call();
  add_spans(work, operands);
  work.seconds = kernel_seconds(runtime::flops(Tag<F>(), handle, args), main_dtype(call->args),
                                bytes_of(operands));
  const auto inside = copy_args(*given, [](const void* p) { return private_of(p); });
  work.run = [kernel, inside](chipset_stream borrowed) { return kernel(borrowed, &inside->args); };
  submit(lock, stream, std::move(work));
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::sim
