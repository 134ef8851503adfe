// SPDX-License-Identifier: Apache-2.0
// `reduce`, every operation: one output element after the other, in a fixed order, accumulated in
// f64 or in 64-bit integers.
#pragma once

#include "lanes.hpp"

namespace chipset::sdk::loops {

namespace detail {

// The tensor without the dimensions that are reduced, or with only those.
inline chipset_tensor part_of(const chipset_tensor& tensor, uint32_t dims, bool reduced) {
  chipset_tensor part = tensor;
  part.rank = 0;
  for (int d = 0; d < tensor.rank; ++d) {
    if (static_cast<bool>((dims >> d) & 1) != reduced) continue;
    part.shape[part.rank] = tensor.shape[d];
    part.stride[part.rank++] = tensor.stride[d];
  }
  return part;
}

// One output element's accumulator. T is double or int64_t.
template <class T>
struct Accumulator {
  const chipset_reduce_args& args;
  T value{}, mean{};
  int64_t count = 0, index = 0;
  double power = args.param[0].f;
  // Of T: integers reach no LOGSUMEXP, and take their largest value for a norm.
  static constexpr T kInfinity = std::numeric_limits<T>::has_infinity
                                     ? std::numeric_limits<T>::infinity()
                                     : std::numeric_limits<T>::max();

  explicit Accumulator(const chipset_reduce_args& a) : args(a) {
    value = a.op == CHIPSET_REDUCE_OP_PROD || a.op == CHIPSET_REDUCE_OP_ALL ? T(1) : T(0);
    if (a.op == CHIPSET_REDUCE_OP_NORM && power == -std::numeric_limits<double>::infinity())
      value = kInfinity;
  }

  void take(T x) { value = x, index = count; }

  void add(T x) {
    switch (args.op) {
      case CHIPSET_REDUCE_OP_SUM:
      case CHIPSET_REDUCE_OP_MEAN:
        sum(x);
        break;
      case CHIPSET_REDUCE_OP_NANSUM:
        if (!is_nan(x)) sum(x);
        break;
      case CHIPSET_REDUCE_OP_PROD:
        product(x);
        break;
      case CHIPSET_REDUCE_OP_MAX:
      case CHIPSET_REDUCE_OP_ARGMAX:  // the first NaN wins, then the first of equals (NUM-003)
        if (count == 0 || (!is_nan(value) && (is_nan(x) || x > value))) take(x);
        break;
      case CHIPSET_REDUCE_OP_MIN:
      case CHIPSET_REDUCE_OP_ARGMIN:
        if (count == 0 || (!is_nan(value) && (is_nan(x) || x < value))) take(x);
        break;
      case CHIPSET_REDUCE_OP_ANY:
        if (x != 0) value = 1;
        break;
      case CHIPSET_REDUCE_OP_ALL:
        if (x == 0) value = 0;
        break;
      case CHIPSET_REDUCE_OP_COUNT_NONZERO:
        value += x != 0;
        break;
      case CHIPSET_REDUCE_OP_NORM:
        norm(x);
        break;
      case CHIPSET_REDUCE_OP_VAR: {  // Welford, 1962
        const T difference = x - mean;
        mean += difference / static_cast<T>(count + 1);
        value += difference * (x - mean);
        break;
      }
      case CHIPSET_REDUCE_OP_LOGSUMEXP: {  // mean holds the largest so far
        if (count == 0) mean = static_cast<T>(-kInfinity);
        if (x == mean && std::isinf(static_cast<double>(x))) {
          if (x > 0) value = 1;
        } else if (x > mean) {
          value = value * static_cast<T>(std::exp(static_cast<double>(mean - x))) + 1;
          mean = x;
        } else {
          value += static_cast<T>(std::exp(static_cast<double>(x - mean)));
        }
        break;
      }
    }
    ++count;
  }

  T result() const {
    constexpr T nan = std::numeric_limits<T>::quiet_NaN();
    switch (args.op) {
      case CHIPSET_REDUCE_OP_MEAN:
        return count == 0 ? nan : value / static_cast<T>(count);
      case CHIPSET_REDUCE_OP_ARGMAX:
      case CHIPSET_REDUCE_OP_ARGMIN:
        return static_cast<T>(index);
      case CHIPSET_REDUCE_OP_NORM:
        if (power == 0 || std::isinf(power) || power == 1) return value;
        return static_cast<T>(power == 2 ? std::sqrt(static_cast<double>(value))
                                         : std::pow(static_cast<double>(value), 1 / power));
      case CHIPSET_REDUCE_OP_VAR: {
        const double divisor = std::max(0.0, static_cast<double>(count) - args.param[0].f);
        return count == 0 ? nan : static_cast<T>(static_cast<double>(value) / divisor);
      }
      case CHIPSET_REDUCE_OP_LOGSUMEXP:
        if (count == 0) return -std::numeric_limits<T>::infinity();
        return static_cast<T>(static_cast<double>(mean) + std::log(static_cast<double>(value)));
      default:
        return value;
    }
  }

 private:
  void sum(T x) {
    if constexpr (std::is_same_v<T, int64_t>)
      value = static_cast<int64_t>(static_cast<uint64_t>(value) + static_cast<uint64_t>(x));
    else
      value += x;
  }
  void product(T x) {
    if constexpr (std::is_same_v<T, int64_t>)
      value = static_cast<int64_t>(static_cast<uint64_t>(value) * static_cast<uint64_t>(x));
    else
      value *= x;
  }
  void norm(T x) {
    const T size = x < 0 ? -x : x;
    if (power == 0)
      value += x != 0;
    else if (power == std::numeric_limits<double>::infinity())
      value = is_nan(value) || size < value ? value : size;
    else if (power == -std::numeric_limits<double>::infinity())
      value = is_nan(value) || size > value ? value : size;
    else
      value += power == 1   ? size
               : power == 2 ? size * size
                            : static_cast<T>(std::pow(static_cast<double>(size), power));
  }
};

inline bool picks_an_element(int32_t op) {
  return op >= CHIPSET_REDUCE_OP_MAX && op <= CHIPSET_REDUCE_OP_ARGMIN;
}
}  // namespace detail

// Throws INVALID or UNSUPPORTED for what reduce() below cannot do. Call it before enqueuing.
inline void check_reduce(const chipset_reduce_args& args) {
  if (args.op < 0 || args.op > CHIPSET_REDUCE_OP_NANSUM)
    fail(CHIPSET_STATUS_INVALID, "reduce: operation %d does not exist", args.op);
  for (const chipset_tensor* tensor : {args.input, args.output})
    dispatch(tensor->dtype, [](auto) {});
  dispatch(args.compute_dtype, [](auto) {});
  const bool empty = numel(detail::part_of(*args.input, args.dims, true)) == 0;
  if (empty && detail::picks_an_element(args.op) && numel(*args.output) > 0)
    fail(CHIPSET_STATUS_INVALID, "reduce: no elements to choose from (NUM-005)");
}

inline void reduce(const chipset_reduce_args& args) {
  const chipset_tensor rows = detail::part_of(*args.input, args.dims, false);
  const chipset_tensor row = detail::part_of(*args.input, args.dims, true);
  const chipset_tensor out = detail::part_of(*args.output, args.dims, false);
  const bool wants_mean = args.indices != nullptr && args.op == CHIPSET_REDUCE_OP_VAR;
  const chipset_tensor indices =
      args.indices != nullptr ? detail::part_of(*args.indices, args.dims, false) : out;
  auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_row<3>(
        rows, {rows.stride, out.stride, indices.stride},
        [&](auto& base, int64_t count, auto& step) {
          for (int64_t i = 0; i < count; ++i) {
            detail::Accumulator<T> accumulator(args);
            for_each_row<1>(row, {row.stride}, [&](auto& offset, int64_t length, auto& stride) {
              T values[kLanes];
              for (int64_t at = 0; at < length; at += kLanes) {
                const int64_t n = std::min(kLanes, length - at);
                const int64_t first = base[0] + i * step[0] + offset[0] + at * stride[0];
                load(values, address(*args.input, first), args.input->dtype, stride[0], n);
                if (args.input->dtype != args.compute_dtype)
                  to_width(values, args.compute_dtype, n);
                for (int64_t k = 0; k < n; ++k) accumulator.add(values[k]);
              }
            });
            const T result = accumulator.result();
            store(address(*args.output, base[1] + i * step[1]), args.output->dtype, 1, &result, 1);
            if (args.indices == nullptr) continue;
            const T other = wants_mean ? accumulator.mean : static_cast<T>(accumulator.index);
            store(address(*args.indices, base[2] + i * step[2]), args.indices->dtype, 1, &other, 1);
          }
        });
  };
  if (is_float(args.compute_dtype) || args.op == CHIPSET_REDUCE_OP_MEAN ||
      args.op == CHIPSET_REDUCE_OP_VAR || args.op == CHIPSET_REDUCE_OP_LOGSUMEXP)
    run(Type<double>());
  else
    run(Type<int64_t>());
}

}  // namespace chipset::sdk::loops
