// SPDX-License-Identifier: Apache-2.0
// Special functions that the C++ library lacks.
#pragma once

#include <cmath>
#include <limits>

namespace chipset::sdk::loops {

// Inverse of erf: Winitzki's closed form (2008), within 2e-3, polished by Newton steps, each of
// which doubles the digits.
inline double erfinv(double y) {
  if (!(std::fabs(y) < 1)) {
    if (std::fabs(y) == 1) return std::copysign(std::numeric_limits<double>::infinity(), y);
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double w = -std::log1p(-y * y);
  constexpr double a = 0.147, pi = 3.14159265358979323846;
  const double t = 2 / (pi * a) - w / 2;
  double x = std::copysign(std::sqrt(std::sqrt(t * t + w / a) - t), y);
  for (int i = 0; i < 5; ++i) {
    // erfc keeps the digits of y close to 1.
    const double error =
        std::fabs(y) < 0.5 ? std::erf(x) - y
                           : std::copysign(1.0, y) * ((1 - std::fabs(y)) - std::erfc(std::fabs(x)));
    x -= error / (2 / std::sqrt(pi) * std::exp(-x * x));
  }
  return y == 0 ? y : x;
}

// Recurrence up to 10, then the asymptotic series (DLMF 5.11.2); reflection below zero.
inline double digamma(double x) {
  constexpr double pi = 3.14159265358979323846;
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  if (x < 0) {
    if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
    return digamma(1 - x) - pi / std::tan(pi * std::fmod(x, 1.0));
  }
  double sum = 0;
  for (; x < 10; ++x) sum -= 1 / x;
  const double z = 1 / (x * x);
  const double series =
      z * (1. / 12 -
           z * (1. / 120 -
                z * (1. / 252 - z * (1. / 240 - z * (1. / 132 - z * (691. / 32760 - z / 12))))));
  return sum + std::log(x) - 0.5 / x - series;
}

// Modified Bessel function of the first kind, order 0: its power series (DLMF 10.25.2), and the
// asymptotic one (DLMF 10.40.1) for large arguments.
inline double bessel_i0(double x) {
  x = std::fabs(x);
  double term = 1, sum = 1;
  if (x < 20) {
    for (int k = 1; term > sum * 1e-17; ++k) sum += term *= (x / 2 / k) * (x / 2 / k);
    return sum;
  }
  for (int k = 1; k < 30; ++k) {
    const double next = term * (2 * k - 1) * (2 * k - 1) / (8 * x * k);
    if (!(next < term) || next < 1e-17) break;
    sum += term = next;
  }
  if (std::isinf(x)) return x;
  const double half = std::exp(x / 2);  // in halves: the product may fit where exp(x) does not
  // Root by root: 2 pi x may not fit either.
  return half / (2.50662827463100050242 * std::sqrt(x)) * sum * half;
}

inline double sinc(double x) {
  const double t = 3.14159265358979323846 * x;
  return x == 0 ? 1 : std::sin(t) / t;
}

}  // namespace chipset::sdk::loops
