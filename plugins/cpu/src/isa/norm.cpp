// SPDX-License-Identifier: Apache-2.0
#include "norm.h"

#include "isa/rows.h"
#include "scratch.h"
#include "tasks.h"

namespace chipset::cpu::CPU_ISA {
namespace {

constexpr int64_t kMostBlocks = 32;  // of rows, each with its own sums of weight gradients

template <class A>
A* buffer(ScratchSlot slot, int64_t elements) {
  return static_cast<A*>(scratch(slot, sizeof(A) * static_cast<size_t>(elements)));
}
template <class A>
void put(const NormVector& v, int64_t i, A x) {
  if (v.data != nullptr) write_row(v.dtype, v.data, i * v.stride, 1, 1, &x);
}
template <class A>
A get(const NormVector& v, int64_t i) {
  A x;
  read_row(v.dtype, v.data, i * v.stride, 1, 1, &x);
  return x;
}

// weight + offset and bias as rows of A; ones and zeros where absent.
template <class A>
void read_weights(const NormProblem& p, A* weight, A* bias) {
  const int64_t n = p.rows.size;
  for (int64_t i = 0; i < n; ++i) weight[i] = A{1};
  if (p.weight.data != nullptr) {
    read_row(p.weight.dtype, p.weight.data, 0, p.weight.stride, n, weight);
    for (int64_t i = 0; i < n; ++i) weight[i] += static_cast<A>(p.weight_offset);
  }
  if (bias == nullptr) return;
  for (int64_t i = 0; i < n; ++i) bias[i] = A{0};
  if (p.bias.data != nullptr) read_row(p.bias.dtype, p.bias.data, 0, p.bias.stride, n, bias);
}

template <class A>
bool forward_of(const NormProblem& p) {
  const int64_t n = p.rows.size;
  A* weight = buffer<A>(kScratchA, 2 * n);
  if (weight == nullptr) return false;
  A* bias = weight + n;
  read_weights(p, weight, bias);
  bool ok = true;
  parallel_for(p.rows.count, row_grain(n), [&](int64_t begin, int64_t end) {
    A* x = buffer<A>(kScratchB, n);
    if (x == nullptr) return __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    for (int64_t row = begin; row < end; ++row) {
      read_row(p.rows, 0, row, x);
      A mean = 0;
      if (p.layer) {
        vec<A> sum{};
        for_vectors<A>(n, [&](int64_t i, auto w) { sum += load(x + i, w); });
        mean = sum_lanes(sum) / static_cast<A>(n);
        const vec<A> m = splat(mean);
        for_vectors<A>(n, [&](int64_t i, auto w) { store(x + i, load(x + i, w) - m, w); });
      }
      vec<A> squares{};
      for_vectors<A>(n, [&](int64_t i, auto w) {
        vec<A> v = load(x + i, w);
        squares += v * v;
      });
      const A variance = sum_lanes(squares) / static_cast<A>(n);
      const A rstd = A{1} / std::sqrt(variance + static_cast<A>(p.eps));
      if (p.layer) {
        for_vectors<A>(n, [&](int64_t i, auto w) {
          store(x + i, load(x + i, w) * rstd * load(weight + i, w) + load(bias + i, w), w);
        });
      } else {
        for_vectors<A>(n, [&](int64_t i, auto w) {
          store(x + i, load(x + i, w) * rstd * load(weight + i, w), w);
        });
      }
      write_row(p.rows, 1, row, x);
      if (p.layer) put(p.mean, row, mean);
      put(p.rstd, row, rstd);
    }
  });
  return ok;
}

// With h = (x - mean)*rstd and g = dy*weight: dx = rstd*(g - h*mean(g*h) [- mean(g)]),
// dweight = sum of dy*h over the rows, dbias = sum of dy.
template <class A>
bool backward_of(const NormProblem& p) {
  const int64_t n = p.rows.size;
  const bool sums_wanted = p.dweight.data != nullptr || p.dbias.data != nullptr;
  // The blocks depend on the shape alone, so that the sums do not depend on timing.
  int64_t blocks = p.rows.count / (row_grain(n) < 8 ? 8 : row_grain(n));
  blocks = blocks < 1 ? 1 : blocks > kMostBlocks ? kMostBlocks : blocks;
  A* weight = buffer<A>(kScratchA, n);
  A* sums = buffer<A>(kScratchC, sums_wanted ? blocks * 2 * n : 0);
  if (weight == nullptr || sums == nullptr) return false;
  read_weights<A>(p, weight, nullptr);
  const bool dx_wanted = p.rows.data[2] != nullptr;
  bool ok = true;
  for_tasks(blocks, true, [&](int64_t block) {
    A* h = buffer<A>(kScratchB, 2 * n);
    if (h == nullptr) return __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    A* dy = h + n;
    A* dweight = sums + block * 2 * n;
    A* dbias = dweight + n;
    if (sums_wanted) std::memset(dweight, 0, sizeof(A) * static_cast<size_t>(2 * n));
    const int64_t end = p.rows.count * (block + 1) / blocks;
    for (int64_t row = p.rows.count * block / blocks; row < end; ++row) {
      read_row(p.rows, 0, row, h);
      read_row(p.rows, 1, row, dy);
      const A rstd = get<A>(p.rstd, row);
      const vec<A> mean = splat(p.layer ? get<A>(p.mean, row) : A{0});
      vec<A> sum_g{}, sum_gh{};
      for_vectors<A>(n, [&](int64_t i, auto w) {
        vec<A> hi = (load(h + i, w) - mean) * rstd, d = load(dy + i, w);
        vec<A> g = d * load(weight + i, w);
        store(h + i, hi, w);
        hi = load(h + i, w);  // lanes beyond a cut row are zero again
        sum_g += g;
        sum_gh += g * hi;
        if (sums_wanted) {
          store(dweight + i, load(dweight + i, w) + d * hi, w);
          store(dbias + i, load(dbias + i, w) + d, w);
        }
      });
      if (!dx_wanted) continue;
      const A c = sum_lanes(sum_gh) / static_cast<A>(n);
      const A c0 = p.layer ? sum_lanes(sum_g) / static_cast<A>(n) : A{0};
      for_vectors<A>(n, [&](int64_t i, auto w) {
        vec<A> g = load(dy + i, w) * load(weight + i, w);
        store(dy + i, (g - load(h + i, w) * c - c0) * rstd, w);
      });
      write_row(p.rows, 2, row, dy);
    }
  });
  if (!ok || !sums_wanted) return ok;
  for (int64_t block = 1; block < blocks; ++block)
    for (int64_t i = 0; i < 2 * n; ++i) sums[i] += sums[block * 2 * n + i];
  if (p.dweight.data != nullptr)
    write_row(p.dweight.dtype, p.dweight.data, 0, p.dweight.stride, n, sums);
  if (p.dbias.data != nullptr)
    write_row(p.dbias.dtype, p.dbias.data, 0, p.dbias.stride, n, sums + n);
  return true;
}

bool forward(const NormProblem& p) {
  return p.rows.dtype[0] == CHIPSET_DTYPE_F64 ? forward_of<double>(p) : forward_of<float>(p);
}
bool backward(const NormProblem& p) {
  return p.rows.dtype[0] == CHIPSET_DTYPE_F64 ? backward_of<double>(p) : backward_of<float>(p);
}

}  // namespace

extern const NormKernels norm_kernels;
const NormKernels norm_kernels = {forward, backward};

}  // namespace chipset::cpu::CPU_ISA
