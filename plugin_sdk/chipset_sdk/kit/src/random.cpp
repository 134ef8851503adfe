// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: every work-item computes its own.
#include <cmath>

#include "chipset_sdk/check.hpp"
#include "source.h"

namespace chipset::kit {

namespace {
struct Params {  // as the kernel has it, with f32 or f64
  int64_t first, second, threshold;
};
template <class Real>
struct ParamsOf : Params {
  Real low, high;
};

// u < p for the uniform u = m * 2^-24 is m < p * 2^24, exactly.
int64_t threshold_of(double p) {
  return p > 0 ? static_cast<int64_t>(std::ceil(std::min(p, 1.0) * 0x1p24)) : 0;
}

void check_random(const Traits& traits, const chipset_random_args& args) {
  sdk::check_output("output", args.output);
  if (args.kind < 0 || args.kind > CHIPSET_RANDOM_KIND_RANDINT)
    unsupported("random kind " + std::to_string(args.kind));
  if (args.kind == CHIPSET_RANDOM_KIND_RANDINT && args.param[0].i == args.param[1].i)
    fail(CHIPSET_STATUS_INVALID, "random: RANDINT from %lld to %lld has no numbers",
         static_cast<long long>(args.param[0].i), static_cast<long long>(args.param[1].i));
  need_fp64(traits, args.output->dtype);
  if (args.kind != CHIPSET_RANDOM_KIND_BERNOULLI || args.p == nullptr) return;
  sdk::check_shape("p", args.p, "output", *args.output);
  need_float(traits, "random with p", args.p->dtype);
}
}  // namespace

void Kit::random(chipset_stream stream, const chipset_random_args& arguments) {
  const chipset_random_args& args = arguments;
  check_random(traits_, args);
  const chipset_tensor& out = *args.output;
  const int64_t count = sdk::numel(out);
  if (count == 0) return;
  const bool integers =
      args.kind == CHIPSET_RANDOM_KIND_BITS || args.kind == CHIPSET_RANDOM_KIND_RANDINT;
  const bool bernoulli = args.kind == CHIPSET_RANDOM_KIND_BERNOULLI;
  const bool f64 = out.dtype == CHIPSET_DTYPE_F64 && !bernoulli;
  const bool two_words =
      args.kind == CHIPSET_RANDOM_KIND_RANDINT ||
      (args.kind == CHIPSET_RANDOM_KIND_BITS && out.dtype == CHIPSET_DTYPE_I64) ||
      (args.kind == CHIPSET_RANDOM_KIND_UNIFORM && out.dtype == CHIPSET_DTYPE_F64);
  const chipset_tensor* p = bernoulli ? args.p : nullptr;
  const int32_t p_dtype = p != nullptr ? p->dtype : CHIPSET_DTYPE_F32;
  const int width = vector_width(traits_, 8), lanes = group_lanes(traits_);
  const int per_block = two_words ? 2 : 4;
  const Signature signature{kRandom, args.kind, out.dtype, p_dtype};
  void* kernel = this->kernel(signature, "random", [&] {
    Source source(traits_, width, lanes);
    source.define("C", integers ? "l" : f64 ? "d" : "f").define("REAL", f64 ? "f64" : "f32");
    source.define("PER_BLOCK", per_block).define("KIND", args.kind).file("compute.h");
    source.operand("OUT", out.dtype).operand("P", p_dtype);
    const char held = dialect_class(out.dtype);
    source.define("OUT_IS_INTEGER",
                  out.dtype != CHIPSET_DTYPE_BOOL && (held == 'i' || held == 'l'));
    return source.file("random.c").take();
  });

  static constexpr int64_t kNone[8] = {};
  const auto walk =
      make_walk<2>(out.rank, out.shape, {out.stride, p != nullptr ? p->stride : kNone}, true);
  const auto with = [&](auto params) {
    params.first = args.param[0].i;
    params.second = args.param[1].i;
    params.threshold = threshold_of(args.param[0].f);
    using Real = decltype(params.low);
    params.low = static_cast<Real>(args.param[0].f);
    params.high = static_cast<Real>(args.param[1].f);
    return params;
  };
  Launch launch(backend_, stream, kernel);
  launch.address(out.data).address(p != nullptr ? p->data : out.data);
  launch.address(args.seed_offset != nullptr ? args.seed_offset : out.data);
  launch.value(walk).i64(count).value(args.seed).value(args.offset);
  launch.i32((args.seed_offset != nullptr ? 1 : 0) | (p != nullptr ? 2 : 0));
  if (f64)
    launch.value(with(ParamsOf<double>{}));
  else
    launch.value(with(ParamsOf<float>{}));
  const int64_t units = ceil_div(count, int64_t{width} * per_block);
  const int64_t cost = int64_t{width} * per_block * 4;
  launch.run({group_count(traits_, ceil_div(units, lanes), cost)}, static_cast<uint32_t>(lanes));
}

}  // namespace chipset::kit
