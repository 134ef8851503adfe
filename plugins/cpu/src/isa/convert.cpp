// SPDX-License-Identifier: Apache-2.0
// Loads of any dtype to a compute type, and stores back.
#include "kernels.h"
#include "numbers.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace chipset::cpu::CPU_ISA {
namespace {

template <typename Element, typename T>
void load(const void* source, int64_t stride, void* target, int64_t n) {
  T* const out = static_cast<T*>(target);
  if (stride == static_cast<int64_t>(sizeof(Element))) {
    const Element* const in = static_cast<const Element*>(source);
    int64_t i = 0;
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<Element, F16> && std::is_same_v<T, float>) {
      for (; i + 16 <= n; i += 16) {
        const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(half));
      }
    }
#elif defined(__F16C__)
    if constexpr (std::is_same_v<Element, F16> && std::is_same_v<T, float>) {
      for (; i + 8 <= n; i += 8) {
        const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
      }
    }
#endif
#pragma omp simd
    for (int64_t j = i; j < n; ++j) out[j] = to_compute<T>(in[j]);
    return;
  }
  const char* const in = static_cast<const char*>(source);
  if (stride == 0) {
    const T value = n > 0 ? to_compute<T>(*reinterpret_cast<const Element*>(in)) : T(0);
    for (int64_t i = 0; i < n; ++i) out[i] = value;
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    out[i] = to_compute<T>(*reinterpret_cast<const Element*>(in + i * stride));
  }
}

template <typename Element, typename T>
void store(const void* source, void* target, int64_t stride, int64_t n) {
  const T* const in = static_cast<const T*>(source);
  if (stride == static_cast<int64_t>(sizeof(Element))) {
    Element* const out = static_cast<Element*>(target);
    int64_t i = 0;
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<Element, F16> && std::is_same_v<T, float>) {
      for (; i + 16 <= n; i += 16) {
        const __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), half);
      }
    }
#elif defined(__F16C__)
    if constexpr (std::is_same_v<Element, F16> && std::is_same_v<T, float>) {
      for (; i + 8 <= n; i += 8) {
        const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
      }
    }
#endif
#pragma omp simd
    for (int64_t j = i; j < n; ++j) out[j] = from_compute<Element>(in[j]);
    return;
  }
  char* const out = static_cast<char*>(target);
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<Element*>(out + i * stride) = from_compute<Element>(in[i]);
  }
}

template <typename T, typename... Elements>
constexpr void fill(ConvertTable& table, Compute compute) {
  const int c = static_cast<int>(compute);
  int dtype = 0;
  ((table.load[c][dtype] = load<Elements, T>, table.store[c][dtype] = store<Elements, T>, ++dtype),
   ...);
}

// Element types in the order of chipset_dtype, I4 and OPAQUE excepted.
template <typename T>
constexpr void fill_all(ConvertTable& table, Compute compute) {
  fill<T, Bool8, uint8_t, int8_t, int16_t, int32_t, int64_t, F16, Bf16, float, double, F8e4m3,
       F8e5m2>(table, compute);
}

constexpr ConvertTable make_table() {
  ConvertTable table = {};
  fill_all<float>(table, Compute::kF32);
  fill_all<double>(table, Compute::kF64);
  fill_all<int32_t>(table, Compute::kI32);
  fill_all<int64_t>(table, Compute::kI64);
  return table;
}

}  // namespace

constexpr ConvertTable kTable = make_table();
const ConvertTable kConvert = kTable;

}  // namespace chipset::cpu::CPU_ISA
