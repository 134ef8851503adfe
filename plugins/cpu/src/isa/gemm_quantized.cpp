// SPDX-License-Identifier: Apache-2.0
// Products of float activations with quantised weights. For few rows the weights are streamed once
// and widened in registers; for many, panels of them are dequantised for the kernel of
// micro_gemm.h.
#include "gemm_quantized.h"

#include "isa/gemm_quantized_rows.h"
#include "isa/micro_gemm.h"
#include "isa/quantized.h"
#include "scratch.h"
#include "tasks.h"

namespace chipset::cpu::CPU_ISA {
namespace {

constexpr int64_t kFewRows = 16;  // beyond, panels are quicker; the costlier formats: kFewCostly
constexpr int64_t kFewCostly = 8;
constexpr int kWeights = 4;                 // rows of w carried at once
constexpr int64_t kPassRows = 14 * 6 * 12;  // rows of x packed at once
constexpr int64_t kPassDepth = 1024;        // k of one panel
constexpr int64_t kSerialProducts = 400000;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
bool is_worth_threads(const QuantizedProblem& p) {
  return p.rows * p.columns * p.inner >= kSerialProducts;
}

// Row m of x as floats; I8 is scaled.
void read_left(const QuantizedProblem& p, int64_t m, float* out) {
  const chipset_tensor& x = *p.args->x;
  const int64_t step = p.inner == 1 ? 1 : x.stride[1];
  if (x.dtype != CHIPSET_DTYPE_I8)
    return read_row(x.dtype, x.data, m * x.stride[0], step, p.inner, out);
  const auto* from = static_cast<const int8_t*>(x.data) + m * x.stride[0];
  const auto* scales = static_cast<const float*>(p.args->x_scale->data);
  const float scale = scales[m * p.args->x_scale->stride[0]];
  for (int64_t k = 0; k < p.inner; ++k) out[k] = scale * static_cast<float>(from[k * step]);
}

// ---- few rows -----------------------------------------------------------------------------------

// out[m * out_row + j] = x_m . (w_n0+j, dequantised) for M rows of x and W rows of w. With one
// group the scale waits until the end; with more, each vector of weights is scaled once for all
// rows.
template <class Format, bool kZero, bool kGroups, int M, int W>
void dot_block(const QuantizedProblem& p, const float* x, int64_t n0, float* out, int64_t out_row) {
  vec<float> sum[M][W] = {};
  const uint8_t* w = p.w + n0 * p.w_row;
  auto add = [&](int64_t k, auto count, const vec<float>(&weights)[W]) {
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const vec<float> left = load(x + m * p.inner + k, count);
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) sum[m][j] += left * weights[j];
    }
  };
  for (int64_t begin = 0, g = 0; begin < p.inner; begin += p.group, ++g) {
    const int64_t end = least(p.inner, begin + p.group);
    vec<float> scale[W], zero[W], weights[W];
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) {
      scale[j] = splat(kGroups ? p.scale(n0 + j, g) : 1.0f);
      zero[j] = splat(static_cast<float>(kZero ? p.zero_point(n0 + j, g) : 0));
    }
    int64_t k = begin;
    for (; k + kLanes<float> <= end; k += kLanes<float>) {
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) {
        weights[j] = Format::wide(w + j * p.w_row, k);
        if (kZero) weights[j] -= zero[j];
        if (kGroups) weights[j] *= scale[j];
      }
      add(k, std::integral_constant<int, kLanes<float>>{}, weights);
    }
    if (k == end) continue;
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) {
      alignas(64) float rest[kLanes<float>] = {};
      dequantize_run<Format>(w + j * p.w_row, k, end - k, scale[j][0], zero[j][0], rest);
      weights[j] = load(rest);
    }
    add(k, static_cast<int>(end - k), weights);
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
    sum_lanes_of<W, float>(sum[m], out + m * out_row);
    if (kGroups) continue;
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) out[m * out_row + j] *= p.scale(n0 + j, 0);
  }
}
template <class Format, bool kZero, bool kGroups, int W>
void dot_rows(const QuantizedProblem& p, const float* x, int64_t n0, float* out, int64_t out_row) {
  for (int64_t m = 0; m < p.rows; m += 4, x += 4 * p.inner, out += 4 * out_row) {
    switch (p.rows - m) {
      case 1:
        dot_block<Format, kZero, kGroups, 1, W>(p, x, n0, out, out_row);
        break;
      case 2:
        dot_block<Format, kZero, kGroups, 2, W>(p, x, n0, out, out_row);
        break;
      case 3:
        dot_block<Format, kZero, kGroups, 3, W>(p, x, n0, out, out_row);
        break;
      default:
        dot_block<Format, kZero, kGroups, 4, W>(p, x, n0, out, out_row);
    }
  }
}

template <class Format, bool kZero, bool kGroups>
bool few_rows(const QuantizedProblem& p) {
  constexpr int64_t kTask = 128;  // columns, whose sums are on the stack
  float* x = static_cast<float*>(
      scratch(kScratchA, sizeof(float) * static_cast<size_t>(p.rows * p.inner + 16)));
  if (x == nullptr) return false;
  for (int64_t m = 0; m < p.rows; ++m) read_left(p, m, x + m * p.inner);
  for_tasks((p.columns + kTask - 1) / kTask, is_worth_threads(p), [&](int64_t task) {
    const int64_t n0 = task * kTask, columns = least(kTask, p.columns - n0);
    alignas(64) float sums[kFewRows * kTask];
    int64_t j = 0;
    for (; j + kWeights <= columns; j += kWeights)
      dot_rows<Format, kZero, kGroups, kWeights>(p, x, n0 + j, sums + j, kTask);
    for (; j < columns; ++j) dot_rows<Format, kZero, kGroups, 1>(p, x, n0 + j, sums + j, kTask);
    for (int64_t m = 0; m < p.rows; ++m) finish_row(p, m, n0, columns, sums + m * kTask);
  });
  return true;
}

// ---- many rows ----------------------------------------------------------------------------------

// Elements [k0, k0 + depth) of rows [n0, n0 + count) of w as a panel of the right operand.
template <class Format>
void pack_weights(const QuantizedProblem& p, int64_t n0, int64_t count, int64_t k0, int64_t depth,
                  float* rows, float* panel) {
  for (int64_t j = 0; j < count; ++j) {
    const uint8_t* w = p.w + (n0 + j) * p.w_row;
    for (int64_t k = k0; k < k0 + depth;) {
      const int64_t g = k / p.group, n = least((g + 1) * p.group, k0 + depth) - k;
      dequantize_run<Format>(w, k, n, p.scale(n0 + j, g),
                             static_cast<float>(p.zero_point(n0 + j, g)),
                             rows + j * depth + k - k0);
      k += n;
    }
  }
  pack_panel<static_cast<int>(kColumns<float>)>(rows, depth, 1, static_cast<int>(count), depth,
                                                panel);
}

// One panel of columns for `rows` packed rows of x, which begin at row m0.
template <class Format>
bool panel_product(const QuantizedProblem& p, const float* left, int64_t m0, int64_t rows,
                   int64_t n0) {
  constexpr int64_t nr = kColumns<float>;
  const int64_t depth_most = least(p.inner, kPassDepth),
                padded = (rows + kRows - 1) / kRows * kRows;
  const int64_t area = depth_most * nr;
  float* panel = static_cast<float*>(
      scratch(kScratchB, sizeof(float) * static_cast<size_t>(2 * area + padded * nr + 64)));
  if (panel == nullptr) return false;
  float *buffer = panel + area, *sums = buffer + area;
  const int64_t columns = least(nr, p.columns - n0);
  for (int64_t k0 = 0; k0 < p.inner; k0 += kPassDepth) {
    const int64_t depth = least(kPassDepth, p.inner - k0);
    pack_weights<Format>(p, n0, columns, k0, depth, buffer, panel);
    for (int64_t i = 0; i < rows; i += kRows)
      kPanelMicro<float>.of[least(kRows, rows - i)](depth, left + i * p.inner + k0 * kRows, 0, 0,
                                                    panel, nr, sums + i * nr, nr, k0 > 0);
  }
  if (p.inner == 0) std::memset(sums, 0, sizeof(float) * static_cast<size_t>(rows * nr));
  for (int64_t i = 0; i < rows; ++i) finish_row(p, m0 + i, n0, columns, sums + i * nr);
  return true;
}

template <class Format>
bool many_rows(const QuantizedProblem& p) {
  const int64_t pass = least(p.rows, kPassRows), panels = (pass + kRows - 1) / kRows;
  float* left = static_cast<float*>(
      scratch(kScratchA, sizeof(float) * static_cast<size_t>(panels * kRows * p.inner + 64)));
  if (left == nullptr) return false;
  bool ok = true;
  for (int64_t m0 = 0; m0 < p.rows && ok; m0 += kPassRows) {
    const int64_t rows = least(kPassRows, p.rows - m0);
    for_tasks((rows + kRows - 1) / kRows, is_worth_threads(p), [&](int64_t task) {
      const int64_t i = task * kRows, count = least(kRows, rows - i);
      float* x = static_cast<float*>(
          scratch(kScratchB, sizeof(float) * static_cast<size_t>(kRows * p.inner + 64)));
      if (x == nullptr) return __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
      for (int64_t m = 0; m < count; ++m) read_left(p, m0 + i + m, x + m * p.inner);
      pack_panel<kRows>(x, p.inner, 1, static_cast<int>(count), p.inner, left + i * p.inner);
    });
    if (!ok) return false;
    constexpr int64_t nr = kColumns<float>;
    for_tasks((p.columns + nr - 1) / nr, is_worth_threads(p), [&](int64_t task) {
      if (!panel_product<Format>(p, left, m0, rows, task * nr))
        __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    });
  }
  return ok;
}

template <class Format>
bool gemm_of(const QuantizedProblem& p) {
  // A group that begins within a byte cannot be widened in place.
  const bool aligned = !p.is_i4 || p.group >= p.inner || p.group % 2 == 0;
  constexpr int64_t few = std::is_same_v<Format, FormatI8> ? kFewRows : kFewCostly;
  if (p.rows > few || !aligned || p.inner == 0) return many_rows<Format>(p);
  const bool zero = p.args->w_zero_point != nullptr;
  if (p.group < p.inner)
    return zero ? few_rows<Format, true, true>(p) : few_rows<Format, false, true>(p);
  return zero ? few_rows<Format, true, false>(p) : few_rows<Format, false, false>(p);
}
bool gemm(const QuantizedProblem& p) {
  switch (p.args->w->dtype) {
    case CHIPSET_DTYPE_I8:
      return gemm_of<FormatI8>(p);
    case CHIPSET_DTYPE_I4:
      return gemm_of<FormatI4>(p);
    default:
      return gemm_of<FormatF8E4M3>(p);
  }
}

}  // namespace

extern const GemmQuantizedKernels gemm_quantized_kernels;
const GemmQuantizedKernels gemm_quantized_kernels = {gemm};

}  // namespace chipset::cpu::CPU_ISA
