// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11), W blocks of
// four words at a time, and the distributions of random. The host defines C (class of the drawn
// numbers: f, d, or l for integers), REAL (type of the parameters), PER_BLOCK (elements that a
// block serves: 4, or 2 of two words), KIND as one of the names below, and OUT and P (dtypes of the
// output and of probabilities).
#define BITS_ 0
#define UNIFORM 1
#define NORMAL 2
#define BERNOULLI 3
#define EXPONENTIAL 4
#define RANDINT 5
#define UNIT (W * PER_BLOCK)
NO_FUSED_PRODUCTS  // the numbers are defined bit by bit

    typedef struct {
  i64 rank, size[8], stride[8][2];  // of the output and of P, in row-major order
} Walk;
typedef struct {
  i64 first, second;
  i64 threshold;  // BERNOULLI without P: word / 256 < threshold
  REAL low, high;
} Params;

FUNC void philox(u64 seed, vul counter, vui* out) {
  vui c0 = CV_ui(counter), c1 = CV_ui(counter >> 32), c2 = (vui)(0), c3 = (vui)(0);
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
  for (i32 round = 0; round < 10; ++round) {
    const vui high0 = MUL_HIGH((vui)(0xD2511F53u), c0), low0 = c0 * 0xD2511F53u;
    const vui high2 = MUL_HIGH((vui)(0xCD9E8D57u), c2), low2 = c2 * 0xCD9E8D57u;
    c0 = high2 ^ c1 ^ k0;
    c1 = low2;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

// Two's powers that scale words: 2^-24, 2^-32 and 2^-53.
#define TO_24 K(5.9604644775390625e-8)
#define TO_32 K(2.3283064365386963e-10)
#define TO_53 K(1.1102230246251565e-16)

// The elements of W blocks: value k * PER_BLOCK + j is element j of block k.
FUNC void draw(const vui* words, const Params* params, sc* values) {
  union {
    sc e[W];
    vc v;
  } drawn[4];
#if KIND == BITS_ || KIND == RANDINT
  union {
    u32 e[W];
    vui v;
  } word[4];
  for (i32 j = 0; j < 4; ++j) word[j].v = words[j];
  for (i32 k = 0; k < W; ++k)
    for (i32 j = 0; j < PER_BLOCK; ++j) {
#if PER_BLOCK == 4
      const u64 bits = word[j].e[k];
#else
      const u64 bits = (u64)word[2 * j + 1].e[k] << 32 | word[2 * j].e[k];
#endif
#if KIND == BITS_
      values[k * PER_BLOCK + j] = (i64)(params->first != 0 ? bits & (u64)params->first : bits);
#else
      const u64 range = (u64)params->second - (u64)params->first;
      values[k * PER_BLOCK + j] = (i64)((u64)params->first + bits % range);
#endif
    }
#else
  const sc low = (sc)params->low, high = (sc)params->high;
#if KIND == UNIFORM && IS(d)
  for (i32 j = 0; j < 2; ++j) {
    const vul bits = CV_ul(words[2 * j + 1]) << 32 | CV_ul(words[2 * j]);
    drawn[j].v = low + PRODUCT(CV(C, bits >> 11) * TO_53, high - low);
  }
#elif KIND == UNIFORM
  for (i32 j = 0; j < 4; ++j) drawn[j].v = low + PRODUCT(CV(C, words[j] >> 8) * TO_24, high - low);
#elif KIND == BERNOULLI  // the bare number; the caller compares
  for (i32 j = 0; j < 4; ++j) drawn[j].v = CV(C, words[j] >> 8) * TO_24;
#elif KIND == EXPONENTIAL
  for (i32 j = 0; j < 4; ++j) drawn[j].v = -log((CV(C, words[j]) + K(1)) * TO_32) / low;
#else  // Box and Muller
  for (i32 j = 0; j < 4; j += 2) {
    const vc radius = sqrt(K(-2) * log((CV(C, words[j]) + K(1)) * TO_32));
    const vc angle = K(6.283185307179586477) * (CV(C, words[j + 1]) * TO_32);
    drawn[j].v = low + PRODUCT(high, radius * cos(angle));
    drawn[j + 1].v = low + PRODUCT(high, radius * sin(angle));
  }
#endif
  for (i32 k = 0; k < W; ++k)
    for (i32 j = 0; j < PER_BLOCK; ++j) values[k * PER_BLOCK + j] = drawn[j].e[k];
#endif
}

KERNEL(random)(GLOBAL TYPE(OUT) * out, const GLOBAL TYPE(P) * chance, const GLOBAL u64* on_device,
               const Walk walk, const i64 count, const u64 seed_given, const u64 offset_given,
               const i32 flags, const Params params) {
  const u64 seed = flags & 1 ? on_device[0] : seed_given;
  const u64 offset = flags & 1 ? on_device[1] : offset_given;
  const i64 units = (count + UNIT - 1) / UNIT;
#if LANES == 1
  const i64 share = (units + GROUPS(0) - 1) / GROUPS(0), step = 1;
  const i64 begin = GROUP(0) * share, end = begin + share < units ? begin + share : units;
#else
  const i64 begin = (i64)GROUP(0) * LANES + LANE, end = units, step = (i64)GROUPS(0) * LANES;
#endif
  for (i64 unit = begin; unit < end; unit += step) {
    union {
      u64 e[W];
      vul v;
    } counter;
    for (i32 k = 0; k < W; ++k) counter.e[k] = offset + (u64)(unit * W + k);
    vui words[4];
    philox(seed, counter.v, words);
    sc values[UNIT];
    draw(words, &params, values);
    const i64 first = unit * UNIT;
    const i32 n = count - first < UNIT ? (i32)(count - first) : UNIT;
    for (i32 i = 0; i < n; ++i) {
      i64 at_out = (first + i) * walk.stride[0][0], at_p = (first + i) * walk.stride[0][1];
      if (walk.rank > 1) {
        i64 rest = first + i;
        at_out = at_p = 0;
        for (i32 d = 0; d < (i32)walk.rank; ++d) {
          const i64 next = rest / walk.size[d], q = rest - next * walk.size[d];
          at_out += q * walk.stride[d][0];
          at_p += q * walk.stride[d][1];
          rest = next;
        }
      }
#if KIND == BERNOULLI
      const SCALAR(P) u = (SCALAR(P))values[i];
      const i32 hit = flags & 2 ? u < (SCALAR(P))GET(P, chance, at_p)
                                : (i64)(values[i] * K(16777216)) < params.threshold;
      PUT(OUT, out, at_out, hit ? K(1) : K(0));
#elif OUT_IS_INTEGER && !IS(l)
      PUT(OUT, out, at_out, (i64)values[i]);  // truncated, then wrapped
#else
      PUT(OUT, out, at_out, values[i]);
#endif
    }
  }
}
