// SPDX-License-Identifier: Apache-2.0
// Element types in memory and their conversion to and from float, without branches (NUM-002).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#ifndef CPU_INLINE
#define CPU_INLINE [[gnu::always_inline]] static inline
#endif

namespace chipset::cpu::CPU_ISA {

struct Bool8 {
  uint8_t bits;
};
struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};
struct F8e4m3 {
  uint8_t bits;
};
struct F8e5m2 {
  uint8_t bits;
};

CPU_INLINE uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
CPU_INLINE float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

CPU_INLINE float to_float(Bf16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }
CPU_INLINE float to_float(F16 x) {
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fff) << 13;
  const uint32_t scaled = bits_of(float_of(magnitude) * 0x1p112f);  // also right for subnormals
  const uint32_t special = magnitude | 0x7f800000;
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  return float_of((magnitude >= 0x0f800000 ? special : scaled) | sign);
}
CPU_INLINE float to_float(F8e4m3 x) {
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7f) << 20;
  const uint32_t scaled = bits_of(float_of(magnitude) * 0x1p120f);
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x80) << 24;
  return float_of(((x.bits & 0x7f) == 0x7f ? 0x7fc00000 : scaled) | sign);
}
CPU_INLINE float to_float(F8e5m2 x) {
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7f) << 21;
  const uint32_t scaled = bits_of(float_of(magnitude) * 0x1p112f);
  const uint32_t special = magnitude | 0x7f800000;
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x80) << 24;
  return float_of((magnitude >= 0x0f800000 ? special : scaled) | sign);
}

CPU_INLINE Bf16 bf16_of(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40;
  return {static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded)};
}
// The common scheme of the small formats: a magnitude below the least normal number is rounded by
// adding a power of two whose last place is the format's; above, by carrying into the exponent.
CPU_INLINE uint32_t round_magnitude(uint32_t magnitude, uint32_t least_normal, float adder,
                                    uint32_t exponent_shift, uint32_t drop) {
  const uint32_t tiny = bits_of(float_of(magnitude) + adder) - bits_of(adder);
  const uint32_t half = (1u << (drop - 1)) - 1;
  const uint32_t normal =
      (magnitude - (exponent_shift << 23) + half + ((magnitude >> drop) & 1)) >> drop;
  return magnitude < least_normal ? tiny : normal;
}
CPU_INLINE F16 f16_of(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t y = round_magnitude(magnitude, 0x38800000, 0.5f, 112, 13);
  y = magnitude >= 0x477ff000 ? 0x7c00 : y;  // 65520 and more
  y = magnitude > 0x7f800000 ? 0x7e00 : y;
  return {static_cast<uint16_t>(y | ((bits >> 16) & 0x8000))};
}
CPU_INLINE F8e4m3 f8e4m3_of(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t y = round_magnitude(magnitude, 0x3c800000, 16384.0f, 120, 20);
  y = magnitude > 0x43e00000 ? 0x7e : y;  // beyond 448
  y = magnitude > 0x7f800000 ? 0x7f : y;
  return {static_cast<uint8_t>(y | ((bits >> 24) & 0x80))};
}
CPU_INLINE F8e5m2 f8e5m2_of(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t y = round_magnitude(magnitude, 0x38800000, 128.0f, 112, 21);
  y = magnitude >= 0x47700000 ? 0x7c : y;  // 61440 and more
  y = magnitude > 0x7f800000 ? 0x7e : y;
  return {static_cast<uint8_t>(y | ((bits >> 24) & 0x80))};
}

template <typename To>
CPU_INLINE To from_float(float x) {
  if constexpr (std::is_same_v<To, Bf16>) {
    return bf16_of(x);
  } else if constexpr (std::is_same_v<To, F16>) {
    return f16_of(x);
  } else if constexpr (std::is_same_v<To, F8e4m3>) {
    return f8e4m3_of(x);
  } else {
    return f8e5m2_of(x);
  }
}

// Rounds to odd, so that a second rounding to a much shorter format gives what one rounding would
// (Boldo and Melquiond, "When double rounding is odd", 2005).
CPU_INLINE float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const uint32_t bits = bits_of(nearest);
  const double back = nearest;
  const bool too_far = std::bit_cast<uint64_t>(back) << 1 > std::bit_cast<uint64_t>(x) << 1;
  const uint32_t odd = (bits - (too_far ? 1u : 0u)) | 1u;
  return float_of(back == x || x != x ? bits : odd);
}

template <typename Element>
inline constexpr bool kSmallFloat =
    std::is_same_v<Element, F16> || std::is_same_v<Element, Bf16> ||
    std::is_same_v<Element, F8e4m3> || std::is_same_v<Element, F8e5m2>;

// An element of memory to a compute type T (float, double, int32_t, int64_t).
template <typename T, typename Element>
CPU_INLINE T to_compute(Element x) {
  if constexpr (kSmallFloat<Element>) {
    if constexpr (std::is_integral_v<T> && sizeof(T) == 4) {
      return static_cast<T>(static_cast<int32_t>(to_float(x)));
    } else {
      return static_cast<T>(to_float(x));
    }
  } else if constexpr (std::is_same_v<Element, Bool8>) {
    return static_cast<T>(x.bits != 0 ? 1 : 0);
  } else {
    return static_cast<T>(x);
  }
}

// And back. Floats to small integers go through a wide one: the cast itself would be undefined.
template <typename Element, typename T>
CPU_INLINE Element from_compute(T x) {
  if constexpr (std::is_same_v<Element, Bool8>) {
    return {static_cast<uint8_t>(x != T(0) ? 1 : 0)};
  } else if constexpr (kSmallFloat<Element>) {
    if constexpr (std::is_same_v<T, double>) {
      return from_float<Element>(round_to_odd(x));
    } else {
      return from_float<Element>(static_cast<float>(x));
    }
  } else if constexpr (std::is_floating_point_v<T> && std::is_integral_v<Element>) {
    if constexpr (sizeof(Element) < 8) {
      return static_cast<Element>(static_cast<int32_t>(x));
    } else {
      return static_cast<Element>(x);
    }
  } else {
    return static_cast<Element>(x);
  }
}

}  // namespace chipset::cpu::CPU_ISA
