// SPDX-License-Identifier: Apache-2.0
// Who is calling, for messages about what was made long ago.
#pragma once

#include <string>

namespace chipset::runtime {

// The calling thread's Python frames, innermost first, one a line; "" outside of Python.
std::string python_frames();

}  // namespace chipset::runtime
