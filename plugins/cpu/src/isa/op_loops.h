// SPDX-License-Identifier: Apache-2.0
// From a scalar function to a kernel over contiguous elements.
#pragma once

#include "kernels.h"
#include "numbers.h"
#include "vector_math.h"

namespace chipset::cpu::CPU_ISA {

template <typename T>
struct Params {
  T p0, p1, p2, p3;
};
template <typename T>
CPU_INLINE Params<T> params_of(const OpParams& p) {
  if constexpr (std::is_integral_v<T>) {
    return {static_cast<T>(p.i[0]), static_cast<T>(p.i[1]), static_cast<T>(p.i[2]),
            static_cast<T>(p.i[3])};
  } else {
    return {static_cast<T>(p.f[0]), static_cast<T>(p.f[1]), static_cast<T>(p.f[2]),
            static_cast<T>(p.f[3])};
  }
}

// Op::apply(x, y, z, params) of T. Result is what it writes: T, or uint8_t for predicates. Storage
// is T, or Bf16 for kernels that convert on the way.
template <typename Op, int Arity, typename T, typename Result, typename Storage = T>
void op_kernel(void* out, const void* const* in, int64_t n, const OpParams& given) {
  const Params<T> p = params_of<T>(given);
  const auto* const a = static_cast<const Storage*>(in[0]);
  const auto* const b = static_cast<const Storage*>(Arity > 1 ? in[1] : in[0]);
  const auto* const c = static_cast<const Storage*>(Arity > 2 ? in[2] : in[0]);
  auto* const o = static_cast<Result*>(out);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T x = to_compute<T>(a[i]);
    const T y = Arity > 1 ? to_compute<T>(b[i]) : x;
    const T z = Arity > 2 ? to_compute<T>(c[i]) : x;
    if constexpr (std::is_same_v<Result, uint8_t>) {
      o[i] = Op::apply(x, y, z, p) ? 1 : 0;
    } else {
      o[i] = from_compute<Result>(static_cast<T>(Op::apply(x, y, z, p)));
    }
  }
}

// x ? y : z with x a byte.
template <typename T>
void where_kernel(void* out, const void* const* in, int64_t n, const OpParams&) {
  const auto* const x = static_cast<const uint8_t*>(in[0]);
  const auto* const y = static_cast<const T*>(in[1]);
  const auto* const z = static_cast<const T*>(in[2]);
  auto* const o = static_cast<T*>(out);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T yes = y[i];
    const T no = z[i];
    o[i] = x[i] != 0 ? yes : no;
  }
}

// Defines struct NAME with the function of x, y, z and params p.
#define CPU_OP(NAME, ...)                                                                   \
  struct NAME {                                                                             \
    template <typename T>                                                                   \
    CPU_INLINE auto apply([[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] T z, \
                          [[maybe_unused]] const Params<T>& p) {                            \
      __VA_ARGS__                                                                           \
    }                                                                                       \
  };

}  // namespace chipset::cpu::CPU_ISA
