// SPDX-License-Identifier: Apache-2.0
// What can stand between a caller and a plugin's function.
#pragma once

#include "plugin.h"

namespace chipset::runtime {

// A function as a type, for overloads: composed(Tag<Fn::softmax>, …).
template <Fn F>
struct Tag {};

}  // namespace chipset::runtime
