// SPDX-License-Identifier: Apache-2.0
#include "random.h"

#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/multinomial_native.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/searchsorted.h>
#include <torch/library.h>

#include "copy.h"
#include "fallback.h"
#include "graph.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

using Generator = std::optional<at::Generator>;

// Fills through the plugin. False where it does not do it.
bool fill_on_chip(const at::Tensor& self, const Distribution& distribution,
                  const RandomSource& source) {
  const chipset_tensor output = view(self);
  chipset_tensor probability;
  auto args = arguments<chipset_random_args>();
  args.kind = distribution.kind;
  args.seed = source.state.seed;
  args.offset = source.state.offset;
  args.seed_offset = source.device_state;
  args.output = &output;
  args.param[0] = distribution.first;
  args.param[1] = distribution.second;
  if (distribution.probability.defined()) {
    probability = view(distribution.probability);
    args.p = &probability;
  }
  return call<&chipset_api::random>(device_index(self), args);
}

}  // namespace

void fill_random(const at::Tensor& self, const Distribution& distribution,
                 const Generator& generator) {
  if (self.numel() == 0) return;
  const int device = device_index(self);
  if (!fits(self) || !computes(self)) {
    const at::ScalarType type = computes(self)             ? self.scalar_type()
                                : self.is_floating_point() ? at::kFloat
                                                           : at::kLong;
    const at::Tensor flat = bridge::empty({self.numel()}, type, device);
    Distribution flattened = distribution;
    if (flattened.probability.defined()) flattened.probability = flattened.probability.reshape(-1);
    fill_random(flat, flattened, generator);
    copy_on_chip(self, flat.view(self.sizes()));
    return;
  }
  const RandomSource source = random_source(generator_for(generator, device), self.numel());
  if (fill_on_chip(self, distribution, source)) return;
  count_fallback("chipset::random", self.nbytes(),
                 c10::str("kind ", distribution.kind, ", ", self.scalar_type()));
  const at::Tensor numbers =
      host_random(distribution, source.state, self.numel(), self.scalar_type());
  self.copy_(numbers.view(self.sizes()));
}

namespace {

// ---- distributions of torch -----------------------------------------------------------------
// Torch's templates check the arguments and give its messages; the kernels below fill.

chipset_scalar integer(int64_t value) { return {static_cast<double>(value), value}; }

template <typename>
struct UniformKernel {
  void operator()(at::TensorIterator& iterator, double from, double to, const Generator& g) {
    fill_random(iterator.tensor(0), {CHIPSET_RANDOM_KIND_UNIFORM, scalar(from), scalar(to)}, g);
  }
};
template <typename>
struct NormalKernel {
  void operator()(const at::Tensor& self, double mean, double deviation, const Generator& g) {
    fill_random(self, {CHIPSET_RANDOM_KIND_NORMAL, scalar(mean), scalar(deviation)}, g);
  }
};
template <typename>
struct LogNormalKernel {
  void operator()(at::TensorIterator& iterator, double mean, double deviation, const Generator& g) {
    const at::Tensor& self = iterator.tensor(0);
    fill_random(self, {CHIPSET_RANDOM_KIND_NORMAL, scalar(mean), scalar(deviation)}, g);
    self.exp_();
  }
};
template <typename>
struct ExponentialKernel {
  void operator()(at::TensorIterator& iterator, double rate, const Generator& g) {
    fill_random(iterator.tensor(0), {CHIPSET_RANDOM_KIND_EXPONENTIAL, scalar(rate)}, g);
  }
};
// Number of Bernoulli trials up to the first success: ceil(ln(u) / ln(1 - p)).
template <typename>
struct GeometricKernel {
  void operator()(at::TensorIterator& iterator, double p, const Generator& g) {
    const at::Tensor& self = iterator.tensor(0);
    const at::ScalarType type = self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor value = bridge::empty(self.sizes(), type, device_index(self));
    // -ln(u) is exponentially distributed, and u is never 0.
    fill_random(value, {CHIPSET_RANDOM_KIND_EXPONENTIAL, scalar(-std::log1p(-p))}, g);
    copy_on_chip(self, value.ceil_().clamp_min_(1));
  }
};
template <typename>
struct CauchyKernel {
  void operator()(at::TensorIterator& iterator, double median, double sigma, const Generator& g) {
    const at::Tensor& self = iterator.tensor(0);
    fill_random(self, {CHIPSET_RANDOM_KIND_UNIFORM, scalar(-0.5), scalar(0.5)}, g);
    self.mul_(M_PI).tan_().mul_(sigma).add_(median);
  }
};
template <typename>
struct BernoulliTensorKernel {
  void operator()(const at::Tensor& self, const at::Tensor& p, const Generator& g) {
    TORCH_CHECK(p.is_floating_point(), "bernoulli expects probabilities of a floating dtype, not ",
                p.scalar_type());
    const at::Tensor on_chip = p.to(self.device()).expand_as(self);
    fill_random(self, {CHIPSET_RANDOM_KIND_BERNOULLI, {}, {}, on_chip}, g);
  }
};
template <typename>
struct BernoulliScalarKernel {
  void operator()(const at::Tensor& self, double p, const Generator& g) {
    fill_random(self, {CHIPSET_RANDOM_KIND_BERNOULLI, scalar(p)}, g);
  }
};
template <typename>
struct RandomFromToKernel {
  void operator()(at::TensorIterator& iterator, uint64_t range, int64_t from, const Generator& g) {
    // The end may wrap (an exclusive end above the largest int64); the difference is what counts.
    const auto end = static_cast<int64_t>(static_cast<uint64_t>(from) + range);
    fill_random(iterator.tensor(0), {CHIPSET_RANDOM_KIND_RANDINT, integer(from), integer(end)}, g);
  }
  void operator()(at::TensorIterator& iterator, const Generator& g) {  // all 64 bits
    fill_random(iterator.tensor(0), {CHIPSET_RANDOM_KIND_BITS, integer(0)}, g);
  }
};
// [0, largest] for integers, [0, 2^digits] for floats, as torch defines it.
template <typename>
struct RandomKernel {
  void operator()(at::TensorIterator& iterator, const Generator& g) {
    const at::Tensor& self = iterator.tensor(0);
    const int64_t largest = largest_of(self.scalar_type());
    if (largest == std::numeric_limits<int64_t>::max()) {
      fill_random(self, {CHIPSET_RANDOM_KIND_BITS, integer(largest)}, g);
    } else {
      fill_random(self, {CHIPSET_RANDOM_KIND_RANDINT, integer(0), integer(largest + 1)}, g);
    }
  }
  static int64_t largest_of(at::ScalarType type) {
    switch (type) {
      case at::kBool:
        return 1;
      case at::kByte:
        return 255;
      case at::kChar:
        return 127;
      case at::kShort:
        return 32767;
      case at::kUInt16:
        return 65535;
      case at::kInt:
        return std::numeric_limits<int32_t>::max();
      case at::kUInt32:
        return std::numeric_limits<uint32_t>::max();
      case at::kBFloat16:
        return 1 << 8;
      case at::kHalf:
        return 1 << 11;
      case at::kFloat:
        return 1 << 24;
      case at::kDouble:
        return int64_t{1} << 53;
      default:
        return std::numeric_limits<int64_t>::max();
    }
  }
};

namespace templates = at::native::templates;
using G = ChipGenerator;

at::Tensor& uniform_(at::Tensor& self, double from, double to, Generator g) {
  return templates::uniform_impl_<UniformKernel, G>(self, from, to, std::move(g));
}
at::Tensor& normal_(at::Tensor& self, double mean, double std, Generator g) {
  return templates::normal_impl_<NormalKernel, G>(self, mean, std, std::move(g));
}
at::Tensor& normal_tensor_float_out(const at::Tensor& mean, double std, Generator g,
                                    at::Tensor& out) {
  return templates::normal_out_impl<NormalKernel, G>(out, mean, std, std::move(g));
}
at::Tensor& normal_float_tensor_out(double mean, const at::Tensor& std, Generator g,
                                    at::Tensor& out) {
  return templates::normal_out_impl<NormalKernel, G>(out, mean, std, std::move(g));
}
at::Tensor& normal_tensor_tensor_out(const at::Tensor& mean, const at::Tensor& std, Generator g,
                                     at::Tensor& out) {
  return templates::normal_out_impl<NormalKernel, G>(out, mean, std, std::move(g));
}
at::Tensor normal_tensor_float(const at::Tensor& mean, double std, Generator g) {
  return templates::normal_impl<NormalKernel, G>(mean, std, std::move(g));
}
at::Tensor normal_float_tensor(double mean, const at::Tensor& std, Generator g) {
  return templates::normal_impl<NormalKernel, G>(mean, std, std::move(g));
}
at::Tensor normal_tensor_tensor(const at::Tensor& mean, const at::Tensor& std, Generator g) {
  return templates::normal_impl<NormalKernel, G>(mean, std, std::move(g));
}
at::Tensor& log_normal_(at::Tensor& self, double mean, double std, Generator g) {
  return templates::log_normal_impl_<LogNormalKernel, G>(self, mean, std, std::move(g));
}
at::Tensor& exponential_(at::Tensor& self, double rate, Generator g) {
  return templates::exponential_impl_<ExponentialKernel, G>(self, rate, std::move(g));
}
at::Tensor& geometric_(at::Tensor& self, double p, Generator g) {
  return templates::geometric_impl_<GeometricKernel, G>(self, p, std::move(g));
}
at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, Generator g) {
  return templates::cauchy_impl_<CauchyKernel, G>(self, median, sigma, std::move(g));
}
at::Tensor& bernoulli_tensor_(at::Tensor& self, const at::Tensor& p, Generator g) {
  return templates::bernoulli_impl_<BernoulliTensorKernel, G>(self, p, std::move(g));
}
at::Tensor& bernoulli_float_(at::Tensor& self, double p, Generator g) {
  return templates::bernoulli_impl_<BernoulliScalarKernel, G>(self, p, std::move(g));
}
at::Tensor& bernoulli_out(const at::Tensor& self, Generator g, at::Tensor& out) {
  return templates::bernoulli_out_impl<BernoulliTensorKernel, G>(out, self, std::move(g));
}
at::Tensor& random_from_(at::Tensor& self, int64_t from, std::optional<int64_t> to, Generator g) {
  return templates::random_from_to_impl<RandomFromToKernel, G>(self, from, to, std::move(g));
}
at::Tensor& random_to_(at::Tensor& self, int64_t to, Generator g) {
  return random_from_(self, 0, to, std::move(g));
}
at::Tensor& random_(at::Tensor& self, Generator g) {
  return templates::random_impl<RandomKernel, G>(self, std::move(g));
}

// ---- permutations, dropout, sampling ---------------------------------------------------------

// The order of random keys of 63 bits, among which equal ones are as good as impossible.
at::Tensor& randperm_out(int64_t n, Generator g, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  out.resize_({n});
  if (n == 0) return out;
  const at::Tensor keys = bridge::empty({n}, at::kLong, device_index(out));
  fill_random(keys, {CHIPSET_RANDOM_KIND_BITS, integer(std::numeric_limits<int64_t>::max())}, g);
  return out.copy_(at::argsort(keys));
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  const int device = device_index(input);
  at::Tensor mask = bridge::empty(input.sizes(), at::kBool, device);
  if (train.has_value() && !*train) return {input.clone(), mask.fill_(true)};
  const double kept = 1 - p;
  fill_random(mask, {CHIPSET_RANDOM_KIND_BERNOULLI, scalar(kept)}, std::nullopt);
  return {at::mul(input, mask).mul_(kept == 0 ? 0.0 : 1 / kept), mask};
}

at::Tensor native_dropout_backward(const at::Tensor& gradient, const at::Tensor& mask,
                                   double scale) {
  return at::mul(gradient, mask).mul_(scale);
}

// With replacement: inverts the cumulative distribution. Without: torch's own way (largest of
// p / exponential), which needs only operators.
at::Tensor& multinomial_out(const at::Tensor& self, int64_t samples, bool replacement, Generator g,
                            at::Tensor& out) {
  if (!replacement || samples == 1 || self.numel() == 0 || !self.is_floating_point()) {
    return at::native::multinomial_out(self, samples, replacement, std::move(g), out);
  }
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "multinomial expects Long tensor out, got: ", out.scalar_type());
  const bool valid = self.min().ge(0).logical_and(self.max().lt(INFINITY)).item<bool>();
  TORCH_CHECK(valid, "probability tensor contains either `inf`, `nan` or element < 0");
  const at::ScalarType type = self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor cumulative = self.to(type).cumsum(-1);
  const at::Tensor total = cumulative.narrow(-1, cumulative.size(-1) - 1, 1);
  TORCH_CHECK(total.gt(0).all().item<bool>(),
              "invalid multinomial distribution (sum of probabilities <= 0)");
  auto shape = self.sizes().vec();
  shape.back() = samples;
  at::Tensor point = bridge::empty(shape, type, device_index(self));
  fill_random(point, {CHIPSET_RANDOM_KIND_UNIFORM, scalar(0.0), scalar(1.0)}, g);
  at::Tensor found = at::searchsorted(cumulative, point.mul_(total), false, /*right=*/true);
  out.resize_(shape);
  return out.copy_(found.clamp_max_(self.size(-1) - 1));
}

at::Tensor multinomial(const at::Tensor& self, int64_t samples, bool replacement, Generator g) {
  at::Tensor out = bridge::empty({0}, at::kLong, device_index(self));
  return multinomial_out(self, samples, replacement, std::move(g), out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", &uniform_);
  m.impl("normal_", &normal_);
  m.impl("normal.Tensor_float_out", &normal_tensor_float_out);
  m.impl("normal.float_Tensor_out", &normal_float_tensor_out);
  m.impl("normal.Tensor_Tensor_out", &normal_tensor_tensor_out);
  m.impl("normal.Tensor_float", &normal_tensor_float);
  m.impl("normal.float_Tensor", &normal_float_tensor);
  m.impl("normal.Tensor_Tensor", &normal_tensor_tensor);
  m.impl("log_normal_", &log_normal_);
  m.impl("exponential_", &exponential_);
  m.impl("geometric_", &geometric_);
  m.impl("cauchy_", &cauchy_);
  m.impl("bernoulli_.Tensor", &bernoulli_tensor_);
  m.impl("bernoulli_.float", &bernoulli_float_);
  m.impl("bernoulli.out", &bernoulli_out);
  m.impl("random_.from", &random_from_);
  m.impl("random_.to", &random_to_);
  m.impl("random_", &random_);
  m.impl("randperm.generator_out", &randperm_out);
  m.impl("native_dropout", &native_dropout);
  m.impl("native_dropout_backward", &native_dropout_backward);
  m.impl("multinomial", &multinomial);
  m.impl("multinomial.out", &multinomial_out);
}

}  // namespace chipset::bridge
