// SPDX-License-Identifier: Apache-2.0
// `pointwise`, every operation: operands of a run are loaded and converted, one loop evaluates the
// operation over the run, the result is stored. For chips whose kernels run where the host's
// compiler reaches them, and for operations that a chip's vector unit lacks.
#pragma once

#include <numeric>

#include "lanes.hpp"
#include "special.hpp"

namespace chipset::sdk::loops {

namespace detail {

template <class T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}
template <class T>
T softplus(T x, T beta, T threshold) {
  return x * beta > threshold ? x : std::log1p(std::exp(x * beta)) / beta;
}
template <class T>
T normal_cdf(T x) {
  return T(0.5) * std::erfc(-x * T(0.70710678118654752440));
}
template <class T>
T normal_density(T x) {
  return std::exp(T(-0.5) * x * x) * T(0.39894228040143267794);
}
template <class T>
T gelu_tanh_inner(T x) {
  return T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
}
template <class T>
T logaddexp(T x, T y, T (*exponential)(T), T (*log_of_one_plus)(T)) {
  if (x == y && std::isinf(x)) return x;
  const T larger = x > y ? x : y;
  return std::isnan(x) || std::isnan(y) ? x + y
                                        : larger + log_of_one_plus(exponential(-std::fabs(x - y)));
}
template <class T>
T maximum(T x, T y) {
  return x != x ? x : y != y ? y : x > y ? x : y;
}
template <class T>
T minimum(T x, T y) {
  return x != x ? x : y != y ? y : x < y ? x : y;
}
template <class T>
T clamp(T x, T low, T high) {
  return minimum(maximum(x, low), high);
}
inline int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (; exponent; exponent >>= 1, factor *= factor)
    if (exponent & 1) result *= factor;
  return static_cast<int64_t>(result);
}
// Python's: the quotient rounded down, the remainder with the divisor's sign (NUM-004).
template <class T>
T python_remainder(T x, T y) {
  const T r = std::fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
template <class T>
T floor_divide(T x, T y) {
  if (y == 0) return x / y;
  const T r = std::fmod(x, y);
  T quotient = (x - r) / y;
  if (r != 0 && (r < 0) != (y < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T(0), x / y);
  const T floor = std::floor(quotient);
  return quotient - floor > T(0.5) ? floor + 1 : floor;
}
template <class T>
T gelu_tanh_backward(T gradient, T x) {
  const T t = std::tanh(gelu_tanh_inner(x));
  const T slope = T(0.79788456080286535588) * (1 + 3 * T(0.044715) * x * x);
  return gradient * (T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * slope);
}
template <class T>
T elu_backward(T gradient, T y, const T* p) {
  if (y > 0) return gradient * p[1];
  return p[3] != 0 ? gradient * p[2] * (y + p[0] * p[1])
                   : gradient * p[0] * p[1] * p[2] * std::exp(y * p[2]);
}
template <class T>
T mish_backward(T gradient, T x) {
  const T t = std::tanh(std::log1p(std::exp(x)));
  return gradient * (t + x * sigmoid(x) * (1 - t * t));
}
template <class T>
T smooth_l1(T difference, T beta) {
  const T size = std::fabs(difference);
  return size < beta ? T(0.5) * size * size / beta : size - T(0.5) * beta;
}
template <class T>
T log2_of_one_plus(T x) {
  return std::log1p(x) * T(1.44269504088896340736);
}
template <class T>
T log_gamma(T x) {
  int sign;  // std::lgamma writes a global
  if constexpr (std::is_same_v<T, float>)
    return ::lgammaf_r(x, &sign);
  else
    return ::lgamma_r(x, &sign);
}
inline int64_t wrapping(uint64_t value) { return static_cast<int64_t>(value); }
inline uint64_t u(int64_t value) { return static_cast<uint64_t>(value); }

// One loop per operation; the switch stands outside of it.
#define CHIPSET_SDK_OP(name, expression)    \
  case CHIPSET_POINTWISE_OP_##name:         \
    for (int64_t i = 0; i < n; ++i) {       \
      const T x = X[i], y = Y[i], z = Z[i]; \
      (void)x, (void)y, (void)z;            \
      R[i] = static_cast<T>(expression);    \
    }                                       \
    return true;

// What floats and integers share.
template <class T>
bool evaluate_shared(int32_t op, T* R, const T* X, const T* Y, const T* Z, const T* p, int64_t n) {
  switch (op) {
    CHIPSET_SDK_OP(COPY, x)
    CHIPSET_SDK_OP(FILL, p[0])
    CHIPSET_SDK_OP(MAXIMUM, maximum(x, y))
    CHIPSET_SDK_OP(MINIMUM, minimum(x, y))
    CHIPSET_SDK_OP(FMAX, x != x ? y : y != y ? x : maximum(x, y))
    CHIPSET_SDK_OP(FMIN, x != x ? y : y != y ? x : minimum(x, y))
    CHIPSET_SDK_OP(EQ, x == y)
    CHIPSET_SDK_OP(NE, x != y)
    CHIPSET_SDK_OP(LT, x < y)
    CHIPSET_SDK_OP(LE, x <= y)
    CHIPSET_SDK_OP(GT, x > y)
    CHIPSET_SDK_OP(GE, x >= y)
    CHIPSET_SDK_OP(LOGICAL_AND, x != 0 && y != 0)
    CHIPSET_SDK_OP(LOGICAL_OR, x != 0 || y != 0)
    CHIPSET_SDK_OP(LOGICAL_XOR, (x != 0) != (y != 0))
    CHIPSET_SDK_OP(LOGICAL_NOT, x == 0)
    CHIPSET_SDK_OP(SIGN, (x > 0) - (x < 0))
    CHIPSET_SDK_OP(RELU, x != x ? x : x > 0 ? x : 0)
    CHIPSET_SDK_OP(HARDTANH, clamp(x, p[0], p[1]))
    CHIPSET_SDK_OP(THRESHOLD, x > p[0] ? x : x != x ? x : p[1])
    CHIPSET_SDK_OP(CLAMP, clamp(x, p[0], p[1]))
    CHIPSET_SDK_OP(CLAMP_TENSOR, minimum(maximum(x, y), z))
    CHIPSET_SDK_OP(WHERE, x != 0 ? y : z)
    CHIPSET_SDK_OP(THRESHOLD_BACKWARD, y > p[0] || y != y ? x : 0)
    CHIPSET_SDK_OP(LEAKY_RELU_BACKWARD, y > 0 ? x : p[0] * x)
    CHIPSET_SDK_OP(HARDTANH_BACKWARD, y > p[0] && y < p[1] ? x : 0)
    CHIPSET_SDK_OP(HEAVISIDE, x == 0 ? y : x != x ? x : x > 0)
    default:
      return false;
  }
}

inline bool evaluate(int32_t op, int64_t* R, const int64_t* X, const int64_t* Y, const int64_t* Z,
                     const int64_t* p, int64_t n) {
  using T = int64_t;
  switch (op) {
    CHIPSET_SDK_OP(ADD, wrapping(u(x) + u(p[0]) * u(y)))
    CHIPSET_SDK_OP(SUB, wrapping(u(x) - u(p[0]) * u(y)))
    CHIPSET_SDK_OP(MUL, wrapping(u(x) * u(y)))
    CHIPSET_SDK_OP(DIV_TRUNC, y == 0 ? 0 : y == -1 ? wrapping(-u(x)) : x / y)
    CHIPSET_SDK_OP(DIV_FLOOR, y == 0    ? 0
                              : y == -1 ? wrapping(-u(x))
                                        : x / y - (x % y != 0 && (x % y < 0) != (y < 0)))
    CHIPSET_SDK_OP(REMAINDER,
                   y == 0 || y == -1 ? 0 : x % y + (x % y != 0 && (x % y < 0) != (y < 0) ? y : 0))
    CHIPSET_SDK_OP(FMOD, y == 0 || y == -1 ? 0 : x % y)
    CHIPSET_SDK_OP(POW, integer_power(x, y))
    CHIPSET_SDK_OP(BITWISE_AND, x & y)
    CHIPSET_SDK_OP(BITWISE_OR, x | y)
    CHIPSET_SDK_OP(BITWISE_XOR, x ^ y)
    CHIPSET_SDK_OP(BITWISE_NOT, ~x)
    CHIPSET_SDK_OP(SHIFT_LEFT, y < 0 || y > 63 ? 0 : wrapping(u(x) << y))
    CHIPSET_SDK_OP(SHIFT_RIGHT, x >> (y < 0 || y > 63 ? 63 : y))
    CHIPSET_SDK_OP(NEG, wrapping(-u(x)))
    CHIPSET_SDK_OP(ABS, x < 0 ? wrapping(-u(x)) : x)
    CHIPSET_SDK_OP(CEIL, x)
    CHIPSET_SDK_OP(FLOOR, x)
    CHIPSET_SDK_OP(ROUND, x)
    CHIPSET_SDK_OP(TRUNC, x)
    CHIPSET_SDK_OP(ISNAN, 0)
    CHIPSET_SDK_OP(ISINF, 0)
    CHIPSET_SDK_OP(ISFINITE, 1)
    CHIPSET_SDK_OP(SIGNBIT, x < 0)
    CHIPSET_SDK_OP(ADDCMUL, wrapping(u(x) + u(p[0]) * u(y) * u(z)))
    CHIPSET_SDK_OP(MSE, wrapping((u(x) - u(y)) * (u(x) - u(y))))
    CHIPSET_SDK_OP(NAN_TO_NUM, x)
    CHIPSET_SDK_OP(GCD, wrapping(std::gcd(x < 0 ? -u(x) : u(x), y < 0 ? -u(y) : u(y))))
    CHIPSET_SDK_OP(LCM, x == 0 || y == 0
                            ? 0
                            : wrapping((x < 0 ? -u(x) : u(x)) /
                                       std::gcd(x < 0 ? -u(x) : u(x), y < 0 ? -u(y) : u(y)) *
                                       (y < 0 ? -u(y) : u(y))))
    default:
      return evaluate_shared(op, R, X, Y, Z, p, n);
  }
}

template <class T>
bool evaluate(int32_t op, T* R, const T* X, const T* Y, const T* Z, const T* p, int64_t n) {
  constexpr T inf = std::numeric_limits<T>::infinity();
  switch (op) {
    CHIPSET_SDK_OP(ADD, x + p[0] * y)
    CHIPSET_SDK_OP(SUB, x - p[0] * y)
    CHIPSET_SDK_OP(MUL, x * y)
    CHIPSET_SDK_OP(DIV, x / y)
    CHIPSET_SDK_OP(DIV_FLOOR, floor_divide(x, y))
    CHIPSET_SDK_OP(DIV_TRUNC, std::trunc(x / y))
    CHIPSET_SDK_OP(REMAINDER, python_remainder(x, y))
    CHIPSET_SDK_OP(FMOD, std::fmod(x, y))
    CHIPSET_SDK_OP(POW, std::pow(x, y))
    CHIPSET_SDK_OP(ATAN2, std::atan2(x, y))
    CHIPSET_SDK_OP(HYPOT, std::hypot(x, y))
    CHIPSET_SDK_OP(COPYSIGN, std::copysign(x, y))
    CHIPSET_SDK_OP(NEG, -x)
    CHIPSET_SDK_OP(ABS, std::fabs(x))
    CHIPSET_SDK_OP(CEIL, std::ceil(x))
    CHIPSET_SDK_OP(FLOOR, std::floor(x))
    CHIPSET_SDK_OP(ROUND, std::nearbyint(x))
    CHIPSET_SDK_OP(TRUNC, std::trunc(x))
    CHIPSET_SDK_OP(FRAC, x - std::trunc(x))
    CHIPSET_SDK_OP(EXP, std::exp(x))
    CHIPSET_SDK_OP(EXP2, std::exp2(x))
    CHIPSET_SDK_OP(EXPM1, std::expm1(x))
    CHIPSET_SDK_OP(LOG, std::log(x))
    CHIPSET_SDK_OP(LOG2, std::log2(x))
    CHIPSET_SDK_OP(LOG10, std::log10(x))
    CHIPSET_SDK_OP(LOG1P, std::log1p(x))
    CHIPSET_SDK_OP(SQRT, std::sqrt(x))
    CHIPSET_SDK_OP(RSQRT, 1 / std::sqrt(x))
    CHIPSET_SDK_OP(RECIPROCAL, 1 / x)
    CHIPSET_SDK_OP(SIN, std::sin(x))
    CHIPSET_SDK_OP(COS, std::cos(x))
    CHIPSET_SDK_OP(TAN, std::tan(x))
    CHIPSET_SDK_OP(ASIN, std::asin(x))
    CHIPSET_SDK_OP(ACOS, std::acos(x))
    CHIPSET_SDK_OP(ATAN, std::atan(x))
    CHIPSET_SDK_OP(SINH, std::sinh(x))
    CHIPSET_SDK_OP(COSH, std::cosh(x))
    CHIPSET_SDK_OP(TANH, std::tanh(x))
    CHIPSET_SDK_OP(ASINH, std::asinh(x))
    CHIPSET_SDK_OP(ACOSH, std::acosh(x))
    CHIPSET_SDK_OP(ATANH, std::atanh(x))
    CHIPSET_SDK_OP(ERF, std::erf(x))
    CHIPSET_SDK_OP(ERFC, std::erfc(x))
    CHIPSET_SDK_OP(ERFINV, erfinv(x))
    CHIPSET_SDK_OP(LGAMMA, log_gamma(x))
    CHIPSET_SDK_OP(DIGAMMA, digamma(x))
    CHIPSET_SDK_OP(I0, bessel_i0(x))
    CHIPSET_SDK_OP(SINC, sinc(x))
    CHIPSET_SDK_OP(SIGMOID, sigmoid(x))
    CHIPSET_SDK_OP(SILU, x * sigmoid(x))
    CHIPSET_SDK_OP(GELU_ERF, x * normal_cdf(x))
    CHIPSET_SDK_OP(GELU_TANH, T(0.5) * x * (1 + std::tanh(gelu_tanh_inner(x))))
    CHIPSET_SDK_OP(SOFTPLUS, softplus(x, p[0], p[1]))
    CHIPSET_SDK_OP(ELU, x > 0 ? p[1] * x : p[0] * p[1] * std::expm1(p[2] * x))
    CHIPSET_SDK_OP(LEAKY_RELU, x > 0 ? x : p[0] * x)
    CHIPSET_SDK_OP(HARDSIGMOID, clamp(x + 3, T(0), T(6)) / 6)
    CHIPSET_SDK_OP(HARDSWISH, x * clamp(x + 3, T(0), T(6)) / 6)
    CHIPSET_SDK_OP(LOGSIGMOID, minimum(x, T(0)) - std::log1p(std::exp(-std::fabs(x))))
    CHIPSET_SDK_OP(MISH, x * std::tanh(std::log1p(std::exp(x))))
    CHIPSET_SDK_OP(ISNAN, x != x)
    CHIPSET_SDK_OP(ISINF, std::fabs(x) == inf)
    CHIPSET_SDK_OP(ISFINITE, std::fabs(x) < inf)
    CHIPSET_SDK_OP(SIGNBIT, std::signbit(x))
    CHIPSET_SDK_OP(LERP, std::fabs(z) < T(0.5) ? x + z * (y - x) : y - (y - x) * (1 - z))
    CHIPSET_SDK_OP(ADDCMUL, x + p[0] * y * z)
    CHIPSET_SDK_OP(ADDCDIV, x + p[0] * y / z)
    CHIPSET_SDK_OP(NAN_TO_NUM, x != x ? p[0] : x == inf ? p[1] : x == -inf ? p[2] : x)
    CHIPSET_SDK_OP(XLOGY, y != y ? y : x == 0 ? 0 : x * std::log(y))
    CHIPSET_SDK_OP(SIGMOID_BACKWARD, x * (1 - y) * y)
    CHIPSET_SDK_OP(TANH_BACKWARD, x * (1 - y * y))
    CHIPSET_SDK_OP(SILU_BACKWARD, x * sigmoid(y) * (1 + y * (1 - sigmoid(y))))
    CHIPSET_SDK_OP(GELU_ERF_BACKWARD, x * (normal_cdf(y) + y * normal_density(y)))
    CHIPSET_SDK_OP(GELU_TANH_BACKWARD, gelu_tanh_backward(x, y))
    CHIPSET_SDK_OP(SOFTPLUS_BACKWARD, y * p[0] > p[1] ? x : x * sigmoid(y * p[0]))
    CHIPSET_SDK_OP(ELU_BACKWARD, elu_backward(x, y, p))
    CHIPSET_SDK_OP(HARDSIGMOID_BACKWARD, y > -3 && y < 3 ? x / 6 : 0)
    CHIPSET_SDK_OP(HARDSWISH_BACKWARD, y < -3 ? 0 : y <= 3 ? x * (y / 3 + T(0.5)) : x)
    CHIPSET_SDK_OP(LOGSIGMOID_BACKWARD, x * sigmoid(-y))
    CHIPSET_SDK_OP(MISH_BACKWARD, mish_backward(x, y))
    CHIPSET_SDK_OP(SWIGLU, x * sigmoid(x) * y)
    CHIPSET_SDK_OP(MSE, (x - y) * (x - y))
    CHIPSET_SDK_OP(LOGADDEXP, logaddexp<T>(x, y, &std::exp, &std::log1p))
    CHIPSET_SDK_OP(LOGADDEXP2, logaddexp<T>(x, y, &std::exp2, &log2_of_one_plus<T>))
    CHIPSET_SDK_OP(SMOOTH_L1, smooth_l1(x - y, p[0]))
    CHIPSET_SDK_OP(HUBER, std::fabs(x - y) <= p[0] ? T(0.5) * (x - y) * (x - y)
                                                   : p[0] * (std::fabs(x - y) - T(0.5) * p[0]))
    CHIPSET_SDK_OP(NEXTAFTER, std::nextafter(x, y))
    default:
      return evaluate_shared(op, R, X, Y, Z, p, n);
  }
}
#undef CHIPSET_SDK_OP

// How many operands an operation has.
inline int arity(int32_t op) {
  switch (op) {
    case CHIPSET_POINTWISE_OP_FILL:
    case CHIPSET_POINTWISE_OP_ARANGE:
      return 0;
    case CHIPSET_POINTWISE_OP_CLAMP_TENSOR:
    case CHIPSET_POINTWISE_OP_WHERE:
    case CHIPSET_POINTWISE_OP_LERP:
    case CHIPSET_POINTWISE_OP_ADDCMUL:
    case CHIPSET_POINTWISE_OP_ADDCDIV:
      return 3;
    case CHIPSET_POINTWISE_OP_LOGICAL_NOT:
    case CHIPSET_POINTWISE_OP_BITWISE_NOT:
    case CHIPSET_POINTWISE_OP_SINC:
    case CHIPSET_POINTWISE_OP_I0:
      return 1;
    default:
      break;
  }
  const bool two = (op >= CHIPSET_POINTWISE_OP_ADD && op <= CHIPSET_POINTWISE_OP_SHIFT_RIGHT) ||
                   (op >= CHIPSET_POINTWISE_OP_XLOGY && op <= CHIPSET_POINTWISE_OP_HEAVISIDE);
  return two ? 2 : 1;
}

// COPY converts from the input's dtype: integers exactly, f64 in one rounding.
inline int32_t compute_dtype_of(const chipset_pointwise_args& args) {
  if (args.op != CHIPSET_POINTWISE_OP_COPY) return args.compute_dtype;
  const int32_t from = args.input[0] != nullptr ? args.input[0]->dtype : args.output->dtype;
  if (from == CHIPSET_DTYPE_F64) return CHIPSET_DTYPE_F64;
  return is_float(from) ? CHIPSET_DTYPE_F32 : CHIPSET_DTYPE_I64;
}

inline bool only_moves_bits(const chipset_pointwise_args& args) {
  return args.op == CHIPSET_POINTWISE_OP_COPY && args.input[0] != nullptr &&
         args.input[0]->dtype == args.output->dtype && dtype_size(args.output->dtype) > 0;
}

// A run of the operand in the arithmetic type, converted to the compute dtype on the way.
template <class T>
void load_operand(T* to, const chipset_pointwise_args& args, int k, int64_t offset, int64_t step,
                  int64_t n, int32_t compute) {
  const chipset_tensor& from = *args.input[k];
  if (args.op == CHIPSET_POINTWISE_OP_WHERE && k == 0) {  // read as BOOL in its own dtype
    double condition[kLanes];
    load(condition, address(from, offset), from.dtype, step, n);
    for (int64_t i = 0; i < n; ++i) to[i] = condition[i] != 0;
    return;
  }
  load(to, address(from, offset), from.dtype, step, n);
  if (from.dtype != compute) to_width(to, compute, n);
}

inline void move_bits(const chipset_tensor& out, const chipset_tensor& in) {
  const int64_t size = dtype_size(out.dtype);
  for_each_row<2>(out, {out.stride, in.stride}, [&](auto& offset, int64_t count, auto& step) {
    char* to = address(out, offset[0]);
    const char* from = address(in, offset[1]);
    if (step[0] == 1 && step[1] == 1)
      std::memmove(to, from, count * size);
    else
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * step[0] * size, from + i * step[1] * size, size);
  });
}

}  // namespace detail

// Throws UNSUPPORTED for what pointwise() below cannot do. Call it before the work is enqueued.
inline void check_pointwise(const chipset_pointwise_args& args) {
  if (detail::only_moves_bits(args) && args.num_inputs == 1) return;
  const int32_t compute = detail::compute_dtype_of(args);
  for (int k = 0; k < args.num_inputs; ++k)
    if (args.input[k] != nullptr) dispatch(args.input[k]->dtype, [](auto) {});
  dispatch(args.output->dtype, [](auto) {});
  dispatch(compute, [](auto) {});
  if (args.num_inputs != detail::arity(args.op))
    fail(CHIPSET_STATUS_INVALID, "pointwise: %d operands for operation %d, which has %d",
         args.num_inputs, args.op, detail::arity(args.op));
  bool known = true;
  dispatch_arithmetic(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* none = nullptr;
    known =
        known && (args.op == CHIPSET_POINTWISE_OP_ARANGE ||
                  detail::evaluate(args.op, static_cast<T*>(nullptr), none, none, none, none, 0));
  });
  if (!known)
    unsupported("pointwise: operation " + std::to_string(args.op) + " on " + dtype_name(compute));
}

// All operations. The addresses in `args` are ones that this code may dereference.
inline void pointwise(const chipset_pointwise_args& args) {
  const chipset_tensor& out = *args.output;
  if (detail::only_moves_bits(args)) return detail::move_bits(out, *args.input[0]);
  const int32_t compute = detail::compute_dtype_of(args);
  const bool not_bool =
      args.op == CHIPSET_POINTWISE_OP_BITWISE_NOT && compute == CHIPSET_DTYPE_BOOL;
  const int32_t op = not_bool ? CHIPSET_POINTWISE_OP_LOGICAL_NOT : args.op;
  const int inputs = std::min(args.num_inputs, 3);
  std::array<const int64_t*, 4> strides{out.stride, out.stride, out.stride, out.stride};
  for (int k = 0; k < inputs; ++k)
    if (args.input[k] != nullptr) strides[k + 1] = args.input[k]->stride;
  dispatch_arithmetic(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    T operand[3][kLanes] = {}, result[kLanes], param[4];
    for (int k = 0; k < 4; ++k) param[k] = number<T>(args.param[k]);
    for (int k = 0; k < inputs; ++k)
      if (args.input[k] == nullptr) std::fill_n(operand[k], kLanes, number<T>(args.immediate[k]));
    int64_t element = 0;  // row-major, of ARANGE
    for_each_row<4>(out, strides, [&](auto& offset, int64_t count, auto& step) {
      for (int64_t at = 0; at < count; at += kLanes) {
        const int64_t n = std::min(kLanes, count - at);
        for (int k = 0; k < inputs; ++k)
          if (args.input[k] != nullptr)
            detail::load_operand(operand[k], args, k, offset[k + 1] + at * step[k + 1], step[k + 1],
                                 n, compute);
        if (op == CHIPSET_POINTWISE_OP_ARANGE)
          for (int64_t i = 0; i < n; ++i)
            result[i] = static_cast<T>(param[0] + param[1] * static_cast<T>(element + i));
        else
          detail::evaluate(op, result, operand[0], operand[1], operand[2], param, n);
        element += n;
        if constexpr (std::is_same_v<T, int64_t>) to_width(result, compute, n);
        store(address(out, offset[0] + at * step[0]), out.dtype, step[0], result, n);
      }
    });
  });
}

}  // namespace chipset::sdk::loops
