// SPDX-License-Identifier: Apache-2.0
#include "graph_onnxruntime.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "error.h"

namespace chipset::cpu::ort {
namespace {

constexpr uint32_t kApiVersion = 14;  // onnxruntime 1.14 of 2023; later ones still give it
constexpr int kLogErrors = 3;
constexpr int kDeviceAllocator = 0, kDefaultMemory = 0;
constexpr char kPrefix[] = "libonnxruntime.so";

struct ApiBase {
  const void* const* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

// By chipset_dtype. I4 is left out: its packing differs by rank.
constexpr int kElementTypes[] = {9, 2, 3, 5, 6, 7, 10, 16, 1, 11, 17, 19};

// The library's files in a folder, the plain name first.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> found;
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) return found;
  while (const dirent* entry = readdir(entries)) {
    const std::string name = entry->d_name;
    if (name.rfind(kPrefix, 0) == 0) found.push_back(folder + "/" + name);
  }
  closedir(entries);
  std::sort(found.begin(), found.end());
  return found;
}

bool is_folder(const char* path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

struct Opened {
  Library library;
  bool usable = false;
  std::string reason;
};

void refuse(Opened& opened, const std::string& text) {
  opened.reason = text +
                  "; install it with 'pip install onnxruntime', or name its library or folder in "
                  "CHIPSET_CPU_ONNXRUNTIME";
}

bool succeeded(Opened& opened, Status* status) {
  if (status == nullptr) return true;
  refuse(opened,
         std::string("ONNX Runtime does not start: ") + opened.library.GetErrorMessage(status));
  opened.library.ReleaseStatus(status);
  return false;
}

Opened open() {
  Opened opened;
  const char* given = option("onnxruntime");
  std::vector<std::string> candidates = {"libonnxruntime.so.1", kPrefix};
  std::string sought = "the system's library path";
  if (given != nullptr && *given != '\0') {
    sought = given;
    candidates = is_folder(given) ? files_in(given) : std::vector<std::string>{given};
  }
  void* handle = nullptr;
  std::string fault;
  for (const std::string& path : candidates) {
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
    if (const char* text = dlerror(); text != nullptr && fault.empty()) fault = text;
  }
  if (handle == nullptr) {
    refuse(opened, std::string("ONNX graphs are run by ONNX Runtime, but ") + kPrefix +
                       " cannot be opened from " + sought +
                       (fault.empty() ? std::string() : " (" + fault + ")"));
    return opened;
  }
  auto* get_base = reinterpret_cast<const ApiBase* (*)()>(dlsym(handle, "OrtGetApiBase"));
  const ApiBase* base = get_base != nullptr ? get_base() : nullptr;
  const void* const* api = base != nullptr ? base->get_api(kApiVersion) : nullptr;
  if (api == nullptr) {
    refuse(opened, "the ONNX Runtime found in " + sought + " has version " +
                       (base != nullptr ? base->get_version() : "(none)") + ", need 1.14 or later");
    return opened;
  }
  Library& library = opened.library;
#define CPU_ORT_TAKE(place, name, result, parameters) \
  library.name = reinterpret_cast<result(*) parameters>(const_cast<void*>(api[place]));
  CPU_ORT_FUNCTIONS(CPU_ORT_TAKE)
#undef CPU_ORT_TAKE
  opened.usable = succeeded(opened, library.CreateEnv(kLogErrors, "chipset", &library.env)) &&
                  succeeded(opened, library.CreateCpuMemoryInfo(kDeviceAllocator, kDefaultMemory,
                                                                &library.memory)) &&
                  succeeded(opened, library.GetAllocatorWithDefaultOptions(&library.allocator));
  return opened;
}

}  // namespace

const Library* library(const char** reason) {
  // Never destroyed: threads of the runtime may live until the process ends.
  static const Opened* const opened = new Opened(open());
  *reason = opened->reason.c_str();
  return opened->usable ? &opened->library : nullptr;
}

int element_type(int32_t dtype) {
  const bool known = dtype >= 0 && dtype < static_cast<int32_t>(std::size(kElementTypes));
  return known ? kElementTypes[dtype] : -1;
}

int32_t dtype_of(int element_type) {
  const auto* found = std::find(std::begin(kElementTypes), std::end(kElementTypes), element_type);
  return found == std::end(kElementTypes) ? -1
                                          : static_cast<int32_t>(found - std::begin(kElementTypes));
}

}  // namespace chipset::cpu::ort
