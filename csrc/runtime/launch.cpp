// SPDX-License-Identifier: Apache-2.0
// The launched plugins, their devices under global numbers, and the streams that belong to them.
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "plugin.h"

namespace chipset::runtime {
namespace {

// Never destroyed: tensors may be freed after static destructors have run.
struct State {
  std::mutex mutex;  // one launch at a time
  std::array<std::unique_ptr<Plugin>, kMaxPlugins> plugins;
  std::atomic<int> plugin_count{0};
  std::array<Device*, kMaxDevices> devices{};
  std::atomic<int> device_count{0};
  std::shared_mutex streams_mutex;
  std::unordered_map<chipset_stream, int> streams;
};
State& state() {
  static State* the = new State;
  return *the;
}

std::atomic<bool> forked{false};
std::atomic<bool> exiting{false};

// Devices that report leaks must not blame the caller for what only the core still holds.
void give_back_checked() {
  if (forked.load()) return;
  State& s = state();
  bool any = false;
  for (int i = 0; i < s.plugin_count.load(); ++i) {
    const Plugin& plugin = *s.plugins[static_cast<std::size_t>(i)];
    if (plugin.checker == nullptr) continue;
    any = true;
    for (int d = 0; d < plugin.device_count; ++d) try {
        empty_cache(plugin.first_device + d);
      } catch (const Error& error) {
        std::fprintf(stderr, "chipset: at exit: %s\n", error.what());
      }
  }
  if (!any) return;
  try {
    empty_host_cache();
  } catch (const Error& error) {
    std::fprintf(stderr, "chipset: at exit: %s\n", error.what());
  }
}

void watch_process() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      if (state().device_count.load() > 0) forked.store(true);
    });
    std::atexit([] {
      give_back_checked();
      flush();
      exiting.store(true);
    });
  });
}

Plugin* find_plugin(const std::string& name) {
  State& s = state();
  for (int i = 0; i < s.plugin_count.load(); ++i)
    if (s.plugins[static_cast<std::size_t>(i)]->spec.name == name)
      return s.plugins[static_cast<std::size_t>(i)].get();
  return nullptr;
}

// Loads one plugin into the next slot and returns its devices; changes no global state.
std::unique_ptr<Plugin> open(const PluginSpec& spec, int slot,
                             std::vector<chipset_device_info>* infos) {
  auto plugin = std::make_unique<Plugin>();
  plugin->slot = slot;
  plugin->spec = spec;
  plugin->host = make_host(slot, &plugin->spec);
  const std::string reason = rehearse_load(spec, &plugin->host);
  if (!reason.empty()) throw Error(CHIPSET_STATUS_INVALID, reason);
  plugin->raw = load_plugin(spec, &plugin->host);
  plugin->base = complete(plugin->raw);
  std::int32_t count = 0;
  check(plugin->base.device_count(&count), "device_count");
  if (count <= 0)
    throw Error(CHIPSET_STATUS_INVALID,
                "plugin '" + spec.name +
                    "': its driver works but no device is present; run 'chipset devices' to see "
                    "what is");
  for (std::int32_t i = 0; i < count; ++i) {
    chipset_device_info info{};
    info.struct_size = sizeof info;
    check(plugin->base.device_info(i, &info), "device_info");
    infos->push_back(info);
  }
  plugin->device_count = count;
  return plugin;
}

void launch_one(const PluginSpec& spec) {
  State& s = state();
  if (const Plugin* known = find_plugin(spec.name)) {
    if (known->spec.library == spec.library && known->spec.options == spec.options) return;
    throw Error(CHIPSET_STATUS_INVALID,
                "plugin '" + spec.name +
                    "' is already launched with another library or other options; they cannot "
                    "change within a process");
  }
  const int slot = s.plugin_count.load();
  if (slot >= kMaxPlugins)
    throw Error(CHIPSET_STATUS_INVALID, "plugin '" + spec.name +
                                            "': " + std::to_string(kMaxPlugins) +
                                            " plugins are launched, which is the most");
  std::vector<chipset_device_info> infos;
  std::unique_ptr<Plugin> plugin = open(spec, slot, &infos);
  const int first = s.device_count.load();
  if (first + plugin->device_count > kMaxDevices)
    throw Error(CHIPSET_STATUS_INVALID,
                "plugin '" + spec.name + "' has " + std::to_string(plugin->device_count) +
                    " devices; a process can hold " + std::to_string(kMaxDevices) + " in all");
  plugin->first_device = first;
  wrap(*plugin);
  if (plugin->checker != nullptr)
    for (int i = 0; i < plugin->device_count; ++i) disable_cache(first + i);
  for (int i = 0; i < plugin->device_count; ++i) {
    s.devices[static_cast<std::size_t>(first + i)] =
        new Device{first + i, i, &plugin->table, infos[static_cast<std::size_t>(i)], spec.name};
  }
  s.plugins[static_cast<std::size_t>(slot)] = std::move(plugin);
  s.plugin_count.store(slot + 1);
  s.device_count.store(first + s.plugins[static_cast<std::size_t>(slot)]->device_count);
  watch_process();
}

}  // namespace

Plugin& plugin_at(int slot) { return *state().plugins[static_cast<std::size_t>(slot)]; }

void launch(const std::vector<PluginSpec>& plugins) {
  throw_if_forked();
  std::lock_guard lock(state().mutex);
  for (const PluginSpec& spec : plugins) launch_one(spec);
}

int device_count() { return state().device_count.load(std::memory_order_acquire); }

Device& device(int index) {
  State& s = state();
  const int count = s.device_count.load(std::memory_order_acquire);
  if (index < 0 || index >= count) [[unlikely]] {
    throw Error(CHIPSET_STATUS_INVALID,
                count == 0 ? "no plugin is launched, so that there is no device " +
                                 std::to_string(index) + "; call chipset.select first"
                           : "there is no device " + std::to_string(index) + "; " +
                                 std::to_string(count) + " present, numbered from 0");
  }
  throw_if_forked();
  return *s.devices[static_cast<std::size_t>(index)];
}

int find_device(const std::string& plugin, int local) {
  std::lock_guard lock(state().mutex);
  const Plugin* found = find_plugin(plugin);
  if (found == nullptr)
    throw Error(CHIPSET_STATUS_INVALID, "plugin '" + plugin + "' is not launched");
  if (local < 0 || local >= found->device_count)
    throw Error(CHIPSET_STATUS_INVALID,
                "device '" + plugin + ":" + std::to_string(local) + "' does not exist; " + plugin +
                    " has " + std::to_string(found->device_count) + ", numbered from 0");
  return found->first_device + local;
}

void remember_stream(chipset_stream stream, int device) {
  std::lock_guard lock(state().streams_mutex);
  state().streams[stream] = device;
}

void forget_stream(chipset_stream stream) {
  std::lock_guard lock(state().streams_mutex);
  state().streams.erase(stream);
}

int find_device_of(chipset_stream stream) {
  State& s = state();
  std::shared_lock lock(s.streams_mutex);
  const auto found = s.streams.find(stream);
  return found == s.streams.end() ? -1 : found->second;
}

Device& device_of(chipset_stream stream) {
  const int index = find_device_of(stream);
  if (index < 0)
    throw Error(CHIPSET_STATUS_INVALID, "the stream was not made by a launched device, or ended");
  return device(index);
}

bool in_bad_fork() { return forked.load(std::memory_order_relaxed); }
bool retired() {
  return forked.load(std::memory_order_relaxed) || exiting.load(std::memory_order_relaxed);
}

void throw_if_forked() {
  if (!in_bad_fork()) [[likely]]
    return;
  throw Error(CHIPSET_STATUS_INVALID,
              "chip devices cannot be used in a process forked after they were launched; start it "
              "with multiprocessing's 'spawn' method");
}

}  // namespace chipset::runtime
