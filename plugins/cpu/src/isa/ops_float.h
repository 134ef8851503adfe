// SPDX-License-Identifier: Apache-2.0
// The operations of pointwise on floats, as functions of x, y, z and the params p. Formulas follow
// the comments of chipset_pointwise_op; what is evaluated in double rounds once at its end.
#pragma once

#include "op_loops.h"
#include "special.h"

namespace chipset::cpu::CPU_ISA {

inline constexpr double kSqrt2OverPi = 0.79788456080286536;
inline constexpr double kSqrtHalf = 0.70710678118654752;

// ---- arithmetic ----
CPU_OP(Add, return x + p.p0 * y;)
CPU_OP(Sub, return x - p.p0 * y;)
CPU_OP(Mul, return x * y;)
CPU_OP(Div, return x / y;)
CPU_OP(DivTrunc, return std::trunc(x / y);)
CPU_OP(Fmod, return std::fmod(x, y);)
CPU_OP(Remainder, const T m = std::fmod(x, y); return m != 0 && (m < 0) != (y < 0) ? m + y : m;)
// Python's: from the exact remainder, since the rounded quotient may already be the next integer.
CPU_OP(DivFloor, if (y == 0) return x / y; const T m = std::fmod(x, y); T d = (x - m) / y;
       if (m != 0 && (m < 0) != (y < 0)) d -= 1; if (d == 0) return std::copysign(T(0), x / y);
       T f = std::floor(d); return d - f > T(0.5) ? f + 1 : f;)
CPU_OP(Square, return x * x;)
CPU_OP(Cube, return x * x * x;)
CPU_OP(Maximum, return x > y || x != x ? x : y;)
CPU_OP(Minimum, return x < y || x != x ? x : y;)
CPU_OP(Fmax, return y != y || x > y ? x : y;)
CPU_OP(Fmin, return y != y || x < y ? x : y;)
CPU_OP(Atan2, return std::atan2(x, y);)
CPU_OP(
    Hypot,
    if constexpr (std::is_same_v<T, float>) {
      const double a = x;
      const double b = y;
      const float h = static_cast<float>(std::sqrt(a * a + b * b));
      const bool infinite = std::fabs(x) == std::numeric_limits<float>::infinity() ||
                            std::fabs(y) == std::numeric_limits<float>::infinity();
      return infinite ? std::numeric_limits<float>::infinity() : h;
    } else { return std::hypot(x, y); })
CPU_OP(Copysign, return std::copysign(x, y);)
CPU_OP(Neg, return -x;)
CPU_OP(Abs, return std::fabs(x);)
CPU_OP(Sign, return static_cast<T>((x > 0 ? T(1) : T(0)) - (x < 0 ? T(1) : T(0)));)
CPU_OP(Ceil, return std::ceil(x);)
CPU_OP(Floor, return std::floor(x);)
CPU_OP(Round, return std::nearbyint(x);)
CPU_OP(Trunc, return std::trunc(x);)
CPU_OP(Frac, return x - std::trunc(x);)
CPU_OP(Sqrt, return std::sqrt(x);)
CPU_OP(Rsqrt, return T(1) / std::sqrt(x);)
CPU_OP(Reciprocal, return T(1) / x;)
CPU_OP(Clamp, T v = x < p.p0 ? p.p0 : x; return v > p.p1 ? p.p1 : v;)
CPU_OP(ClampTensor, const T low = x > y || x != x ? x : y; return low < z || low != low ? low : z;)
CPU_OP(Lerp, const T d = y - x; return std::fabs(z) < T(0.5) ? x + z * d : y - d * (T(1) - z);)
CPU_OP(Addcmul, return x + p.p0 * y * z;)
CPU_OP(Addcdiv, return x + p.p0 * y / z;)
CPU_OP(NanToNum, constexpr T kInf = std::numeric_limits<T>::infinity();
       const T finite = x == kInf ? p.p1 : (x == -kInf ? p.p2 : x); return x != x ? p.p0 : finite;)
CPU_OP(Mse, const T d = x - y; return d * d;)
CPU_OP(SmoothL1, const T d = std::fabs(x - y);
       return d < p.p0 ? T(0.5) * d * d / p.p0 : d - T(0.5) * p.p0;)
CPU_OP(Huber, const T d = std::fabs(x - y);
       return d <= p.p0 ? T(0.5) * d * d : p.p0 * (d - T(0.5) * p.p0);)
CPU_OP(Nextafter, return std::nextafter(x, y);)
CPU_OP(Heaviside, return x == 0 ? y : (x > 0 ? T(1) : T(0));)

// ---- predicates ----
CPU_OP(Eq, return x == y;)
CPU_OP(Ne, return x != y;)
CPU_OP(Lt, return x < y;)
CPU_OP(Le, return x <= y;)
CPU_OP(Gt, return x > y;)
CPU_OP(Ge, return x >= y;)
CPU_OP(LogicalAnd, return (x != 0) & (y != 0);)
CPU_OP(LogicalOr, return (x != 0) | (y != 0);)
CPU_OP(LogicalXor, return (x != 0) != (y != 0);)
CPU_OP(LogicalNot, return x == 0;)
CPU_OP(IsNan, return x != x;)
CPU_OP(IsInf, return std::fabs(x) == std::numeric_limits<T>::infinity();)
CPU_OP(IsFinite, return std::fabs(x) < std::numeric_limits<T>::infinity();)
CPU_OP(Signbit, return std::signbit(x);)

// ---- elementary functions ----
CPU_OP(Exp, return exp_(x);)
CPU_OP(Exp2, return exp2_(x);)
CPU_OP(Expm1, const T e = expm1_(x); return x == 0 ? x : e;)
CPU_OP(Log, return log_(x);)
CPU_OP(Log2, return log2_(x);)
CPU_OP(Log10, return log10_(x);)
CPU_OP(Log1p, return log1p_(x);)
CPU_OP(Asin, return std::asin(x);)
CPU_OP(Acos, return std::acos(x);)
CPU_OP(Atan, return std::atan(x);)
CPU_OP(Sinh, return sinh_(x);)
CPU_OP(Cosh, return cosh_(x);)
CPU_OP(Tanh, return tanh_(x);)
CPU_OP(Asinh, return std::asinh(x);)
CPU_OP(Acosh, return std::acosh(x);)
CPU_OP(Atanh, return std::atanh(x);)
CPU_OP(Erf, return erf_(x);)
CPU_OP(Erfc, return erfc_(x);)
CPU_OP(Erfinv, return static_cast<T>(erfinv_scalar(x));)
CPU_OP(Lgamma, int sign = 0; return static_cast<T>(::lgamma_r(x, &sign));)
CPU_OP(Digamma, return static_cast<T>(digamma_scalar(x));)
CPU_OP(I0, return static_cast<T>(bessel_i0_scalar(x));)
CPU_OP(Sinc, constexpr double kPi = 3.14159265358979324; const double t = kPi * x;
       return x == 0 ? T(1) : static_cast<T>(std::sin(t) / t);)

// ---- activations ----
CPU_OP(Sigmoid, return sigmoid_(x);)
CPU_OP(Relu, return x < 0 ? T(0) : x;)
CPU_OP(Silu, return x / (T(1) + exp_(-x));)
CPU_OP(GeluErf, return 0.5 * x * Wide<T>::erfc(-kSqrtHalf * x);)
CPU_OP(GeluTanh, const double w = x; const double k = kSqrt2OverPi * (w + 0.044715 * w * w * w);
       return w / (1.0 + Wide<T>::exp(-2.0 * k));)
CPU_OP(Softplus, const T t = x * p.p0;
       const T y_ = static_cast<T>(Wide<T>::log1p(Wide<T>::exp(t)) / p.p0);
       return t > p.p1 ? x : y_;)
CPU_OP(Elu, const T e = static_cast<T>(Wide<T>::expm1(x * p.p2)) * p.p0 * p.p1;
       return x <= 0 ? e : x * p.p1;)
CPU_OP(LeakyRelu, return x > 0 ? x : x * p.p0;)
CPU_OP(Hardsigmoid, T v = x + 3; v = v < 0 ? T(0) : v; v = v > 6 ? T(6) : v; return v / 6;)
CPU_OP(Hardswish, T v = x + 3; v = v < 0 ? T(0) : v; v = v > 6 ? T(6) : v; return x * v / 6;)
CPU_OP(Logsigmoid, const T m = x > 0 ? T(0) : x;
       return m - Wide<T>::log1p(Wide<T>::exp(-std::fabs(x)));)
// tanh(log(1+e)) = e(e+2)/(e(e+2)+2) with e = exp(x), which 40 saturates.
CPU_OP(Mish, const double e = Wide<T>::exp(x > 40 ? T(40) : x); const double n = e * (e + 2.0);
       return x * (n / (n + 2.0));)
CPU_OP(Threshold, return x > p.p0 || x != x ? x : p.p1;)
CPU_OP(Swiglu, return x / (T(1) + exp_(-x)) * y;)
CPU_OP(Xlogy, const T v = static_cast<T>(x * Wide<T>::log(y)); return x == 0 && y == y ? T(0) : v;)
CPU_OP(Logaddexp, const T m = x > y || x != x ? x : y;
       const double s = m + Wide<T>::log1p(Wide<T>::exp(-std::fabs(double(x) - y)));
       return x == y && std::fabs(x) == std::numeric_limits<T>::infinity() ? double(x) : s;)
CPU_OP(Logaddexp2, constexpr double kLn2 = 0.69314718055994531; const T m = x > y || x != x ? x : y;
       const double s = m + Wide<T>::log1p(Wide<T>::exp2(-std::fabs(double(x) - y))) / kLn2;
       return x == y && std::fabs(x) == std::numeric_limits<T>::infinity() ? double(x) : s;)

// ---- derivatives: x the incoming gradient ----
CPU_OP(SigmoidBackward, return x * (T(1) - y) * y;)
CPU_OP(TanhBackward, return x * (T(1) - y * y);)
CPU_OP(SiluBackward, const T s = sigmoid_(y); return x * s * (T(1) + y * (T(1) - s));)
CPU_OP(GeluErfBackward, const double w = y; const double cdf = 0.5 * Wide<T>::erfc(-kSqrtHalf * w);
       return x * (cdf + w * (0.3989422804014327 * Wide<T>::exp(-0.5 * w * w)));)
CPU_OP(GeluTanhBackward, const double w = y;
       const double k = kSqrt2OverPi * (w + 0.044715 * w * w * w);
       const double dk = kSqrt2OverPi * (1.0 + 3.0 * 0.044715 * w * w);
       const double s = 1.0 / (1.0 + Wide<T>::exp(-2.0 * k));
       return x * (s + 2.0 * w * s * (1.0 - s) * dk);)
CPU_OP(SoftplusBackward, const T t = y * p.p0;
       const T g = static_cast<T>(x / (1.0 + Wide<T>::exp(-t))); return t > p.p1 ? x : g;)
CPU_OP(ThresholdBackward, return y > p.p0 || y != y ? x : T(0);)
CPU_OP(LeakyReluBackward, return y > 0 ? x : p.p0 * x;)
CPU_OP(EluBackward, const T from_result = x * p.p2 * (y + p.p0 * p.p1);
       const T from_input = static_cast<T>(x * p.p2 * p.p0 * p.p1 * Wide<T>::exp(y * p.p2));
       return y <= 0 ? (p.p3 != 0 ? from_result : from_input) : x * p.p1;)
CPU_OP(HardtanhBackward, return y > p.p0 && y < p.p1 ? x : T(0);)
CPU_OP(HardsigmoidBackward, return y > -3 && y < 3 ? x / 6 : T(0);)
CPU_OP(HardswishBackward, const T inside = x * (y / 3 + T(0.5));
       return y <= -3 ? T(0) : (y < 3 ? inside : x);)
CPU_OP(LogsigmoidBackward, return x / (1.0 + Wide<T>::exp(y));)
CPU_OP(MishBackward, const double e = Wide<T>::exp(y > 40 ? T(40) : y);
       const double n = e * (e + 2.0); const double t = n / (n + 2.0);
       const double s = 1.0 / (1.0 + Wide<T>::exp(-y)); return x * (t + y * s * (1.0 - t * t));)

// ---- functions whose fast form holds for a part of the arguments ----

// Runs `fast` on tiles in which every argument is `tame`, and `slow` on the others.
template <typename T, typename Tame, typename Fast, typename Slow>
CPU_INLINE void tiled(T* out, const T* a, const T* b, int64_t n, Tame tame, Fast fast, Slow slow) {
  constexpr int64_t kTile = 64;
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t end = begin + kTile < n ? begin + kTile : n;
    int wild = 0;
#pragma omp simd reduction(| : wild)
    for (int64_t i = begin; i < end; ++i) wild |= tame(a[i], b[i]) ? 0 : 1;
    if (wild == 0) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) out[i] = fast(a[i], b[i]);
    } else {
      for (int64_t i = begin; i < end; ++i) out[i] = slow(a[i], b[i]);
    }
  }
}

#define CPU_TILED(NAME, TAME, FAST, SLOW)                                                \
  template <typename T>                                                                  \
  void NAME(void* out, const void* const* in, int64_t n, const OpParams&) {              \
    const T* a = static_cast<const T*>(in[0]);                                           \
    const T* b = static_cast<const T*>(in[in[1] == nullptr ? 0 : 1]);                    \
    if constexpr (std::is_same_v<T, float>) {                                            \
      tiled(                                                                             \
          static_cast<T*>(out), a, b, n, [](T x, [[maybe_unused]] T y) { return TAME; }, \
          [](T x, [[maybe_unused]] T y) { return FAST; },                                \
          [](T x, [[maybe_unused]] T y) { return SLOW; });                               \
    } else {                                                                             \
      for (int64_t i = 0; i < n; ++i) {                                                  \
        const T x = a[i];                                                                \
        [[maybe_unused]] const T y = b[i];                                               \
        static_cast<T*>(out)[i] = SLOW;                                                  \
      }                                                                                  \
    }                                                                                    \
  }
CPU_TILED(sin_kernel, std::fabs(x) < kTrigLimit, sin_small(x), std::sin(x))
CPU_TILED(cos_kernel, std::fabs(x) < kTrigLimit, cos_small(x), std::cos(x))
CPU_TILED(tan_kernel, std::fabs(x) < kTrigLimit, tan_small(x), std::tan(x))
CPU_TILED(pow_kernel,
          (x > 0) & (x <= std::numeric_limits<float>::max()) &
              (std::fabs(y) <= std::numeric_limits<float>::max()),
          static_cast<float>(exp_d(static_cast<double>(y) * log_d(x))), std::pow(x, y))
#undef CPU_TILED

// ---- the table ----

// V: writes T; B: writes bytes.
// clang-format off: it never settles on a list of macro calls
#define CPU_FLOAT_OPS(V, B) \
  V(ADD, Add, 2) \
  V(SUB, Sub, 2) \
  V(MUL, Mul, 2) \
  V(DIV, Div, 2) \
  V(DIV_FLOOR, DivFloor, 2) \
  V(DIV_TRUNC, DivTrunc, 2) \
  V(REMAINDER, Remainder, 2) \
  V(FMOD, Fmod, 2) \
  V(MAXIMUM, Maximum, 2) \
  V(MINIMUM, Minimum, 2) \
  V(FMAX, Fmax, 2) \
  V(FMIN, Fmin, 2) \
  V(ATAN2, Atan2, 2) \
  V(HYPOT, Hypot, 2) \
  V(COPYSIGN, Copysign, 2) \
  B(EQ, Eq, 2) \
  B(NE, Ne, 2) \
  B(LT, Lt, 2) \
  B(LE, Le, 2) \
  B(GT, Gt, 2) \
  B(GE, Ge, 2) \
  B(LOGICAL_AND, LogicalAnd, 2) \
  B(LOGICAL_OR, LogicalOr, 2) \
  B(LOGICAL_XOR, LogicalXor, 2) \
  B(LOGICAL_NOT, LogicalNot, 1) \
  V(NEG, Neg, 1) \
  V(ABS, Abs, 1) \
  V(SIGN, Sign, 1) \
  V(CEIL, Ceil, 1) \
  V(FLOOR, Floor, 1) \
  V(ROUND, Round, 1) \
  V(TRUNC, Trunc, 1) \
  V(FRAC, Frac, 1) \
  V(EXP, Exp, 1) \
  V(EXP2, Exp2, 1) \
  V(EXPM1, Expm1, 1) \
  V(LOG, Log, 1) \
  V(LOG2, Log2, 1) \
  V(LOG10, Log10, 1) \
  V(LOG1P, Log1p, 1) \
  V(SQRT, Sqrt, 1) \
  V(RSQRT, Rsqrt, 1) \
  V(RECIPROCAL, Reciprocal, 1) \
  V(ASIN, Asin, 1) \
  V(ACOS, Acos, 1) \
  V(ATAN, Atan, 1) \
  V(SINH, Sinh, 1) \
  V(COSH, Cosh, 1) \
  V(TANH, Tanh, 1) \
  V(ASINH, Asinh, 1) \
  V(ACOSH, Acosh, 1) \
  V(ATANH, Atanh, 1) \
  V(ERF, Erf, 1) \
  V(ERFC, Erfc, 1) \
  V(ERFINV, Erfinv, 1) \
  V(LGAMMA, Lgamma, 1) \
  V(DIGAMMA, Digamma, 1) \
  V(SIGMOID, Sigmoid, 1) \
  V(RELU, Relu, 1) \
  V(SILU, Silu, 1) \
  V(GELU_ERF, GeluErf, 1) \
  V(GELU_TANH, GeluTanh, 1) \
  V(SOFTPLUS, Softplus, 1) \
  V(ELU, Elu, 1) \
  V(LEAKY_RELU, LeakyRelu, 1) \
  V(HARDTANH, Clamp, 1) \
  V(HARDSIGMOID, Hardsigmoid, 1) \
  V(HARDSWISH, Hardswish, 1) \
  V(LOGSIGMOID, Logsigmoid, 1) \
  V(MISH, Mish, 1) \
  V(THRESHOLD, Threshold, 1) \
  B(ISNAN, IsNan, 1) \
  B(ISINF, IsInf, 1) \
  B(ISFINITE, IsFinite, 1) \
  B(SIGNBIT, Signbit, 1) \
  V(CLAMP, Clamp, 1) \
  V(CLAMP_TENSOR, ClampTensor, 3) \
  V(LERP, Lerp, 3) \
  V(ADDCMUL, Addcmul, 3) \
  V(ADDCDIV, Addcdiv, 3) \
  V(NAN_TO_NUM, NanToNum, 1) \
  V(XLOGY, Xlogy, 2) \
  V(SIGMOID_BACKWARD, SigmoidBackward, 2) \
  V(TANH_BACKWARD, TanhBackward, 2) \
  V(SILU_BACKWARD, SiluBackward, 2) \
  V(GELU_ERF_BACKWARD, GeluErfBackward, 2) \
  V(GELU_TANH_BACKWARD, GeluTanhBackward, 2) \
  V(SOFTPLUS_BACKWARD, SoftplusBackward, 2) \
  V(THRESHOLD_BACKWARD, ThresholdBackward, 2) \
  V(LEAKY_RELU_BACKWARD, LeakyReluBackward, 2) \
  V(ELU_BACKWARD, EluBackward, 2) \
  V(HARDTANH_BACKWARD, HardtanhBackward, 2) \
  V(HARDSIGMOID_BACKWARD, HardsigmoidBackward, 2) \
  V(HARDSWISH_BACKWARD, HardswishBackward, 2) \
  V(LOGSIGMOID_BACKWARD, LogsigmoidBackward, 2) \
  V(MISH_BACKWARD, MishBackward, 2) \
  V(SWIGLU, Swiglu, 2) \
  V(MSE, Mse, 2) \
  V(SINC, Sinc, 1) \
  V(LOGADDEXP, Logaddexp, 2) \
  V(LOGADDEXP2, Logaddexp2, 2) \
  V(SMOOTH_L1, SmoothL1, 2) \
  V(HUBER, Huber, 2) \
  V(NEXTAFTER, Nextafter, 2) \
  V(HEAVISIDE, Heaviside, 2) \
  V(I0, I0, 1)
// clang-format on

template <typename T>
constexpr OpTable float_table() {
  OpTable table = {};
#define CPU_VALUE(OP, NAME, ARITY) \
  table.kernel[CHIPSET_POINTWISE_OP_##OP] = op_kernel<NAME, ARITY, T, T>;
#define CPU_BYTE(OP, NAME, ARITY) \
  table.kernel[CHIPSET_POINTWISE_OP_##OP] = op_kernel<NAME, ARITY, T, uint8_t>;
  CPU_FLOAT_OPS(CPU_VALUE, CPU_BYTE)
#undef CPU_VALUE
#undef CPU_BYTE
  table.kernel[CHIPSET_POINTWISE_OP_SIN] = sin_kernel<T>;
  table.kernel[CHIPSET_POINTWISE_OP_COS] = cos_kernel<T>;
  table.kernel[CHIPSET_POINTWISE_OP_TAN] = tan_kernel<T>;
  table.kernel[CHIPSET_POINTWISE_OP_POW] = pow_kernel<T>;
  table.kernel[CHIPSET_POINTWISE_OP_WHERE] = where_kernel<T>;
  table.kernel[kOpSquare] = op_kernel<Square, 1, T, T>;
  table.kernel[kOpCube] = op_kernel<Cube, 1, T, T>;
  return table;
}

}  // namespace chipset::cpu::CPU_ISA
