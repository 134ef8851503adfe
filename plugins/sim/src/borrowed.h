// SPDX-License-Identifier: Apache-2.0
// The CPU chip, whose kernels this chip borrows through the waist: a private copy of its library,
// so that a CPU chip launched in the same process is another one.
#pragma once

#include <string>

#include "common.h"

namespace chipset::sim {

// Loads the library; "" or the reason why that is impossible.
std::string load_borrowed();
const chipset_api& borrowed();
// What the CPU chip last said in this thread, without its name; forgets it.
std::string take_borrowed_error();

}  // namespace chipset::sim
