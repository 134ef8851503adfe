// SPDX-License-Identifier: Apache-2.0
// From a class of static functions to the interface's table.
#pragma once

#include "check.hpp"

namespace chipset::sdk {

namespace detail {
// An argument struct is checked before the chip sees it; anything else passes.
template <class T>
void check_parameter(const T&) {}
#define CHIPSET_SDK_CHECKED(args_of)                                        \
  inline void check_parameter(const chipset_##args_of* args) {              \
    if (args == nullptr) fail(CHIPSET_STATUS_INVALID, "no arguments");      \
    if constexpr (!std::is_same_v<chipset_##args_of, chipset_scatter_args>) \
      check_each_tensor(*args);                                             \
    check_arguments(*args);                                                 \
  }
CHIPSET_SDK_CHECKED(pointwise_args)
CHIPSET_SDK_CHECKED(reduce_args)
CHIPSET_SDK_CHECKED(gemm_args)
CHIPSET_SDK_CHECKED(gather_args)
CHIPSET_SDK_CHECKED(scatter_args)
CHIPSET_SDK_CHECKED(attention_args)
CHIPSET_SDK_CHECKED(softmax_args)
CHIPSET_SDK_CHECKED(norm_args)
CHIPSET_SDK_CHECKED(rotary_args)
CHIPSET_SDK_CHECKED(cross_entropy_args)
CHIPSET_SDK_CHECKED(adamw_args)
CHIPSET_SDK_CHECKED(quantize_args)
CHIPSET_SDK_CHECKED(gemm_quantized_args)
CHIPSET_SDK_CHECKED(attention_paged_args)
CHIPSET_SDK_CHECKED(scan_args)
CHIPSET_SDK_CHECKED(sort_args)
CHIPSET_SDK_CHECKED(random_args)
#undef CHIPSET_SDK_CHECKED

// The C function that stands in the table for a chip's: exceptions become statuses.
template <auto kFunction, class Signature>
struct Entry;
template <auto kFunction, class... A>
struct Entry<kFunction, chipset_status (*)(A...)> {
  static chipset_status call(A... arguments) noexcept {
    return guarded([&] {
      (check_parameter(arguments), ...);
      kFunction(arguments...);
    });
  }
};

#define CHIPSET_FUNCTION(name, required, group, since) \
  template <class Chip, class = void>                  \
  struct Has_##name : std::false_type {};              \
  template <class Chip>                                \
  struct Has_##name<Chip, std::void_t<decltype(&Chip::name)>> : std::true_type {};
#include <chipset/functions.inc>
}  // namespace detail

// The table of a chip. Absent functions are NULL (VER-003).
template <class Chip>
chipset_api make_table(const char* name, const char* version) {
  chipset_api api{};
  api.struct_size = sizeof api;
  api.major = CHIPSET_VERSION_MAJOR;
  api.minor = CHIPSET_VERSION_MINOR;
  api.name = name;
  api.version = version;
  api.build_info = "chipset_sdk, " __VERSION__;
#define CHIPSET_FUNCTION(function, required, group, since)          \
  static_assert(!(required) || detail::Has_##function<Chip>::value, \
                "the chip lacks the required function " #function); \
  if constexpr (detail::Has_##function<Chip>::value)                \
    api.function = detail::Entry<&Chip::function, decltype(chipset_api::function)>::call;
#include <chipset/functions.inc>
  return api;
}

}  // namespace chipset::sdk

// Defines the plugin's entry point.
#define CHIPSET_SDK_PLUGIN(Chip, name, version)                                           \
  extern "C" CHIPSET_EXPORT const chipset_api* chipset_plugin(const chipset_host* host) { \
    chipset::sdk::host() = host;                                                          \
    static const chipset_api api = chipset::sdk::make_table<Chip>(name, version);         \
    return &api;                                                                          \
  }
