// SPDX-License-Identifier: Apache-2.0
// random: Philox4x32-10, counter based, so that every thread computes its elements by itself.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "check.h"
#include "functions.h"
#include "isa/number.h"
#include "iterator.h"
#include "parallel.h"

namespace chipset::cpu {
namespace {

struct Block {
  uint32_t word[4];
};

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11.
inline Block philox(uint64_t seed, uint64_t counter) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = 0, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

// What is drawn, for elements [begin, begin + n), begin a multiple of 4.
struct Draw {
  int32_t kind;
  int32_t dtype;
  uint64_t seed;
  uint64_t offset;
  chipset_scalar first;
  chipset_scalar second;
};

inline uint64_t wide(const Block& block, int64_t e) {
  return uint64_t{block.word[2 * (e % 2) + 1]} << 32 | block.word[2 * (e % 2)];
}

template <typename Real>
void normal_pair(uint32_t w0, uint32_t w1, Real mean, Real deviation, Real* out) {
  const Real u1 = (static_cast<Real>(w0) + 1) * static_cast<Real>(0x1p-32);
  const Real u2 = static_cast<Real>(w1) * static_cast<Real>(0x1p-32);
  const Real radius = std::sqrt(Real{-2} * std::log(u1));
  const Real angle = static_cast<Real>(6.283185307179586476925) * u2;
  out[0] = mean + deviation * (radius * std::cos(angle));
  out[1] = mean + deviation * (radius * std::sin(angle));
}

// Whole groups of four are written; `out` has room for them.
template <typename Real>
void draw_reals(const Draw& d, int64_t begin, int64_t n, Real* out) {
  const Real first = static_cast<Real>(d.first.f), second = static_cast<Real>(d.second.f);
  if (d.kind == CHIPSET_RANDOM_KIND_UNIFORM && std::is_same_v<Real, double>) {
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t e = static_cast<uint64_t>(begin + i);
      const uint64_t bits = wide(philox(d.seed, d.offset + e / 2), begin + i);
      out[i] =
          first + static_cast<Real>(bits >> 11) * static_cast<Real>(0x1p-53) * (second - first);
    }
    return;
  }
  for (int64_t i = 0; i < n; i += 4) {
    const Block block = philox(d.seed, d.offset + static_cast<uint64_t>(begin + i) / 4);
    switch (d.kind) {
      case CHIPSET_RANDOM_KIND_NORMAL:
        normal_pair(block.word[0], block.word[1], first, second, out + i);
        normal_pair(block.word[2], block.word[3], first, second, out + i + 2);
        break;
      case CHIPSET_RANDOM_KIND_EXPONENTIAL:
        for (int k = 0; k < 4; ++k) {
          const Real u = (static_cast<Real>(block.word[k]) + 1) * static_cast<Real>(0x1p-32);
          out[i + k] = -std::log(u) / first;
        }
        break;
      case CHIPSET_RANDOM_KIND_UNIFORM:
        for (int k = 0; k < 4; ++k) {
          const Real u = static_cast<Real>(block.word[k] >> 8) * static_cast<Real>(0x1p-24);
          out[i + k] = first + u * (second - first);
        }
        break;
      default:  // BERNOULLI: the bare uniform number; the caller compares
        for (int k = 0; k < 4; ++k) {
          out[i + k] = static_cast<Real>(block.word[k] >> 8) * static_cast<Real>(0x1p-24);
        }
    }
  }
}

void draw_integers(const Draw& d, int64_t begin, int64_t n, int64_t* out) {
  const bool one_word = d.kind == CHIPSET_RANDOM_KIND_BITS && d.dtype != CHIPSET_DTYPE_I64;
  const uint64_t range = static_cast<uint64_t>(d.second.i) - static_cast<uint64_t>(d.first.i);
  const uint64_t mask = d.first.i == 0 ? ~uint64_t{0} : static_cast<uint64_t>(d.first.i);
  Block block{};
  for (int64_t i = 0; i < n; ++i) {
    const int64_t e = begin + i;
    const int64_t per_block = one_word ? 4 : 2;
    if (e % per_block == 0 || i == 0) {
      block = philox(d.seed, d.offset + static_cast<uint64_t>(e / per_block));
    }
    const uint64_t bits = one_word ? block.word[e % 4] : wide(block, e);
    out[i] = d.kind == CHIPSET_RANDOM_KIND_BITS
                 ? static_cast<int64_t>(bits & mask)
                 : static_cast<int64_t>(static_cast<uint64_t>(d.first.i) + bits % range);
  }
}

// ---- reading and writing elements -----------------------------------------------------------

struct Bool8 {
  uint8_t bits;
};

template <typename T, typename Value>
void store(char* to, Value value) {
  T element;
  if constexpr (std::is_same_v<T, Bool8>) {
    element.bits = value != 0;
  } else if constexpr (std::is_same_v<T, double>) {
    element = static_cast<double>(value);
  } else if constexpr (std::is_integral_v<T>) {
    element = static_cast<T>(static_cast<int64_t>(value));
  } else {
    element = from_float<T>(static_cast<float>(value));
  }
  std::memcpy(to, &element, sizeof(element));
}

double load_float(const char* from, int32_t dtype) {
  const auto as = [from](auto element) {
    std::memcpy(&element, from, sizeof(element));
    return element;
  };
  switch (dtype) {
    case CHIPSET_DTYPE_F16:
      return to_float(as(f16{}));
    case CHIPSET_DTYPE_BF16:
      return to_float(as(bf16{}));
    case CHIPSET_DTYPE_F32:
      return as(float{});
    default:
      return as(double{});
  }
}

template <typename Visit>
bool with_type(int32_t dtype, Visit&& visit) {
  switch (dtype) {
    case CHIPSET_DTYPE_BOOL:
      visit(Bool8{});
      return true;
    case CHIPSET_DTYPE_U8:
      visit(uint8_t{});
      return true;
    case CHIPSET_DTYPE_I8:
      visit(int8_t{});
      return true;
    case CHIPSET_DTYPE_I16:
      visit(int16_t{});
      return true;
    case CHIPSET_DTYPE_I32:
      visit(int32_t{});
      return true;
    case CHIPSET_DTYPE_I64:
      visit(int64_t{});
      return true;
    case CHIPSET_DTYPE_F16:
      visit(f16{});
      return true;
    case CHIPSET_DTYPE_BF16:
      visit(bf16{});
      return true;
    case CHIPSET_DTYPE_F32:
      visit(float{});
      return true;
    case CHIPSET_DTYPE_F64:
      visit(double{});
      return true;
    case CHIPSET_DTYPE_F8E4M3:
      visit(f8e4m3{});
      return true;
    case CHIPSET_DTYPE_F8E5M2:
      visit(f8e5m2{});
      return true;
    default:
      return false;
  }
}

// Walks elements [begin, end) of the loop in row-major order: visit(position, output, operand 1).
template <typename Visit>
void walk(const Loop<2>& loop, int64_t begin, int64_t end, Visit&& visit) {
  int64_t index[CHIPSET_MAX_RANK];
  int64_t rest = begin;
  int64_t at[2] = {0, 0};
  for (int d = loop.rank - 1; d >= 0; --d) {
    index[d] = rest % loop.shape[d];
    rest /= loop.shape[d];
    for (int k = 0; k < 2; ++k) at[k] += index[d] * loop.stride[k][d];
  }
  for (int64_t i = 0; i < end - begin; ++i) {
    visit(i, loop.data[0] + at[0], loop.data[1] + at[1]);
    for (int d = loop.rank - 1; d >= 0; --d) {
      for (int k = 0; k < 2; ++k) at[k] += loop.stride[k][d];
      if (++index[d] < loop.shape[d]) break;
      for (int k = 0; k < 2; ++k) at[k] -= index[d] * loop.stride[k][d];
      index[d] = 0;
    }
  }
}

constexpr int64_t kPiece = 512;  // elements drawn into a buffer at a time; a multiple of 4

template <typename T, typename Value, typename Fill>
void fill(const Loop<2>& loop, const Fill& draw) {
  parallel_for(loop.numel, 4 * kPiece, [&](int64_t begin, int64_t end) {
    Value buffer[kPiece];
    for (int64_t e = begin; e < end; e += kPiece) {
      const int64_t n = std::min(kPiece, end - e);
      draw(e, n, buffer);
      walk(loop, e, e + n, [&](int64_t i, char* to, const char*) { store<T>(to, buffer[i]); });
    }
  });
}

template <typename T>
void fill_bernoulli(const Loop<2>& loop, const Draw& d, const chipset_tensor* p) {
  parallel_for(loop.numel, 4 * kPiece, [&](int64_t begin, int64_t end) {
    float buffer[kPiece];
    for (int64_t e = begin; e < end; e += kPiece) {
      const int64_t n = std::min(kPiece, end - e);
      draw_reals(d, e, n, buffer);
      walk(loop, e, e + n, [&](int64_t i, char* to, const char* probability) {
        const double chance = p == nullptr ? d.first.f : load_float(probability, p->dtype);
        store<T>(to, buffer[i] < chance ? 1.0F : 0.0F);
      });
    }
  });
}

chipset_status check_kind(const chipset_random_args& a) {
  switch (a.kind) {
    case CHIPSET_RANDOM_KIND_BITS:
    case CHIPSET_RANDOM_KIND_UNIFORM:
    case CHIPSET_RANDOM_KIND_NORMAL:
    case CHIPSET_RANDOM_KIND_BERNOULLI:
    case CHIPSET_RANDOM_KIND_EXPONENTIAL:
      return CHIPSET_STATUS_OK;
    case CHIPSET_RANDOM_KIND_RANDINT:
      if (a.param[0].i != a.param[1].i) return CHIPSET_STATUS_OK;
      return fail(CHIPSET_STATUS_INVALID, "random: RANDINT from %lld to %lld has no numbers",
                  static_cast<long long>(a.param[0].i), static_cast<long long>(a.param[1].i));
    default:
      return fail(CHIPSET_STATUS_UNSUPPORTED, "random: unknown kind %d", a.kind);
  }
}

}  // namespace

chipset_status cpu_random(chipset_stream, const chipset_random_args* args) {
  const chipset_random_args& a = *args;
  RETURN_UNLESS_OK(check_tensor("random", "output", a.output));
  RETURN_UNLESS_OK(check_output("random", "output", a.output));
  RETURN_UNLESS_OK(check_kind(a));
  const chipset_tensor* p = a.kind == CHIPSET_RANDOM_KIND_BERNOULLI ? a.p : nullptr;
  if (p != nullptr) RETURN_UNLESS_OK(check_like("random", "p", p, "output", *p));
  if (p != nullptr && !same_shape(*p, *a.output)) {
    return fail(CHIPSET_STATUS_INVALID, "random: p has shape %s, but output has %s", shape_text(*p),
                shape_text(*a.output));
  }
  if (!with_type(a.output->dtype, [](auto) {})) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "random: output is %s", dtype_name(a.output->dtype));
  }
  if (numel(*a.output) == 0) return CHIPSET_STATUS_OK;
  Draw d{a.kind, a.output->dtype, a.seed, a.offset, a.param[0], a.param[1]};
  if (a.seed_offset != nullptr) {  // read now, so that a captured graph draws anew
    std::memcpy(&d.seed, a.seed_offset, sizeof(d.seed));
    std::memcpy(&d.offset, static_cast<const char*>(a.seed_offset) + sizeof(d.seed),
                sizeof(d.offset));
  }
  const Loop<2> loop = make_loop<2>({a.output, p}, Order::kRowMajor);
  with_type(a.output->dtype, [&](auto element) {
    using T = decltype(element);
    if (a.kind == CHIPSET_RANDOM_KIND_BERNOULLI) {
      fill_bernoulli<T>(loop, d, p);
    } else if (a.kind == CHIPSET_RANDOM_KIND_BITS || a.kind == CHIPSET_RANDOM_KIND_RANDINT) {
      fill<T, int64_t>(
          loop, [&](int64_t begin, int64_t n, int64_t* out) { draw_integers(d, begin, n, out); });
    } else if constexpr (std::is_same_v<T, double>) {
      fill<T, double>(loop,
                      [&](int64_t begin, int64_t n, double* out) { draw_reals(d, begin, n, out); });
    } else {
      fill<T, float>(loop,
                     [&](int64_t begin, int64_t n, float* out) { draw_reals(d, begin, n, out); });
    }
  });
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
