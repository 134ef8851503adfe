// SPDX-License-Identifier: Apache-2.0
#include "borrowed.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "config.h"

namespace chipset::sim {
namespace {

chipset_api table{};
struct LastError {
  std::string text;
};
std::string& last_error() { return runtime::per_thread<LastError>().text; }

void set_error(const char* message) {
  std::string& text = last_error();
  text = message == nullptr ? "" : message;
  if (text.starts_with("cpu: ")) text.erase(0, 5);
}

void log(std::int32_t level, const char* message) {
  if (g_host->log != nullptr) g_host->log(level, message);
}

const char* option(const char* name) {
  static const std::string* const devices = new std::string(std::to_string(config().devices));
  if (std::strcmp(name, "devices") == 0) return devices->c_str();
  return g_host->option == nullptr ? nullptr : g_host->option(name);
}

// The option, or beside this library as in the source tree and in the wheel.
std::string find_library() {
  if (!config().cpu_library.empty()) return config().cpu_library;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&find_library), &self) == 0) return "";
  const std::string file = self.dli_fname;
  const std::string folder = file.substr(0, file.rfind('/'));
  for (const char* place : {"/../chipset_cpu/", "/../../cpu/chipset_cpu/"})
    if (const std::string path = folder + place + "libchipset_cpu.so";
        access(path.c_str(), R_OK) == 0)
      return path;
  return "";
}

// Copies the file into memory and gives a path to it: the loader takes it for another library.
std::string copy_of(const std::string& path, std::string* reason) {
  const int from = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info{};
  const int to = memfd_create("chipset-sim-cpu", MFD_CLOEXEC);
  bool whole = from >= 0 && to >= 0 && fstat(from, &info) == 0;
  for (off_t left = info.st_size; whole && left > 0;) {
    const ssize_t n = sendfile(to, from, nullptr, static_cast<std::size_t>(left));
    whole = n > 0;
    left -= n;
  }
  if (!whole) *reason = text("cannot read ", path, ": ", std::strerror(errno));
  if (from >= 0) close(from);
  return whole ? text("/proc/self/fd/", to) : "";
}

}  // namespace

std::string load_borrowed() {
  const std::string path = find_library();
  if (path.empty())
    return "no libchipset_cpu.so was found beside this library; give its path as option "
           "cpu_library";
  std::string reason;
  const std::string copy = copy_of(path, &reason);
  if (copy.empty()) return reason;
  void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return text("cannot load ", path, ": ", dlerror());
  const auto entry = reinterpret_cast<const chipset_api* (*)(const chipset_host*)>(
      dlsym(library, "chipset_plugin"));
  if (entry == nullptr) return path + " is no Chipset plugin";
  static const chipset_host host = {
      sizeof(chipset_host), CHIPSET_VERSION_MAJOR, CHIPSET_VERSION_MINOR, set_error, log, option};
  const chipset_api* api = entry(&host);
  if (api == nullptr) return path + ": " + take_borrowed_error();
  std::memcpy(static_cast<void*>(&table), api,
              std::min<std::size_t>(api->struct_size, sizeof table));
  return "";
}

const chipset_api& borrowed() { return table; }

std::string take_borrowed_error() { return std::exchange(last_error(), ""); }

}  // namespace chipset::sim
