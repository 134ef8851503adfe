// SPDX-License-Identifier: Apache-2.0
// Special functions that libm lacks, one element at a time, evaluated in double.
#pragma once

#include <cmath>
#include <limits>

namespace chipset::cpu::CPU_ISA {

// A rough start (error below 5 %), then Newton steps on erf or, near 1, on erfc, which does not
// cancel. Each step squares the error.
static inline double erfinv_scalar(double y) {
  const double a = std::fabs(y);
  if (!(a < 1.0)) {
    return a == 1.0 ? std::copysign(std::numeric_limits<double>::infinity(), y)
                    : std::numeric_limits<double>::quiet_NaN();
  }
  if (a < 1e-9) return y * 0.88622692545275801;  // sqrt(pi)/2
  // Winitzki's approximation, "A handy approximation for the error function and its inverse"
  // (2008).
  const double l = std::log1p(-a * a);
  const double t = 2.0 / (3.14159265358979324 * 0.147) + 0.5 * l;
  double x = std::sqrt(std::sqrt(t * t - l / 0.147) - t);
  for (int step = 0; step < 3; ++step) {
    const double error = a < 0.5 ? std::erf(x) - a : (1.0 - a) - std::erfc(x);
    const double u = error / (1.1283791670955126 * std::exp(-x * x));
    x -= u / (1.0 + x * u);  // Halley: the second derivative is -2x times the first
  }
  return std::copysign(x, y);
}

// Reflection for x < 0, recurrence up to x >= 10, then the asymptotic series (DLMF 5.11.2).
static inline double digamma_scalar(double x) {
  if (x == 0.0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  double result = 0.0;
  if (x < 0.0) {
    // From the nearest pole, on either side: x - floor(x) would lose a small x altogether.
    const double off_pole = x - std::nearbyint(x);
    if (off_pole == 0.0) return std::numeric_limits<double>::quiet_NaN();
    constexpr double kPi = 3.14159265358979324;
    result = -kPi / std::tan(kPi * off_pole);
    x = 1.0 - x;
  }
  for (; x < 10.0; x += 1.0) result -= 1.0 / x;
  if (x == std::numeric_limits<double>::infinity()) return x;
  const double z = 1.0 / (x * x);
  const double series =
      z *
      (1.0 / 12 -
       z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760))))));
  return result + std::log(x) - 0.5 / x - series;
}

// The power series, all of whose terms are positive (DLMF 10.25.2); beyond 30 the asymptotic one
// (DLMF 10.40.1), whose terms fall below the last place before they grow.
static inline double bessel_i0_scalar(double x) {
  x = std::fabs(x);
  if (x <= 30.0) {
    const double quarter = 0.25 * x * x;
    double term = 1.0;
    double sum = 1.0;
    for (int k = 1; k < 200 && term > sum * 1e-17; ++k) {
      term *= quarter / (static_cast<double>(k) * k);
      sum += term;
    }
    return sum;
  }
  if (x > 720.0) return std::numeric_limits<double>::infinity();  // I0(714) is the last that fits
  double term = 1.0;
  double sum = 1.0;
  for (int k = 1; k < 30 && term > 1e-17; ++k) {
    const double odd = 2.0 * k - 1.0;
    term *= odd * odd / (8.0 * k * x);
    sum += term;
  }
  // exp(x) in two factors, so that it overflows no sooner than the result does.
  return std::exp(0.5 * x) * (sum / std::sqrt(6.2831853071795865 * x)) * std::exp(0.5 * x);
}

}  // namespace chipset::cpu::CPU_ISA
