// SPDX-License-Identifier: Apache-2.0
// Error text of a thread, and the callbacks that the core gives to plugins.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "per_thread.h"
#include "plugin.h"

namespace chipset::runtime {
namespace {

struct LastError {
  std::string plugin;
  std::string text;
};
LastError& last_error() { return per_thread<LastError>(); }

// What a slot's callbacks know, written before the plugin is loaded; the slot after the last is for
// plugins that are only tried (probe).
std::array<const PluginSpec*, kMaxPlugins + 1> slot_specs{};

int log_threshold() {
  static const int level = [] {
    const char* text = std::getenv("CHIPSET_LOG");
    if (text == nullptr) return 2;
    const char* names[] = {"debug", "info", "warning", "error"};
    for (int i = 0; i < 4; ++i)
      if (std::strcmp(text, names[i]) == 0) return i;
    std::fprintf(stderr, "chipset: CHIPSET_LOG=%s is not debug, info, warning or error\n", text);
    return 2;
  }();
  return level;
}

template <int Slot>
void host_set_error(const char* text) {
  last_error().plugin = slot_specs[Slot]->name;
  last_error().text = text == nullptr ? "" : text;
}

template <int Slot>
void host_log(int32_t level, const char* text) {
  static const char* const kNames[] = {"debug", "info", "warning", "error"};
  const int known = level < 0 ? 0 : level > 3 ? 3 : level;
  if (known < log_threshold() || text == nullptr) return;
  std::fprintf(stderr, "%s: %s: %s\n", slot_specs[Slot]->name.c_str(), kNames[known], text);
}

template <int Slot>
const char* host_option(const char* name) {
  if (name == nullptr) return nullptr;
  const auto& options = slot_specs[Slot]->options;
  const auto found = options.find(name);
  return found == options.end() ? nullptr : found->second.c_str();
}

template <int... Slots>
chipset_host host_of(int slot, std::integer_sequence<int, Slots...>) {
  chipset_host host{};
  host.struct_size = sizeof(chipset_host);
  host.major = CHIPSET_VERSION_MAJOR;
  host.minor = CHIPSET_VERSION_MINOR;
  ((slot == Slots ? (host.set_error = host_set_error<Slots>, host.log = host_log<Slots>,
                     host.option = host_option<Slots>, void())
                  : void()),
   ...);
  return host;
}

}  // namespace

chipset_host make_host(int slot, const PluginSpec* spec) {
  slot_specs[static_cast<std::size_t>(slot)] = spec;
  return host_of(slot, std::make_integer_sequence<int, kMaxPlugins + 1>());
}

chipset_status set_error(const std::string& plugin, chipset_status status,
                         const std::string& text) {
  last_error() = {plugin, text};
  return status;
}

const char* status_name(chipset_status status) {
  static const char* const kNames[] = {"OK",          "INVALID", "UNSUPPORTED", "OUT_OF_MEMORY",
                                       "DEVICE_LOST", "TIMEOUT", "INTERNAL",    "NOT_READY",
                                       "OUT_OF_RANGE"};
  const bool known = status >= 0 && status < static_cast<int>(std::size(kNames));
  return known ? kNames[status] : "an unknown status";
}

bool has_error() { return !last_error().text.empty(); }

bool is_set(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::strcmp(text, "1") == 0;
}

std::string take_error() { return std::exchange(last_error().text, ""); }

void fail(chipset_status status, const char* function) {
  const std::string plugin = last_error().text.empty() ? "" : last_error().plugin;
  std::string text = take_error();
  if (text.empty()) text = std::string(status_name(status)) + " (the plugin gave no text)";
  // Plugin and function are named once, whether or not the plugin's text names them.
  for (const std::string& name : {plugin, std::string(function)})
    if (!name.empty() && text.starts_with(name + ": ")) text.erase(0, name.size() + 2);
  throw Error(status, (plugin.empty() ? "chipset" : plugin) + ": " + function + ": " + text);
}

}  // namespace chipset::runtime
