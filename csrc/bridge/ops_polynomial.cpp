// SPDX-License-Identifier: Apache-2.0
// Orthogonal polynomials by their three-term recurrences
//   p0 = 1, p1 = a x + b, p(k+1) = (A(k) x + B(k)) p(k) - C(k) p(k-1).
#include <ATen/ScalarOps.h>
#include <ATen/ops/add.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/i0.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/special_chebyshev_polynomial_t_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_t_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_u_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_u_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_v_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_v_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_w_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_w_ops.h>
#include <ATen/ops/special_hermite_polynomial_h_meta.h>
#include <ATen/ops/special_hermite_polynomial_h_ops.h>
#include <ATen/ops/special_hermite_polynomial_he_meta.h>
#include <ATen/ops/special_hermite_polynomial_he_ops.h>
#include <ATen/ops/special_laguerre_polynomial_l_meta.h>
#include <ATen/ops/special_laguerre_polynomial_l_ops.h>
#include <ATen/ops/special_legendre_polynomial_p_meta.h>
#include <ATen/ops/special_legendre_polynomial_p_ops.h>
#include <ATen/ops/special_modified_bessel_i0_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_ops.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/trunc.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "structured.h"

namespace chipset::bridge {
namespace {

using at::Tensor;

// Highest degree that is evaluated on the chip: each degree is four small operations.
constexpr int64_t kHighestDegree = 64;

// The coefficients of one recurrence; k counts from 1.
struct Recurrence {
  double a, b;
  double (*A)(double k);
  double (*B)(double k);
  double (*C)(double k);
};

constexpr auto zero = [](double) { return 0.0; };
constexpr auto one = [](double) { return 1.0; };
constexpr auto two = [](double) { return 2.0; };
constexpr auto four = [](double) { return 4.0; };
constexpr auto minus_two = [](double) { return -2.0; };

constexpr Recurrence kChebyshevT{1, 0, two, zero, one};
constexpr Recurrence kChebyshevU{2, 0, two, zero, one};
constexpr Recurrence kChebyshevV{2, -1, two, zero, one};
constexpr Recurrence kChebyshevW{2, 1, two, zero, one};
// The same of 2x - 1.
constexpr Recurrence kShiftedT{2, -1, four, minus_two, one};
constexpr Recurrence kShiftedU{4, -2, four, minus_two, one};
constexpr Recurrence kShiftedV{4, -3, four, minus_two, one};
constexpr Recurrence kShiftedW{4, -1, four, minus_two, one};
constexpr Recurrence kHermiteH{2, 0, two, zero, [](double k) { return 2 * k; }};
constexpr Recurrence kHermiteHe{1, 0, one, zero, [](double k) { return k; }};
constexpr Recurrence kLaguerreL{-1, 1, [](double k) { return -1 / (k + 1); },
                                [](double k) { return (2 * k + 1) / (k + 1); },
                                [](double k) { return k / (k + 1); }};
constexpr Recurrence kLegendreP{1, 0, [](double k) { return (2 * k + 1) / (k + 1); }, zero,
                                [](double k) { return k / (k + 1); }};

Tensor number(double value) { return at::native::wrapped_scalar_tensor(value); }

// The degrees may differ from element to element; below zero the value is 0.
Tensor evaluate(const Recurrence& r, const Tensor& x, const Tensor& degree, int64_t highest) {
  Tensor previous = at::ones_like(x);
  Tensor result = at::where(at::eq(degree, 0), previous, number(0));
  if (highest < 1) return result;
  Tensor current = at::add(at::mul(x, r.a), r.b);
  for (int64_t k = 1;; ++k) {
    result = at::where(at::eq(degree, k), current, result);
    if (k == highest) return result;
    const auto order = static_cast<double>(k);
    const Tensor factor = at::add(at::mul(x, r.A(order)), r.B(order));
    Tensor next = at::sub(at::mul(factor, current), previous, r.C(order));
    previous = std::move(current);
    current = std::move(next);
  }
}

template <class Meta, class Host, const Recurrence& R>
Tensor& polynomial_out(const Tensor& x, const Tensor& n, Tensor& out) {
  Out<Meta> check(out);
  check.meta(x, n);
  if (out.numel() == 0) return out;
  const auto type = out.scalar_type();
  const bool on_host = n.device().type() == c10::DeviceType::CPU;
  const double largest = on_host ? n.item().toDouble() : at::max(n).item().toDouble();
  // Also where the degree is NaN.
  if (!(largest <= static_cast<double>(kHighestDegree)) || !at::isFloatingType(type))
    return host<Host>(x, n, out);
  const Tensor degree = at::isFloatingType(n.scalar_type()) ? at::trunc(n) : n;
  const Tensor values =
      x.device().type() == c10::DeviceType::CPU ? x.to(out.device(), type) : x.to(type);
  const auto result = evaluate(R, values, on_host ? degree.to(out.device()) : degree,
                               static_cast<int64_t>(largest));
  return out.copy_(result);
}

Tensor& modified_bessel_i0_out(const Tensor& self, Tensor& out) {
  Out<at::meta::structured_special_modified_bessel_i0> check(out);
  check.meta(self);
  return at::i0_out(out, self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define REGISTER_POLYNOMIAL(NAME, RECURRENCE)                          \
  m.impl("special_" #NAME ".out",                                      \
         TORCH_FN((polynomial_out<at::meta::structured_special_##NAME, \
                                  at::_ops::special_##NAME##_out, RECURRENCE>)));
  REGISTER_POLYNOMIAL(chebyshev_polynomial_t, kChebyshevT)
  REGISTER_POLYNOMIAL(chebyshev_polynomial_u, kChebyshevU)
  REGISTER_POLYNOMIAL(chebyshev_polynomial_v, kChebyshevV)
  REGISTER_POLYNOMIAL(chebyshev_polynomial_w, kChebyshevW)
  REGISTER_POLYNOMIAL(shifted_chebyshev_polynomial_t, kShiftedT)
  REGISTER_POLYNOMIAL(shifted_chebyshev_polynomial_u, kShiftedU)
  REGISTER_POLYNOMIAL(shifted_chebyshev_polynomial_v, kShiftedV)
  REGISTER_POLYNOMIAL(shifted_chebyshev_polynomial_w, kShiftedW)
  REGISTER_POLYNOMIAL(hermite_polynomial_h, kHermiteH)
  REGISTER_POLYNOMIAL(hermite_polynomial_he, kHermiteHe)
  REGISTER_POLYNOMIAL(laguerre_polynomial_l, kLaguerreL)
  REGISTER_POLYNOMIAL(legendre_polynomial_p, kLegendreP)
  m.impl("special_modified_bessel_i0.out", TORCH_FN(modified_bessel_i0_out));
}

}  // namespace
}  // namespace chipset::bridge
