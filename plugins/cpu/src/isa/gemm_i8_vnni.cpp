// SPDX-License-Identifier: Apache-2.0
// Products of I8 activations with I8 or I4 weights: integer sums within a group (exact), F32 from
// group to group. Rows of both operands are contiguous in k, so that blocks of rows multiply as
// they lie; I4 is unpacked to bytes first.
#include "gemm_quantized.h"
#include "isa/gemm_quantized_rows.h"
#include "isa/quantized.h"
#include "scratch.h"
#include "tasks.h"

namespace chipset::cpu::CPU_ISA {
namespace {

typedef VectorOf<float>::mask ints;

// ---- the machine's integer dot product ------------------------------------------------------

// kStep elements of both operands are multiplied, neighbours summed into lanes of I32. `Left` is an
// element of x as the instruction wants it; `half` tells how many of the kStep weights are there.
#if defined(__AVX512VNNI__)
// The instruction takes unsigned by signed: x is shifted by 128, and 128 times the sum of the
// weights is taken off again.
typedef uint8_t Left;
constexpr int kStep = 64;
constexpr bool kShifted = true;
typedef __m512i Bytes;
inline Left left_of(int8_t x) { return static_cast<uint8_t>(x ^ 0x80); }
inline Bytes load_left(const Left* x) { return _mm512_loadu_si512(x); }
inline Bytes load_right(const int8_t* w) { return _mm512_loadu_si512(w); }
inline Bytes load_right(const int8_t* w, int64_t n) {
  return _mm512_maskz_loadu_epi8(~uint64_t{0} >> (64 - n), w);
}
inline ints multiply_add(ints sum, Bytes x, Bytes w) {
  return (ints)_mm512_dpbusd_epi32((__m512i)sum, x, w);
}
inline ints ones_times(ints sum, Bytes w) {
  return (ints)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi8(1), w);
}
#else
typedef int16_t Left;
constexpr int kStep = kVectorBytes / 2;
constexpr bool kShifted = false;
inline Left left_of(int8_t x) { return x; }
#if defined(__AVX512F__)
typedef __m512i Bytes;
inline Bytes load_left(const Left* x) { return _mm512_loadu_si512(x); }
inline Bytes load_right(const int8_t* w) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
}
inline Bytes load_right(const int8_t* w, int64_t n) {
  return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(~uint32_t{0} >> (32 - n), w));
}
inline ints multiply_add(ints sum, Bytes x, Bytes w) { return sum + (ints)_mm512_madd_epi16(x, w); }
#elif defined(__AVX2__)
typedef __m256i Bytes;
inline Bytes load_left(const Left* x) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
}
inline Bytes load_right(const int8_t* w) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
}
inline ints multiply_add(ints sum, Bytes x, Bytes w) { return sum + (ints)_mm256_madd_epi16(x, w); }
#else
typedef __m128i Bytes;
inline Bytes load_left(const Left* x) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
}
inline Bytes load_right(const int8_t* w) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(w));
  return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
inline ints multiply_add(ints sum, Bytes x, Bytes w) { return sum + (ints)_mm_madd_epi16(x, w); }
#endif
#if !defined(__AVX512F__)
inline Bytes load_right(const int8_t* w, int64_t n) {
  int8_t buffer[kStep] = {};
  std::memcpy(buffer, w, static_cast<size_t>(n));
  return load_right(buffer);
}
#endif
inline ints ones_times(ints sum, Bytes) { return sum; }
#endif

// Lanes of F32 from I32.
inline vec<float> as_floats(ints x) { return __builtin_convertvector(x, vec<float>); }
inline int64_t add_lanes(ints x) {
  int64_t total = 0;
  for (int i = 0; i < kLanes<float>; ++i) total += x[i];
  return total;
}

// ---- blocks ---------------------------------------------------------------------------------

constexpr int kBlockRows = 4;
constexpr int kBlockColumns = 4;
constexpr int64_t kTaskRows = 128;
constexpr int64_t kTaskColumns = 64;
constexpr int64_t kMostRun = 16384;  // sums of so many products fit I32 with room to spare
constexpr int64_t kSerialProducts = 1000000;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// A stretch of k within one group, short enough for I32.
struct Run {
  int64_t k, n, group;
};
struct Runs {
  int64_t inner, group;
  Run next{0, 0, 0};
  explicit Runs(const QuantizedProblem& p) : inner(p.inner), group(p.group) {}
  bool advance() {
    next.k += next.n;
    if (next.k >= inner) return false;
    if (next.k == (next.group + 1) * group) ++next.group;
    next.n = least(least(inner, (next.group + 1) * group) - next.k, kMostRun);
    return true;
  }
};

struct Operands {
  const Left* x;  // rows, x_row apart, padded to whole steps
  int64_t x_row;
  const int8_t* w;  // columns, w_row apart
  int64_t w_row;
};

// Integer sums of one run for M rows and W columns, less the shift of each column, which a single
// row finds on its way.
template <int M, int W>
inline void sum_run(const Operands& o, const Run& run, const int32_t* shifts, ints (&sum)[M][W]) {
  constexpr bool kOwnShift = kShifted && M == 1;
  ints acc[M][W], shift[W] = {};
#pragma GCC unroll 4
  for (int j = 0; j < W; ++j) {
    ints first{};
    if (kShifted && !kOwnShift) first[0] = -shifts[j];
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) acc[m][j] = first;
  }
  auto step = [&](int64_t k, const Bytes(&w)[W]) {
#pragma GCC unroll 4
    for (int j = 0; kOwnShift && j < W; ++j) shift[j] = ones_times(shift[j], w[j]);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const Bytes x = load_left(o.x + m * o.x_row + k);
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) acc[m][j] = multiply_add(acc[m][j], x, w[j]);
    }
  };
  const int64_t end = run.k + run.n;
  int64_t k = run.k;
  Bytes w[W];
  for (; k + kStep <= end; k += kStep) {
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) w[j] = load_right(o.w + j * o.w_row + k);
    step(k, w);
  }
  if (k < end) {
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) w[j] = load_right(o.w + j * o.w_row + k, end - k);
    step(k, w);
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) sum[m][j] = kOwnShift ? acc[m][j] - 128 * shift[j] : acc[m][j];
}

// 128 times the sum of the weights of each run, for W columns: [run][W].
template <int W>
void find_shifts(const QuantizedProblem& p, const Operands& o, int32_t* out) {
  for (Runs runs(p); runs.advance(); out += W) {
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) {
      const int8_t* w = o.w + j * o.w_row;
      const int64_t end = runs.next.k + runs.next.n;
      ints sum{};
      int64_t k = runs.next.k;
      for (; k + kStep <= end; k += kStep) sum = ones_times(sum, load_right(w + k));
      if (k < end) sum = ones_times(sum, load_right(w + k, end - k));
      out[j] = 128 * static_cast<int32_t>(add_lanes(sum));
    }
  }
}

// out[m * out_row + j] for M rows and W columns from column n0. `x_sums` are the sums of each row
// over each run, wanted with zero points: x . (w - z) = x . w - z * sum of x.
template <int M, int W>
void block(const QuantizedProblem& p, const Operands& o, int64_t n0, const int32_t* shifts,
           const int32_t* x_sums, int64_t run_count, float* out, int64_t out_row) {
  ints sum[M][W];
  Runs runs(p);
  if (x_sums == nullptr) {
    vec<float> total[M][W] = {};
    while (runs.advance()) {
      sum_run<M, W>(o, runs.next, shifts, sum);
      shifts += W;
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) {
        const vec<float> scale = splat(p.scale(n0 + j, runs.next.group));
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m) total[m][j] += as_floats(sum[m][j]) * scale;
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) sum_lanes_of<W, float>(total[m], out + m * out_row);
    return;
  }
  double total[M][W] = {};
  for (int64_t r = 0; runs.advance(); ++r) {
    sum_run<M, W>(o, runs.next, shifts, sum);
    shifts += W;
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) {
      const double scale = p.scale(n0 + j, runs.next.group);
      const int64_t zero = p.zero_point(n0 + j, runs.next.group);
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        const int64_t whole = add_lanes(sum[m][j]) - zero * x_sums[m * run_count + r];
        total[m][j] += static_cast<double>(whole) * scale;
      }
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) out[m * out_row + j] = static_cast<float>(total[m][j]);
}
template <int W>
void block_rows(const QuantizedProblem& p, Operands o, int64_t rows, int64_t n0,
                const int32_t* shifts, const int32_t* x_sums, int64_t run_count, float* out,
                int64_t out_row) {
  int64_t m = 0;
  for (; m + kBlockRows <= rows; m += kBlockRows) {
    block<kBlockRows, W>(p, o, n0, shifts, x_sums, run_count, out, out_row);
    o.x += kBlockRows * o.x_row;
    out += kBlockRows * out_row;
    if (x_sums != nullptr) x_sums += kBlockRows * run_count;
  }
  for (; m < rows; ++m) {
    block<1, W>(p, o, n0, shifts, x_sums, run_count, out, out_row);
    o.x += o.x_row;
    out += out_row;
    if (x_sums != nullptr) x_sums += run_count;
  }
}

// ---- the whole product ----------------------------------------------------------------------

// Row m of x as the instruction wants it, and its sums.
void prepare_row(const QuantizedProblem& p, int64_t m, Left* out, int64_t padded, int32_t* sums) {
  const chipset_tensor& x = *p.args->x;
  const int64_t step = p.inner == 1 ? 1 : x.stride[1];
  const auto* from = static_cast<const int8_t*>(x.data) + m * x.stride[0];
  if (step == 1) {
    for (int64_t k = 0; k < p.inner; ++k) out[k] = left_of(from[k]);
  } else {
    for (int64_t k = 0; k < p.inner; ++k) out[k] = left_of(from[k * step]);
  }
  for (int64_t k = p.inner; k < padded; ++k) out[k] = 0;
  if (sums == nullptr) return;
  Runs runs(p);
  while (runs.advance()) {
    int32_t sum = 0;
    for (int64_t k = runs.next.k; k < runs.next.k + runs.next.n; ++k) sum += from[k * step];
    *sums++ = sum;
  }
}
void unpack_i4(const uint8_t* row, int64_t n, int8_t* out) {
  for (int64_t k = 0; k < n; ++k) out[k] = static_cast<int8_t>(FormatI4::one(row, k));
}

template <int W>
void task_columns(const QuantizedProblem& p, const Operands& o, int64_t rows, int64_t n0,
                  int32_t* shifts, const int32_t* x_sums, int64_t run_count, float* sums) {
  if (kShifted && rows >= kBlockRows) find_shifts<W>(p, o, shifts);
  block_rows<W>(p, o, rows, n0, shifts, x_sums, run_count, sums, kTaskColumns);
}

// Rows [m0, m1) against columns [n0, n1).
bool task(const QuantizedProblem& p, const Operands& whole, const int32_t* x_sums,
          int64_t run_count, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  alignas(64) float sums[kTaskRows * kTaskColumns];
  Operands o = whole;
  o.x += m0 * o.x_row;
  if (x_sums != nullptr) x_sums += m0 * run_count;
  if (p.is_i4) {
    o.w_row = p.inner + kStep;
    auto* bytes =
        static_cast<int8_t*>(scratch(kScratchB, static_cast<size_t>((n1 - n0) * o.w_row)));
    if (bytes == nullptr) return false;
    for (int64_t n = n0; n < n1; ++n)
      unpack_i4(p.w + n * p.w_row, p.inner, bytes + (n - n0) * o.w_row);
    o.w = bytes;
  } else {
    o.w += n0 * o.w_row;
  }
  auto* shifts = static_cast<int32_t*>(
      scratch(kScratchD, sizeof(int32_t) * static_cast<size_t>(kBlockColumns * run_count)));
  if (shifts == nullptr) return false;
  int64_t n = n0;
  for (; n + kBlockColumns <= n1; n += kBlockColumns, o.w += kBlockColumns * o.w_row)
    task_columns<kBlockColumns>(p, o, m1 - m0, n, shifts, x_sums, run_count, sums + n - n0);
  for (; n < n1; ++n, o.w += o.w_row)
    task_columns<1>(p, o, m1 - m0, n, shifts, x_sums, run_count, sums + n - n0);
  const chipset_tensor& scale = *p.args->x_scale;
  for (int64_t m = m0; m < m1; ++m) {
    float* row = sums + (m - m0) * kTaskColumns;
    const vec<float> factor = splat(static_cast<const float*>(scale.data)[m * scale.stride[0]]);
    for_vectors<float>(n1 - n0,
                       [&](int64_t j, auto w) { store(row + j, load(row + j, w) * factor, w); });
    finish_row(p, m, n0, n1 - n0, row);
  }
  return true;
}

bool gemm(const QuantizedProblem& p) {
  Operands o{};
  o.x_row = (p.inner + 2 * kStep - 1) / kStep * kStep;  // a run may end within a step
  o.w = reinterpret_cast<const int8_t*>(p.w);
  o.w_row = p.w_row;
  int64_t run_count = 0;
  for (Runs runs(p); runs.advance();) ++run_count;
  auto* x =
      static_cast<Left*>(scratch(kScratchA, sizeof(Left) * static_cast<size_t>(p.rows * o.x_row)));
  int32_t* x_sums = nullptr;
  if (p.args->w_zero_point != nullptr) {
    x_sums = static_cast<int32_t*>(
        scratch(kScratchC, sizeof(int32_t) * static_cast<size_t>(p.rows * run_count)));
    if (x_sums == nullptr) return false;
  }
  if (x == nullptr) return false;
  o.x = x;
  const bool parallel = p.rows * p.columns * p.inner >= kSerialProducts;
  for_tasks((p.rows + 15) / 16, parallel, [&](int64_t t) {
    for (int64_t m = t * 16; m < least(p.rows, t * 16 + 16); ++m)
      prepare_row(p, m, x + m * o.x_row, o.x_row,
                  x_sums == nullptr ? nullptr : x_sums + m * run_count);
  });
  const int64_t row_tasks = (p.rows + kTaskRows - 1) / kTaskRows;
  const int64_t column_tasks = (p.columns + kTaskColumns - 1) / kTaskColumns;
  bool ok = true;
  for_tasks(row_tasks * column_tasks, parallel, [&](int64_t t) {
    const int64_t m0 = t % row_tasks * kTaskRows, n0 = t / row_tasks * kTaskColumns;
    if (!task(p, o, x_sums, run_count, m0, least(p.rows, m0 + kTaskRows), n0,
              least(p.columns, n0 + kTaskColumns)))
      __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
  });
  return ok;
}

}  // namespace

extern const GemmI8Kernels gemm_i8_kernels;
const GemmI8Kernels gemm_i8_kernels = {gemm};

}  // namespace chipset::cpu::CPU_ISA
