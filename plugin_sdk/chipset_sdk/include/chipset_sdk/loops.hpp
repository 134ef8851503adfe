// SPDX-License-Identifier: Apache-2.0
// Compute functions as host loops: for chips whose kernels are compiled by the host's compiler (an
// attached processor, a simulator), and for whatever a vector unit lacks. Each takes arguments
// whose addresses it may dereference; each check_…() throws what it cannot do, before work is
// enqueued.
#pragma once

#include "chipset_sdk/loops/indexing.hpp"
#include "chipset_sdk/loops/pointwise.hpp"
#include "chipset_sdk/loops/quantized.hpp"
#include "chipset_sdk/loops/random.hpp"
#include "chipset_sdk/loops/reduce.hpp"
#include "chipset_sdk/loops/scan_sort.hpp"
