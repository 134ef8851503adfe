// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 on the host, from the definition in chipset.h: for plugins without `random`, so
// that a seed gives the same numbers with them too.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cmath>

#include "random.h"

namespace chipset::bridge {
namespace {

using Block = std::array<uint32_t, 4>;

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11.
Block philox(uint64_t seed, uint64_t counter) {
  constexpr uint32_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  Block c{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiply0} * c[0];
    const uint64_t product1 = uint64_t{kMultiply1} * c[2];
    c = {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

// Word(s) of element e.
struct Words {
  PhiloxState state;
  uint32_t one(int64_t e) const {
    return philox(state.seed, state.offset + static_cast<uint64_t>(e) / 4)[e % 4];
  }
  std::pair<uint32_t, uint32_t> two(int64_t e) const {
    const Block block = philox(state.seed, state.offset + static_cast<uint64_t>(e) / 2);
    return {block[2 * (e % 2)], block[2 * (e % 2) + 1]};
  }
  uint64_t wide(int64_t e) const {
    const auto [low, high] = two(e);
    return uint64_t{high} << 32 | low;
  }
  // The pair of one-word elements to which e belongs.
  std::pair<uint32_t, uint32_t> pair(int64_t e) const {
    const Block block = philox(state.seed, state.offset + static_cast<uint64_t>(e) / 4);
    const size_t first = (e % 4) / 2 * 2;
    return {block[first], block[first + 1]};
  }
};

float unit_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }
double unit_double(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

template <typename Real>
Real normal(const Words& words, int64_t e) {
  const auto [w0, w1] = words.pair(e);
  const Real u1 = (static_cast<Real>(w0) + 1) * static_cast<Real>(0x1p-32);
  const Real u2 = static_cast<Real>(w1) * static_cast<Real>(0x1p-32);
  const Real radius = std::sqrt(Real{-2} * std::log(u1));
  const Real angle = static_cast<Real>(6.283185307179586476925) * u2;
  return radius * (e % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

template <typename Real>
Real exponential(const Words& words, int64_t e, double rate) {
  const Real u = (static_cast<Real>(words.one(e)) + 1) * static_cast<Real>(0x1p-32);
  return -std::log(u) / static_cast<Real>(rate);
}

template <typename Element, typename Value>
at::Tensor generate(int64_t count, at::ScalarType type, const Value& value) {
  at::Tensor out = at::empty({count}, at::TensorOptions(at::kCPU).dtype(type));
  Element* data = out.mutable_data_ptr<Element>();
  at::parallel_for(0, count, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) data[e] = value(e);
  });
  return out;
}

template <typename Real>
at::Tensor real_numbers(const Distribution& d, const Words& words, int64_t count,
                        at::ScalarType type) {
  const auto first = static_cast<Real>(d.first.f), second = static_cast<Real>(d.second.f);
  switch (d.kind) {
    case CHIPSET_RANDOM_KIND_UNIFORM:
      return generate<Real>(count, type, [&](int64_t e) {
        const Real u = std::is_same_v<Real, double> ? static_cast<Real>(unit_double(words.wide(e)))
                                                    : static_cast<Real>(unit_float(words.one(e)));
        return first + u * (second - first);
      });
    case CHIPSET_RANDOM_KIND_NORMAL:
      return generate<Real>(count, type,
                            [&](int64_t e) { return first + second * normal<Real>(words, e); });
    default:
      return generate<Real>(count, type,
                            [&](int64_t e) { return exponential<Real>(words, e, d.first.f); });
  }
}

at::Tensor bernoulli(const Distribution& d, const Words& words, int64_t count) {
  if (!d.probability.defined()) {
    return generate<float>(count, at::kFloat, [&](int64_t e) {
      return unit_float(words.one(e)) < d.first.f ? 1.F : 0.F;
    });
  }
  const at::Tensor p = d.probability.to(at::kCPU, at::kDouble).contiguous();
  const double* probability = p.const_data_ptr<double>();
  return generate<float>(count, at::kFloat, [&](int64_t e) {
    return unit_float(words.one(e)) < probability[e] ? 1.F : 0.F;
  });
}

at::Tensor integers(const Distribution& d, const Words& words, int64_t count,
                    at::ScalarType filled) {
  if (d.kind == CHIPSET_RANDOM_KIND_RANDINT) {
    const uint64_t range = static_cast<uint64_t>(d.second.i) - static_cast<uint64_t>(d.first.i);
    return generate<int64_t>(count, at::kLong, [&](int64_t e) {
      return static_cast<int64_t>(static_cast<uint64_t>(d.first.i) + words.wide(e) % range);
    });
  }
  const auto mask = d.first.i == 0 ? ~uint64_t{0} : static_cast<uint64_t>(d.first.i);
  return generate<int64_t>(count, at::kLong, [&](int64_t e) {
    const uint64_t bits = filled == at::kLong ? words.wide(e) : words.one(e);
    return static_cast<int64_t>(bits & mask);
  });
}

}  // namespace

at::Tensor host_random(const Distribution& distribution, PhiloxState state, int64_t count,
                       at::ScalarType filled) {
  const Words words{state};
  switch (distribution.kind) {
    case CHIPSET_RANDOM_KIND_BITS:
    case CHIPSET_RANDOM_KIND_RANDINT:
      return integers(distribution, words, count, filled);
    case CHIPSET_RANDOM_KIND_BERNOULLI:
      return bernoulli(distribution, words, count);
    default:
      return filled == at::kDouble ? real_numbers<double>(distribution, words, count, at::kDouble)
                                   : real_numbers<float>(distribution, words, count, at::kFloat);
  }
}

}  // namespace chipset::bridge
