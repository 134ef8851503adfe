// SPDX-License-Identifier: Apache-2.0
// One vector vocabulary for every instruction set: vec<float> and vec<double> are as wide as the
// machine's registers, and loads and stores convert F16 and BF16 on the way.
#pragma once

// GCC 12 calls the undefined vectors inside its own intrinsics uninitialised (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "isa/number.h"

namespace chipset::cpu::CPU_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class A>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(kVectorBytes)));
  typedef float loose __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  typedef int32_t mask __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t bits __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(kVectorBytes)));
  typedef double loose __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  typedef int64_t mask __attribute__((vector_size(kVectorBytes)));
  typedef uint64_t bits __attribute__((vector_size(kVectorBytes)));
};
template <class A>
using vec = typename VectorOf<A>::type;
template <class A>
using mask = typename VectorOf<A>::mask;
template <class A>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(A));

// The dtype in which T is computed: F16 and BF16 in F32 (NUM-001).
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline vec<float> splat(float x) {
#if defined(__AVX512F__)
  return (vec<float>)_mm512_set1_ps(x);
#elif defined(__AVX2__)
  return (vec<float>)_mm256_set1_ps(x);
#else
  return (vec<float>)_mm_set1_ps(x);
#endif
}
inline vec<double> splat(double x) {
#if defined(__AVX512F__)
  return (vec<double>)_mm512_set1_pd(x);
#elif defined(__AVX2__)
  return (vec<double>)_mm256_set1_pd(x);
#else
  return (vec<double>)_mm_set1_pd(x);
#endif
}

typedef uint16_t half_bits __attribute__((vector_size(kVectorBytes / 2)));
typedef uint16_t half_bits_loose
    __attribute__((vector_size(kVectorBytes / 2), aligned(1), may_alias));

inline vec<float> widen(half_bits x, bf16*) {
  auto wide = __builtin_convertvector(x, VectorOf<float>::bits);
  return (vec<float>)(wide << 16);
}
inline vec<float> widen(half_bits x, f16*) {
#if defined(__AVX512F__)
  return (vec<float>)_mm512_cvtph_ps((__m256i)x);
#elif defined(__F16C__)
  return (vec<float>)_mm256_cvtph_ps((__m128i)x);
#else
  vec<float> y{};
  for (int i = 0; i < kLanes<float>; ++i) y[i] = to_float(f16{static_cast<uint16_t>(x[i])});
  return y;
#endif
}
// Round to nearest even in integer arithmetic: vcvtneps2bf16 would flush subnormals (NUM-002).
inline half_bits narrow(vec<float> x, bf16*) {
  typedef VectorOf<float>::bits bits;
  bits u = (bits)x;
  bits rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  bits quiet = (u >> 16) | 0x40u;
  bits is_nan = (bits)(x != x);
  return __builtin_convertvector((is_nan & quiet) | (~is_nan & rounded), half_bits);
}
inline half_bits narrow(vec<float> x, f16*) {
#if defined(__AVX512F__)
  return (half_bits)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
  return (half_bits)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#else
  half_bits y{};
  for (int i = 0; i < kLanes<float>; ++i) y[i] = from_float<f16>(x[i]).bits;
  return y;
#endif
}

// Load and store kLanes elements of T as compute_t<T>, converting F16 and BF16.
template <class T>
inline vec<compute_t<T>> load(const T* p) {
  if constexpr (sizeof(T) == 2) {
    return widen(*reinterpret_cast<const half_bits_loose*>(p), static_cast<T*>(nullptr));
  } else {
    return *reinterpret_cast<const typename VectorOf<T>::loose*>(p);
  }
}
template <class T>
inline void store(T* p, vec<compute_t<T>> x) {
  if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<half_bits_loose*>(p) = narrow(x, static_cast<T*>(nullptr));
  } else {
    *reinterpret_cast<typename VectorOf<T>::loose*>(p) = x;
  }
}
// The same for the first n < kLanes elements; the other lanes load as zero.
template <class T>
inline vec<compute_t<T>> load(const T* p, int n) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 2) {
    auto m = static_cast<__mmask16>((1u << n) - 1);
    return widen((half_bits)_mm256_maskz_loadu_epi16(m, p), static_cast<T*>(nullptr));
  } else if constexpr (sizeof(T) == 4) {
    return (vec<float>)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
  } else {
    return (vec<double>)_mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1), p);
  }
#else
  T buffer[kLanes<compute_t<T>>] = {};
  for (int i = 0; i < n; ++i) buffer[i] = p[i];
  return load(buffer);
#endif
}
template <class T>
inline void store(T* p, vec<compute_t<T>> x, int n) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 2) {
    auto m = static_cast<__mmask16>((1u << n) - 1);
    _mm256_mask_storeu_epi16(p, m, (__m256i)narrow(x, static_cast<T*>(nullptr)));
  } else if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), (__m512)x);
  } else {
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << n) - 1), (__m512d)x);
  }
#else
  T buffer[kLanes<compute_t<T>>];
  store(buffer, x);
  for (int i = 0; i < n; ++i) p[i] = buffer[i];
#endif
}

// Calls f(i, n) for every vector of a row of `count` elements; n = kLanes but for the last one.
template <class A, class F>
inline void for_vectors(int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + kLanes<A> <= count; i += kLanes<A>) f(i, std::integral_constant<int, kLanes<A>>{});
  if (i < count) f(i, static_cast<int>(count - i));
}
template <class T>
inline vec<compute_t<T>> load(const T* p, std::integral_constant<int, kLanes<compute_t<T>>>) {
  return load(p);
}
template <class T>
inline void store(T* p, vec<compute_t<T>> x, std::integral_constant<int, kLanes<compute_t<T>>>) {
  store(p, x);
}

inline float sum_lanes(vec<float> x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)x);
#else
  float s = 0;
  for (int i = 0; i < kLanes<float>; ++i) s += x[i];
  return s;
#endif
}
inline double sum_lanes(vec<double> x) {
  double s = 0;
  for (int i = 0; i < kLanes<double>; ++i) s += x[i];
  return s;
}
// The largest lane, or NaN if a lane is NaN (NUM-003).
template <class V>
inline auto max_lanes(V x) {
  auto m = x[0];
  for (size_t i = 1; i < sizeof(x) / sizeof(m); ++i) m = (x[i] > m || x[i] != x[i]) ? x[i] : m;
  return m;
}
template <class V>
inline V vmax(V a, V b) {
  return a > b ? a : (a != a ? a : b);
}

// exp in single precision: 2^n * p(r), |r| <= ln2/2 (Cephes coefficients); about 1 ulp. Zero
// below -87.4, where the result would be subnormal.
inline vec<float> vexp(vec<float> x) {
  typedef VectorOf<float>::mask ints;
  vec<float> high = splat(88.72284f), low = splat(-87.4f);
  vec<float> y = x > high ? high : x;
  y = y < low ? low : y;
  vec<float> n = y * 1.44269504088896341f + 12582912.0f;
  ints exponent = (ints)n - 0x4B400000;
  n = n - 12582912.0f;
  vec<float> r = y - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  vec<float> p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // Two factors, since 2^128 alone is not representable.
  ints half = exponent >> 1;
  vec<float> result = p * (vec<float>)((half + 127) << 23);
  result = result * (vec<float>)((exponent - half + 127) << 23);
  result = x > high ? splat(INFINITY) : result;
  return x < low ? splat(0.0f) : result;
}
inline vec<double> vexp(vec<double> x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = std::exp(x[i]);
  return x;
}
// tanh: odd polynomial near zero, 1 - 2/(exp(2|x|) + 1) elsewhere (Cephes).
inline vec<float> vtanh(vec<float> x) {
  vec<float> a = x < 0.0f ? -x : x;
  vec<float> big = 1.0f - 2.0f / (vexp(a + a) + 1.0f);
  big = x < 0.0f ? -big : big;
  vec<float> z = x * x;
  vec<float> p = z * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  p = p * z * x + x;
  return a < 0.625f ? p : big;
}
inline vec<double> vtanh(vec<double> x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = std::tanh(x[i]);
  return x;
}

}  // namespace chipset::cpu::CPU_ISA
