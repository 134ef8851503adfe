// SPDX-License-Identifier: Apache-2.0
// The functions behind the table, one per slot. api.cpp checks stream, args and capture before it
// calls them: a function that takes args finds them non-NULL and at least as large as this
// header's.
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

// X(slot, args struct): the functions of the form (stream, args), which can be captured.
#define CPU_ARGS_FUNCTIONS(X)                           \
  X(pointwise, chipset_pointwise_args)                  \
  X(reduce, chipset_reduce_args)                        \
  X(gemm, chipset_gemm_args)                            \
  X(gather, chipset_gather_args)                        \
  X(scatter, chipset_scatter_args)                      \
  X(attention, chipset_attention_args)                  \
  X(attention_backward, chipset_attention_args)         \
  X(softmax, chipset_softmax_args)                      \
  X(softmax_backward, chipset_softmax_args)             \
  X(norm, chipset_norm_args)                            \
  X(norm_backward, chipset_norm_args)                   \
  X(rotary, chipset_rotary_args)                        \
  X(cross_entropy, chipset_cross_entropy_args)          \
  X(cross_entropy_backward, chipset_cross_entropy_args) \
  X(adamw, chipset_adamw_args)                          \
  X(quantize, chipset_quantize_args)                    \
  X(dequantize, chipset_quantize_args)                  \
  X(gemm_quantized, chipset_gemm_quantized_args)        \
  X(attention_paged, chipset_attention_paged_args)      \
  X(scan, chipset_scan_args)                            \
  X(sort, chipset_sort_args)                            \
  X(random, chipset_random_args)

#define CPU_DECLARE(name, args_struct) \
  chipset_status cpu_##name(chipset_stream stream, const args_struct* args);
CPU_ARGS_FUNCTIONS(CPU_DECLARE)
#undef CPU_DECLARE

// ONNX graphs (graph_onnx.cpp). A graph is a Graph of graph.h, so that graph_destroy ends either
// kind.
chipset_status cpu_graph_compile(int32_t device, const void* onnx, uint64_t bytes,
                                 chipset_graph* graph);
chipset_status cpu_graph_run(chipset_stream stream, chipset_graph graph, uint32_t num_inputs,
                             const chipset_tensor* inputs, uint32_t num_outputs,
                             const chipset_tensor* outputs);

}  // namespace chipset::cpu
