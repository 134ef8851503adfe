// SPDX-License-Identifier: Apache-2.0
// Everything of the SDK for a plugin in C++17. A plugin is one class of static functions, each
// named as in the interface's table and taking the same parameters; it may return void and throw:
//
//   struct MyChip {
//     static void device_count(int32_t* count) { *count = driver::count(); }
//     static void gemm(chipset_stream stream, const chipset_gemm_args* args) { … }
//     …
//   };
//   CHIPSET_SDK_PLUGIN(MyChip, "mychip", "0.1.0")
//
// What a chip lacks stays out of the class: an optional function is then absent from the table, and
// a required one is a compile-time error that names it. Header-only; depends on nothing but
// chipset/chipset.h.
#pragma once

#include "chipset_sdk/check.hpp"
#include "chipset_sdk/error.hpp"
#include "chipset_sdk/held.hpp"
#include "chipset_sdk/numbers.hpp"
#include "chipset_sdk/queue.hpp"
#include "chipset_sdk/queued_device.hpp"
#include "chipset_sdk/table.hpp"
#include "chipset_sdk/tensor.hpp"
