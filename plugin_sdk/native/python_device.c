// SPDX-License-Identifier: Apache-2.0
// The library behind chipset_sdk.PythonDevice. The table lies in Python's memory: the option
// 'table' holds its address and that of a variable that wants the host's, as two hexadecimal
// numbers.
#include <inttypes.h>
#include <stdio.h>

#include "chipset/chipset.h"

const chipset_api* chipset_plugin(const chipset_host* host) {
  const char* option = host->option("table");
  uintptr_t table = 0, variable = 0;
  if (option == NULL || sscanf(option, "%" SCNxPTR ":%" SCNxPTR, &table, &variable) != 2) {
    host->set_error(
        "this library serves chipset_sdk.PythonDevice and has no table of its own; describe the "
        "plugin with PythonDevice.plugin()");
    return NULL;
  }
  *(const chipset_host**)variable = host;
  return (const chipset_api*)table;
}
