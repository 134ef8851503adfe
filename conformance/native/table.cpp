// SPDX-License-Identifier: Apache-2.0
// The mutant plugin: loads the good chip's library (option `good`), seeds the fault that the option
// `fault` names. Without a fault it is the good chip: `none`, or `none-asynchronous` behind queues.
#include <dlfcn.h>

#include <string>

#include "mutant.h"

namespace chipset::mutants {

namespace {

chipset_api& good_table() {
  static chipset_api table{};
  return table;
}

const List& all() {
  static const List list = [] {
    List made;
    for (void (*add)(List&) : {add_device, add_stream, add_pointwise, add_conversion, add_reduce,
                               add_gemm, add_indexing, add_attention, add_rows, add_optimizer,
                               add_quantized, add_ordered, add_collective, add_cheats})
      add(made);
    return made;
  }();
  return list;
}

// The table of the library whose path the option `good` gives.
void load_good(const chipset_host* host) {
  const std::string path = sdk::option("good");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) sdk::fail(CHIPSET_STATUS_INVALID, "the good chip: %s", dlerror());
  using Entry = const chipset_api* (*)(const chipset_host*);
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "chipset_plugin"));
  const chipset_api* api = entry != nullptr ? entry(host) : nullptr;
  if (api == nullptr) sdk::fail(CHIPSET_STATUS_INVALID, "%s gave no table", path.c_str());
  std::memcpy(static_cast<void*>(&good_table()), api,
              std::min<std::size_t>(api->struct_size, sizeof(chipset_api)));
}

}  // namespace

const chipset_api& good() { return good_table(); }

}  // namespace chipset::mutants

extern "C" {

// One line for each mutant: name, level, functions and fault, separated by tabs.
CHIPSET_EXPORT const char* chipset_mutants() {
  static const std::string text = [] {
    std::string lines;
    for (const auto& m : chipset::mutants::all())
      lines += std::string(m.name) + '\t' + m.level + '\t' + m.functions + '\t' + m.fault + '\n';
    return lines;
  }();
  return text.c_str();
}

CHIPSET_EXPORT const chipset_api* chipset_plugin(const chipset_host* host) {
  using namespace chipset;
  sdk::host() = host;
  static chipset_api api;
  const chipset_status status = sdk::guarded([&] {
    mutants::load_good(host);
    const std::string fault = sdk::option("fault", "none");
    const mutants::Mutant* seeded = nullptr;
    for (const auto& m : mutants::all())
      if (fault == m.name) seeded = &m;
    if (seeded == nullptr && fault != "none" && fault != "none-asynchronous")
      sdk::fail(CHIPSET_STATUS_INVALID, "there is no mutant '%s'", fault.c_str());
    const bool queued =
        fault == "none-asynchronous" ||
        (seeded != nullptr && (seeded->queued || std::string(seeded->level) == "1"));
    api = queued ? mutants::asynchronous() : mutants::good();
    if (queued) mutants::queue_collectives(api);
    api.struct_size = sizeof api;
    api.name = "mutant";
    api.version = "0";
    if (seeded != nullptr) seeded->seed(api);
  });
  return status == CHIPSET_STATUS_OK ? &api : nullptr;
}

}  // extern "C"
