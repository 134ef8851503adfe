// SPDX-License-Identifier: Apache-2.0
// The operations of reduce as small monoids: init, step (one element), row (a run of elements),
// merge (two partial results, the left one first) and finish (the result as a number).
//
// Floating sums run in short blocks of their own type and are totalled in double, so that the error
// grows with the block, not with the length of the reduction.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "chipset/chipset.h"

namespace chipset::cpu::reduction {

// What an operation may want to know besides its elements.
struct Context {
  double param;
  int64_t count;  // elements of one reduction
};

inline constexpr int64_t kBlock = 256;
inline constexpr int64_t kLanes = 16;

template <typename T>
using Total = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;

template <typename T>
inline bool is_nan(T x) {
  return x != x;
}

// Sum of f(x) over a run: kLanes partial sums of the element type, so that compilers vectorise.
template <typename T, typename F>
inline Total<T> block_sum(const T* x, int64_t n, F f) {
  if constexpr (std::is_integral_v<T>) {
    uint64_t total = 0;  // wraps (NUM-004)
    for (int64_t j = 0; j < n; ++j) total += static_cast<uint64_t>(static_cast<int64_t>(f(x[j])));
    return static_cast<int64_t>(total);
  } else {
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = begin + kBlock < n ? begin + kBlock : n;
      T lane[kLanes] = {};
      int64_t j = begin;
      for (; j + kLanes <= end; j += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) lane[l] += f(x[j + l]);
      }
      for (int64_t l = 0; j < end; ++j, ++l) lane[l] += f(x[j]);
      for (int64_t l = 0; l < kLanes; ++l) total += lane[l];
    }
    return total;
  }
}

template <typename T>
struct Sum {
  Total<T> total;
  static Sum init() { return {0}; }
  static T map(T x, const Context&) { return x; }
  void step(T x, int64_t, const Context&) { add(static_cast<Total<T>>(x)); }
  void row(const T* x, int64_t n, int64_t, const Context&) {
    add(block_sum(x, n, [](T v) { return v; }));
  }
  void merge(const Sum& o) { add(o.total); }
  auto finish(const Context&) const { return total; }
  void add(Total<T> x) {
    if constexpr (std::is_integral_v<T>) {
      total = static_cast<int64_t>(static_cast<uint64_t>(total) + static_cast<uint64_t>(x));
    } else {
      total += x;
    }
  }
};
template <typename T>
struct Mean : Sum<T> {
  static Mean init() { return {{0}}; }
  auto finish(const Context& c) const {
    return static_cast<Total<T>>(static_cast<double>(this->total) / static_cast<double>(c.count));
  }
};
template <typename T>
struct NanSum : Sum<T> {
  static NanSum init() { return {{0}}; }
  void step(T x, int64_t, const Context&) { this->add(is_nan(x) ? 0 : static_cast<Total<T>>(x)); }
  void row(const T* x, int64_t n, int64_t, const Context&) {
    this->add(block_sum(x, n, [](T v) { return is_nan(v) ? T{0} : v; }));
  }
};
template <typename T>
struct CountNonzero : Sum<T> {
  static CountNonzero init() { return {{0}}; }
  void step(T x, int64_t, const Context&) { this->add(x != 0); }
  void row(const T* x, int64_t n, int64_t, const Context&) {
    int64_t count = 0;
    for (int64_t j = 0; j < n; ++j) count += x[j] != 0;
    this->add(static_cast<Total<T>>(count));
  }
};

// An operation without a vector form: row() steps.
template <typename Derived, typename T>
struct Stepwise {
  void row(const T* x, int64_t n, int64_t index, const Context& c) {
    for (int64_t j = 0; j < n; ++j) static_cast<Derived*>(this)->step(x[j], index + j, c);
  }
};

template <typename T>
struct Prod : Stepwise<Prod<T>, T> {
  Total<T> total = 1;
  static Prod init() { return {}; }
  void step(T x, int64_t, const Context&) { multiply(static_cast<Total<T>>(x)); }
  void merge(const Prod& o) { multiply(o.total); }
  auto finish(const Context&) const { return total; }
  void multiply(Total<T> x) {
    if constexpr (std::is_integral_v<T>) {
      total = static_cast<int64_t>(static_cast<uint64_t>(total) * static_cast<uint64_t>(x));
    } else {
      total *= x;
    }
  }
};

// MAX, MIN and their arg- forms: the first NaN wins, else the first of the best (NUM-003).
template <typename T, bool kMax>
struct Extreme {
  T value{};
  int64_t index = -1;
  static Extreme init() { return {}; }
  static bool better(T x, T old) { return kMax ? x > old : x < old; }
  void step(T x, int64_t i, const Context&) {
    if (index >= 0 && (is_nan(value) || !(better(x, value) || is_nan(x)))) return;
    value = x;
    index = i;
  }
  void row(const T* x, int64_t n, int64_t first, const Context& c) {
    // The best of the run in lanes; only a run that improves is searched for the place.
    if (n < kLanes || (index >= 0 && is_nan(value))) {
      for (int64_t j = 0; j < n; ++j) step(x[j], first + j, c);
      return;
    }
    T lane[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) lane[l] = x[l];
    bool nan = false;
    int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) {
        lane[l] = better(x[j + l], lane[l]) ? x[j + l] : lane[l];
        nan |= is_nan(x[j + l]);
      }
    }
    T best = lane[0];
    for (int64_t l = 1; l < kLanes; ++l) best = better(lane[l], best) ? lane[l] : best;
    for (; j < n; ++j) {
      best = better(x[j], best) ? x[j] : best;
      nan |= is_nan(x[j]);
    }
    if (!nan && index >= 0 && !better(best, value)) return;
    for (j = 0; nan ? !is_nan(x[j]) : x[j] != best; ++j) {
    }
    step(x[j], first + j, c);
  }
  void merge(const Extreme& o) {
    if (o.index >= 0) step(o.value, o.index, {});
  }
  T finish(const Context&) const { return value; }
};
template <typename T>
using Max = Extreme<T, true>;
template <typename T>
using Min = Extreme<T, false>;
template <typename T>
struct ArgMax : Max<T> {
  static ArgMax init() { return {}; }
  int64_t finish(const Context&) const { return this->index; }
};
template <typename T>
struct ArgMin : Min<T> {
  static ArgMin init() { return {}; }
  int64_t finish(const Context&) const { return this->index; }
};

template <typename T>
struct Any : Stepwise<Any<T>, T> {
  bool found = false;
  static Any init() { return {}; }
  void step(T x, int64_t, const Context&) { found |= x != 0; }
  void merge(const Any& o) { found |= o.found; }
  int64_t finish(const Context&) const { return found; }
};
template <typename T>
struct All : Stepwise<All<T>, T> {
  bool all = true;
  static All init() { return {}; }
  void step(T x, int64_t, const Context&) { all &= x != 0; }
  void merge(const All& o) { all &= o.all; }
  int64_t finish(const Context&) const { return all; }
};

// (sum |x|^p)^(1/p) in double.
template <typename T>
struct Norm : Stepwise<Norm<T>, T> {
  double total = 0;
  static Norm init() { return {}; }
  static double magnitude(T x) { return std::fabs(static_cast<double>(x)); }
  void step(T x, int64_t, const Context& c) { add(power(magnitude(x), c.param), c.param); }
  void row(const T* x, int64_t n, int64_t index, const Context& c) {
    if constexpr (std::is_floating_point_v<T>) {
      if (c.param == 2.0) {  // squares may overflow F32 where their root does not
        double lane[kLanes] = {};
        int64_t j = 0;
        for (; j + kLanes <= n; j += kLanes) {
          for (int64_t l = 0; l < kLanes; ++l) {
            const double v = x[j + l];
            lane[l] += v * v;
          }
        }
        for (; j < n; ++j) lane[0] += static_cast<double>(x[j]) * x[j];
        for (double v : lane) total += v;
        return;
      }
    }
    Stepwise<Norm<T>, T>::row(x, n, index, c);
  }
  void merge_with(const Norm& o, const Context& c) { add(o.total, c.param); }
  double finish(const Context& c) const {
    if (c.param == 2.0) return std::sqrt(total);
    if (c.param == 0.0 || c.param == 1.0 || std::isinf(c.param)) return total;
    return std::pow(total, 1.0 / c.param);
  }
  static double power(double x, double p) {
    if (p == 2.0) return x * x;
    if (p == 1.0 || std::isinf(p)) return x;
    return p == 0.0 ? static_cast<double>(x != 0) : std::pow(x, p);
  }
  bool started = false;  // for p = -inf, whose identity is +inf
  void add(double x, double p) {
    if (!std::isinf(p)) {
      total += x;
    } else if (!started || is_nan(x) || (!is_nan(total) && (p > 0 ? x > total : x < total))) {
      total = x;
    }
    started = true;
  }
};

// Welford's update and Chan's merge (Chan, Golub, LeVeque 1983).
template <typename T>
struct Var : Stepwise<Var<T>, T> {
  double count = 0, mean = 0, m2 = 0;
  static Var init() { return {}; }
  void step(T x, int64_t, const Context&) {
    count += 1;
    const double delta = static_cast<double>(x) - mean;
    mean += delta / count;
    m2 += delta * (static_cast<double>(x) - mean);
  }
  void merge(const Var& o) {
    if (o.count == 0) return;
    const double total = count + o.count;
    const double delta = o.mean - mean;
    m2 += o.m2 + delta * delta * count * o.count / total;
    mean += delta * o.count / total;
    count = total;
  }
  double finish(const Context& c) const {
    const double divisor = count - c.param;
    return m2 / (divisor > 0 ? divisor : 0.0);
  }
};

template <typename T>
struct LogSumExp : Stepwise<LogSumExp<T>, T> {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;  // of exp(x - largest)
  static LogSumExp init() { return {}; }
  void step(T value, int64_t, const Context&) { add(static_cast<double>(value), 1.0); }
  void merge(const LogSumExp& o) {
    if (o.sum != 0) add(o.largest, o.sum);
  }
  void add(double x, double weight) {
    if (is_nan(x) || x > largest) {
      sum = is_nan(x) || std::isinf(largest) ? (is_nan(sum) ? sum : 0) + weight
                                             : sum * std::exp(largest - x) + weight;
      largest = x;
    } else if (x == largest) {
      sum += weight;
    } else if (!is_nan(largest)) {
      sum += weight * std::exp(x - largest);
    }
  }
  double finish(const Context&) const { return sum == 0 ? largest : largest + std::log(sum); }
};

}  // namespace chipset::cpu::reduction
