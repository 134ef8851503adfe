// SPDX-License-Identifier: Apache-2.0
// Statuses as exceptions inside a plugin; the table turns them back into statuses with a text.
#pragma once

#include <chipset/chipset.h>

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace chipset::sdk {

// What the core gave the plugin at load time; set by CHIPSET_SDK_PLUGIN.
inline const chipset_host*& host() {
  static const chipset_host* the = nullptr;
  return the;
}

// A launch option of the plugin (CHIPSET_<NAME>_<OPTION>), or `otherwise` when the user gave none.
inline std::string option(const char* name, const char* otherwise = "") {
  const char* value = host() != nullptr ? host()->option(name) : nullptr;
  return value != nullptr ? value : otherwise;
}
// Likewise for a whole number; throws INVALID for a text that is none.
inline int64_t option_number(const char* name, int64_t otherwise);

// A status other than OK with the text that explains it.
class Error : public std::runtime_error {
 public:
  Error(chipset_status status, const std::string& text)
      : std::runtime_error(text), status_(status) {}
  chipset_status status() const { return status_; }

 private:
  chipset_status status_;
};

// Throws; the text is formatted as by printf. A good one names the fault, the value and the way
// out.
[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(chipset_status status,
                                                                    const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Error(status, text);
}

// The legal answer to a dtype, layout, option or function that the chip does not do: the core then
// composes the call from others, or the host does it, counted.
[[noreturn]] inline void unsupported(const std::string& what) {
  throw Error(CHIPSET_STATUS_UNSUPPORTED, what);
}

inline int64_t option_number(const char* name, int64_t otherwise) {
  const std::string text = option(name);
  if (text.empty()) return otherwise;
  std::size_t used = 0;
  int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size())
    fail(CHIPSET_STATUS_INVALID, "option '%s' is '%s'; need a whole number", name, text.c_str());
  return value;
}

// Runs what may throw and answers with a status, its text set (ERR-001).
template <class Function>
chipset_status guarded(Function&& function) noexcept {
  try {
    function();
    return CHIPSET_STATUS_OK;
  } catch (const Error& error) {
    // NOT_READY is an answer, not a fault: it has no text.
    if (error.status() != CHIPSET_STATUS_NOT_READY) host()->set_error(error.what());
    return error.status();
  } catch (const std::bad_alloc&) {
    host()->set_error("the host has no memory left");
    return CHIPSET_STATUS_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    host()->set_error(error.what());
  } catch (...) {
    host()->set_error("the plugin threw something that is no std::exception");
  }
  return CHIPSET_STATUS_INTERNAL;
}

}  // namespace chipset::sdk
