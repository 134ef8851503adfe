// SPDX-License-Identifier: Apache-2.0
// Inside the runtime: a loaded plugin and what belongs to it.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "runtime.h"

namespace chipset::runtime {

// C functions carry no context, so that each wrapped table needs code of its own; this many plugins
// can be launched in one process.
constexpr int kMaxPlugins = 8;
constexpr int kMaxDevices = 256;

// The functions of the table as an enum, in table order.
enum class Fn : int {
#define CHIPSET_FUNCTION(name, required, group, since) name,
#include "chipset/functions.inc"
  kCount
};
constexpr int kFunctionCount = static_cast<int>(Fn::kCount);
const char* function_name(Fn function);

class Checker;

// What a strict plugin may export as chipset_plugin_refused: it is told of every call that the
// checked layer refuses in its place ("ORD-001: …"), sets the error text, and answers the status.
using RefusedCall = chipset_status (*)(const char* fault);

struct Plugin {
  int slot = 0;
  PluginSpec spec;
  chipset_host host{};
  const chipset_api* raw = nullptr;  // as the plugin returned it
  chipset_api base{};                // completed to this header's size
  chipset_api table{};               // what devices show: base, wrapped where needed
  int first_device = 0;              // global index of local device 0
  int device_count = 0;
  std::shared_ptr<Checker> checker;  // with CHIPSET_CHECK=1 or the launch option check=1
  RefusedCall refused = nullptr;     // what the checked layer refused is told to it
};

// Plugin in a slot; it must have been launched.
Plugin& plugin_at(int slot);

// ---- errors and host callbacks (error.cpp) --------------------------------------------------
chipset_host make_host(int slot, const PluginSpec* spec);
// Sets the calling thread's error text on behalf of the core.
chipset_status set_error(const std::string& plugin, chipset_status status, const std::string& text);

bool has_error();
// True if the environment variable is "1".
bool is_set(const char* variable);

// ---- loader (loader.cpp) --------------------------------------------------------------------
// Loads the library in this process and checks its table; throws Error with the reason.
const chipset_api* load_plugin(const PluginSpec& spec, const chipset_host* host);
// Does the same in a child process, so that a crash is an answer; returns the reason or "".
std::string rehearse_load(const PluginSpec& spec, const chipset_host* host);
// The library's chipset_plugin_refused, or NULL; the library must be loaded.
RefusedCall refused_call_of(const PluginSpec& spec);
// A copy of the table as large as this header's, absent functions NULL.
chipset_api complete(const chipset_api* api);

// ---- wrapping (interpose.cpp) ---------------------------------------------------------------
// Fills plugin.table from plugin.base.
void wrap(Plugin& plugin);

// ---- allocator (allocator.cpp) --------------------------------------------------------------
// From now on each allocation of the device is a mem_alloc of its own.
void disable_cache(int device);

// ---- streams (launch.cpp) -------------------------------------------------------------------
void remember_stream(chipset_stream stream, int device);
void forget_stream(chipset_stream stream);
// Global index of the stream's device, or -1.
int find_device_of(chipset_stream stream);

// ---- process state --------------------------------------------------------------------------
// Counts a call of an optional function that the core composed.
void count_composed(const Plugin& plugin, Fn function);
// True once the process exits or in a forked child: plugins must not be called any more.
bool retired();
void throw_if_forked();

}  // namespace chipset::runtime
