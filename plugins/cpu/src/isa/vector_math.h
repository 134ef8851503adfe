// SPDX-License-Identifier: Apache-2.0
// Elementary functions without branches, so that the compiler vectorises a loop over them.
//
// The float versions of all but exp are evaluated in double and rounded once: their error stays
// below 0.51 ulp or so where a polynomial of modest degree suffices, and memory is the bottleneck
// of a pointwise call anyway. The double versions are libm's. Coefficients are near-minimax fits
// (Lawson's algorithm on Chebyshev nodes, 40 digits); the comment gives each fit's largest error.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace chipset::cpu::CPU_ISA {

#define CPU_INLINE [[gnu::always_inline]] static inline

// Horner's scheme, highest coefficient first in evaluation, lowest first in the list.
template <typename T>
CPU_INLINE T horner(T, T c) {
  return c;
}
template <typename T, typename... Rest>
CPU_INLINE T horner(T x, T c, Rest... rest) {
  return c + x * horner<T>(x, rest...);
}

// ---- building blocks in double, for arguments that came from a float
// -----------------------------

// x = k*ln2 + r. Adding 1.5*2^52 leaves round(x/ln2) in the low bits of the sum.
struct Split {
  double r;
  double power;  // 2^k
};
CPU_INLINE Split split_exponent(double x) {
  constexpr double kMagic = 6755399441055744.0;
  const double shifted = x * 1.4426950408889634 + kMagic;
  const double k = shifted - kMagic;
  const double r = x - k * 0.69314718055994529;
  const uint64_t bits = (std::bit_cast<uint64_t>(shifted) + 1023) << 52;
  return {r, std::bit_cast<double>(bits)};
}
// |x| below 700; exp(r) - 1 to 5e-12 of r.
CPU_INLINE double expm1_reduced(double r) {
  const double p = horner(r, 0.49999999999736111, 0.16666666754541912, 0.041666666955234029,
                          0.0083332889569912964, 0.0013888809292793964, 0.00019904959217000555,
                          2.4882507057408376e-05);
  return r + r * r * p;
}
CPU_INLINE double clamp_exponent(double x) {
  x = x > 700.0 ? 700.0 : x;
  return x < -700.0 ? -700.0 : x;  // NaN passes
}
CPU_INLINE double exp_d(double x) {
  const Split s = split_exponent(clamp_exponent(x));
  return s.power + s.power * expm1_reduced(s.r);
}
CPU_INLINE double expm1_d(double x) {
  const Split s = split_exponent(clamp_exponent(x));
  return s.power * expm1_reduced(s.r) + (s.power - 1.0);
}
// x positive and normal in double; log to 1e-13.
CPU_INLINE double log_d(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t offset = bits - kSqrtHalf;
  const uint64_t mantissa = bits - (offset & 0xfff0000000000000);
  // The exponent as a double without a conversion from integer, which AVX2 lacks: the arithmetic
  // shift of offset by 52, biased by 2048 to stay positive, lies in the low bits of 2^52 + ...
  const uint64_t biased = ((offset + 0x8000000000000000) >> 52) | 0x4330000000000000;
  const double k = std::bit_cast<double>(biased) - 4503599627372544.0;
  const double m = std::bit_cast<double>(mantissa);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  const double p = horner(z, 0.66666666676059894, 0.39999995522825127, 0.28572120699734505,
                          0.22175666377820288, 0.19592203550011184);
  return k * 0.69314718055994529 + (2.0 * s + s * z * p);
}
// log with the special values of a float argument.
CPU_INLINE double log_any(double x) {
  double y = log_d(x);
  y = x == std::numeric_limits<double>::infinity() ? x : y;
  y = x == 0.0 ? -std::numeric_limits<double>::infinity() : y;
  return x >= 0.0 ? y : std::numeric_limits<double>::quiet_NaN();
}
CPU_INLINE double log1p_d(double x) {
  const double y = log_any(1.0 + x);
  return std::fabs(x) < 1e-6 ? x - 0.5 * x * x : y;
}
CPU_INLINE double tanh_d(double x) {
  double a = std::fabs(x);
  a = a > 20.0 ? 20.0 : a;
  const double e = expm1_d(2.0 * a);
  return std::copysign(e / (e + 2.0), x);
}
// exp(x^2)*erfc(x)*(1 + 2x) for x in [0, 10.6] to 3e-10, in t = (x - 2)/(x + 2).
CPU_INLINE double erfc_positive(double x) {
  x = x > 10.6 ? 10.6 : x;
  const double t = (x - 2.0) / (x + 2.0);
  const double p = horner(t, 1.2769783818345126, -0.092763828350548791, -0.16603043404371151,
                          0.16405134487733514, -0.054219215558837679, -0.0080344975217778551,
                          0.008716292960642389, 0.0012710464138035594, -0.001433247512640873,
                          -0.00044206775723580562, 0.00016731019386498596, 0.00011348287786575129,
                          1.6392362931082802e-05);
  return exp_d(-x * x) * p / (1.0 + 2.0 * x);
}
CPU_INLINE double erf_small(double x) {  // |x| <= 0.5, to 1e-13
  const double z = x * x;
  return x * horner(z, 1.1283791670954129, -0.37612638899251005, 0.11283791418356062,
                    -0.026866109748037405, 0.0052232772393894927, -0.00085068174143535229,
                    0.00010823440929351415);
}
CPU_INLINE double erf_d(double x) {
  const double a = std::fabs(x);
  const double large = std::copysign(1.0 - erfc_positive(a), x);
  return a < 0.5 ? erf_small(x) : large;
}
CPU_INLINE double erfc_d(double x) {
  const double a = std::fabs(x);
  const double tail = erfc_positive(a);
  const double large = x < 0.0 ? 2.0 - tail : tail;
  return a < 0.5 ? 1.0 - erf_small(x) : large;
}

// ---- float
// ---------------------------------------------------------------------------------------

// 1 ulp, over the whole range including subnormal results.
CPU_INLINE float exp_(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  constexpr float kMagic = 12582912.0f;  // 1.5*2^23
  const float shifted = x * 1.44269502f + kMagic;
  const float k = shifted - kMagic;
  float r = x - k * 0.693145752f;  // 0x1.62e4p-1: exact for the k that occur
  r = r - k * 1.42860682e-6f;
  const float p = horner(r, 0.500000007f, 0.166666659f, 0.0416662949f, 0.0083334971f,
                         0.00139446603f, 0.000197903463f);
  const float e = 1.0f + (r + r * r * p);
  // 2^k in two factors, since 2^-149 and 2^128 are not both normal.
  const int32_t n = std::bit_cast<int32_t>(shifted) - 0x4b400000;
  const int32_t half = n >> 1;
  const float low = std::bit_cast<float>((half + 127) << 23);
  const float high = std::bit_cast<float>((n - half + 127) << 23);
  return e * low * high;
}
CPU_INLINE float exp2_(float x) {
  return static_cast<float>(exp_d(static_cast<double>(x) * 0.69314718055994529));
}
CPU_INLINE float expm1_(float x) { return static_cast<float>(expm1_d(x)); }
CPU_INLINE float log_(float x) { return static_cast<float>(log_any(x)); }
CPU_INLINE float log2_(float x) { return static_cast<float>(log_any(x) * 1.4426950408889634); }
CPU_INLINE float log10_(float x) { return static_cast<float>(log_any(x) * 0.43429448190325182); }
CPU_INLINE float log1p_(float x) {
  const float y = static_cast<float>(log1p_d(x));
  return x == 0.0f ? x : y;  // keeps the sign of zero
}
CPU_INLINE float tanh_(float x) { return static_cast<float>(tanh_d(x)); }
CPU_INLINE float erf_(float x) { return static_cast<float>(erf_d(x)); }
CPU_INLINE float erfc_(float x) { return static_cast<float>(erfc_d(x)); }
CPU_INLINE float sinh_(float x) {
  const double e = expm1_d(std::fabs(static_cast<double>(x)));
  return std::copysign(static_cast<float>(0.5 * (e + e / (e + 1.0))), x);
}
CPU_INLINE float cosh_(float x) {
  const double e = exp_d(std::fabs(static_cast<double>(x)));
  return static_cast<float>(0.5 * (e + 1.0 / e));
}
CPU_INLINE float sigmoid_(float x) { return 1.0f / (1.0f + exp_(-x)); }

// sin and cos for |x| < 2^20 (beyond, the caller takes libm's): quadrant and reduced argument.
constexpr float kTrigLimit = 1048576.0f;
struct Trig {
  double sine;
  double cosine;
  uint64_t quadrant;
};
CPU_INLINE Trig trig(double x) {
  constexpr double kMagic = 6755399441055744.0;
  const double shifted = x * 0.63661977236758138 + kMagic;
  const double n = shifted - kMagic;
  double r = x - n * 1.5707963267341256;  // the first 33 bits of pi/2: exact product
  r = r - n * 6.0771005065061922e-11;
  const double z = r * r;
  const double sine =
      r + r * z *
              horner(z, -0.16666666666631461, 0.008333333325244106, -0.00019841263807225546,
                     2.7555354316272317e-06, -2.4761396908162047e-08);
  const double cosine = 1.0 - 0.5 * z +
                        z * z *
                            horner(z, 0.041666666622651588, -0.001388888373794733,
                                   2.4799515869752993e-05, -2.7209891429416267e-07);
  return {sine, cosine, std::bit_cast<uint64_t>(shifted)};
}
CPU_INLINE double flip(double x, uint64_t quadrant) {  // negates in quadrants 2 and 3
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) ^ ((quadrant & 2) << 62));
}
CPU_INLINE float sin_small(float x) {
  const Trig t = trig(x);
  const float y = static_cast<float>(flip((t.quadrant & 1) != 0 ? t.cosine : t.sine, t.quadrant));
  return x == 0.0f ? x : y;
}
CPU_INLINE float cos_small(float x) {
  const Trig t = trig(x);
  return static_cast<float>(flip((t.quadrant & 1) != 0 ? t.sine : t.cosine, t.quadrant + 1));
}
CPU_INLINE float tan_small(float x) {
  const Trig t = trig(x);
  const bool odd = (t.quadrant & 1) != 0;
  const double top = odd ? -t.cosine : t.sine;
  const double bottom = odd ? t.sine : t.cosine;
  const float y = static_cast<float>(top / bottom);
  return x == 0.0f ? x : y;
}

// ---- double
// --------------------------------------------------------------------------------------

CPU_INLINE double exp_(double x) { return std::exp(x); }
CPU_INLINE double exp2_(double x) { return std::exp2(x); }
CPU_INLINE double expm1_(double x) { return std::expm1(x); }
CPU_INLINE double log_(double x) { return std::log(x); }
CPU_INLINE double log2_(double x) { return std::log2(x); }
CPU_INLINE double log10_(double x) { return std::log10(x); }
CPU_INLINE double log1p_(double x) { return std::log1p(x); }
CPU_INLINE double tanh_(double x) { return std::tanh(x); }
CPU_INLINE double erf_(double x) { return std::erf(x); }
CPU_INLINE double erfc_(double x) { return std::erfc(x); }
CPU_INLINE double sinh_(double x) { return std::sinh(x); }
CPU_INLINE double cosh_(double x) { return std::cosh(x); }
CPU_INLINE double sigmoid_(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// ---- what composite functions are evaluated in
// ---------------------------------------------------

// In double for either type, so that a composite function rounds once, at its end.
template <typename T>
struct Wide;
template <>
struct Wide<float> {
  CPU_INLINE double exp(double x) { return exp_d(x); }
  CPU_INLINE double exp2(double x) { return exp_d(x * 0.69314718055994531); }
  CPU_INLINE double expm1(double x) { return expm1_d(x); }
  CPU_INLINE double log(double x) { return log_any(x); }
  CPU_INLINE double log1p(double x) { return log1p_d(x); }
  CPU_INLINE double tanh(double x) { return tanh_d(x); }
  CPU_INLINE double erfc(double x) { return erfc_d(x); }
};
template <>
struct Wide<double> {
  CPU_INLINE double exp(double x) { return std::exp(x); }
  CPU_INLINE double exp2(double x) { return std::exp2(x); }
  CPU_INLINE double expm1(double x) { return std::expm1(x); }
  CPU_INLINE double log(double x) { return std::log(x); }
  CPU_INLINE double log1p(double x) { return std::log1p(x); }
  CPU_INLINE double tanh(double x) { return std::tanh(x); }
  CPU_INLINE double erfc(double x) { return std::erfc(x); }
};

}  // namespace chipset::cpu::CPU_ISA
