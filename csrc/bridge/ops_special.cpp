// SPDX-License-Identifier: Apache-2.0
// Zeta and polygamma functions, Bessel functions of order one, and pairwise distances: composed, in
// F64 where series are summed.
#include <ATen/ScalarOps.h>
#include <ATen/native/Math.h>
#include <ATen/ops/_cdist_backward_ops.h>
#include <ATen/ops/_cdist_forward_ops.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/digamma.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/le.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/min.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/polygamma_meta.h>
#include <ATen/ops/polygamma_ops.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/special_i1_meta.h>
#include <ATen/ops/special_i1e_meta.h>
#include <ATen/ops/special_modified_bessel_i1_meta.h>
#include <ATen/ops/special_zeta_meta.h>
#include <ATen/ops/special_zeta_ops.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "structured.h"

namespace chipset::bridge {
namespace {

using at::Tensor;

Tensor number(double value) { return at::native::wrapped_scalar_tensor(value); }

// ---- zeta -----------------------------------------------------------------------------------

// (2j)! / B(2j), j = 1, 2, … (the Euler-Maclaurin terms of Cephes' zeta).
constexpr double kEulerMaclaurin[] = {12.0,
                                      -720.0,
                                      30240.0,
                                      -1209600.0,
                                      47900160.0,
                                      -1.8924375803183791606e9,
                                      7.47242496e10,
                                      -2.950130727918164224e12,
                                      1.1646782814350067249e14,
                                      -4.5979787224074726105e15,
                                      1.8152105401943546773e17,
                                      -7.1661652561756670113e18};
constexpr double kDirectTerms = 10;  // the tail begins at q + n >= 10
constexpr double kMostTerms = 64;

// Hurwitz' zeta(s, q) in F64. Undefined when q reaches so far below zero that too many terms would
// have to be summed directly.
Tensor zeta(const Tensor& s, const Tensor& q) {
  const double lowest = q.numel() == 0 ? 0.0 : at::min(q).item().toDouble();
  if (!(lowest >= kDirectTerms - kMostTerms)) return {};
  const auto terms = static_cast<int64_t>(std::ceil(std::max(kDirectTerms, kDirectTerms - lowest)));
  const Tensor minus_s = at::neg(s);
  Tensor sum = at::pow(q, minus_s);
  for (int64_t i = 1; i < terms; ++i) sum = at::add(sum, at::pow(at::add(q, i), minus_s));

  const Tensor a = at::add(q, terms);
  Tensor power = at::pow(a, minus_s);
  sum = at::add(sum, at::div(at::mul(power, a), at::sub(s, 1)));
  sum = at::add(sum, power, 0.5);
  Tensor factor = s;
  const Tensor inverse = at::reciprocal(a);
  power = at::mul(power, inverse);
  for (int64_t j = 0; const double coefficient : kEulerMaclaurin) {
    sum = at::add(sum, at::mul(factor, power), 1.0 / coefficient);
    factor = at::mul(at::mul(factor, at::add(s, 2 * j + 1)), at::add(s, 2 * j + 2));
    power = at::mul(at::mul(power, inverse), inverse);
    ++j;
  }
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor pole = at::logical_and(at::le(q, 0), at::eq(q, at::floor(q)));
  sum = at::where(pole, number(infinity), sum);
  sum = at::where(at::lt(s, 1), number(std::nan("")), sum);
  return at::where(at::eq(s, 1), number(infinity), sum);
}

Tensor& zeta_out(const Tensor& s, const Tensor& q, Tensor& out) {
  Out<at::meta::structured_special_zeta> check(out);
  check.meta(s, q);
  if (out.numel() == 0) return out;
  const auto widened = [&](const Tensor& x) { return x.to(out.device(), at::kDouble); };
  const Tensor result = zeta(widened(s), widened(q));
  if (!result.defined()) return host<at::_ops::special_zeta_out>(s, q, out);
  return out.copy_(result);
}

// The n-th derivative of digamma: (-1)^(n+1) n! zeta(n + 1, x).
Tensor& polygamma_out(int64_t n, const Tensor& self, Tensor& out) {
  Out<at::meta::structured_polygamma> check(out);
  check.meta(n, self);
  if (n == 0) return at::digamma_out(out, self);
  if (out.numel() == 0) return out;
  const Tensor x = self.to(at::kDouble);
  const Tensor result = zeta(at::full_like(x, static_cast<double>(n + 1)), x);
  if (!result.defined()) return host<at::_ops::polygamma_out>(n, self, out);
  const double factorial = std::tgamma(static_cast<double>(n) + 1.0);
  return out.copy_(at::mul(result, n % 2 == 1 ? factorial : -factorial));
}

// ---- Bessel functions -----------------------------------------------------------------------

// A Chebyshev series by Clenshaw's recurrence; coefficients from the highest order down.
Tensor chebyshev(const Tensor& x, std::tuple<const double*, size_t> coefficients) {
  const auto [values, count] = coefficients;
  Tensor current = at::full_like(x, values[0]);
  Tensor previous = at::full_like(x, 0.0);
  Tensor before;
  for (size_t i = 1; i < count; ++i) {
    before = std::move(previous);
    previous = std::move(current);
    current = at::add(at::sub(at::mul(x, previous), before), values[i]);
  }
  return at::mul(at::sub(current, before), 0.5);
}

// exp(-|x|) I1(x), as in Cephes.
Tensor i1e(const Tensor& x) {
  const Tensor size = at::abs(x);
  const Tensor near = at::mul(
      chebyshev(at::sub(at::mul(size, 0.5), 2), ::chebyshev_coefficients_i1e_A<double>()), size);
  const Tensor far = at::mul(chebyshev(at::sub(at::mul(at::reciprocal(size), 32.0), 2),
                                       ::chebyshev_coefficients_i1e_B<double>()),
                             at::rsqrt(size));
  return at::mul(at::where(at::le(size, 8), near, far), at::sign(x));
}
Tensor& i1e_out(const Tensor& self, Tensor& out) {
  Out<at::meta::structured_special_i1e> check(out);
  check.meta(self);
  return out.copy_(i1e(self.to(at::kDouble)));
}
template <class Meta>
Tensor& i1_out(const Tensor& self, Tensor& out) {
  Out<Meta> check(out);
  check.meta(self);
  const Tensor x = self.to(at::kDouble);
  return out.copy_(at::mul(i1e(x), at::exp(at::abs(x))));
}

// ---- pairwise distances ---------------------------------------------------------------------

// Differences of every row of x1 [.., P, M] to every row of x2 [.., R, M]: [.., P, R, M].
Tensor differences(const Tensor& x1, const Tensor& x2) {
  return at::sub(x1.unsqueeze(-2), x2.unsqueeze(-3));
}

Tensor cdist_forward(const Tensor& x1, const Tensor& x2, double p, std::optional<int64_t>) {
  return at::linalg_vector_norm(differences(x1, x2), p, at::IntArrayRef({-1}));
}

// d|x1 - x2|_p / dx1, summed over the rows of x2; 0 where the distance is 0.
Tensor cdist_backward(const Tensor& grad, const Tensor& x1, const Tensor& x2, double p,
                      const Tensor& cdist) {
  const Tensor difference = differences(x1, x2);
  if (p == 0.0) return at::full_like(x1, 0.0);
  const Tensor distance = cdist.unsqueeze(-1);
  const Tensor size = at::abs(difference);
  Tensor slope = at::sign(difference);
  if (std::isinf(p)) {
    slope = at::mul(slope, at::eq(size, distance));
  } else if (p != 1.0) {
    slope = at::mul(slope, at::pow(at::div(size, distance), p - 1.0));
  }
  slope = at::where(at::eq(at::mul(size, distance), 0), number(0), slope);
  return at::sum(at::mul(slope, grad.unsqueeze(-1)), {-2});
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("special_zeta.out", TORCH_FN(zeta_out));
  m.impl("polygamma.out", TORCH_FN(polygamma_out));
  m.impl("special_i1e.out", TORCH_FN(i1e_out));
  m.impl("special_i1.out", TORCH_FN(i1_out<at::meta::structured_special_i1>));
  m.impl("special_modified_bessel_i1.out",
         TORCH_FN(i1_out<at::meta::structured_special_modified_bessel_i1>));
  m.impl("_cdist_forward", TORCH_FN(cdist_forward));
  m.impl("_cdist_backward", TORCH_FN(cdist_backward));
}

}  // namespace
}  // namespace chipset::bridge
