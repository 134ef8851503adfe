// SPDX-License-Identifier: Apache-2.0
// `scan` and `sort`: along one dimension, one line of elements after the other.
#pragma once

#include <numeric>
#include <vector>

#include "../check.hpp"
#include "lanes.hpp"

namespace chipset::sdk::loops {

namespace detail {

// Calls line(base offsets, steps along dim) for every line of the first tensor along `dim`.
template <std::size_t N, class Line>
void for_each_line(const std::array<const chipset_tensor*, N>& tensors, int dim, Line&& line) {
  std::array<chipset_tensor, N> rest;
  std::array<const int64_t*, N> strides;
  std::array<int64_t, N> along;
  for (std::size_t k = 0; k < N; ++k) {
    rest[k] = *tensors[k];
    along[k] = rest[k].rank > 0 ? rest[k].stride[dim] : 0;
    if (rest[k].rank > 0) rest[k].shape[dim] = 1;
    strides[k] = rest[k].stride;
  }
  for_each_row<N>(rest[0], strides, [&](auto& offset, int64_t count, auto& step) {
    for (int64_t i = 0; i < count; ++i) {
      std::array<int64_t, N> base;
      for (std::size_t k = 0; k < N; ++k) base[k] = offset[k] + i * step[k];
      line(base, along);
    }
  });
}

inline int64_t line_length(const chipset_tensor& tensor, int dim) {
  return tensor.rank > 0 ? tensor.shape[dim] : 1;
}
inline void check_dim(const char* function, int dim, const chipset_tensor& tensor) {
  if (dim < 0 || dim >= std::max(tensor.rank, 1))
    fail(CHIPSET_STATUS_INVALID, "%s: dim is %d for rank %d", function, dim, tensor.rank);
}
}  // namespace detail

inline void check_scan(const chipset_scan_args& args) {
  check_tensor("input", args.input);
  check_shape("output", args.output, "input", *args.input);
  detail::check_dim("scan", args.dim, *args.input);
  if (args.op < 0 || args.op > CHIPSET_SCAN_OP_LOGSUMEXP)
    fail(CHIPSET_STATUS_INVALID, "scan: operation %d does not exist", args.op);
  for (int32_t dtype : {args.input->dtype, args.output->dtype, args.compute_dtype})
    dispatch(dtype, [](auto) {});
}

inline void scan(const chipset_scan_args& args) {
  const chipset_tensor& in = *args.input;
  const chipset_tensor& out = *args.output;
  const chipset_tensor& indices = args.indices != nullptr ? *args.indices : out;
  const int64_t length = detail::line_length(in, args.dim);
  auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    detail::for_each_line<3>({&in, &out, &indices}, args.dim, [&](auto& base, auto& along) {
      T total{};
      int64_t index = 0;
      for (int64_t i = 0; i < length; ++i) {
        T x;
        load(&x, address(in, base[0] + i * along[0]), in.dtype, 1, 1);
        if (in.dtype != args.compute_dtype) to_width(&x, args.compute_dtype, 1);
        const bool nan = is_nan(x), kept_nan = is_nan(total);
        bool take = i == 0;
        switch (args.op) {
          case CHIPSET_SCAN_OP_SUM:
            x = i == 0 ? x : total + x, take = true;
            break;
          case CHIPSET_SCAN_OP_PROD:
            x = i == 0 ? x : total * x, take = true;
            break;
          case CHIPSET_SCAN_OP_MAX:
            take = take || nan || (!kept_nan && x >= total);
            break;
          case CHIPSET_SCAN_OP_MIN:
            take = take || nan || (!kept_nan && x <= total);
            break;
          default: {
            const double a = static_cast<double>(total), b = static_cast<double>(x);
            const double larger = std::max(a, b);
            if (i > 0 && !(a == b && std::isinf(a)))
              x = static_cast<T>(
                  a != a || b != b ? a + b : larger + std::log1p(std::exp(-std::fabs(a - b))));
            take = true;
          }
        }
        if (take) total = x, index = i;
        store(address(out, base[1] + i * along[1]), out.dtype, 1, &total, 1);
        if (args.indices != nullptr)
          store(address(indices, base[2] + i * along[2]), indices.dtype, 1, &index, 1);
      }
    });
  };
  if (is_float(args.compute_dtype))
    run(Type<double>());
  else
    run(Type<int64_t>());
}

inline void check_sort(const chipset_sort_args& args) {
  check_tensor("input", args.input);
  check_tensor("values", args.values);
  check_shape("indices", args.indices, "values", *args.values);
  detail::check_dim("sort", args.dim, *args.input);
  const int64_t length = detail::line_length(*args.input, args.dim);
  if (args.k < 0 || args.k > length || detail::line_length(*args.values, args.dim) != args.k)
    fail(CHIPSET_STATUS_INVALID, "sort: k is %lld for %lld elements and values %s",
         static_cast<long long>(args.k), static_cast<long long>(length),
         shape_text(*args.values).c_str());
  dispatch(args.input->dtype, [](auto) {});
}

// Always stable. NaN counts as larger than every number.
inline void sort(const chipset_sort_args& args) {
  const chipset_tensor& in = *args.input;
  const int64_t length = detail::line_length(in, args.dim);
  auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    std::vector<T> line(length);
    std::vector<int64_t> order(length);
    const auto less = [&](int64_t a, int64_t b) {
      const T x = line[a], y = line[b];
      return y != y ? x == x : x < y;
    };
    const std::array<const chipset_tensor*, 3> tensors{args.input, args.values, args.indices};
    detail::for_each_line<3>(tensors, args.dim, [&](auto& base, auto& along) {
      load(line.data(), address(in, base[0]), in.dtype, along[0], length);
      std::iota(order.begin(), order.end(), 0);
      if (args.descending)
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return less(b, a); });
      else
        std::stable_sort(order.begin(), order.end(), less);
      for (int64_t i = 0; i < args.k; ++i) {
        store(address(*args.values, base[1] + i * along[1]), args.values->dtype, 1, &line[order[i]],
              1);
        store(address(*args.indices, base[2] + i * along[2]), args.indices->dtype, 1, &order[i], 1);
      }
    });
  };
  dispatch_arithmetic(in.dtype, run);
}

}  // namespace chipset::sdk::loops
