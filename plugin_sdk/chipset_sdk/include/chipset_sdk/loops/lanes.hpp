// SPDX-License-Identifier: Apache-2.0
// Loads and stores of short runs of elements, converted to a type of arithmetic: what the loops
// compute with, whatever the dtypes in memory.
#pragma once

#include "../tensor.hpp"

namespace chipset::sdk::loops {

inline constexpr int64_t kLanes = 256;  // a run: three operands of it stay in the first-level cache

// The type that a compute dtype is evaluated in: float (F16, BF16, F8 too: NUM-001), double, or
// int64_t for integers and bool.
template <class Function>
void dispatch_arithmetic(int32_t compute_dtype, Function&& function) {
  if (compute_dtype == CHIPSET_DTYPE_F64)
    function(Type<double>());
  else if (is_float(compute_dtype))
    function(Type<float>());
  else
    function(Type<int64_t>());
}

// `n` elements of a dtype from `from`, `step` elements apart.
template <class T>
void load(T* to, const void* from, int32_t dtype, int64_t step, int64_t n) {
  dispatch(dtype, [&](auto type) {
    using S = typename decltype(type)::type;
    const S* source = static_cast<const S*>(from);
    if (step == 1)
      for (int64_t i = 0; i < n; ++i) to[i] = convert<T>(source[i]);
    else
      for (int64_t i = 0; i < n; ++i) to[i] = convert<T>(source[i * step]);
  });
}
template <class T>
void store(void* to, int32_t dtype, int64_t step, const T* from, int64_t n) {
  dispatch(dtype, [&](auto type) {
    using S = typename decltype(type)::type;
    S* target = static_cast<S*>(to);
    for (int64_t i = 0; i < n; ++i) target[i * step] = convert<S>(from[i]);
  });
}

// Cuts values to the compute dtype: integers wrap (NUM-004), floats are rounded to F16, BF16, F8.
template <class T>
void to_width(T* values, int32_t compute_dtype, int64_t n) {
  if (compute_dtype == CHIPSET_DTYPE_F32 || compute_dtype == CHIPSET_DTYPE_F64) return;
  dispatch(compute_dtype, [&](auto type) {
    using S = typename decltype(type)::type;
    for (int64_t i = 0; i < n; ++i) values[i] = convert<T>(convert<S>(values[i]));
  });
}

template <class T>
bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(x);
  else
    return (void)x, false;
}

template <class T>
T number(const chipset_scalar& scalar) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(scalar.f);
  else
    return scalar.i;
}

}  // namespace chipset::sdk::loops
