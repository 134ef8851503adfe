// SPDX-License-Identifier: Apache-2.0
// Matrix products. F16 and BF16 are widened to F32 while they are packed: on the machines measured
// (docs/decisions) the F32 multiply-add outruns the BF16 dot product, and the sums are as exact.
#include "gemm.h"

#include "isa/activation.h"
#include "isa/micro_gemm.h"
#include "scratch.h"
#include "tasks.h"

namespace chipset::cpu::CPU_ISA {
namespace {

// Passes over k: short ones keep a panel of b in the first-level cache, but read and write the sums
// more often, which is cheap only where they lie in d itself.
constexpr int64_t kDirectWholeK = 512;  // up to here one pass
constexpr int64_t kDirectPassK = 384;   // else passes of about this
constexpr int64_t kWholeK = 1024;
constexpr int64_t kPassK = 768;
constexpr int64_t kPassRows = 14 * 6 * 48;  // packed a of one pass
constexpr int64_t kPassColumns = 2048;      // of kept sums
constexpr int64_t kTaskColumns = 8;         // panels of b that a task packs; they stay in L2
constexpr int64_t kTaskRows = 8;            // panels of a that are worth packing b once more for
constexpr int64_t kBlockRows = 24;          // panels of a that meet one panel of b; they stay in L2
constexpr int64_t kInPlaceRows = 2;         // up to so many panels of a read b where it is
constexpr int64_t kSerialProducts = 400000;
constexpr int64_t kSmallProducts = 64 * 64 * 64;
constexpr int64_t kSmallElements = 4096;  // operands packed on the stack
constexpr int64_t kFewRows = 16;          // rows of a up to which b is read in place, once

int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

bool is_plain(const GemmProblem& p) {
  return p.alpha == 1 && (p.beta == 0 || p.c == nullptr) && p.bias == nullptr &&
         p.activation == CHIPSET_ACTIVATION_NONE;
}
template <class A>
constexpr int32_t kDtypeOf = std::is_same_v<A, double> ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_F32;

// Applies alpha, c, bias and activation to a tile of sums and writes it to d at (i0, j0).
template <class A>
void finish(const GemmProblem& p, bool plain, const A* tile, int64_t tile_row, int64_t i0,
            int64_t j0, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i, tile += tile_row) {
    const int64_t d_offset = (i0 + i) * p.d_m;
    for (int64_t j = 0; j < columns; j += kColumns<A>) {
      const int n = static_cast<int>(min(kColumns<A>, columns - j));
      const int64_t column = j0 + j;
      if (plain) {
        write_row(p.d_dtype, p.d, d_offset + column * p.d_n, p.d_n, n, tile + j);
        continue;
      }
      alignas(64) A x[kColumns<A>] = {}, y[kColumns<A>] = {};
      for (int t = 0; t < n; ++t) x[t] = tile[j + t] * static_cast<A>(p.alpha);
      if (p.c != nullptr && p.beta != 0) {
        read_row(p.c_dtype, p.c, (i0 + i) * p.c_m + column * p.c_n, p.c_n, n, y);
        for (int t = 0; t < n; ++t) x[t] += static_cast<A>(p.beta) * y[t];
      }
      if (p.bias != nullptr) {
        read_row(p.bias_dtype, p.bias, column * p.bias_n, p.bias_n, n, y);
        for (int t = 0; t < n; ++t) x[t] += y[t];
      }
      if (p.activation != CHIPSET_ACTIVATION_NONE) {
        for (int t = 0; t < n; t += kLanes<A>) store(x + t, activate<A>(p.activation, load(x + t)));
      }
      write_row(p.d_dtype, p.d, d_offset + column * p.d_n, p.d_n, n, x);
    }
  }
}

// Both operands fit the first-level cache: no pool, no scratch.
template <class T>
void small_gemm(const GemmProblem& p) {
  using A = compute_t<T>;
  constexpr int w = kLanes<A>;
  const bool plain = is_plain(p);
  alignas(64) A packed_a[std::is_same_v<T, A> ? 1 : kSmallElements];
  alignas(64) A packed_b[kSmallElements];
  const A* a;
  int64_t a_m = p.a_m, a_k = p.a_k;
  if constexpr (std::is_same_v<T, A>) {
    a = static_cast<const A*>(p.a);
  } else {
    const T* from = static_cast<const T*>(p.a);
    for (int64_t i = 0; i < p.m; ++i) read_row_of(from + i * a_m, a_k, p.k, packed_a + i * p.k);
    a = packed_a;
    a_m = p.k;
    a_k = 1;
  }
  const T* b = static_cast<const T*>(p.b);
  for (int64_t j = 0; j < p.n; j += w) {
    const int columns = static_cast<int>(min(w, p.n - j));
    const A* right;
    int64_t right_k;
    if (std::is_same_v<T, A> && p.b_n == 1 && columns == w) {
      right = reinterpret_cast<const A*>(b) + j;
      right_k = p.b_k;
    } else {
      pack_panel<w>(b + j * p.b_n, p.b_n, p.b_k, columns, p.k, packed_b);
      right = packed_b;
      right_k = w;
    }
    for (int64_t i = 0; i < p.m; i += kRows) {
      const int64_t rows = min(kRows, p.m - i);
      alignas(64) A tile[kRows * w];
      const bool direct = plain && columns == w && p.d_n == 1 && p.d_dtype == kDtypeOf<A>;
      A* out = direct ? static_cast<A*>(p.d) + i * p.d_m + j : tile;
      const int64_t out_m = direct ? p.d_m : w;
      kMicro<A, 1, 0, 0>.of[rows](p.k, a + i * a_m, a_m, a_k, right, right_k, out, out_m, false);
      if (!direct) finish(p, plain, tile, w, i, j, rows, columns);
    }
  }
}

// A few rows times a matrix whose k runs contiguously (a linear layer while decoding): every weight
// is read once, as a stream. R rows of a (already widened, contiguous) by C rows of b.
template <class T, int R, int C>
void dot_block(int64_t k_size, const compute_t<T>* a, const T* b, int64_t b_n, compute_t<T>* out,
               int64_t out_m) {
  using A = compute_t<T>;
  vec<A> sum[R][C];
  for (auto& row : sum)
    for (auto& s : row) s = vec<A>{};
  for_vectors<A>(k_size, [&](int64_t k, auto n) {
    vec<A> left[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) left[r] = load(a + r * k_size + k, n);
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      vec<A> right = load(b + c * b_n + k, n);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[r][c] += left[r] * right;
    }
  });
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) out[r * out_m + c] = sum_lanes(sum[r][c]);
}
template <class T, int C>
void dot_rows(int64_t rows, int64_t k_size, const compute_t<T>* a, const T* b, int64_t b_n,
              compute_t<T>* out, int64_t out_m) {
  for (int64_t i = 0; i < rows; i += 4, a += 4 * k_size, out += 4 * out_m) {
    switch (rows - i) {
      case 1:
        dot_block<T, 1, C>(k_size, a, b, b_n, out, out_m);
        break;
      case 2:
        dot_block<T, 2, C>(k_size, a, b, b_n, out, out_m);
        break;
      case 3:
        dot_block<T, 3, C>(k_size, a, b, b_n, out, out_m);
        break;
      default:
        dot_block<T, 4, C>(k_size, a, b, b_n, out, out_m);
        break;
    }
  }
}

// The same for a matrix whose n runs contiguously: sums of scaled rows of b.
template <class T>
void axpy_rows(const GemmProblem& p, const compute_t<T>* a, int64_t j0, int64_t columns,
               compute_t<T>* out, int64_t out_m) {
  using A = compute_t<T>;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < columns; ++j) out[i * out_m + j] = 0;
  const T* b = static_cast<const T*>(p.b) + j0;
  for (int64_t k = 0; k < p.k; k += 4) {
    const int64_t steps = min(4, p.k - k);
    for (int64_t i = 0; i < p.m; ++i) {
      const A* x = a + i * p.k + k;
      A* y = out + i * out_m;
      if (steps == 4) {
        vec<A> x0 = splat(x[0]), x1 = splat(x[1]), x2 = splat(x[2]), x3 = splat(x[3]);
        const T* row = b + k * p.b_k;
        for_vectors<A>(columns, [&](int64_t j, auto n) {
          vec<A> s = load(y + j, n);
          s += x0 * load(row + j, n);
          s += x1 * load(row + p.b_k + j, n);
          s += x2 * load(row + 2 * p.b_k + j, n);
          s += x3 * load(row + 3 * p.b_k + j, n);
          store(y + j, s, n);
        });
        continue;
      }
      for (int64_t t = 0; t < steps; ++t) {
        vec<A> xt = splat(x[t]);
        for_vectors<A>(columns, [&](int64_t j, auto n) {
          store(y + j, load(y + j, n) + xt * load(b + (k + t) * p.b_k + j, n), n);
        });
      }
    }
  }
}

template <class T>
bool few_rows_gemm(const GemmProblem& p, bool parallel) {
  using A = compute_t<T>;
  constexpr int64_t group = 128;  // columns of one task, sums on the stack
  A* a = static_cast<A*>(scratch(kScratchA, sizeof(A) * static_cast<size_t>(p.m * p.k + 64)));
  if (a == nullptr) return false;
  const T* from = static_cast<const T*>(p.a);
  for (int64_t i = 0; i < p.m; ++i) read_row_of(from + i * p.a_m, p.a_k, p.k, a + i * p.k);
  const bool plain = is_plain(p);
  const T* b = static_cast<const T*>(p.b);
  for_tasks((p.n + group - 1) / group, parallel, [&](int64_t task) {
    alignas(64) A sums[kFewRows * group];
    const int64_t j0 = task * group, columns = min(group, p.n - j0);
    if (p.b_k == 1) {
      int64_t j = 0;
      for (; j + 4 <= columns; j += 4)
        dot_rows<T, 4>(p.m, p.k, a, b + (j0 + j) * p.b_n, p.b_n, sums + j, group);
      for (; j < columns; ++j)
        dot_rows<T, 1>(p.m, p.k, a, b + (j0 + j) * p.b_n, p.b_n, sums + j, group);
    } else {
      axpy_rows<T>(p, a, j0, columns, sums, group);
    }
    finish(p, plain, sums, group, 0, j0, p.m, columns);
  });
  return true;
}

// How the panels of one pass are shared out.
struct Tasks {
  int64_t of_rows, of_columns;
};
Tasks split(int64_t row_panels, int64_t column_panels, bool parallel) {
  Tasks tasks = {1, (column_panels + kTaskColumns - 1) / kTaskColumns};
  const int64_t wanted = parallel ? 3 * thread_count() : 1;
  if (tasks.of_columns >= wanted) return tasks;
  const int64_t most = row_panels / kTaskRows > 1 ? row_panels / kTaskRows : 1;
  tasks.of_rows = min((wanted + tasks.of_columns - 1) / tasks.of_columns, most);
  return tasks;
}

// The general product: passes over (rows, columns, k). In each, the panels of a are packed by all
// threads; then each task packs a group of panels of b into memory of its own thread, where they
// stay in the second-level cache, and multiplies them with its rows of a.
template <class T>
bool packed_gemm(const GemmProblem& p, bool parallel) {
  using A = compute_t<T>;
  constexpr int64_t nr = kColumns<A>;
  const bool plain = is_plain(p);
  // Sums go straight to d where its layout is that of a tile.
  const bool direct = plain && p.d_n == 1 && p.d_dtype == kDtypeOf<A>;
  const int64_t whole_k = direct ? kDirectWholeK : kWholeK;
  const int64_t longest_pass = direct ? kDirectPassK : kPassK;
  const int64_t k_passes = p.k <= whole_k ? 1 : (p.k + longest_pass - 1) / longest_pass;
  const int64_t k_pass = (p.k + k_passes - 1) / k_passes;
  const bool keep_sums = !direct && k_passes > 1;
  const int64_t n_pass = keep_sums ? min(round_up(p.n, nr), kPassColumns) : round_up(p.n, nr);
  const int64_t m_pass = min(round_up(p.m, kRows), kPassRows);

  auto bytes = [](int64_t elements) { return sizeof(A) * static_cast<size_t>(elements + 256); };
  A* packed_a = static_cast<A*>(scratch(kScratchA, bytes(m_pass * k_pass)));
  A* sums = static_cast<A*>(scratch(kScratchC, bytes(keep_sums ? m_pass * n_pass : 0)));
  if (packed_a == nullptr || sums == nullptr) return false;

  const T* a = static_cast<const T*>(p.a);
  const T* b = static_cast<const T*>(p.b);
  bool ok = true;
  for (int64_t m0 = 0; m0 < p.m; m0 += m_pass) {
    const int64_t rows = min(m_pass, p.m - m0);
    const int64_t row_panels = (rows + kRows - 1) / kRows;
    const int64_t panel_rows = (rows + row_panels - 1) / row_panels;  // all about equal
    for (int64_t n0 = 0; n0 < p.n; n0 += n_pass) {
      const int64_t columns = min(n_pass, p.n - n0);
      const int64_t column_panels = (columns + nr - 1) / nr;
      const Tasks tasks = split(row_panels, column_panels, parallel);
      for (int64_t k0 = 0; k0 < p.k; k0 += k_pass) {
        const int64_t depth = min(k_pass, p.k - k0);
        const bool first = k0 == 0, last = k0 + depth == p.k;
        // With one pass over k, the panels of a serve every pass over n.
        if (k_passes > 1 || n0 == 0) {
          constexpr int64_t group = 4;
          for_tasks((row_panels + group - 1) / group, parallel, [&](int64_t task) {
            for (int64_t i = task * group; i < min((task + 1) * group, row_panels); ++i) {
              const int64_t row = i * panel_rows;
              pack_panel<kRows>(a + (m0 + row) * p.a_m + k0 * p.a_k, p.a_m, p.a_k,
                                static_cast<int>(min(panel_rows, rows - row)), depth,
                                packed_a + i * kRows * depth);
            }
          });
        }
        for_tasks(tasks.of_rows * tasks.of_columns, parallel, [&](int64_t task) {
          const int64_t row_task = task % tasks.of_rows, column_task = task / tasks.of_rows;
          const int64_t i_begin = row_panels * row_task / tasks.of_rows;
          const int64_t i_end = row_panels * (row_task + 1) / tasks.of_rows;
          const int64_t j_begin = column_panels * column_task / tasks.of_columns;
          const int64_t j_end = column_panels * (column_task + 1) / tasks.of_columns;
          // A few rows read b in place: packing would cost as much as the product.
          const bool b_in_place =
              std::is_same_v<T, A> && p.b_n == 1 && i_end - i_begin <= kInPlaceRows;
          A* packed_b = static_cast<A*>(scratch(kScratchB, bytes((j_end - j_begin) * nr * k_pass)));
          if (packed_b == nullptr) {
            __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
            return;
          }
          for (int64_t i0 = i_begin; i0 < i_end; i0 += kBlockRows) {
            for (int64_t j = j_begin; j < j_end; ++j) {
              const int64_t column = n0 + j * nr, width = min(nr, n0 + columns - column);
              const T* from = b + column * p.b_n + k0 * p.b_k;
              const A* right = packed_b + (j - j_begin) * nr * depth;
              int64_t right_k = nr;
              if (b_in_place && width == nr) {
                right = reinterpret_cast<const A*>(from);
                right_k = p.b_k;
              } else if (i0 == i_begin) {
                pack_panel<static_cast<int>(nr)>(from, p.b_n, p.b_k, static_cast<int>(width), depth,
                                                 const_cast<A*>(right));
              }
              for (int64_t i = i0; i < min(i0 + kBlockRows, i_end); ++i) {
                const int64_t row = i * panel_rows, height = min(panel_rows, rows - row);
                alignas(64) A tile[kRows * nr];
                const bool in_place = direct && width == nr;
                const bool through_tile = direct && !in_place;
                A* out = in_place    ? static_cast<A*>(p.d) + (m0 + row) * p.d_m + column
                         : keep_sums ? sums + row * n_pass + j * nr
                                     : tile;
                const int64_t out_m = in_place ? p.d_m : keep_sums ? n_pass : nr;
                if (through_tile && !first) {
                  for (int64_t t = 0; t < height; ++t)
                    read_row(p.d_dtype, p.d, (m0 + row + t) * p.d_m + column, 1,
                             static_cast<int>(width), tile + t * nr);
                }
                kPanelMicro<A>.of[height](depth, packed_a + i * kRows * depth, 0, 0, right, right_k,
                                          out, out_m, !first);
                if (through_tile || (last && !in_place))
                  finish(p, plain, out, out_m, m0 + row, column, height, width);
              }
            }
          }
        });
        if (!ok) return false;
      }
    }
  }
  return true;
}

// k = 0 or alpha = 0: the product counts as zero.
template <class A>
void only_finish(const GemmProblem& p) {
  alignas(64) A zeros[kColumns<A>] = {};
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; j += kColumns<A>)
      finish(p, is_plain(p), zeros, 0, i, j, 1, min(kColumns<A>, p.n - j));
}

template <class T>
bool gemm_of(const GemmProblem& p, bool parallel) {
  using A = compute_t<T>;
  if (p.k == 0) {
    only_finish<A>(p);
    return true;
  }
  const bool small = p.k * kLanes<A> <= kSmallElements && p.m * p.k <= kSmallElements &&
                     p.m * p.n * p.k <= kSmallProducts;
  if (small) {
    small_gemm<T>(p);
    return true;
  }
  parallel = parallel && p.m * p.n * p.k >= kSerialProducts;
  if (p.m <= kFewRows && (p.b_k == 1 || (p.b_n == 1 && p.m <= 4))) {
    return few_rows_gemm<T>(p, parallel);
  }
  return packed_gemm<T>(p, parallel);
}

bool gemm(const GemmProblem& problem, bool parallel) {
  GemmProblem p = problem;
  // A single column: the transposed problem streams the large operand.
  if (p.n <= 4 && p.m > p.n && p.bias == nullptr) {
    p = {problem.n,
         problem.m,
         problem.k,
         problem.b,
         problem.b_n,
         problem.b_k,
         problem.a,
         problem.a_k,
         problem.a_m,
         problem.c,
         problem.c_n,
         problem.c_m,
         problem.d,
         problem.d_n,
         problem.d_m,
         nullptr,
         0,
         problem.alpha,
         problem.beta,
         problem.activation,
         problem.dtype,
         problem.c_dtype,
         problem.d_dtype,
         problem.bias_dtype};
  }
  switch (p.dtype) {
    case CHIPSET_DTYPE_F16:
      return gemm_of<f16>(p, parallel);
    case CHIPSET_DTYPE_BF16:
      return gemm_of<bf16>(p, parallel);
    case CHIPSET_DTYPE_F32:
      return gemm_of<float>(p, parallel);
    default:
      return gemm_of<double>(p, parallel);
  }
}

}  // namespace

extern const GemmKernels gemm_kernels;
const GemmKernels gemm_kernels = {gemm};

}  // namespace chipset::cpu::CPU_ISA
