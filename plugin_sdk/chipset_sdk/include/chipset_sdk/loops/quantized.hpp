// SPDX-License-Identifier: Apache-2.0
// `quantize`, `dequantize` and `gemm_quantized`, of I8, I4 and F8: one group of a row after the
// other, in f32. The product is a gemm's, of weights that were made floats.
#pragma once

#include <vector>

#include "../check.hpp"
#include "lanes.hpp"

namespace chipset::sdk::loops {

namespace detail {

// How a tensor [rows, K] is cut.
struct Groups {
  int64_t length, size, count;

  Groups(const chipset_tensor& q, int64_t group_size)
      : length(q.shape[1]),
        size(group_size > 0 ? group_size : std::max<int64_t>(length, 1)),
        count((length + size - 1) / size) {}
  int64_t width(int64_t group) const { return std::min(size, length - group * size); }
};

inline bool has_zero_points(int32_t dtype) {
  return dtype == CHIPSET_DTYPE_I8 || dtype == CHIPSET_DTYPE_I4;
}
// The largest number of the symmetric range.
inline float largest_of(int32_t dtype) {
  switch (dtype) {
    case CHIPSET_DTYPE_I8:
      return 127;
    case CHIPSET_DTYPE_I4:
      return 7;
    case CHIPSET_DTYPE_F8E4M3:
      return 448;
    case CHIPSET_DTYPE_F8E5M2:
      return 57344;
    default:
      unsupported(std::string("no quantised form in ") + dtype_name(dtype));
  }
}

// Elements [first, first + n) of a row. Of I4, element 2i is the low nibble of its byte.
inline void load_quantized(float* to, const chipset_tensor& q, int64_t row, int64_t first,
                           int64_t n) {
  const int64_t at = row * q.stride[0] + first * q.stride[1];
  if (q.dtype != CHIPSET_DTYPE_I4) return load(to, address(q, at), q.dtype, q.stride[1], n);
  const uint8_t* bytes = static_cast<const uint8_t*>(q.data);
  for (int64_t i = at; i < at + n; ++i) {
    const int nibble = (bytes[i / 2] >> (i % 2 * 4)) & 15;
    to[i - at] = static_cast<float>(nibble < 8 ? nibble : nibble - 16);
  }
}
inline void store_quantized(const chipset_tensor& q, int64_t row, int64_t first, const float* from,
                            int64_t n) {
  const int64_t at = row * q.stride[0] + first * q.stride[1];
  if (q.dtype != CHIPSET_DTYPE_I4) return store(address(q, at), q.dtype, q.stride[1], from, n);
  uint8_t* bytes = static_cast<uint8_t*>(q.data);
  for (int64_t i = at; i < at + n; ++i) {
    const int shift = static_cast<int>(i % 2 * 4);
    const int nibble = static_cast<int>(convert<int64_t>(from[i - at])) & 15;
    bytes[i / 2] = static_cast<uint8_t>((bytes[i / 2] & ~(15 << shift)) | nibble << shift);
  }
}

template <class T>
T& of_group(const chipset_tensor& tensor, int64_t row, int64_t group) {
  return *reinterpret_cast<T*>(address(tensor, row * tensor.stride[0] + group * tensor.stride[1]));
}

// Scale and zero point of a group, as the header says.
inline void choose_scale(const float* x, int64_t n, float largest, float* scale, int32_t* zero) {
  const auto [low, high] = std::minmax_element(x, x + n);
  const float size = std::max(std::fabs(*low), std::fabs(*high));
  if (zero == nullptr) {
    *scale = size / largest;
    return;
  }
  const bool constant = *high - *low <= size * 0x1p-16f;
  *scale = constant ? size : (*high - *low) / (2 * largest + 1);
  const float shift = *scale == 0 ? 0 : std::nearbyint(*low / *scale);
  *zero = static_cast<int32_t>(-(largest + 1) - shift);
}

inline void check_groups(const char* function, const chipset_tensor* q, const chipset_tensor* scale,
                         const chipset_tensor* zero_point, int64_t group_size) {
  check_tensor("q", q);
  check_tensor("scale", scale);
  largest_of(q->dtype);
  if (group_size < 0)
    fail(CHIPSET_STATUS_INVALID, "%s: group_size is %lld; need 0 or more", function,
         static_cast<long long>(group_size));
  if (q->rank != 2 || scale->rank != 2 || scale->shape[0] != q->shape[0] ||
      scale->shape[1] != Groups(*q, group_size).count)
    fail(CHIPSET_STATUS_INVALID, "%s: scale has shape %s for %s in groups of %lld", function,
         shape_text(*scale).c_str(), shape_text(*q).c_str(), static_cast<long long>(group_size));
  if (scale->dtype != CHIPSET_DTYPE_F32)
    fail(CHIPSET_STATUS_INVALID, "%s: scale is %s; need f32", function, dtype_name(scale->dtype));
  if (zero_point == nullptr) return;
  check_shape("zero_point", zero_point, "scale", *scale);
  if (zero_point->dtype != CHIPSET_DTYPE_I32 || !has_zero_points(q->dtype))
    fail(CHIPSET_STATUS_INVALID, "%s: zero_point is %s for %s; need i32, for i8 or i4", function,
         dtype_name(zero_point->dtype), dtype_name(q->dtype));
}
}  // namespace detail

// Throws INVALID or UNSUPPORTED for what the functions below cannot do. Call it before enqueuing.
inline void check_quantize(const chipset_quantize_args& args) {
  check_shape("x", args.x, "q", *args.q);
  detail::check_groups("quantize", args.q, args.scale, args.zero_point, args.group_size);
  if (!is_float(args.x->dtype))
    unsupported(std::string("quantize: x is ") + dtype_name(args.x->dtype));
}

inline void quantize(const chipset_quantize_args& args) {
  const detail::Groups groups(*args.q, args.group_size);
  const chipset_tensor& x = *args.x;
  const float largest = detail::largest_of(args.q->dtype);
  const bool whole = detail::has_zero_points(args.q->dtype);
  const float low = args.zero_point != nullptr ? -largest - 1 : -largest;
  std::vector<float> values(groups.size);
  for (int64_t row = 0; row < x.shape[0]; ++row)
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t first = group * groups.size, n = groups.width(group);
      load(values.data(), address(x, row * x.stride[0] + first * x.stride[1]), x.dtype, x.stride[1],
           n);
      float& scale = detail::of_group<float>(*args.scale, row, group);
      int32_t* zero = args.zero_point != nullptr
                          ? &detail::of_group<int32_t>(*args.zero_point, row, group)
                          : nullptr;
      if (args.given_scale == 0) detail::choose_scale(values.data(), n, largest, &scale, zero);
      const float divisor = scale == 0 ? 1 : scale;
      const float shift = zero != nullptr ? static_cast<float>(*zero) : 0;
      for (int64_t i = 0; i < n; ++i) {
        const float t = values[i] / divisor;
        values[i] = std::min(std::max((whole ? std::nearbyint(t) : t) + shift, low), largest);
      }
      detail::store_quantized(*args.q, row, first, values.data(), n);
    }
}

namespace detail {
// A row of floats from its quantised form.
inline void dequantize_row(float* to, const chipset_tensor& q, const chipset_tensor& scales,
                           const chipset_tensor* zero_points, int64_t group_size, int64_t row) {
  const Groups groups(q, group_size);
  load_quantized(to, q, row, 0, groups.length);
  for (int64_t group = 0; group < groups.count; ++group) {
    const float scale = of_group<float>(scales, row, group);
    const int32_t zero = zero_points != nullptr ? of_group<int32_t>(*zero_points, row, group) : 0;
    float* const values = to + group * groups.size;
    for (int64_t i = 0; i < groups.width(group); ++i)
      values[i] = (values[i] - static_cast<float>(zero)) * scale;
  }
}
}  // namespace detail

inline void dequantize(const chipset_quantize_args& args) {
  const chipset_tensor& x = *args.x;
  std::vector<float> values(x.shape[1]);
  for (int64_t row = 0; row < x.shape[0]; ++row) {
    detail::dequantize_row(values.data(), *args.q, *args.scale, args.zero_point, args.group_size,
                           row);
    store(address(x, row * x.stride[0]), x.dtype, x.stride[1], values.data(), x.shape[1]);
  }
}

inline void check_gemm_quantized(const chipset_gemm_quantized_args& args) {
  check_tensor("x", args.x);
  check_output("d", args.d);
  check_tensor("w", args.w);
  detail::check_groups("gemm_quantized", args.w, args.w_scale, args.w_zero_point, args.group_size);
  const chipset_tensor &x = *args.x, &w = *args.w, &d = *args.d;
  if (x.rank != 2 || d.rank != 2 || x.shape[1] != w.shape[1] || d.shape[0] != x.shape[0] ||
      d.shape[1] != w.shape[0])
    fail(CHIPSET_STATUS_INVALID, "gemm_quantized: shapes do not multiply: x %s, w %s, d %s",
         shape_text(x).c_str(), shape_text(w).c_str(), shape_text(d).c_str());
  if ((x.dtype == CHIPSET_DTYPE_I8) != (args.x_scale != nullptr))
    fail(CHIPSET_STATUS_INVALID, "gemm_quantized: x is %s %s x_scale", dtype_name(x.dtype),
         args.x_scale != nullptr ? "with" : "without");
  if (x.dtype != CHIPSET_DTYPE_I8 && !is_float(x.dtype))
    unsupported(std::string("gemm_quantized: x is ") + dtype_name(x.dtype));
}

// gemm: what multiplies, void(const chipset_gemm_args&), of operands in f32 and of any strides.
template <class Gemm>
void gemm_quantized(const chipset_gemm_quantized_args& args, Gemm&& gemm) {
  const int64_t rows = args.w->shape[0], depth = args.w->shape[1];
  std::vector<float> weight(rows * depth), activations;
  for (int64_t row = 0; row < rows; ++row)
    detail::dequantize_row(&weight[row * depth], *args.w, *args.w_scale, args.w_zero_point,
                           args.group_size, row);
  chipset_tensor x = *args.x, w = *args.w;
  w.data = weight.data(), w.dtype = CHIPSET_DTYPE_F32;
  std::swap(w.shape[0], w.shape[1]);  // [K, N], of rows that lie one after the other
  w.stride[0] = 1, w.stride[1] = depth;
  if (args.x_scale != nullptr) {
    activations.resize(x.shape[0] * depth);
    for (int64_t row = 0; row < x.shape[0]; ++row) {
      float* const line = activations.data() + row * depth;
      load(line, address(x, row * x.stride[0]), x.dtype, x.stride[1], depth);
      float scale;
      load(&scale, address(*args.x_scale, row * args.x_scale->stride[0]), args.x_scale->dtype, 1,
           1);
      for (int64_t k = 0; k < depth; ++k) line[k] *= scale;
    }
    x.data = activations.data(), x.dtype = CHIPSET_DTYPE_F32;
    x.stride[0] = depth, x.stride[1] = 1;
  }
  chipset_gemm_args product{};
  product.struct_size = sizeof product;
  product.a = &x, product.b = &w, product.d = args.d, product.bias = args.bias;
  product.activation = args.activation;
  product.alpha = 1;
  gemm(product);
}

}  // namespace chipset::sdk::loops
