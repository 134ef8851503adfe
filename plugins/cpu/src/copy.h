// SPDX-License-Identifier: Apache-2.0
// Copies between strided tensors: bits, or with conversion.
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

// output = input, converted to output's dtype. Shapes agree; `function` begins a message.
chipset_status copy_tensor(const char* function, const chipset_tensor& output,
                           const chipset_tensor& input);
// Every element of output = the element's bytes.
void fill_tensor(const chipset_tensor& output, const void* element);

}  // namespace chipset::cpu
