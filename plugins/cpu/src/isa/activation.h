// SPDX-License-Identifier: Apache-2.0
// The functions that gemm and gemm_quantized can apply to their result, and rows of any dtype.
#pragma once

#include "chipset/chipset.h"
#include "isa/simd.h"

namespace chipset::cpu::CPU_ISA {

template <class A>
inline vec<A> activate(int32_t activation, vec<A> x) {
  switch (activation) {
    case CHIPSET_ACTIVATION_RELU:
      return x < A{0} ? vec<A>{} : x;  // NaN stays
    case CHIPSET_ACTIVATION_SILU:
      return x / (A{1} + vexp(-x));
    case CHIPSET_ACTIVATION_GELU_TANH: {
      vec<A> inner = A(0.7978845608028654) * (x + A(0.044715) * x * x * x);
      return A(0.5) * x * (A{1} + vtanh(inner));
    }
    case CHIPSET_ACTIVATION_GELU_ERF: {
      vec<A> y{};
      for (int i = 0; i < kLanes<A>; ++i)
        y[i] = A(0.5) * x[i] * (A{1} + std::erf(x[i] * A(0.7071067811865476)));
      return y;
    }
    default:
      return x;
  }
}

// Element i of a strided row of T, whose dtype is known only at run time.
template <class A, class T>
inline void read_row_of(const T* p, int64_t stride, int64_t n, A* out) {
  if (stride == 1 && std::is_same_v<A, compute_t<T>>) {
    for_vectors<compute_t<T>>(n, [&](int64_t i, auto w) {
      store(reinterpret_cast<compute_t<T>*>(out) + i, load(p + i, w), w);
    });
    return;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<A>(to_float(p[i * stride]));
}
template <class A>
inline void read_row(int32_t dtype, const void* base, int64_t offset, int64_t stride, int64_t n,
                     A* out) {
  switch (dtype) {
    case CHIPSET_DTYPE_F16:
      return read_row_of(static_cast<const f16*>(base) + offset, stride, n, out);
    case CHIPSET_DTYPE_BF16:
      return read_row_of(static_cast<const bf16*>(base) + offset, stride, n, out);
    case CHIPSET_DTYPE_F32:
      return read_row_of(static_cast<const float*>(base) + offset, stride, n, out);
    default:
      return read_row_of(static_cast<const double*>(base) + offset, stride, n, out);
  }
}
template <class A, class T>
inline void write_row_of(T* p, int64_t stride, int64_t n, const A* x) {
  if (stride == 1 && std::is_same_v<A, compute_t<T>>) {
    for_vectors<compute_t<T>>(n, [&](int64_t i, auto w) {
      store(p + i, load(reinterpret_cast<const compute_t<T>*>(x) + i, w), w);
    });
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, double>) {
      p[i * stride] = x[i];
    } else {
      p[i * stride] = from_float<T>(static_cast<float>(x[i]));
    }
  }
}
template <class A>
inline void write_row(int32_t dtype, void* base, int64_t offset, int64_t stride, int64_t n,
                      const A* x) {
  switch (dtype) {
    case CHIPSET_DTYPE_F16:
      return write_row_of(static_cast<f16*>(base) + offset, stride, n, x);
    case CHIPSET_DTYPE_BF16:
      return write_row_of(static_cast<bf16*>(base) + offset, stride, n, x);
    case CHIPSET_DTYPE_F32:
      return write_row_of(static_cast<float*>(base) + offset, stride, n, x);
    default:
      return write_row_of(static_cast<double*>(base) + offset, stride, n, x);
  }
}

}  // namespace chipset::cpu::CPU_ISA
