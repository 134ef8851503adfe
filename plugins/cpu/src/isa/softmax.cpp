// SPDX-License-Identifier: Apache-2.0
#include "softmax.h"

#include "isa/rows.h"
#include "parallel.h"
#include "scratch.h"

namespace chipset::cpu::CPU_ISA {
namespace {

template <class A>
A row_max(const A* x, int64_t size) {
  vec<A> top = splat(A(-INFINITY));
  for_vectors<A>(size, [&](int64_t i, auto n) {
    vec<A> y = load(x + i, n);
    if constexpr (!std::is_same_v<decltype(n), int>) {
      top = vmax(top, y);
    } else {
      for (int t = 0; t < n; ++t) top[t] = (top[t] > y[t] || top[t] != top[t]) ? top[t] : y[t];
    }
  });
  return max_lanes(top);
}

// x becomes exp(x - shift); gives the sum, taken block by block so that rounding does not add up
// over a vocabulary.
template <class A>
A exp_row(A* x, int64_t size, A shift) {
  constexpr int64_t block = 1024;
  double total = 0;
  const vec<A> by = splat(shift);
  for (int64_t begin = 0; begin < size; begin += block, x += block) {
    vec<A> sum{};
    for_vectors<A>(size - begin < block ? size - begin : block, [&](int64_t i, auto n) {
      store(x + i, vexp(load(x + i, n) - by), n);
      sum += load(x + i, n);
    });
    total += sum_lanes(sum);
  }
  return static_cast<A>(total);
}

template <class A>
bool forward_of(const Rows& rows, bool log) {
  bool ok = true;
  parallel_for(rows.count, row_grain(rows.size), [&](int64_t begin, int64_t end) {
    const size_t bytes = sizeof(A) * static_cast<size_t>(rows.size);
    A* x = static_cast<A*>(scratch(kScratchA, bytes));
    A* e = static_cast<A*>(scratch(kScratchB, log ? bytes : 0));
    if (x == nullptr || e == nullptr) return __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    for (int64_t row = begin; row < end; ++row) {
      read_row(rows, 0, row, x);
      const A top = row_max(x, rows.size);
      if (log) {
        std::memcpy(e, x, bytes);
        // Not x - (top + rest): beside a large top the rest would be lost.
        const A rest = std::log(exp_row(e, rows.size, top));
        for (int64_t i = 0; i < rows.size; ++i) x[i] = (x[i] - top) - rest;
      } else {
        const A factor = A{1} / exp_row(x, rows.size, top);
        for (int64_t i = 0; i < rows.size; ++i) x[i] *= factor;
      }
      write_row(rows, 1, row, x);
    }
  });
  return ok;
}

template <class A>
bool backward_of(const Rows& rows, bool log) {
  bool ok = true;
  parallel_for(rows.count, row_grain(rows.size), [&](int64_t begin, int64_t end) {
    const size_t bytes = sizeof(A) * static_cast<size_t>(rows.size);
    A* dy = static_cast<A*>(scratch(kScratchA, bytes));
    A* y = static_cast<A*>(scratch(kScratchB, bytes));
    if (dy == nullptr || y == nullptr) return __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    for (int64_t row = begin; row < end; ++row) {
      read_row(rows, 0, row, dy);
      read_row(rows, 1, row, y);
      vec<A> sums{};
      for_vectors<A>(rows.size, [&](int64_t i, auto n) {
        vec<A> g = load(dy + i, n);
        sums += log ? g : g * load(y + i, n);
      });
      const vec<A> sum = splat(sum_lanes(sums));
      for_vectors<A>(rows.size, [&](int64_t i, auto n) {
        vec<A> g = load(dy + i, n), p = load(y + i, n);
        store(dy + i, log ? g - vexp(p) * sum : (g - sum) * p, n);
      });
      write_row(rows, 2, row, dy);
    }
  });
  return ok;
}

// Whether one of the first n tensors is F64: then the whole row is evaluated in it.
bool has_f64(const Rows& rows, int n) {
  for (int t = 0; t < n; ++t)
    if (rows.dtype[t] == CHIPSET_DTYPE_F64) return true;
  return false;
}
bool forward(const Rows& rows, bool log) {
  return has_f64(rows, 2) ? forward_of<double>(rows, log) : forward_of<float>(rows, log);
}
bool backward(const Rows& rows, bool log) {
  return has_f64(rows, 3) ? backward_of<double>(rows, log) : backward_of<float>(rows, log);
}

}  // namespace

extern const SoftmaxKernels softmax_kernels;
const SoftmaxKernels softmax_kernels = {forward, backward};

}  // namespace chipset::cpu::CPU_ISA
