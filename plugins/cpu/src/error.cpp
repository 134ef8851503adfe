// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace chipset::cpu {

const chipset_host* g_host = nullptr;

chipset_status fail(chipset_status status, const char* format, ...) {
  char text[512] = "cpu: ";
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + 5, sizeof(text) - 5, format, arguments);
  va_end(arguments);
  if (g_host != nullptr && g_host->set_error != nullptr) g_host->set_error(text);
  return status;
}

const char* option(const char* name) {
  return g_host != nullptr && g_host->option != nullptr ? g_host->option(name) : nullptr;
}

long long option_number(const char* name, long long fallback, long long low, long long high) {
  const char* text = option(name);
  if (text == nullptr || *text == '\0') return fallback;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (errno == 0 && *end == '\0' && low <= value && value <= high) return value;
  char message[256];
  std::snprintf(message, sizeof(message),
                "cpu: option %s=%s is no whole number from %lld to %lld; %lld is used", name, text,
                low, high, fallback);
  if (g_host != nullptr && g_host->log != nullptr) g_host->log(2, message);
  return fallback;
}

}  // namespace chipset::cpu
