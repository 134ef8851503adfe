// SPDX-License-Identifier: Apache-2.0
// The element types: sizes, conversion of the floats that C++ lacks, dispatch from a dtype to a
// C++ type.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "error.hpp"

namespace chipset::sdk {

inline const char* dtype_name(int32_t dtype) {
  static const char* const names[] = {"bool",     "u8",       "i8",       "i16",     "i32",
                                      "i64",      "f16",      "bf16",     "f32",     "f64",
                                      "f8e4m3",   "f8e5m2",   "i4",       "opaque8", "opaque16",
                                      "opaque32", "opaque64", "opaque128"};
  return dtype >= 0 && dtype <= CHIPSET_DTYPE_OPAQUE128 ? names[dtype] : "unknown";
}
// Bytes of an element; 0 for I4, of which two share a byte.
inline int64_t dtype_size(int32_t dtype) {
  static constexpr int8_t sizes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1, 0, 1, 2, 4, 8, 16};
  return dtype >= 0 && dtype <= CHIPSET_DTYPE_OPAQUE128 ? sizes[dtype] : 0;
}
inline bool is_float(int32_t dtype) {
  return dtype >= CHIPSET_DTYPE_F16 && dtype <= CHIPSET_DTYPE_F8E5M2;
}

namespace detail {
template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// A binary float of 1 + E + M bits, without or (as IEEE) with infinities, from and to binary32.
// Rounds to nearest, ties to even; what has no infinity saturates (NUM-002).
template <int E, int M, bool kInfinity>
struct SmallFloat {
  using Bits = std::conditional_t<(E + M > 7), uint16_t, uint8_t>;
  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr uint32_t kLargest =
      kInfinity ? (((1u << E) - 1) << M) - 1 : (1u << (E + M)) - 2;  // magnitude bits
  static constexpr uint32_t kNan =
      kInfinity ? (((1u << E) - 1) << M) | (1u << (M - 1)) : (1u << (E + M)) - 1;

  static float load(Bits bits) {
    const uint32_t magnitude = bits & ((1u << (E + M)) - 1);
    const uint32_t exponent = magnitude >> M;
    const uint32_t mantissa = magnitude & ((1u << M) - 1);
    float value;
    if (kInfinity && exponent == (1u << E) - 1)
      value = mantissa ? std::numeric_limits<float>::quiet_NaN()
                       : std::numeric_limits<float>::infinity();
    else if (!kInfinity && magnitude == kNan)
      value = std::numeric_limits<float>::quiet_NaN();
    else if (exponent == 0)
      value = std::ldexp(static_cast<float>(mantissa), 1 - kBias - M);
    else
      value = bits_as<float>(((exponent - kBias + 127) << 23) | (mantissa << (23 - M)));
    return (bits >> (E + M)) & 1 ? -value : value;
  }
  static Bits store(float value) {
    const uint32_t raw = bits_as<uint32_t>(value);
    const uint32_t sign = (raw >> 31) << (E + M);
    uint32_t magnitude = raw & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<Bits>(sign | kNan);
    uint32_t rounded;
    if (magnitude < static_cast<uint32_t>(128 - kBias) << 23) {  // subnormal here, or zero
      // Adding a power of two makes the hardware round at the right bit.
      const float unit = bits_as<float>(static_cast<uint32_t>(127 + 24 - kBias - M) << 23);
      rounded = bits_as<uint32_t>(bits_as<float>(magnitude) + unit) - bits_as<uint32_t>(unit);
    } else {
      constexpr int kDropped = 23 - M;
      magnitude += (1u << (kDropped - 1)) - 1 + ((magnitude >> kDropped) & 1);
      rounded = (magnitude >> kDropped) - (static_cast<uint32_t>(127 - kBias) << M);
    }
    if (rounded > kLargest) rounded = kInfinity ? kLargest + 1 : kLargest;
    return static_cast<Bits>(sign | rounded);
  }
};
}  // namespace detail

// An element as it lies in memory, with conversion from and to float.
template <int E, int M, bool kInfinity>
struct Packed {
  using Format = detail::SmallFloat<E, M, kInfinity>;
  typename Format::Bits bits;
  Packed() = default;
  explicit Packed(float value) : bits(Format::store(value)) {}
  // From f64 in one rounding: rounding to odd in between keeps what the second rounding needs.
  explicit Packed(double value) {
    float near = static_cast<float>(value);
    if (static_cast<double>(near) != value && std::isfinite(value) && std::isfinite(near)) {
      uint32_t raw = detail::bits_as<uint32_t>(near);
      if (std::fabs(static_cast<double>(near)) > std::fabs(value)) --raw;  // towards zero
      near = detail::bits_as<float>(raw | 1u);
    }
    bits = Format::store(near);
  }
  explicit operator float() const { return Format::load(bits); }
  explicit operator double() const { return Format::load(bits); }
};
using F16 = Packed<5, 10, true>;
using BF16 = Packed<8, 7, true>;
using F8E4M3 = Packed<4, 3, false>;
using F8E5M2 = Packed<5, 2, true>;
struct Bool {
  uint8_t byte;
};

template <class T>
struct Type {
  using type = T;
};

// Calls function(Type<T>()) with the element's C++ type: Bool, int8_t …, F16, BF16, float, double,
// F8E4M3, F8E5M2. I4 and OPAQUE types are UNSUPPORTED.
template <class Function>
decltype(auto) dispatch(int32_t dtype, Function&& function) {
  switch (dtype) {
    case CHIPSET_DTYPE_BOOL:
      return function(Type<Bool>());
    case CHIPSET_DTYPE_U8:
      return function(Type<uint8_t>());
    case CHIPSET_DTYPE_I8:
      return function(Type<int8_t>());
    case CHIPSET_DTYPE_I16:
      return function(Type<int16_t>());
    case CHIPSET_DTYPE_I32:
      return function(Type<int32_t>());
    case CHIPSET_DTYPE_I64:
      return function(Type<int64_t>());
    case CHIPSET_DTYPE_F16:
      return function(Type<F16>());
    case CHIPSET_DTYPE_BF16:
      return function(Type<BF16>());
    case CHIPSET_DTYPE_F32:
      return function(Type<float>());
    case CHIPSET_DTYPE_F64:
      return function(Type<double>());
    case CHIPSET_DTYPE_F8E4M3:
      return function(Type<F8E4M3>());
    case CHIPSET_DTYPE_F8E5M2:
      return function(Type<F8E5M2>());
    default:
      unsupported(std::string("no arithmetic on ") + dtype_name(dtype));
  }
}

// Converts an element between its form in memory and a type of arithmetic (float, double, int64_t).
template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<From, Bool>)
    return convert<To>(static_cast<int64_t>(value.byte != 0));
  else if constexpr (std::is_same_v<To, Bool> && std::is_arithmetic_v<From>)
    return Bool{static_cast<uint8_t>(!(value == From(0)))};
  else if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<To>) {
    if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
      // Any value is right beyond the range (NUM-002), but C++ has none: take the nearest.
      if (!(value > From(-9223372036854775808.0))) return static_cast<To>(INT64_MIN);
      if (value >= From(9223372036854775808.0)) return static_cast<To>(INT64_MAX);
      return static_cast<To>(static_cast<int64_t>(value));
    } else {
      return static_cast<To>(value);
    }
  } else if constexpr (std::is_arithmetic_v<From>) {  // to a packed float
    if constexpr (std::is_same_v<From, float>)
      return To(value);
    else
      return To(static_cast<double>(value));
  } else {  // from a packed float
    return convert<To>(static_cast<float>(value));
  }
}

}  // namespace chipset::sdk
