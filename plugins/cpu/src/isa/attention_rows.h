// SPDX-License-Identifier: Apache-2.0
// The running softmax of flash attention (arXiv:2205.14135) over one row of scores after another.
#pragma once

#include "isa/attention_tiles.h"

namespace chipset::cpu::CPU_ISA {

// One tile of scores of a row becomes probabilities relative to the new maximum; the factor by
// which earlier sums shrink is returned. `top` is the largest score so far, `sum` that of exp(score
// - top). `scores` has room for whole vectors; `scaled` tells whether scale and cap have been
// applied.
template <class A>
A soften_row(A* scores, int64_t count, A scale, A softcap, bool scaled, A& top_so_far,
             A& sum_so_far) {
  vec<A> top = splat(A(-INFINITY));
  const int64_t padded = ceil_div(count, kLanes<A>) * kLanes<A>;
  for (int64_t j = count; j < padded; ++j) scores[j] = A(-INFINITY);
  for (int64_t j = 0; j < padded; j += kLanes<A>) {
    vec<A> s = load(scores + j);
    if (!scaled) {
      s = cap_scores(s, scale, softcap);
      store(scores + j, s);
    }
    top = vmax(top, s);
  }
  // The padding's -inf, capped or times a scale that is not positive, would be another number.
  if (!scaled && (softcap != 0 || !(scale > 0)) && padded != count) {
    for (int64_t j = count; j < padded; ++j) scores[j] = A(-INFINITY);
    top = splat(A(-INFINITY));
    for (int64_t j = 0; j < padded; j += kLanes<A>) top = vmax(top, load(scores + j));
  }
  const A old = top_so_far;
  A now = max_lanes(top);
  now = (old > now || old != old) ? old : now;
  const A reference = now == A(-INFINITY) ? A{0} : now;
  const vec<A> by = splat(reference);
  vec<A> sum{};
  for (int64_t j = 0; j < padded; j += kLanes<A>) {
    vec<A> e = vexp(load(scores + j) - by);
    store(scores + j, e);
    sum += e;
  }
  const A factor = old == A(-INFINITY) ? A{0} : std::exp(old - reference);
  top_so_far = now;
  sum_so_far = sum_so_far * factor + sum_lanes(sum);
  return factor;
}

// Ends the row (b, h, row): divides the sums, writes out and the log-sum-exp. `sum` has whole
// vectors.
template <class A>
void write_attention(const AttentionProblem& p, int64_t b, int64_t h, int64_t row, A* sum, A top,
                     A total) {
  // No key was seen (NUM-006): the sums are zero and stay so.
  const A factor = top == A(-INFINITY) ? A{0} : A{1} / total;
  for (int64_t c = 0; c < p.d_v; c += kLanes<A>) store(sum + c, load(sum + c) * factor);
  const int64_t* stride = p.out.stride;
  write_row(p.dtype, p.out.data, b * stride[0] + h * stride[1] + row * stride[2], stride[3], p.d_v,
            sum);
  if (p.lse.data == nullptr) return;
  const A lse = top == A(-INFINITY) ? A(-INFINITY) : top + std::log(total);
  stride = p.lse.stride;
  static_cast<A*>(p.lse.data)[b * stride[0] + h * stride[1] + row * stride[2]] = lse;
}

}  // namespace chipset::cpu::CPU_ISA
