// SPDX-License-Identifier: Apache-2.0
// Optional functions made from required ones, for plugins that lack them or answer UNSUPPORTED.
// They work through the device's own table, in the caller's stream, with memory of the caching
// allocator, and write the outputs last. They answer UNSUPPORTED when a function that they need
// does.
#pragma once

#include "interpose.h"

namespace chipset::runtime {

chipset_status composed(Tag<Fn::mem_copy_peer>, Plugin& plugin, chipset_stream stream,
                        void* destination, const void* source, std::int32_t source_device,
                        std::uint64_t bytes);

#define CHIPSET_COMPOSED(function, arguments)                                       \
  chipset_status composed(Tag<Fn::function>, Plugin& plugin, chipset_stream stream, \
                          const arguments* a);
CHIPSET_COMPOSED(softmax, chipset_softmax_args)
CHIPSET_COMPOSED(softmax_backward, chipset_softmax_args)
CHIPSET_COMPOSED(norm, chipset_norm_args)
CHIPSET_COMPOSED(norm_backward, chipset_norm_args)
CHIPSET_COMPOSED(rotary, chipset_rotary_args)
CHIPSET_COMPOSED(cross_entropy, chipset_cross_entropy_args)
CHIPSET_COMPOSED(cross_entropy_backward, chipset_cross_entropy_args)
CHIPSET_COMPOSED(adamw, chipset_adamw_args)
CHIPSET_COMPOSED(quantize, chipset_quantize_args)
CHIPSET_COMPOSED(dequantize, chipset_quantize_args)
CHIPSET_COMPOSED(gemm_quantized, chipset_gemm_quantized_args)
CHIPSET_COMPOSED(attention, chipset_attention_args)
CHIPSET_COMPOSED(attention_backward, chipset_attention_args)
#undef CHIPSET_COMPOSED

}  // namespace chipset::runtime
