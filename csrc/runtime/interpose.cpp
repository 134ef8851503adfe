// SPDX-License-Identifier: Apache-2.0
// Wraps a plugin's table. Each plugin slot has thunks of its own, since C functions carry no
// context; every thunk ends in intercept(), which reads as the story of a call.
#include "interpose.h"

#include <utility>

namespace chipset::runtime {
namespace {

template <Fn F, class... A>
chipset_status call(Plugin& plugin, chipset_status (*function)(A...), A... args) {
  if constexpr (F == Fn::stream_destroy) forget_stream(args...);
  const chipset_status status = function(args...);
  if constexpr (F == Fn::stream_create) {
    if (status == CHIPSET_STATUS_OK) {
      [&](std::int32_t device, std::int32_t, chipset_stream* stream) {
        remember_stream(*stream, plugin.first_device + device);
      }(args...);
    }
  }
  return status;
}

template <Fn F, class... A>
chipset_status intercept(int slot, chipset_status (*chipset_api::*member)(A...), A... args) {
  Plugin& plugin = plugin_at(slot);
  return call<F>(plugin, plugin.base.*member, args...);
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
  }
};

template <int... Slots>
void install(Plugin& plugin, std::integer_sequence<int, Slots...>) {
  ((plugin.slot == Slots ? Thunks<Slots>::install(plugin) : void()), ...);
}

}  // namespace

void wrap(Plugin& plugin) { install(plugin, std::make_integer_sequence<int, kMaxPlugins>()); }

}  // namespace chipset::runtime
