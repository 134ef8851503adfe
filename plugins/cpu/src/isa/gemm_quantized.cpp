// SPDX-License-Identifier: Apache-2.0
#include "gemm_quantized.h"

#include <cstring>

#include "isa/activation.h"
#include "parallel.h"
#include "scratch.h"

namespace chipset::cpu::CPU_ISA {
namespace {

constexpr int kWide = kLanes<float>;
constexpr int kRows = 4;     // rows of x carried at once
constexpr int kWeights = 4;  // rows of w carried at once

// Intrinsics, since GCC 12 takes a vector conversion from bytes to floats apart, lane by lane.
inline vec<float> widen_weights(const int8_t* p) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return (vec<float>)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return (vec<float>)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
#else
  vec<float> out{};
  for (int i = 0; i < kWide; ++i) out[i] = static_cast<float>(p[i]);
  return out;
#endif
}

inline float sum_lanes(vec<float> v) {
  float total = 0;
  for (int i = 0; i < kWide; ++i) total += v[i];
  return total;
}

// out[m * out_step + n] += scale * x_m . w_n over k elements, for M rows of x and W rows of w.
template <int M, int W>
inline void dot_block(const float* x, int64_t x_step, const int8_t* w, int64_t w_step, int64_t k,
                      const float* scale, int64_t scale_step, float* out, int64_t out_step) {
  vec<float> acc[M][W] = {};
  int64_t i = 0;
  for (; i + kWide <= k; i += kWide) {
    vec<float> weights[W];
    for (int n = 0; n < W; ++n) weights[n] = widen_weights(w + n * w_step + i);
    for (int m = 0; m < M; ++m) {
      vec<float> row;
      std::memcpy(&row, x + m * x_step + i, sizeof row);
      for (int n = 0; n < W; ++n) acc[m][n] += row * weights[n];
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < W; ++n) {
      float total = sum_lanes(acc[m][n]);
      for (int64_t j = i; j < k; ++j) {
        total += x[m * x_step + j] * static_cast<float>(w[n * w_step + j]);
      }
      out[m * out_step + n] += total * scale[n * scale_step];
    }
  }
}

template <int W>
inline void dot_rows(int64_t rows, const float* x, int64_t x_step, const int8_t* w, int64_t w_step,
                     int64_t k, const float* scale, int64_t scale_step, float* out,
                     int64_t out_step) {
  int64_t m = 0;
  for (; m + kRows <= rows; m += kRows) {
    dot_block<kRows, W>(x + m * x_step, x_step, w, w_step, k, scale, scale_step, out + m * out_step,
                        out_step);
  }
  for (; m < rows; ++m) {
    dot_block<1, W>(x + m * x_step, x_step, w, w_step, k, scale, scale_step, out + m * out_step,
                    out_step);
  }
}

bool few_rows(const chipset_gemm_quantized_args& args) {
  const int64_t rows = args.x->shape[0], inner = args.x->shape[1], columns = args.w->shape[0];
  const int64_t group = args.group_size == 0 ? inner : args.group_size;
  auto* x = static_cast<float*>(scratch(kScratchA, sizeof(float) * (rows * inner + 1)));
  auto* out = static_cast<float*>(scratch(kScratchB, sizeof(float) * rows * columns));
  auto* bias = static_cast<float*>(scratch(kScratchC, sizeof(float) * columns));
  if (x == nullptr || out == nullptr || bias == nullptr) return false;
  for (int64_t m = 0; m < rows; ++m) {
    read_row(args.x->dtype, args.x->data, m * args.x->stride[0], args.x->stride[1], inner,
             x + m * inner);
  }
  std::memset(out, 0, sizeof(float) * static_cast<size_t>(rows * columns));
  std::memset(bias, 0, sizeof(float) * static_cast<size_t>(columns));
  if (args.bias != nullptr) {
    read_row(args.bias->dtype, args.bias->data, 0, args.bias->stride[0], columns, bias);
  }

  const auto* w = static_cast<const int8_t*>(args.w->data);
  const auto* scale = static_cast<const float*>(args.w_scale->data);
  const int64_t w_step = args.w->stride[0];
  const int64_t scale_row = args.w_scale->stride[0], scale_group = args.w_scale->stride[1];
  const int64_t grain = 1 + (int64_t{1} << 18) / (rows * (inner + 1));
  parallel_for(columns, (grain + kWeights - 1) / kWeights * kWeights,
               [&](int64_t begin, int64_t end) {
                 for (int64_t n = begin; n < end;) {
                   const bool whole = n + kWeights <= end;
                   for (int64_t k = 0, g = 0; k < inner; k += group, ++g) {
                     const int64_t length = group < inner - k ? group : inner - k;
                     const float* s = scale + n * scale_row + g * scale_group;
                     if (whole) {
                       dot_rows<kWeights>(rows, x + k, inner, w + n * w_step + k, w_step, length, s,
                                          scale_row, out + n, columns);
                     } else {
                       dot_rows<1>(rows, x + k, inner, w + n * w_step + k, w_step, length, s,
                                   scale_row, out + n, columns);
                     }
                   }
                   n += whole ? kWeights : 1;
                 }
               });

  for (int64_t m = 0; m < rows; ++m) {
    float* row = out + m * columns;
    for_vectors<float>(columns, [&](int64_t i, auto n) {
      store(row + i, activate<float>(args.activation, load(row + i, n) + load(bias + i, n)), n);
    });
    write_row(args.d->dtype, args.d->data, m * args.d->stride[0], args.d->stride[1], columns, row);
  }
  return true;
}

}  // namespace

extern const GemmQuantizedKernels gemm_quantized_kernels;
const GemmQuantizedKernels gemm_quantized_kernels = {few_rows};

}  // namespace chipset::cpu::CPU_ISA
