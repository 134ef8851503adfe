// SPDX-License-Identifier: Apache-2.0
// Sums over the lanes of several vectors at once: a tree of shuffles costs a third of as many
// single sums.
#pragma once

#include "isa/simd.h"

namespace chipset::cpu::CPU_ISA {

// out[j] = the sum of the lanes of x[j], for four vectors by a tree of shuffles within 16 bytes.
inline void sum_lanes_of_four(const vec<float>* x, float* out) {
  mask<float> low, high, left, right;
  for (int i = 0; i < kLanes<float>; i += 4) {
    const int a = i, b = i + kLanes<float>;
    low[i] = a, low[i + 1] = b, low[i + 2] = a + 1, low[i + 3] = b + 1;
    high[i] = a + 2, high[i + 1] = b + 2, high[i + 2] = a + 3, high[i + 3] = b + 3;
    left[i] = a, left[i + 1] = a + 1, left[i + 2] = b, left[i + 3] = b + 1;
    right[i] = a + 2, right[i + 1] = a + 3, right[i + 2] = b + 2, right[i + 3] = b + 3;
  }
  vec<float> pair[2];
#pragma GCC unroll 4
  for (int t = 0; t < 2; ++t)
    pair[t] = __builtin_shuffle(x[2 * t], x[2 * t + 1], low) +
              __builtin_shuffle(x[2 * t], x[2 * t + 1], high);
  const vec<float> sums =
      __builtin_shuffle(pair[0], pair[1], left) + __builtin_shuffle(pair[0], pair[1], right);
#if defined(__AVX512F__)
  const __m512 s = (__m512)sums;
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
#elif defined(__AVX2__)
  const __m256 s = (__m256)sums;
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
#else
  _mm_storeu_ps(out, (__m128)sums);
#endif
}
template <int W, class A>
inline void sum_lanes_of(const vec<A>* x, A* out) {
  if constexpr (W == 4 && std::is_same_v<A, float>) {
    sum_lanes_of_four(x, out);
  } else {
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) out[j] = sum_lanes(x[j]);
  }
}

}  // namespace chipset::cpu::CPU_ISA
