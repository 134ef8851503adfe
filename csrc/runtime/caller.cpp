// SPDX-License-Identifier: Apache-2.0
#include "caller.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "per_thread.h"

namespace chipset::runtime {

// Python's own function behind faulthandler, which needs neither the GIL nor memory. It writes to a
// file, so that it gets one in memory.
std::string python_frames() {
  using Dump = void (*)(int, void*);
  using ThisThread = void* (*)();
  static const auto dump = reinterpret_cast<Dump>(dlsym(RTLD_DEFAULT, "_Py_DumpTraceback"));
  static const auto this_thread =
      reinterpret_cast<ThisThread>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  if (dump == nullptr || this_thread == nullptr) return "";
  void* state = this_thread();
  if (state == nullptr) return "";
  struct File {
    int handle = memfd_create("chipset-frames", MFD_CLOEXEC);
    ~File() {
      if (handle >= 0) close(handle);
    }
  };
  const File& file = per_thread<File>();
  if (file.handle < 0 || lseek(file.handle, 0, SEEK_SET) != 0 || ftruncate(file.handle, 0) != 0)
    return "";
  dump(file.handle, state);
  char buffer[4096];
  const ssize_t n = pread(file.handle, buffer, sizeof buffer, 0);
  const std::string all(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
  const std::size_t first = all.find('\n');  // the heading
  return first == std::string::npos ? "" : all.substr(first + 1);
}

}  // namespace chipset::runtime
