// SPDX-License-Identifier: Apache-2.0
// How a function of the plugin reports a fault: `return fail(CHIPSET_STATUS_INVALID, "...", ...)`.
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

// What the core gave chipset_plugin; set before any other call.
extern const chipset_host* g_host;

// Hands the formatted text, prefixed "cpu: ", to the host and returns the status.
[[gnu::format(printf, 2, 3), gnu::cold]] chipset_status fail(chipset_status status,
                                                             const char* format, ...);

// A launch option as text, or NULL when the user gave none.
const char* option(const char* name);
// A launch option as a whole number, or fallback when absent; a text that is no number in
// [low, high] is reported once through host->log and read as fallback.
long long option_number(const char* name, long long fallback, long long low, long long high);

}  // namespace chipset::cpu
