// SPDX-License-Identifier: Apache-2.0
// A row of logits is read once, in blocks that stay in the first-level cache: a running maximum and
// sum of exponentials (Milakov and Gimelshein, arXiv:1805.02867) serve any size of vocabulary.
#include "cross_entropy.h"

#include "isa/activation.h"
#include "parallel.h"

namespace chipset::cpu::CPU_ISA {
namespace {

constexpr int64_t kBlock = 2048;  // logits

// A row of [N, V] or an element of [N]; A is float or double.
struct Row {
  int64_t offset, step;
};
Row row_of(const chipset_tensor& t, int64_t row) {
  return {row * t.stride[0], t.shape[1] == 1 ? 1 : t.stride[1]};
}
template <class A>
A& element(const chipset_tensor& t, int64_t i) {
  return static_cast<A*>(t.data)[i * t.stride[0]];
}
int64_t target_of(const chipset_cross_entropy_args& a, int64_t row) {
  return element<int64_t>(*a.target, row);
}
int64_t row_grain(int64_t classes) { return 1 + 8192 / (classes + 1); }

template <class A>
struct Sums {
  A top = A(-INFINITY);
  double exponentials = 0;  // of logit - top
  double logits = 0;        // for label smoothing

  // `x` has room for whole vectors beyond n.
  void add(A* x, int64_t n) {
    const int64_t padded = (n + kLanes<A> - 1) / kLanes<A> * kLanes<A>;
    for (int64_t j = n; j < padded; ++j) x[j] = A(-INFINITY);
    vec<A> tops = splat(A(-INFINITY));
    for (int64_t j = 0; j < padded; j += kLanes<A>) tops = vmax(tops, load(x + j));
    const A old = top, here = max_lanes(tops);
    top = (old > here || old != old) ? old : here;
    const A reference = top == A(-INFINITY) ? A{0} : top;
    vec<A> sum{};
    const vec<A> by = splat(reference);
    for (int64_t j = 0; j < padded; j += kLanes<A>) sum += vexp(load(x + j) - by);
    if (old != top) exponentials *= std::exp(static_cast<double>(old) - reference);
    exponentials += sum_lanes(sum);
  }
  void add_logits(const A* x, int64_t n) {
    vec<A> sum{};
    for_vectors<A>(n, [&](int64_t j, auto w) { sum += load(x + j, w); });
    logits += sum_lanes(sum);
  }
};

template <class A>
void forward_of(const chipset_cross_entropy_args& a) {
  const chipset_tensor& logits = *a.logits;
  const int64_t classes = logits.shape[1];
  const double smoothing = a.label_smoothing;
  parallel_for(logits.shape[0], row_grain(classes), [&](int64_t begin, int64_t end) {
    alignas(64) A block[kBlock + kLanes<A>];
    for (int64_t row = begin; row < end; ++row) {
      const Row at = row_of(logits, row);
      Sums<A> sums;
      for (int64_t j = 0; j < classes; j += kBlock) {
        const int64_t n = classes - j < kBlock ? classes - j : kBlock;
        read_row(logits.dtype, logits.data, at.offset + j * at.step, at.step, n, block);
        if (smoothing != 0) sums.add_logits(block, n);
        sums.add(block, n);
      }
      const double lse = static_cast<double>(sums.top) + std::log(sums.exponentials);
      if (a.lse != nullptr) element<A>(*a.lse, row) = static_cast<A>(lse);
      const int64_t target = target_of(a, row);
      if (target == a.ignore_index) {
        element<A>(*a.loss, row) = A{0};
        continue;
      }
      A picked;
      read_row(logits.dtype, logits.data, at.offset + target * at.step, 1, 1, &picked);
      double loss = lse - picked;
      if (smoothing != 0) {
        const double uniform = lse - sums.logits / static_cast<double>(classes);
        loss = (1 - smoothing) * loss + smoothing * uniform;
      }
      element<A>(*a.loss, row) = static_cast<A>(loss);
    }
  });
}

template <class A>
void backward_of(const chipset_cross_entropy_args& a) {
  const chipset_tensor &logits = *a.logits, &dlogits = *a.dlogits;
  const int64_t classes = logits.shape[1];
  const A each = static_cast<A>(a.label_smoothing / static_cast<double>(classes));
  const A at_target = static_cast<A>(1 - a.label_smoothing);
  parallel_for(logits.shape[0], row_grain(classes), [&](int64_t begin, int64_t end) {
    alignas(64) A block[kBlock];
    for (int64_t row = begin; row < end; ++row) {
      const Row from = row_of(logits, row), to = row_of(dlogits, row);
      const int64_t target = target_of(a, row);
      const bool ignored = target == a.ignore_index;
      const vec<A> lse = splat(element<A>(*a.lse, row));
      const A dloss = element<A>(*a.dloss, row);
      const vec<A> factor = splat(dloss), less = splat(each);
      if (ignored) std::memset(block, 0, sizeof block);
      for (int64_t j = 0; j < classes; j += kBlock) {
        const int64_t n = classes - j < kBlock ? classes - j : kBlock;
        if (!ignored) {
          read_row(logits.dtype, logits.data, from.offset + j * from.step, from.step, n, block);
          A probability{};
          const bool here = target >= j && target < j + n;
          if (here) probability = static_cast<A>(std::exp(block[target - j] - lse[0]));
          for_vectors<A>(n, [&](int64_t i, auto w) {
            store(block + i, (vexp(load(block + i, w) - lse) - less) * factor, w);
          });
          if (here) block[target - j] = (probability - each - at_target) * dloss;
        }
        write_row(dlogits.dtype, dlogits.data, to.offset + j * to.step, to.step, n, block);
      }
    }
  });
}

void forward(const chipset_cross_entropy_args& a) {
  a.logits->dtype == CHIPSET_DTYPE_F64 ? forward_of<double>(a) : forward_of<float>(a);
}
void backward(const chipset_cross_entropy_args& a) {
  a.logits->dtype == CHIPSET_DTYPE_F64 ? backward_of<double>(a) : backward_of<float>(a);
}

}  // namespace

extern const CrossEntropyKernels cross_entropy_kernels;
const CrossEntropyKernels cross_entropy_kernels = {forward, backward};

}  // namespace chipset::cpu::CPU_ISA
