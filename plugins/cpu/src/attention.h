// SPDX-License-Identifier: Apache-2.0
// Attention with every tensor taken apart, as the kernels of isa/attention*.cpp want it.
#pragma once

#include <cstdint>

namespace chipset::cpu {

// A tensor of up to four dimensions; strides in elements, zero for a dimension of size 1.
struct View4 {
  void* data;  // NULL: absent
  int64_t stride[4];
  int32_t dtype;
};

struct AttentionProblem {
  int64_t batch, heads, kv_heads, s_q, s_k, d, d_v;
  int32_t dtype;
  View4 q, k, v, out, lse, dout, dq, dk, dv;
  View4 mask;                          // BOOL or float
  View4 columns;                       // FlashMask, I32
  int64_t column_heads, column_count;  // its sizes of dimension 1 and 3
  bool causal;
  double scale, softcap;
  int64_t causal_offset, window_left, window_right;
};

struct AttentionKernels {
  // False when there was no working memory.
  bool (*forward)(const AttentionProblem& problem);
  bool (*backward)(const AttentionProblem& problem);
};

namespace generic {
extern const AttentionKernels attention_kernels;
}
namespace avx2 {
extern const AttentionKernels attention_kernels;
}
namespace avx512 {
extern const AttentionKernels attention_kernels;
}

}  // namespace chipset::cpu
