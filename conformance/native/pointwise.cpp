// SPDX-License-Identifier: Apache-2.0
// Faults of pointwise that are not conversions: addressing, operands, special values.
#include <csignal>

#include "mutant.h"

namespace chipset::mutants {

void add_pointwise(List& list) {
#define EDIT(name, fault, ...) \
  CHIPSET_MUTANT("pointwise-" name, pointwise, pointwise_args, fault, __VA_ARGS__)
#define AFTER(name, fault, ...) \
  CHIPSET_MUTANT_AFTER("pointwise-" name, pointwise, pointwise_args, fault, __VA_ARGS__)
#define INSTEAD(name, fault, ...) \
  CHIPSET_MUTANT_INSTEAD("pointwise-" name, pointwise, pointwise_args, fault, __VA_ARGS__)
#define OP(name) CHIPSET_POINTWISE_OP_##name
#define IF_OP(name) if (a.op == OP(name))

  // ---- addressing
  EDIT("ignores-input-strides", "the first operand is read as if it were contiguous",
       Edited x(a.input[0]);
       if (x) make_contiguous(*x););
  EDIT("ignores-second-strides", "the second operand is read as if it were contiguous",
       Edited y(a.input[1]);
       if (y) make_contiguous(*y););
  EDIT("ignores-output-strides", "the output is written as if it were contiguous",
       Edited out(a.output);
       make_contiguous(*out););
  EDIT("repeats-innermost", "the first operand's innermost stride is taken for zero",
       Edited x(a.input[0]);
       if (x && x->rank > 1) x->stride[x->rank - 1] = 0;);
  EDIT("ignores-offset", "an operand that does not begin its storage is read one element early",
       Edited x(a.input[0]);
       if (x && x->rank > 0 && x->stride[0] > 1 && x->data != nullptr) x->data =
           sdk::address(*x, -1););
  EDIT(
      "skips-last-element", "the last element of the innermost dimension is not written",
      Edited out(a.output);
      Edited x(a.input[0]); Edited y(a.input[1]); Edited z(a.input[2]);
      if (out->rank > 0 && out->shape[out->rank - 1] > 1) {
        const int last = out->rank - 1;
        --out->shape[last];
        if (x) --x->shape[last];
        if (y) --y->shape[last];
        if (z) --z->shape[last];
      });
  AFTER("writes-past-the-end", "one element after a contiguous output is written",
        if (sdk::is_contiguous(*a.output) && sdk::numel(*a.output) > 0 && a.output->rank > 0)
            std::memset(sdk::address(*a.output, sdk::numel(*a.output)), 0x5a,
                        static_cast<std::size_t>(sdk::dtype_size(a.output->dtype))););
  AFTER("changes-its-input", "the first element of the first operand is cleared",
        if (a.input[0] != nullptr && sdk::numel(*a.input[0]) > 1 &&
            a.input[0]->data != a.output->data)
            std::memset(a.input[0]->data, 0,
                        static_cast<std::size_t>(sdk::dtype_size(a.input[0]->dtype))););
  INSTEAD("crashes-on-nothing", "a call on zero elements crashes",
          if (sdk::numel(*a.output) == 0) std::raise(SIGSEGV);
          return good().pointwise(stream, given););
  INSTEAD("refuses-rank-0", "a scalar is called invalid",
          if (a.output->rank == 0) return refuse(CHIPSET_STATUS_INVALID, "rank 0");
          return good().pointwise(stream, given););
  INSTEAD("refuses-high-rank", "ranks above 6 are called invalid",
          if (a.output->rank > 6) return refuse(CHIPSET_STATUS_INVALID, "rank above 6");
          return good().pointwise(stream, given););
  INSTEAD("says-ok-and-does-nothing", "EXPM1 answers OK and writes nothing",
          if (a.op == OP(EXPM1)) return CHIPSET_STATUS_OK;
          return good().pointwise(stream, given););
  INSTEAD("error-without-text", "a legal answer of UNSUPPORTED comes as INVALID without a text",
          if (a.op == OP(ATAN2)) return CHIPSET_STATUS_INVALID;
          return good().pointwise(stream, given););

  // ---- operands
  EDIT("drops-alpha", "ADD forgets the factor of its second operand",
       IF_OP(ADD) a.param[0] = {1, 1};);
  EDIT(
      "swaps-sub", "SUB subtracts the first operand from the second", IF_OP(SUB) {
        std::swap(a.input[0], a.input[1]);
        std::swap(a.immediate[0], a.immediate[1]);
      });
  EDIT("loses-immediates", "a number given from the host is taken for zero",
       for (auto& number : a.immediate) number = {0, 0};);
  EDIT(
      "rounds-immediates", "a number given from the host goes through 32 bits",
      for (auto& number : a.immediate) {
        number.f = static_cast<float>(number.f);
        number.i = static_cast<int32_t>(number.i);
      });
  EDIT(
      "swaps-where", "WHERE takes the second operand where the condition is false", IF_OP(WHERE) {
        std::swap(a.input[1], a.input[2]);
        std::swap(a.immediate[1], a.immediate[2]);
      });
  EDIT("clamp-without-top", "CLAMP ignores the upper bound",
       IF_OP(CLAMP) a.param[1] = {std::numeric_limits<double>::infinity(), INT64_MAX};);
  EDIT("addcdiv-drops-factor", "ADDCDIV ignores its factor", IF_OP(ADDCDIV) a.param[0] = {1, 1};);
  EDIT("arange-from-zero", "ARANGE ignores its start", IF_OP(ARANGE) a.param[0] = {0, 0};);
  EDIT("leaky-slope", "LEAKY_RELU has a fixed slope", IF_OP(LEAKY_RELU) a.param[0] = {0.01, 0};);
  EDIT("elu-ignores-scale", "ELU ignores its scale", IF_OP(ELU) a.param[1] = {1, 1};);
  EDIT("softplus-ignores-threshold", "SOFTPLUS ignores its threshold",
       IF_OP(SOFTPLUS) a.param[1] = {0, 0};);

  // ---- the wrong operation
  EDIT("maximum-drops-nan", "MAXIMUM ignores NaN", IF_OP(MAXIMUM) a.op = OP(FMAX););
  EDIT("minimum-drops-nan", "MINIMUM ignores NaN", IF_OP(MINIMUM) a.op = OP(FMIN););
  EDIT("fmax-keeps-nan", "FMAX propagates NaN", IF_OP(FMAX) a.op = OP(MAXIMUM););
  EDIT("floor-division-truncates", "DIV_FLOOR rounds towards zero",
       IF_OP(DIV_FLOOR) a.op = OP(DIV_TRUNC););
  EDIT("remainder-like-c", "REMAINDER has the sign of the dividend",
       IF_OP(REMAINDER) a.op = OP(FMOD););
  EDIT("round-down", "ROUND rounds down", IF_OP(ROUND) a.op = OP(FLOOR););
  EDIT("gelu-approximated", "GELU_ERF is computed with tanh",
       IF_OP(GELU_ERF) a.op = OP(GELU_TANH););
  EDIT("gelu-backward-approximated", "GELU_ERF_BACKWARD is computed with tanh",
       IF_OP(GELU_ERF_BACKWARD) a.op = OP(GELU_TANH_BACKWARD););
  EDIT("ge-is-gt", "GE is false for equals", IF_OP(GE) a.op = OP(GT););
  EDIT("ne-is-false-for-nan", "NE is LT or GT, and so false for NaN", IF_OP(NE) a.op = OP(LT););
  EDIT("log1p-is-log", "LOG1P loses small arguments", IF_OP(LOG1P) { a.op = OP(LOG); });
  EDIT("threshold-at-equals", "THRESHOLD lets its bound itself pass",
       IF_OP(THRESHOLD) a.param[0] = {std::nextafter(static_cast<float>(a.param[0].f), -1e30f),
                                      a.param[0].i - 1};);

  // ---- special values
  AFTER("exp-saturates", "EXP answers the largest number instead of infinity",
        if (a.op == OP(EXP)) rewrite<double>(*a.output, [](double& v) {
          if (v == std::numeric_limits<double>::infinity()) v = 3e38;
        }););
  AFTER("sqrt-of-negative", "SQRT of a negative number is zero",
        if (a.op == OP(SQRT)) rewrite<double>(*a.output, [](double& v) {
          if (v != v) v = 0;
        }););
  AFTER("xlogy-of-zero", "XLOGY of zeros is NaN",
        if (a.op == OP(XLOGY))
            rewrite<double>(*a.output, a.input[0], a.input[1], [](double& v, double x, double y) {
              if (x == 0 && y == 0) v = std::nan("");
            }););
  AFTER("negative-zero-lost", "NEG of zero is plus zero",
        if (a.op == OP(NEG) && sdk::is_float(a.output->dtype))
            rewrite<double>(*a.output, [](double& v) {
              if (v == 0) v = 0.0;
            }););
  AFTER("isfinite-of-infinity", "ISFINITE is true for infinity",
        if (a.op == OP(ISFINITE) && a.input[0] != nullptr)
            rewrite<double>(*a.output, a.input[0], nullptr, [](double& v, double x, double) {
              if (std::isinf(x)) v = 1;
            }););
  AFTER("tanh-imprecise", "TANH is off by some units in the last place",
        if (a.op == OP(TANH) && a.output->dtype == CHIPSET_DTYPE_F32)
            rewrite<float>(*a.output, [](float& v) { v *= 1.00001f; }););
  AFTER("bf16-truncates", "results in bf16 are cut, not rounded",
        if (a.op == OP(MUL) && a.output->dtype == CHIPSET_DTYPE_BF16)
            rewrite<float>(*a.output, a.input[0], a.input[1], [&](float& v, float x, float y) {
              if (a.input[0] == nullptr) x = static_cast<float>(a.immediate[0].f);
              if (a.input[1] == nullptr) y = static_cast<float>(a.immediate[1].f);
              const uint32_t bits = sdk::detail::bits_as<uint32_t>(x * y) & 0xffff0000u;
              if (std::isfinite(v)) v = sdk::detail::bits_as<float>(bits);
            }););

  // ---- integers
  EDIT("i64-through-f64", "products of i64 are computed in f64",
       if (a.op == OP(MUL) && a.compute_dtype == CHIPSET_DTYPE_I64) a.compute_dtype =
           CHIPSET_DTYPE_F64;);
  EDIT("i64-compared-in-f32", "i64 are compared in f32",
       if ((a.op == OP(EQ) || a.op == OP(LT)) && a.compute_dtype == CHIPSET_DTYPE_I64)
           a.compute_dtype = CHIPSET_DTYPE_F32;);
  AFTER("i32-saturates", "sums of i32 saturate instead of wrapping",
        if (a.op == OP(ADD) && a.compute_dtype == CHIPSET_DTYPE_I32 && a.input[0] && a.input[1])
            rewrite<int64_t>(*a.output, a.input[0], a.input[1],
                             [&](int64_t& v, int64_t x, int64_t y) {
                               const int64_t sum = x + a.param[0].i * y;
                               if (sum > INT32_MAX) v = INT32_MAX;
                               if (sum < INT32_MIN) v = INT32_MIN;
                             }););
  AFTER("shift-right-fills-with-zeros", "SHIFT_RIGHT is logical",
        if (a.op == OP(SHIFT_RIGHT) && a.output->dtype == CHIPSET_DTYPE_I32)
            rewrite<int64_t>(*a.output, [](int64_t& v) { v &= 0x7fffffff; }););
  AFTER("bitwise-not-of-bool", "BITWISE_NOT of bool flips all bits",
        if (a.op == OP(BITWISE_NOT) && a.output->dtype == CHIPSET_DTYPE_BOOL)
            rewrite<int64_t>(*a.output, [](int64_t& v) { v = 1; }););
#undef EDIT
#undef AFTER
#undef INSTEAD
}

// ---- conversions
// ---------------------------------------------------------------------------------

void add_conversion(List& list) {
#define COPIED(name, fault, from, to, T, ...)                                                 \
  CHIPSET_MUTANT_AFTER(                                                                       \
      "copy-" name, pointwise, pointwise_args, fault,                                         \
      if (a.op == OP(COPY) && a.input[0] != nullptr &&                                        \
          a.input[0]->dtype == CHIPSET_DTYPE_##from && a.output->dtype == CHIPSET_DTYPE_##to) \
          rewrite<T>(*a.output, a.input[0], nullptr, [](T& v, T x, T) {                       \
            (void)x;                                                                          \
            __VA_ARGS__                                                                       \
          });)
  COPIED("bf16-truncates", "f32 to bf16 cuts instead of rounding to even", F32, BF16, float,
         if (std::isfinite(v)) v =
             sdk::detail::bits_as<float>(sdk::detail::bits_as<uint32_t>(x) & 0xffff0000u););
  COPIED("f16-saturates", "f32 to f16 answers the largest number instead of infinity", F32, F16,
         float, if (std::isinf(v)) v = std::copysign(65504.f, v););
  COPIED("f8-overflows-to-nan", "f32 to f8e4m3 gives NaN instead of saturating", F32, F8E4M3, float,
         if (std::fabs(x) > 464) v = std::nanf(""););
  COPIED("to-integer-rounds", "f32 to i32 rounds instead of cutting", F32, I32, double,
         if (std::fabs(x) < 1e9) v = std::nearbyint(x););
  COPIED("to-bool-cuts", "f32 to bool goes through an integer", F32, BOOL, double,
         if (std::fabs(x) < 1) v = 0;);
  COPIED("i64-through-f32", "i64 to i32 goes through f32", I64, I32, int64_t,
         v = static_cast<int32_t>(static_cast<int64_t>(static_cast<float>(x))););
  COPIED("subnormals-flushed", "copies of f32 turn subnormal numbers into zero", F32, F32, float,
         if (std::fabs(v) < 1.1754944e-38f) v = std::copysign(0.f, v););
  COPIED("nan-becomes-zero", "f64 to f32 loses NaN", F64, F32, double, if (v != v) v = 0;);
#undef COPIED
#undef OP
#undef IF_OP
}

}  // namespace chipset::mutants
