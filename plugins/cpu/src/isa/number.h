// SPDX-License-Identifier: Apache-2.0
// Scalar F16, BF16 and F8 numbers: bit-exact conversions, round to nearest even (NUM-002).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

// Kernels get their own copies, so that the linker never merges one instruction set's with
// another's.
#ifdef CPU_ISA
namespace chipset::cpu::CPU_ISA {
#else
namespace chipset::cpu {
#endif

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};
struct f8e4m3 {
  uint8_t bits;
};
struct f8e5m2 {
  uint8_t bits;
};

inline float bits_to_float(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
inline uint32_t float_to_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}

// A small float with E exponent and M mantissa bits to F32; exact.
template <int E, int M>
inline float small_to_float(uint32_t h) {
  constexpr uint32_t bias = (1u << (E - 1)) - 1;
  uint32_t sign = (h >> (E + M)) << 31;
  uint32_t exponent = (h >> M) & ((1u << E) - 1);
  uint32_t mantissa = h & ((1u << M) - 1);
  if (exponent == (1u << E) - 1)  // infinity or NaN (not asked for E4M3)
    return bits_to_float(sign | 0x7f800000u | (mantissa << (23 - M)));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^(1 - bias - M)
    float value = static_cast<float>(mantissa) * bits_to_float((127u + 1u - bias - M) << 23);
    return bits_to_float(float_to_bits(value) | sign);
  }
  return bits_to_float(sign | ((exponent + 127 - bias) << 23) | (mantissa << (23 - M)));
}
// F32 to a small IEEE-like float; overflow gives infinity.
template <int E, int M>
inline uint32_t float_to_small(float f) {
  constexpr uint32_t bias = (1u << (E - 1)) - 1;
  constexpr uint32_t infinity = ((1u << E) - 1) << M;
  uint32_t u = float_to_bits(f);
  uint32_t sign = (u >> 31) << (E + M);
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return sign | infinity | (1u << (M - 1));
  constexpr uint32_t smallest_normal = (127u + 1u - bias) << 23;
  if (u < smallest_normal) {
    // Adding 2^(24 - M - bias) aligns the last mantissa bit with the subnormal unit; the adder
    // rounds to nearest even.
    constexpr uint32_t magic = (127u + 24u - M - bias) << 23;
    float sum = bits_to_float(u) + bits_to_float(magic);
    return sign | (float_to_bits(sum) - magic);
  }
  uint32_t odd = (u >> (23 - M)) & 1u;
  u += ((1u << (22 - M)) - 1u) + odd;
  uint32_t result = (u - ((127u - bias) << 23)) >> (23 - M);
  return sign | (result >= infinity ? infinity : result);
}

inline float to_float(float x) { return x; }
inline double to_float(double x) { return x; }
inline float to_float(bf16 x) { return bits_to_float(static_cast<uint32_t>(x.bits) << 16); }
inline float to_float(f16 x) { return small_to_float<5, 10>(x.bits); }
inline float to_float(f8e5m2 x) { return small_to_float<5, 2>(x.bits); }
inline float to_float(f8e4m3 x) {
  if ((x.bits & 0x7f) == 0x7f) return bits_to_float(0x7fc00000u);
  uint32_t exponent = (x.bits >> 3) & 15u;
  if (exponent == 15) {  // E4M3 has no infinity: the highest exponent holds numbers
    float value = 256.0f + static_cast<float>(x.bits & 7u) * 32.0f;
    return (x.bits & 0x80) ? -value : value;
  }
  return small_to_float<4, 3>(x.bits);
}

template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline double from_float<double>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  uint32_t u = float_to_bits(x);
  if (x != x) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
template <>
inline f16 from_float<f16>(float x) {
  return {static_cast<uint16_t>(float_to_small<5, 10>(x))};
}
template <>
inline f8e5m2 from_float<f8e5m2>(float x) {
  return {static_cast<uint8_t>(float_to_small<5, 2>(x))};
}
template <>
inline f8e4m3 from_float<f8e4m3>(float x) {
  uint8_t sign = x < 0 || (x == 0 && float_to_bits(x)) ? 0x80 : 0;
  if (x != x) return {0x7f};
  float a = x < 0 ? -x : x;
  if (a >= 448.0f) return {static_cast<uint8_t>(sign | 0x7e)};  // saturates
  if (a >= 248.0f) {  // rounds into the exponent that IEEE would keep for infinity
    float steps = (a - 256.0f) / 32.0f;
    int n = static_cast<int>(steps + 8.0f) - 8;  // floor
    float rest = steps - static_cast<float>(n);
    if (rest > 0.5f || (rest == 0.5f && (n & 1))) ++n;
    if (a < 256.0f) n = 0;  // 248 is a tie between 240 and 256 and goes to the even 256
    return {static_cast<uint8_t>(sign | (0x78 + n))};
  }
  return {static_cast<uint8_t>(sign | (float_to_small<4, 3>(a) & 0x7f))};
}

}  // namespace chipset::cpu
