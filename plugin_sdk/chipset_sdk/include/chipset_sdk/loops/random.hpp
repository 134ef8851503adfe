// SPDX-License-Identifier: Apache-2.0
// `random`: Philox4x32-10 (Salmon et al., SC11), bit by bit as the header says (RND-001).
#pragma once

#include "../check.hpp"
#include "lanes.hpp"

namespace chipset::sdk::loops {

namespace detail {

// The four words of one block.
struct Philox {
  uint32_t word[4];
  Philox(uint64_t seed, uint64_t counter)
      : word{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0} {
    uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
      const uint64_t a = uint64_t{0xD2511F53u} * word[0], b = uint64_t{0xCD9E8D57u} * word[2];
      const uint32_t next[4] = {
          static_cast<uint32_t>(b >> 32) ^ word[1] ^ key0, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ word[3] ^ key1, static_cast<uint32_t>(a)};
      std::memcpy(word, next, sizeof word);
    }
  }
};

inline bool two_words(const chipset_random_args& args) {
  const int32_t dtype = args.output->dtype;
  return args.kind == CHIPSET_RANDOM_KIND_RANDINT ||
         (args.kind == CHIPSET_RANDOM_KIND_BITS && dtype == CHIPSET_DTYPE_I64) ||
         (args.kind == CHIPSET_RANDOM_KIND_UNIFORM && dtype == CHIPSET_DTYPE_F64);
}

// Box-Muller on a pair of words; T is float, or double for an f64 output.
template <class T>
T normal(const uint32_t* pair, bool second) {
  const T u1 = (static_cast<T>(pair[0]) + 1) * T(2.3283064365386963e-10);
  const T u2 = static_cast<T>(pair[1]) * T(2.3283064365386963e-10);
  const T radius = std::sqrt(-2 * std::log(u1)), angle = T(6.283185307179586477) * u2;
  return radius * (second ? std::sin(angle) : std::cos(angle));
}

// Element `lane` of a block as a float kind of number in T, or as an integer in `integer`.
template <class T>
T draw(const chipset_random_args& args, const uint32_t* word, int lane, T probability) {
  const T p0 = number<T>(args.param[0]), p1 = number<T>(args.param[1]);
  const uint64_t wide = word[(2 * lane) & 3] | uint64_t{word[(2 * lane + 1) & 3]} << 32;
  const float unit = static_cast<float>(word[lane] >> 8) * 0x1p-24f;
  switch (args.kind) {
    case CHIPSET_RANDOM_KIND_BITS: {
      const uint64_t raw = args.output->dtype == CHIPSET_DTYPE_I64 ? wide : word[lane];
      const uint64_t mask = static_cast<uint64_t>(args.param[0].i);
      return static_cast<T>(static_cast<int64_t>(mask != 0 ? raw & mask : raw));
    }
    case CHIPSET_RANDOM_KIND_RANDINT: {
      const uint64_t range = static_cast<uint64_t>(args.param[1].i - args.param[0].i);
      return static_cast<T>(args.param[0].i + static_cast<int64_t>(wide % range));
    }
    case CHIPSET_RANDOM_KIND_BERNOULLI:
      return static_cast<T>(unit < static_cast<float>(probability));
    case CHIPSET_RANDOM_KIND_UNIFORM:
      if (args.output->dtype == CHIPSET_DTYPE_F64)
        return p0 + static_cast<T>(static_cast<double>(wide >> 11) * 0x1p-53) * (p1 - p0);
      return p0 + static_cast<T>(unit) * (p1 - p0);
    case CHIPSET_RANDOM_KIND_NORMAL:
      return p0 + p1 * normal<T>(word + (lane & 2), lane & 1);
    default:  // EXPONENTIAL
      return -std::log((static_cast<T>(word[lane]) + 1) * T(2.3283064365386963e-10)) / p0;
  }
}
}  // namespace detail

// Throws INVALID or UNSUPPORTED for what random() below cannot do. Call it before enqueuing.
inline void check_random(const chipset_random_args& args) {
  if (args.kind < 0 || args.kind > CHIPSET_RANDOM_KIND_RANDINT)
    fail(CHIPSET_STATUS_INVALID, "random: kind %d does not exist", args.kind);
  if (args.kind == CHIPSET_RANDOM_KIND_RANDINT && args.param[1].i <= args.param[0].i)
    fail(CHIPSET_STATUS_INVALID, "random: empty range");
  if (args.p != nullptr) check_shape("p", args.p, "output", *args.output);
  dispatch(args.output->dtype, [](auto) {});
}

inline void random(const chipset_random_args& args) {
  const chipset_tensor& out = *args.output;
  uint64_t seed_offset[2] = {args.seed, args.offset};
  if (args.seed_offset != nullptr) std::memcpy(seed_offset, args.seed_offset, sizeof seed_offset);
  const int per_block = detail::two_words(args) ? 2 : 4;
  const int64_t* p_stride = args.p != nullptr ? args.p->stride : out.stride;
  dispatch_arithmetic(out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Real = std::conditional_t<std::is_same_v<T, int64_t>, double, T>;
    // Integer outputs of real distributions (a bernoulli mask) are computed as reals.
    const bool real =
        args.kind != CHIPSET_RANDOM_KIND_BITS && args.kind != CHIPSET_RANDOM_KIND_RANDINT;
    int64_t element = 0;
    for_each_row<2>(out, {out.stride, p_stride}, [&](auto& offset, int64_t count, auto& step) {
      for (int64_t i = 0; i < count; ++i, ++element) {
        const detail::Philox block(seed_offset[0], seed_offset[1] + element / per_block);
        const int lane = static_cast<int>(element % per_block);
        float probability = static_cast<float>(args.param[0].f);
        if (args.p != nullptr)
          load(&probability, address(*args.p, offset[1] + i * step[1]), args.p->dtype, 1, 1);
        char* place = address(out, offset[0] + i * step[0]);
        if (real) {
          const Real value = detail::draw<Real>(args, block.word, lane, probability);
          store(place, out.dtype, 1, &value, 1);
        } else {
          const int64_t value = detail::draw<int64_t>(args, block.word, lane, 0);
          store(place, out.dtype, 1, &value, 1);
        }
      }
    });
  });
}

}  // namespace chipset::sdk::loops
