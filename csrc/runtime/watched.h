// SPDX-License-Identifier: Apache-2.0
// How the watchers see each kind of call: a few functions change what the checked layer knows, the
// rest are checked by their operands. One place per function, chosen at compile time.
#pragma once

#include <string>
#include <type_traits>

#include "watch.h"

namespace chipset::runtime {

template <class T>
constexpr bool is_arguments_struct =
    std::is_pointer_v<T> && std::is_class_v<std::remove_pointer_t<T>> &&
    std::is_const_v<std::remove_pointer_t<T>> && !std::is_same_v<T, const chipset_tensor*>;

// ---- checks -----------------------------------------------------------------------------------

// NULL handles are legal where a function ends them.
template <Fn F>
constexpr bool ends_handle = F == Fn::stream_destroy || F == Fn::event_destroy;

template <Fn F, class T>
std::string argument_fault(const Checker& checker, T argument) {
  if constexpr (std::is_same_v<T, chipset_stream>) {
    if (ends_handle<F> && argument == nullptr) return "";
    return checker.stream_fault(argument);
  } else if constexpr (std::is_same_v<T, chipset_event>) {
    if (ends_handle<F> && argument == nullptr) return "";
    return checker.event_fault(argument);
  } else if constexpr (std::is_same_v<T, chipset_comm>) {
    if (F == Fn::comm_destroy && argument == nullptr) return "";
    return checker.comm_fault(argument);
  } else if constexpr (std::is_same_v<T, chipset_graph>) {
    if (F == Fn::graph_destroy || argument != nullptr) return "";
    return "HND-001: the graph is NULL";
  } else if constexpr (is_arguments_struct<T>) {
    if (argument == nullptr) return "VER-002: the argument struct is NULL";
    if (argument->struct_size < 2 * sizeof(std::uint32_t) || argument->struct_size > 1u << 16)
      return "VER-002: the argument struct's struct_size is " +
             std::to_string(argument->struct_size) + "; set it to sizeof";
    return "";
  } else if constexpr (std::is_pointer_v<T> && !std::is_const_v<std::remove_pointer_t<T>> &&
                       !std::is_void_v<std::remove_pointer_t<T>>) {
    return argument == nullptr ? "SHP-003: an out parameter is NULL" : "";
  } else {
    return "";
  }
}

inline chipset_stream stream_of() { return nullptr; }
template <class T, class... A>
chipset_stream stream_of(T first, A... rest) {
  if constexpr (std::is_same_v<T, chipset_stream>)
    return first;
  else
    return stream_of(rest...);
}

// Functions whose first argument is a device.
template <Fn F>
constexpr bool names_device =
    F == Fn::device_info || F == Fn::device_memory || F == Fn::device_sync || F == Fn::mem_alloc ||
    F == Fn::mem_free || F == Fn::stream_create || F == Fn::event_create;

// Functions of the form (stream, communicator, …).
template <Fn F>
constexpr bool is_collective = F >= Fn::all_reduce && F <= Fn::recv;

// Some buffers of collectives are as large as the communicator has ranks.
template <Fn F, class... A>
Operands checked_operands([[maybe_unused]] const Checker& checker, A... arguments) {
  Operands out = operands_of<F>(arguments...);
  [[maybe_unused]] const auto with = [&](auto&& f) { f(arguments...); };
  if constexpr (F == Fn::all_gather)
    with([&](chipset_stream, chipset_comm comm, const void*, void* receive, std::uint64_t count,
             std::int32_t dtype) {
      detail::List{out}.bytes("receive", receive,
                              plain_bytes(count * checker.comm_size(comm), dtype), Access::write);
    });
  else if constexpr (F == Fn::reduce_scatter)
    with([&](chipset_stream, chipset_comm comm, const void* send, void*, std::uint64_t count,
             std::int32_t dtype, std::int32_t) {
      detail::List{out}.bytes("send", send, plain_bytes(count * checker.comm_size(comm), dtype),
                              Access::read);
    });
  else if constexpr (F == Fn::all_to_all)
    with([&](chipset_stream, chipset_comm comm, const void* send, const std::uint64_t* sent,
             void* receive, const std::uint64_t* received, std::int32_t dtype) {
      std::uint64_t in = 0;
      std::uint64_t back = 0;
      for (std::uint64_t r = 0; r < checker.comm_size(comm); ++r) {
        in += sent[r];
        back += received[r];
      }
      detail::List{out}.bytes("send", send, plain_bytes(in, dtype), Access::read);
      detail::List{out}.bytes("receive", receive, plain_bytes(back, dtype), Access::write);
    });
  return out;
}

// The first fault of a call, or "".
template <Fn F, class... A>
std::string call_fault(Checker& checker, A... arguments) {
  checker.count_call();
  std::string fault;
  ((fault.empty() ? void(fault = argument_fault<F>(checker, arguments)) : void()), ...);
  if (!fault.empty()) return fault;
  if constexpr (names_device<F>)
    fault = [&](std::int32_t device, auto...) {
      return checker.device_fault(device);
    }(arguments...);
  if (!fault.empty()) return fault;
  if constexpr (F == Fn::mem_free) return checker.free_fault(arguments...);
  if constexpr (F == Fn::event_record) return checker.record_fault(arguments...);
  if constexpr (F == Fn::event_elapsed)
    return [&](chipset_event a, chipset_event b, double*) {
      return checker.elapsed_fault(a, b);
    }(arguments...);
  if constexpr (F == Fn::mem_copy) {
    fault = [&](chipset_stream, void* to, const void* from, std::uint64_t n, std::int32_t kind) {
      return n == 0 ? std::string() : checker.copy_fault(to, from, kind);
    }(arguments...);
    if (!fault.empty()) return fault;
  }
  if constexpr (is_collective<F>) {
    fault = [&](chipset_stream stream, chipset_comm comm, auto...) {
      return checker.comm_stream_fault(comm, stream);
    }(arguments...);
    if (!fault.empty()) return fault;
  }
  fault = shape_fault(Tag<F>(), arguments...);
  if (!fault.empty()) return fault;
  return checker.before(F, stream_of(arguments...), checked_operands<F>(checker, arguments...));
}

// What an OK call changes.
template <Fn F, class... A>
void note_call(Checker& checker, A... arguments) {
  [[maybe_unused]] const auto with = [&](auto&& f) { f(arguments...); };
  if constexpr (F == Fn::mem_alloc)
    with([&](std::int32_t device, std::int32_t kind, std::uint64_t bytes, void** pointer) {
      checker.allocated(device, kind, bytes, *pointer);
    });
  else if constexpr (F == Fn::stream_create)
    with([&](std::int32_t device, std::int32_t, chipset_stream* s) {
      checker.stream_created(device, *s);
    });
  else if constexpr (F == Fn::stream_sync)
    checker.stream_synced(arguments...);
  else if constexpr (F == Fn::device_sync)
    checker.device_synced(arguments...);
  else if constexpr (F == Fn::event_create)
    with([&](std::int32_t device, std::uint32_t flags, chipset_event* e) {
      checker.event_created(device, flags, *e);
    });
  else if constexpr (F == Fn::event_record)
    checker.event_recorded(arguments...);
  else if constexpr (F == Fn::event_query)
    with([&](chipset_event e, std::int64_t) { checker.event_passed(e); });
  else if constexpr (F == Fn::stream_wait)
    checker.stream_waited(arguments...);
  else if constexpr (F == Fn::capture_begin)
    checker.capture(arguments..., true);
  else if constexpr (F == Fn::capture_end)
    with([&](chipset_stream s, chipset_graph*) { checker.capture(s, false); });
  else if constexpr (F == Fn::comm_create)
    with([&](std::int32_t device, const void*, std::int32_t, std::int32_t size, chipset_comm* c) {
      checker.comm_created(device, size, *c);
    });
  else
    checker.after(F, stream_of(arguments...), checked_operands<F>(checker, arguments...));
  if constexpr (F == Fn::mem_copy)
    with([&](chipset_stream s, void* to, const void*, std::uint64_t, std::int32_t kind) {
      if (kind == CHIPSET_COPY_KIND_DEVICE_TO_HOST) checker.copied_to_host(s, to);
    });
}

// Whether the call did its part although it reports a fault: a synchronisation that surfaces the
// fault of enqueued work has waited for that work all the same (ERR-003).
template <Fn F>
bool took_effect(chipset_status status) {
  constexpr bool waits = F == Fn::stream_sync || F == Fn::device_sync || F == Fn::event_query;
  return status == CHIPSET_STATUS_OK ||
         (waits && (status == CHIPSET_STATUS_OUT_OF_RANGE || status == CHIPSET_STATUS_DEVICE_LOST));
}

template <Fn F>
constexpr bool ends =
    F == Fn::mem_free || F == Fn::stream_destroy || F == Fn::event_destroy || F == Fn::comm_destroy;

// Calls that end something change what is known before they are made, since another thread may get
// the same address again at once. settle_end follows when they return.
template <Fn F, class... A>
void note_end(Checker& checker, A... arguments) {
  [[maybe_unused]] const auto with = [&](auto&& f) { f(arguments...); };
  if constexpr (F == Fn::mem_free)
    with([&](std::int32_t, void* pointer) { checker.freed(pointer); });
  else if constexpr (F == Fn::stream_destroy)
    checker.stream_destroyed(arguments...);
  else if constexpr (F == Fn::event_destroy)
    checker.event_destroyed(arguments...);
  else if constexpr (F == Fn::comm_destroy)
    checker.comm_destroyed(arguments...);
}

// ---- recording --------------------------------------------------------------------------------

// Questions change nothing; collectives and graphs of ONNX need more than one process or a model.
template <Fn F>
constexpr bool is_recorded =
    F != Fn::device_count && F != Fn::device_info && F != Fn::device_memory &&
    F != Fn::event_elapsed && F != Fn::mem_copy_peer && F < Fn::graph_compile;

template <class T>
void record_struct(CallRecord& record, const T* a) {
  record.structure(a, sizeof(T));
  if constexpr (std::is_same_v<T, chipset_adamw_args>) {
    const std::uint64_t n = a->num_tensors;
    for (const auto& field :
         {&T::param, &T::grad, &T::exp_avg, &T::exp_avg_sq, &T::max_exp_avg_sq, &T::step})
      record.tensor(static_cast<std::uint64_t>(reinterpret_cast<const char*>(&(a->*field)) -
                                               reinterpret_cast<const char*>(a)),
                    a->*field, n);
    return;
  }
#define CHIPSET_TENSORS(name, field, count)                                            \
  if constexpr (std::is_same_v<T, chipset_##name>) {                                   \
    const chipset_tensor* const* first =                                               \
        reinterpret_cast<const chipset_tensor* const*>(&a->field);                     \
    for (std::uint64_t i = 0; i < count; ++i)                                          \
      record.tensor(offsetof(chipset_##name, field) + i * sizeof(void*), first[i], 1); \
  }
#define CHIPSET_ADDRESS(name, field)
#include "chipset/pointers.inc"
}

template <Fn F, class T>
void record_argument(CallRecord& record, T argument) {
  if constexpr (is_arguments_struct<T>)
    record_struct(record, argument);
  else if constexpr (std::is_integral_v<T>)
    record.scalar(static_cast<std::uint64_t>(argument));
  else if constexpr (std::is_same_v<T, void**> || std::is_same_v<T, chipset_stream*> ||
                     std::is_same_v<T, chipset_event*> || std::is_same_v<T, chipset_graph*>)
    record.made(*argument);
  else
    record.handle(argument);
}

template <Fn F, class... A>
void record_call(const Plugin& plugin, chipset_status status, A... arguments) {
  if constexpr (is_recorded<F>) {
    CallRecord record(plugin, F);
    if constexpr (F == Fn::mem_copy) {
      [&](chipset_stream s, void* to, const void* from, std::uint64_t n, std::int32_t kind) {
        record.handle(s);
        if (kind == CHIPSET_COPY_KIND_DEVICE_TO_HOST)
          record.payload(is_pinned(to) ? nullptr : to, n);  // page-locked: written later
        else
          record.handle(to);
        if (kind == CHIPSET_COPY_KIND_HOST_TO_DEVICE)
          record.payload(from, n);
        else
          record.handle(from);
        record.scalar(n);
        record.scalar(static_cast<std::uint64_t>(kind));
      }(arguments...);
    } else {
      (record_argument<F>(record, arguments), ...);
    }
    record.finish(status);
  }
}

}  // namespace chipset::runtime
