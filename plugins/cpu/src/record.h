// SPDX-License-Identifier: Apache-2.0
// Recording of calls: deep copies of argument structs, driven by a table of their tensor fields.
#pragma once

#include <type_traits>

#include "chipset/chipset.h"
#include "stream.h"

namespace chipset::cpu {

// visit_tensors(args, visit) calls visit(pointer, count) for each tensor pointer of the struct.
#define CPU_TENSORS(args_struct, ...)                    \
  template <typename Visit>                              \
  void visit_tensors(args_struct& args, Visit&& visit) { \
    visit_each(args, visit, __VA_ARGS__);                \
  }
template <typename Args, typename Visit, typename... Fields>
void visit_each(Args& args, Visit& visit, Fields... fields) {
  const auto one = [&](auto field) {
    if constexpr (std::is_array_v<std::remove_reference_t<decltype(args.*field)>>) {
      for (const chipset_tensor*& tensor : args.*field) visit(tensor, 1u);
    } else {
      visit(args.*field, 1u);
    }
  };
  (one(fields), ...);
}

#define F(args_struct, field) &args_struct::field
CPU_TENSORS(chipset_pointwise_args, F(chipset_pointwise_args, output),
            F(chipset_pointwise_args, input))
CPU_TENSORS(chipset_reduce_args, F(chipset_reduce_args, input), F(chipset_reduce_args, output),
            F(chipset_reduce_args, indices))
CPU_TENSORS(chipset_gemm_args, F(chipset_gemm_args, a), F(chipset_gemm_args, b),
            F(chipset_gemm_args, c), F(chipset_gemm_args, d), F(chipset_gemm_args, bias))
CPU_TENSORS(chipset_gather_args, F(chipset_gather_args, output), F(chipset_gather_args, input),
            F(chipset_gather_args, index))
CPU_TENSORS(chipset_scatter_args, F(chipset_scatter_args, destination),
            F(chipset_scatter_args, source), F(chipset_scatter_args, index))
CPU_TENSORS(chipset_attention_args, F(chipset_attention_args, q), F(chipset_attention_args, k),
            F(chipset_attention_args, v), F(chipset_attention_args, mask),
            F(chipset_attention_args, startend_row_indices), F(chipset_attention_args, out),
            F(chipset_attention_args, lse), F(chipset_attention_args, dout),
            F(chipset_attention_args, dq), F(chipset_attention_args, dk),
            F(chipset_attention_args, dv))
CPU_TENSORS(chipset_softmax_args, F(chipset_softmax_args, input), F(chipset_softmax_args, result),
            F(chipset_softmax_args, output))
CPU_TENSORS(chipset_norm_args, F(chipset_norm_args, x), F(chipset_norm_args, weight),
            F(chipset_norm_args, bias), F(chipset_norm_args, y), F(chipset_norm_args, mean),
            F(chipset_norm_args, rstd), F(chipset_norm_args, dy), F(chipset_norm_args, dx),
            F(chipset_norm_args, dweight), F(chipset_norm_args, dbias))
CPU_TENSORS(chipset_rotary_args, F(chipset_rotary_args, x), F(chipset_rotary_args, cos),
            F(chipset_rotary_args, sin), F(chipset_rotary_args, y))
CPU_TENSORS(chipset_cross_entropy_args, F(chipset_cross_entropy_args, logits),
            F(chipset_cross_entropy_args, target), F(chipset_cross_entropy_args, loss),
            F(chipset_cross_entropy_args, lse), F(chipset_cross_entropy_args, dloss),
            F(chipset_cross_entropy_args, dlogits))
CPU_TENSORS(chipset_quantize_args, F(chipset_quantize_args, x), F(chipset_quantize_args, q),
            F(chipset_quantize_args, scale), F(chipset_quantize_args, zero_point))
CPU_TENSORS(chipset_gemm_quantized_args, F(chipset_gemm_quantized_args, x),
            F(chipset_gemm_quantized_args, x_scale), F(chipset_gemm_quantized_args, w),
            F(chipset_gemm_quantized_args, w_scale), F(chipset_gemm_quantized_args, w_zero_point),
            F(chipset_gemm_quantized_args, bias), F(chipset_gemm_quantized_args, d))
CPU_TENSORS(chipset_attention_paged_args, F(chipset_attention_paged_args, q),
            F(chipset_attention_paged_args, k_cache), F(chipset_attention_paged_args, v_cache),
            F(chipset_attention_paged_args, block_table),
            F(chipset_attention_paged_args, query_start), F(chipset_attention_paged_args, kv_len),
            F(chipset_attention_paged_args, out))
CPU_TENSORS(chipset_scan_args, F(chipset_scan_args, input), F(chipset_scan_args, output),
            F(chipset_scan_args, indices))
CPU_TENSORS(chipset_sort_args, F(chipset_sort_args, input), F(chipset_sort_args, values),
            F(chipset_sort_args, indices))
CPU_TENSORS(chipset_random_args, F(chipset_random_args, output), F(chipset_random_args, p))
#undef F
#undef CPU_TENSORS

// The one struct whose tensors are arrays.
template <typename Visit>
void visit_tensors(chipset_adamw_args& args, Visit&& visit) {
  visit(args.param, args.num_tensors);
  visit(args.grad, args.num_tensors);
  visit(args.exp_avg, args.num_tensors);
  visit(args.exp_avg_sq, args.num_tensors);
  visit(args.max_exp_avg_sq, args.num_tensors);
  visit(args.step, args.num_tensors);
}

template <typename Args>
[[gnu::noinline]] void record(CapturedGraph& graph, CapturedGraph::Run run, const Args& given) {
  Args copy = given;
  copy.struct_size = sizeof(Args);
  visit_tensors(copy, [&](const chipset_tensor*& tensor, uint32_t count) {
    if (tensor == nullptr) return;
    tensor = static_cast<const chipset_tensor*>(graph.keep(tensor, sizeof(*tensor) * count));
  });
  graph.calls.push_back({run, graph.keep(&copy, sizeof(copy))});
}

// For calls without tensors.
template <typename Args>
chipset_status run_or_record(chipset_stream stream, CapturedGraph::Run run, const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args>);
  if (CapturedGraph* graph = as_stream(stream)->capture; graph != nullptr) {
    graph->calls.push_back({run, graph->keep(&args, sizeof(args))});
    return CHIPSET_STATUS_OK;
  }
  return run(stream, &args);
}

}  // namespace chipset::cpu
