// SPDX-License-Identifier: Apache-2.0
// Wraps a plugin's table. Each plugin slot has thunks of its own, since C functions carry no
// context; every thunk ends in intercept(), which reads as the story of a call. Functions that
// nobody watches and that need no composing are called without it.
#include "interpose.h"

#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "composed.h"
#include "turns.h"
#include "watched.h"

namespace chipset::runtime {
namespace {

// Composed functions call others of the same table; a recording holds only the outermost, and what
// is made inside, since it may live on (a segment, a pooled event).
thread_local int depth = 0;
struct Nesting {
  Nesting() { ++depth; }
  ~Nesting() { --depth; }
};

template <Fn F>
constexpr bool makes_or_frees =
    F == Fn::mem_alloc || F == Fn::mem_free || F == Fn::stream_create || F == Fn::event_create;

template <Fn F, class... A>
concept Composable = requires(Plugin& plugin, A... args) { composed(Tag<F>(), plugin, args...); };

// The plugin's function, or the composition in its place.
template <Fn F, class... A>
chipset_status call(Plugin& plugin, chipset_status (*function)(A...), A... args) {
  if constexpr (F == Fn::stream_destroy) forget_stream(args...);
  chipset_status status = CHIPSET_STATUS_UNSUPPORTED;
  if (function != nullptr) status = function(args...);
  if constexpr (F == Fn::stream_create) {
    if (status == CHIPSET_STATUS_OK) {
      [&](std::int32_t device, std::int32_t, chipset_stream* stream) {
        remember_stream(*stream, plugin.first_device + device);
      }(args...);
    }
  }
  if constexpr (Composable<F, A...>) {
    if (status != CHIPSET_STATUS_UNSUPPORTED) return status;
    // What is composed refuses what a plugin's own function must (SHP-003).
    if (const std::string fault = shape_fault(Tag<F>(), args...); !fault.empty())
      return set_error(plugin.spec.name, CHIPSET_STATUS_INVALID,
                       std::string(function_name(F)) + ": " + fault);
    const Nesting inner;
    status = composed(Tag<F>(), plugin, args...);
    if (status == CHIPSET_STATUS_OK) count_composed(plugin, F);
  }
  return status;
}

// The same, but what a C function must not do becomes a status.
template <Fn F, class... A>
chipset_status guarded(Plugin& plugin, chipset_status (*function)(A...), A... args) {
  try {
    return call<F>(plugin, function, args...);
  } catch (const std::exception& error) {
    return set_error(plugin.spec.name, CHIPSET_STATUS_INTERNAL,
                     std::string("check: ERR-001: ") + function_name(F) +
                         " threw an exception: " + error.what());
  } catch (...) {
    return set_error(plugin.spec.name, CHIPSET_STATUS_INTERNAL,
                     std::string("check: ERR-001: ") + function_name(F) + " threw an exception");
  }
}

// Faults of the plugin's answer itself are reported, since the caller is not to blame.
void report_answer(const Plugin& plugin, Fn function, const std::string& fault) {
  std::fprintf(stderr, "chipset: check: %s: ERR-001: %s answered %s\n", plugin.spec.name.c_str(),
               function_name(function), fault.c_str());
}

// What an OK call was asked to make, and did not. Zero bytes of memory are NULL (MEM-001).
template <Fn F, class... A>
bool made_nothing(A... args) {
  if constexpr (F == Fn::mem_alloc)
    return [](std::int32_t, std::int32_t, std::uint64_t bytes, void** pointer) {
      return bytes != 0 && *pointer == nullptr;
    }(args...);
  const auto nothing = [](auto argument) {
    if constexpr (std::is_same_v<decltype(argument), chipset_stream*> ||
                  std::is_same_v<decltype(argument), chipset_event*> ||
                  std::is_same_v<decltype(argument), chipset_comm*> ||
                  std::is_same_v<decltype(argument), chipset_graph*>)
      return *argument == nullptr;
    return false;
  };
  return (nothing(args) || ...);
}

template <Fn F, class... A>
void check_answer(const Plugin& plugin, chipset_status status, A... args) {
  const bool known = status >= CHIPSET_STATUS_OK && status <= CHIPSET_STATUS_OUT_OF_RANGE;
  if (!known) report_answer(plugin, F, std::to_string(status) + ", which is no status");
  if (status == CHIPSET_STATUS_NOT_READY && F != Fn::event_query)
    report_answer(plugin, F, "NOT_READY, which only event_query may");
  const bool needs_text = status != CHIPSET_STATUS_OK && status != CHIPSET_STATUS_NOT_READY;
  if (needs_text && !has_error())
    report_answer(plugin, F, std::string(status_name(status)) + " without a text");
  if (status == CHIPSET_STATUS_OK && made_nothing<F>(args...))
    report_answer(plugin, F, "OK, but what it was to make is NULL");
}

template <Fn F, class... A>
chipset_status watched(Plugin& plugin, chipset_status (*function)(A...), A... args) {
  Checker* checker = plugin.checker.get();
  if (checker != nullptr) {
    const std::string fault = call_fault<F>(*checker, args...);
    if (!fault.empty()) {
      if (plugin.refused != nullptr) return plugin.refused(fault.c_str());
      // Some callers have no use for a status (destructors); a strict chip wants it known.
      if (!watch().check)
        std::fprintf(stderr, "%s: fault: %s\n", plugin.spec.name.c_str(), fault.c_str());
      return set_error(plugin.spec.name, CHIPSET_STATUS_INVALID, "check: " + fault);
    }
    note_end<F>(*checker, args...);
    take_error();
  }
  const double start = watch().trace ? trace_now() : 0;
  const chipset_status status = checker != nullptr ? guarded<F>(plugin, function, args...)
                                                   : call<F>(plugin, function, args...);
  if (checker != nullptr) {
    check_answer<F>(plugin, status, args...);
    if (took_effect<F>(status)) note_call<F>(*checker, args...);
    // What a lost device was asked to end is gone with it.
    if constexpr (ends<F>)
      checker->settle_end(status != CHIPSET_STATUS_OK && status != CHIPSET_STATUS_DEVICE_LOST);
  }
  if (watch().trace)
    trace_call(plugin, F, start, trace_now(), stream_of(args...), operands_of<F>(args...),
               flops(Tag<F>(), args...), status);
  if (watch().record && (depth == 0 || makes_or_frees<F>)) record_call<F>(plugin, status, args...);
  return status;
}

template <Fn F, class... A>
chipset_status intercept(int slot, chipset_status (*chipset_api::*member)(A...), A... args) {
  Plugin& plugin = plugin_at(slot);
  if (watch().any() || plugin.checker != nullptr) [[unlikely]]
    return watched<F>(plugin, plugin.base.*member, args...);
  return call<F>(plugin, plugin.base.*member, args...);
}

template <Fn F, class... A>
constexpr bool is_composable(chipset_status (*chipset_api::*)(A...)) {
  return Composable<F, A...>;
}

template <int Slot>
struct Thunks {
#define CHIPSET_FUNCTION(name, required, group, since)                   \
  template <class... A>                                                  \
  static chipset_status name(A... args) {                                \
    return intercept<Fn::name, A...>(Slot, &chipset_api::name, args...); \
  }
#include "chipset/functions.inc"

  static void install(Plugin& plugin) {
    plugin.table = plugin.base;
    plugin.table.stream_create = Thunks::stream_create;
    plugin.table.stream_destroy = Thunks::stream_destroy;
#define CHIPSET_FUNCTION(name, required, group, since)                               \
  if (is_composable<Fn::name>(&chipset_api::name) ||                                 \
      ((watch().any() || plugin.checker != nullptr) && plugin.base.name != nullptr)) \
    plugin.table.name = Thunks::name;
#include "chipset/functions.inc"
  }
};

template <int... Slots>
void install(Plugin& plugin, std::integer_sequence<int, Slots...>) {
  ((plugin.slot == Slots ? Thunks<Slots>::install(plugin) : void()), ...);
}

// CHIPSET_COMPOSE=1 hides the optional functions that can be composed, to try the compositions.
void hide_composable(chipset_api& api) {
#define CHIPSET_FUNCTION(name, required, group, since) \
  if (is_composable<Fn::name>(&chipset_api::name)) api.name = nullptr;
#include "chipset/functions.inc"
}

}  // namespace

void wrap(Plugin& plugin) {
  if (is_set("CHIPSET_COMPOSE")) hide_composable(plugin.base);
  take_turns(plugin);
  const auto option = plugin.spec.options.find("check");
  const bool asked = option != plugin.spec.options.end() && option->second == "1";
  if (watch().check || asked) {
    plugin.checker = std::make_shared<Checker>(plugin);
    plugin.refused = refused_call_of(plugin.spec);
  }
  install(plugin, std::make_integer_sequence<int, kMaxPlugins>());
}

}  // namespace chipset::runtime
