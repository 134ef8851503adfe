// SPDX-License-Identifier: Apache-2.0
#include "adamw.h"

#include "isa/activation.h"

namespace chipset::cpu::CPU_ISA {
namespace {

constexpr int64_t kChunk = 512;  // elements that are widened at a time: they stay in the L1 cache

template <class A>
void update_of(const AdamwPiece& p) {
  const A beta1 = static_cast<A>(p.beta1), beta2 = static_cast<A>(p.beta2);
  const A rest1 = static_cast<A>(1 - p.beta1), rest2 = static_cast<A>(1 - p.beta2);
  const A eps = static_cast<A>(p.eps), factor = static_cast<A>(p.grad_factor);
  const A shrink = static_cast<A>(p.decoupled ? p.lr * p.weight_decay : 0);
  const A decay = static_cast<A>(p.decoupled ? 0 : p.weight_decay);
  const A step_size = static_cast<A>(p.lr / (1 - std::pow(p.beta1, p.step)));
  const A correction = static_cast<A>(1 / std::sqrt(1 - std::pow(p.beta2, p.step)));
  A rows[5][kChunk];
  A *w = rows[0], *g = rows[1], *m = rows[2], *v = rows[3], *highest = rows[4];
  const int tensors = p.tensor[4] != nullptr ? 5 : 4;
  for (int64_t begin = p.begin; begin < p.end; begin += kChunk) {
    const int64_t n = p.end - begin < kChunk ? p.end - begin : kChunk;
    for (int t = 0; t < tensors; ++t) read_row(p.dtype[t], p.tensor[t], begin, 1, n, rows[t]);
    for (int64_t i = 0; i < n; ++i) {
      const A gradient = g[i] * factor + w[i] * decay;
      m[i] = m[i] * beta1 + gradient * rest1;
      v[i] = v[i] * beta2 + gradient * gradient * rest2;
    }
    const A* second = v;
    if (tensors == 5) {
      for (int64_t i = 0; i < n; ++i)
        highest[i] = v[i] > highest[i] || v[i] != v[i] ? v[i] : highest[i];
      second = highest;
    }
    for (int64_t i = 0; i < n; ++i)
      // The small terms first: the parameter is rounded once.
      w[i] -= w[i] * shrink + step_size * m[i] / (std::sqrt(second[i]) * correction + eps);
    for (int t = 0; t < tensors; ++t)
      if (t != 1) write_row(p.dtype[t], p.tensor[t], begin, 1, n, rows[t]);
  }
}

void update(const AdamwPiece& p) {
  bool has_f64 = false;
  for (int t = 0; t < 5; ++t) has_f64 |= p.tensor[t] != nullptr && p.dtype[t] == CHIPSET_DTYPE_F64;
  has_f64 ? update_of<double>(p) : update_of<float>(p);
}

}  // namespace

extern const AdamwKernels adamw_kernels;
const AdamwKernels adamw_kernels = {update};

}  // namespace chipset::cpu::CPU_ISA
