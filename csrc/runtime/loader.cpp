// SPDX-License-Identifier: Apache-2.0
// Loads a plugin's library and decides whether it can be used. A bad plugin is an answer, never
// the end of the process: the first load happens in a child process, which may crash or hang.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "plugin.h"

namespace chipset::runtime {
namespace {

constexpr int kRehearsalSeconds = 60;

struct FunctionInfo {
  const char* name;
  bool required;
  int since;
  std::size_t offset;
};
constexpr FunctionInfo kFunctions[] = {
#define CHIPSET_FUNCTION(name, required, group, since) \
  {#name, required != 0, since, offsetof(chipset_api, name)},
#include "chipset/functions.inc"
};

[[noreturn]] void refuse(const PluginSpec& spec, const std::string& text) {
  throw Error(CHIPSET_STATUS_INVALID, "plugin '" + spec.name + "': " + text);
}

std::string version_text(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

void check_table(const PluginSpec& spec, const chipset_api* api) {
  if (api->struct_size < offsetof(chipset_api, name))
    refuse(spec, spec.library + " returned a table of " + std::to_string(api->struct_size) +
                     " bytes, too small to hold even a version (VER-002); rebuild the plugin");
  if (api->major != CHIPSET_VERSION_MAJOR)
    refuse(spec, spec.library + " was built for interface version " +
                     version_text(api->major, api->minor) + ", this core has " +
                     version_text(CHIPSET_VERSION_MAJOR, CHIPSET_VERSION_MINOR) +
                     " (VER-001); install a plugin built for major version " +
                     std::to_string(CHIPSET_VERSION_MAJOR));
  std::string missing;
  for (const FunctionInfo& f : kFunctions) {
    if (!f.required || f.since > api->minor) continue;
    const bool inside = f.offset + sizeof(void*) <= api->struct_size;
    void* slot = nullptr;
    if (inside) std::memcpy(&slot, reinterpret_cast<const char*>(api) + f.offset, sizeof slot);
    if (slot == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(f.name);
  }
  if (!missing.empty())
    refuse(spec, spec.library + " lacks required functions (VER-003): " + missing);
  if (api->name == nullptr || api->version == nullptr)
    refuse(spec, spec.library + " gave no name or no version in its table");
}

// Sends a length and the bytes; the parent reads until the end.
void send_all(int pipe, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = write(pipe, at, size);
    if (n <= 0) _exit(3);
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}
void send_text(int pipe, const std::string& text) {
  const std::uint64_t size = text.size();
  send_all(pipe, &size, sizeof size);
  send_all(pipe, text.data(), text.size());
}

struct Reader {
  const std::string& bytes;
  std::size_t at = 0;
  bool get(void* out, std::size_t size) {
    if (at + size > bytes.size()) return false;
    std::memcpy(out, bytes.data() + at, size);
    at += size;
    return true;
  }
  bool text(std::string* out) {
    std::uint64_t size = 0;
    if (!get(&size, sizeof size) || at + size > bytes.size()) return false;
    *out = bytes.substr(at, size);
    at += size;
    return true;
  }
};

struct ChildEnd {
  std::string output;
  int status = 0;
  bool hung = false;
};

// Reads the pipe to its end and collects the child, which is killed when its time is over.
ChildEnd collect(int pipe, pid_t child) {
  ChildEnd end;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kRehearsalSeconds);
  char buffer[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    pollfd waiting{pipe, POLLIN, 0};
    const int ready = left > 0 ? poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      end.hung = true;
      kill(child, SIGKILL);
      break;
    }
    const ssize_t n = read(pipe, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    end.output.append(buffer, static_cast<std::size_t>(n));
  }
  close(pipe);
  while (waitpid(child, &end.status, 0) < 0 && errno == EINTR) {
  }
  return end;
}

std::vector<chipset_device_info> read_devices(const PluginSpec& spec, const chipset_api& api) {
  std::int32_t count = 0;
  check(api.device_count(&count), "device_count");
  std::vector<chipset_device_info> devices;
  for (std::int32_t i = 0; i < count; ++i) {
    chipset_device_info info{};
    info.struct_size = sizeof info;
    check(api.device_info(i, &info), "device_info");
    devices.push_back(info);
  }
  (void)spec;
  return devices;
}

// Loads in a child process. With `devices` it also asks for them.
Probe rehearse(const PluginSpec& spec, const chipset_host* host, bool devices) {
  Probe result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.reason = std::string("cannot make a pipe to try the plugin: ") + std::strerror(errno);
    return result;
  }
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    result.reason = std::string("cannot fork to try the plugin: ") + std::strerror(errno);
    return result;
  }
  if (child == 0) {
    // A crash is told through the exit status; no core file, no handler of the parent's.
    for (int s : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) signal(s, SIG_DFL);
    close(ends[0]);
    try {
      const chipset_api* raw = load_plugin(spec, host);
      std::vector<chipset_device_info> found;
      if (devices) found = read_devices(spec, complete(raw));
      send_text(ends[1], "");
      send_text(ends[1], raw->version);
      send_text(ends[1], raw->build_info == nullptr ? "" : raw->build_info);
      const std::int32_t version[2] = {raw->major, raw->minor};
      send_all(ends[1], version, sizeof version);
      const std::uint64_t count = found.size();
      send_all(ends[1], &count, sizeof count);
      send_all(ends[1], found.data(), found.size() * sizeof(chipset_device_info));
    } catch (const std::exception& error) {
      send_text(ends[1], error.what());
    } catch (...) {
      send_text(ends[1],
                "plugin '" + spec.name + "': threw an exception that is no std::exception");
    }
    _exit(0);
  }
  close(ends[1]);
  const ChildEnd end = collect(ends[0], child);
  const std::string where = "plugin '" + spec.name + "': " + spec.library;
  if (end.hung) {
    result.reason = where + " did not answer within " + std::to_string(kRehearsalSeconds) +
                    " s while it was loaded";
    return result;
  }
  if (WIFSIGNALED(end.status)) {
    result.reason = where + " crashed while it was loaded (signal " +
                    std::to_string(WTERMSIG(end.status)) + ", " + strsignal(WTERMSIG(end.status)) +
                    "); the file may be truncated or the plugin's initialisation faulty: "
                    "reinstall it";
    return result;
  }
  Reader reader{end.output};
  std::int32_t version[2] = {0, 0};
  std::uint64_t count = 0;
  if (!reader.text(&result.reason)) {
    result.reason = where + " ended the process with status " +
                    std::to_string(WEXITSTATUS(end.status)) + " while it was loaded (ERR-001)";
    return result;
  }
  if (!result.reason.empty()) return result;
  reader.text(&result.version);
  reader.text(&result.build_info);
  reader.get(version, sizeof version);
  reader.get(&count, sizeof count);
  result.major = version[0];
  result.minor = version[1];
  result.devices.resize(count);
  reader.get(result.devices.data(), count * sizeof(chipset_device_info));
  result.available = true;
  return result;
}

}  // namespace

const char* function_name(Fn function) { return kFunctions[static_cast<int>(function)].name; }

chipset_api complete(const chipset_api* api) {
  chipset_api whole{};
  std::memcpy(&whole, api, std::min<std::size_t>(api->struct_size, sizeof whole));
  whole.struct_size = sizeof whole;
  return whole;
}

const chipset_api* load_plugin(const PluginSpec& spec, const chipset_host* host) {
  struct stat file{};
  if (stat(spec.library.c_str(), &file) != 0)
    refuse(spec, "library " + spec.library + ": " + std::strerror(errno) +
                     "; reinstall the package that provides the plugin");
  // Local: the symbols of two plugins (or of a plugin and torch) must not meet.
  void* library = dlopen(spec.library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) refuse(spec, std::string("cannot load the library: ") + dlerror());
  auto entry = reinterpret_cast<const chipset_api* (*)(const chipset_host*)>(
      dlsym(library, "chipset_plugin"));
  if (entry == nullptr)
    refuse(spec, spec.library + " exports no function chipset_plugin; it is not a Chipset plugin");
  const chipset_api* api = nullptr;
  take_error();
  try {
    api = entry(host);
  } catch (const std::exception& error) {
    refuse(spec, "chipset_plugin threw an exception (ERR-001): " + std::string(error.what()));
  } catch (...) {
    refuse(spec, "chipset_plugin threw an exception (ERR-001)");
  }
  if (api == nullptr) {
    const std::string text = take_error();
    refuse(spec, text.empty() ? "chipset_plugin returned NULL without a reason" : text);
  }
  check_table(spec, api);
  return api;
}

RefusedCall refused_call_of(const PluginSpec& spec) {
  void* library = dlopen(spec.library.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto function = reinterpret_cast<RefusedCall>(dlsym(library, "chipset_plugin_refused"));
  dlclose(library);  // load_plugin's own reference keeps it
  return function;
}

std::string rehearse_load(const PluginSpec& spec, const chipset_host* host) {
  const char* wanted = std::getenv("CHIPSET_REHEARSE");
  if (wanted != nullptr && std::strcmp(wanted, "0") == 0) return "";
  return rehearse(spec, host, false).reason;
}

Probe probe(const PluginSpec& spec) {
  // The slot after the last is for plugins that are only tried, one at a time.
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  static PluginSpec tried;
  tried = spec;
  const chipset_host host = make_host(kMaxPlugins, &tried);
  return rehearse(tried, &host, true);
}

}  // namespace chipset::runtime
