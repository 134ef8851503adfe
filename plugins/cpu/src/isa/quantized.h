// SPDX-License-Identifier: Apache-2.0
// Quantised elements as vectors of floats. A format names its element; a row of it is given by its
// first byte, and elements by their index in the row.
#pragma once

#include "chipset/chipset.h"
#include "isa/simd.h"

namespace chipset::cpu::CPU_ISA {

// kLanes<float> elements from element k, and one element; exact. Intrinsics, since GCC 12 takes a
// vector conversion from bytes to floats apart, lane by lane.
struct FormatI8 {
  static float one(const uint8_t* row, int64_t k) { return static_cast<int8_t>(row[k]); }
  static vec<float> wide(const uint8_t* row, int64_t k) {
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + k));
    return (vec<float>)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#elif defined(__AVX2__)
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + k));
    return (vec<float>)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
#else
    return vec<float>{one(row, k), one(row, k + 1), one(row, k + 2), one(row, k + 3)};
#endif
  }
};

// Two elements in a byte, the even one in the low nibble. wide() wants an even k.
struct FormatI4 {
  static float one(const uint8_t* row, int64_t k) {
    const int nibble = (k & 1) != 0 ? row[k / 2] >> 4 : row[k / 2] & 15;
    return static_cast<float>((nibble ^ 8) - 8);
  }
#if defined(__AVX2__)
  // The nibbles of the low half of `bytes`, in order, each sign-extended to a byte.
  static __m128i spread(__m128i bytes) {
    const __m128i low_bits = _mm_set1_epi8(15), sign = _mm_set1_epi8(8);
    const __m128i low = _mm_and_si128(bytes, low_bits);
    const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), low_bits);
    return _mm_sub_epi8(_mm_xor_si128(_mm_unpacklo_epi8(low, high), sign), sign);
  }
#endif
  static vec<float> wide(const uint8_t* row, int64_t k) {
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + k / 2));
    return (vec<float>)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(spread(bytes)));
#elif defined(__AVX2__)
    int32_t bytes;
    std::memcpy(&bytes, row + k / 2, sizeof bytes);
    return (vec<float>)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(spread(_mm_cvtsi32_si128(bytes))));
#else
    return vec<float>{one(row, k), one(row, k + 1), one(row, k + 2), one(row, k + 3)};
#endif
  }
};

#if defined(__AVX512F__)
inline vec<float> widen_halves(__m256i x) { return (vec<float>)_mm512_cvtph_ps(x); }
inline __m256i load_byte_pairs(const uint8_t* p) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
#elif defined(__AVX2__)
inline vec<float> widen_halves(__m256i x) {
  return (vec<float>)_mm256_cvtph_ps(_mm256_castsi256_si128(x));
}
inline __m256i load_byte_pairs(const uint8_t* p) {
  return _mm256_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
#endif

struct FormatF8E4M3 {
  static float one(const uint8_t* row, int64_t k) { return to_float(f8e4m3{row[k]}); }
  static vec<float> wide(const uint8_t* row, int64_t k) {
#if defined(__AVX2__)
    // As F16 the exponent is 8 too small; F16 has room for it, and widens subnormals quickly.
    const __m256i x = load_byte_pairs(row + k), largest = _mm256_set1_epi16(0x7f);
    const __m256i magnitude = _mm256_and_si256(x, largest);
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
    const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, largest);
    const __m256i half = _mm256_or_si256(_mm256_or_si256(sign, _mm256_slli_epi16(magnitude, 7)),
                                         _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7e00)));
    return widen_halves(half) * 256.0f;
#else
    return vec<float>{one(row, k), one(row, k + 1), one(row, k + 2), one(row, k + 3)};
#endif
  }
};

// The upper half of an F16.
struct FormatF8E5M2 {
  static float one(const uint8_t* row, int64_t k) { return to_float(f8e5m2{row[k]}); }
  static vec<float> wide(const uint8_t* row, int64_t k) {
#if defined(__AVX2__)
    return widen_halves(_mm256_slli_epi16(load_byte_pairs(row + k), 8));
#else
    return vec<float>{one(row, k), one(row, k + 1), one(row, k + 2), one(row, k + 3)};
#endif
  }
};

// Calls f(Format{}) for a dtype of quantize.
template <class F>
inline auto with_format(int32_t dtype, F&& f) {
  switch (dtype) {
    case CHIPSET_DTYPE_I8:
      return f(FormatI8{});
    case CHIPSET_DTYPE_I4:
      return f(FormatI4{});
    case CHIPSET_DTYPE_F8E4M3:
      return f(FormatF8E4M3{});
    default:
      return f(FormatF8E5M2{});
  }
}

// out[i] = (element k + i, less the zero point) * scale for n elements.
template <class Format>
inline void dequantize_run(const uint8_t* row, int64_t k, int64_t n, float scale, float zero_point,
                           float* out) {
  int64_t i = 0;
  if (n > 0 && std::is_same_v<Format, FormatI4> && (k & 1) != 0) {
    out[i++] = (Format::one(row, k) - zero_point) * scale;
  }
  const vec<float> factor = splat(scale), shift = splat(zero_point);
  for (; i + kLanes<float> <= n; i += kLanes<float>)
    store(out + i, (Format::wide(row, k + i) - shift) * factor);
  for (; i < n; ++i) out[i] = (Format::one(row, k + i) - zero_point) * scale;
}

}  // namespace chipset::cpu::CPU_ISA
