// SPDX-License-Identifier: Apache-2.0
// The matrix unit: multiplies a block of A by a panel of B, both in its own buffers, in f32 (f64
// for f64). It knows nothing of strides and dtypes: the load unit fills the buffers.
#pragma once

#include <chipset_sdk/loops.hpp>
#include <memory>
#include <vector>

namespace hello {

inline constexpr int64_t kRows = 6, kColumns = 32;  // of one pass of the array
inline constexpr int64_t kDepth = 384;              // of the buffers

#define HELLO_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#if !defined(__x86_64__)
#undef HELLO_CLONES
#define HELLO_CLONES
#endif

// tile[kRows][kColumns] += a[depth][kRows]^T b[depth][kColumns]. The pass has a sum of its own:
// over long depths a sum of sums loses less than one sum.
#define HELLO_PASS(T)                                                             \
  HELLO_CLONES inline void pass(T* tile, const T* a, const T* b, int64_t depth) { \
    T sum[kRows][kColumns] = {};                                                  \
    for (int64_t k = 0; k < depth; ++k, a += kRows, b += kColumns)                \
      for (int64_t r = 0; r < kRows; ++r)                                         \
        for (int64_t c = 0; c < kColumns; ++c) sum[r][c] += a[r] * b[c];          \
    for (int64_t r = 0; r < kRows; ++r)                                           \
      for (int64_t c = 0; c < kColumns; ++c) tile[r * kColumns + c] += sum[r][c]; \
  }
HELLO_PASS(float)
HELLO_PASS(double)
#undef HELLO_PASS

template <class T>
T activate(int32_t activation, T x) {
  namespace unit = chipset::sdk::loops::detail;
  switch (activation) {
    case CHIPSET_ACTIVATION_RELU:
      return x != x ? x : x > 0 ? x : 0;
    case CHIPSET_ACTIVATION_GELU_ERF:
      return x * unit::normal_cdf(x);
    case CHIPSET_ACTIVATION_GELU_TANH:
      return T(0.5) * x * (1 + std::tanh(unit::gelu_tanh_inner(x)));
    case CHIPSET_ACTIVATION_SILU:
      return x * unit::sigmoid(x);
    default:
      return x;
  }
}

// Columns [first, first + width) of one matrix of the batch.
template <class T>
class Panel {
 public:
  Panel(const chipset_gemm_args& args, int64_t batch)
      : args_(args),
        a_(matrix(*args.a, batch)),
        b_(matrix(*args.b, batch)),
        d_(matrix(*args.d, batch)),
        c_(args.c ? matrix(*args.c, batch) : d_) {}

  void multiply(int64_t first, int64_t width) {
    const int64_t m = d_.shape[0], k = a_.shape[1];
    const int64_t blocks = (m + kRows - 1) / kRows;
    tiles_.assign(blocks * kRows * kColumns, T(0));
    for (int64_t from = 0; from < k; from += kDepth) {
      const int64_t depth = std::min(kDepth, k - from);
      load_b(from, depth, first, width);
      for (int64_t block = 0; block < blocks; ++block) {
        load_a(block * kRows, from, depth);
        pass(&tiles_[block * kRows * kColumns], a_buffer_, b_buffer_, depth);
      }
    }
    for (int64_t row = 0; row < m; ++row) store_row(row, first, width);
  }

 private:
  static chipset_tensor matrix(chipset_tensor t, int64_t batch) {
    if (t.rank == 2) return t;
    t.data = chipset::sdk::address(t, batch * t.stride[0]);
    for (int d = 0; d < 2; ++d) t.shape[d] = t.shape[d + 1], t.stride[d] = t.stride[d + 1];
    t.rank = 2;
    return t;
  }
  static const void* at(const chipset_tensor& t, int64_t row, int64_t column) {
    return chipset::sdk::address(t, row * t.stride[0] + column * t.stride[1]);
  }
  void load_a(int64_t row, int64_t from, int64_t depth) {
    T line[kDepth];
    for (int64_t r = 0; r < kRows; ++r) {
      const bool inside = row + r < a_.shape[0];
      if (inside)
        chipset::sdk::loops::load(line, at(a_, row + r, from), a_.dtype, a_.stride[1], depth);
      for (int64_t k = 0; k < depth; ++k) a_buffer_[k * kRows + r] = inside ? line[k] : T(0);
    }
  }
  void load_b(int64_t from, int64_t depth, int64_t first, int64_t width) {
    std::fill_n(b_buffer_, depth * kColumns, T(0));
    if (b_.stride[0] == 1 && depth > 1) {  // columns lie side by side: read them whole
      T line[kDepth];
      for (int64_t c = 0; c < width; ++c) {
        chipset::sdk::loops::load(line, at(b_, from, first + c), b_.dtype, 1, depth);
        for (int64_t k = 0; k < depth; ++k) b_buffer_[k * kColumns + c] = line[k];
      }
      return;
    }
    for (int64_t k = 0; k < depth; ++k)
      chipset::sdk::loops::load(b_buffer_ + k * kColumns, at(b_, from + k, first), b_.dtype,
                                b_.stride[1], width);
  }
  void store_row(int64_t row, int64_t first, int64_t width) {
    T* out = &tiles_[row * kColumns];
    T add[kColumns];
    const T alpha = static_cast<T>(args_.alpha), beta = static_cast<T>(args_.beta);
    for (int64_t c = 0; c < width; ++c) out[c] *= alpha;
    if (args_.c != nullptr && args_.beta != 0) {
      chipset::sdk::loops::load(add, at(c_, row, first), c_.dtype, c_.stride[1], width);
      for (int64_t c = 0; c < width; ++c) out[c] += beta * add[c];
    }
    if (args_.bias != nullptr) {
      const chipset_tensor& bias = *args_.bias;
      chipset::sdk::loops::load(add, chipset::sdk::address(bias, first * bias.stride[0]),
                                bias.dtype, bias.stride[0], width);
      for (int64_t c = 0; c < width; ++c) out[c] += add[c];
    }
    for (int64_t c = 0; c < width; ++c) out[c] = activate(args_.activation, out[c]);
    chipset::sdk::loops::store(const_cast<void*>(at(d_, row, first)), d_.dtype, d_.stride[1], out,
                               width);
  }

  const chipset_gemm_args& args_;
  chipset_tensor a_, b_, d_, c_;
  T a_buffer_[kDepth * kRows], b_buffer_[kDepth * kColumns];
  std::vector<T> tiles_;  // kRows * kColumns per block of rows
};

inline void check_gemm(const chipset_gemm_args& args) {
  using namespace chipset::sdk;
  for (const chipset_tensor* t : {args.a, args.b, args.c, args.d, args.bias})
    if (t != nullptr && (t->dtype < CHIPSET_DTYPE_F16 || t->dtype > CHIPSET_DTYPE_F64))
      unsupported(std::string("gemm: the matrix unit has no ") + dtype_name(t->dtype));
  if (args.activation < 0 || args.activation > CHIPSET_ACTIVATION_SILU)
    fail(CHIPSET_STATUS_INVALID, "gemm: activation %d does not exist", args.activation);
}

inline void gemm(const chipset_gemm_args& args) {
  const bool wide = args.d->dtype == CHIPSET_DTYPE_F64;
  const int64_t batches = args.d->rank == 3 ? args.d->shape[0] : 1;
  const int64_t columns = args.d->shape[args.d->rank - 1];
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t batch = 0; batch < batches; ++batch) {
      const auto panel = std::make_unique<Panel<T>>(args, batch);
      for (int64_t first = 0; first < columns; first += kColumns)
        panel->multiply(first, std::min(kColumns, columns - first));
    }
  };
  if (wide)
    run(chipset::sdk::Type<double>());
  else
    run(chipset::sdk::Type<float>());
}

// The load unit makes floats of quantised weights.
inline void gemm_quantized(const chipset_gemm_quantized_args& args) {
  chipset::sdk::loops::gemm_quantized(args, gemm);
}

}  // namespace hello
