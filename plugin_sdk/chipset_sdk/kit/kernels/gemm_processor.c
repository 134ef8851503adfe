// A matrix product for processors, in OpenCL C: one work-item a group, vectors of W.
//
// Defined before it: MR (rows of a register tile; a tile has NR = 2*W columns), KC and MC (below).
//
// gemm_multiply: a group owns NR columns and up to MC rows. Block by block of K it copies its part
// of b into local memory, converted and in the order of use, and runs all its row tiles over it;
// partial sums stay in local memory. gemm_pack_a has put a into row tiles of K blocks before.
// gemm_dots: for a row or two, over which packing b would not pay.
#define NR (2 * W)
#define AT(i, p) CAT(vload, W)(i, p)  // vector i of p
#define SET(v, i, p) CAT(vstore, W)(v, i, p)

// NR sums of row m from column n0 on, finished and written.
FUNC_ONCE void finish(const Problem p, const sc* sums, const GLOBAL TYPE(E) * c,
                      const GLOBAL TYPE(V) * bias, GLOBAL TYPE(D) * d, i64 batch, i64 m, i64 n0,
                      sc alpha, sc beta) {
  for (i32 v = 0; v < 2; ++v) {
    const i64 n = n0 + v * W;
    const i32 count = (i32)min((i64)W, p.n - n);
    if (count == W && p.d_n == 1 && (!HAS_C || p.c_n == 1) && (!HAS_BIAS || p.bias_n == 1)) {
      vc x = AT(v, sums) * alpha;
#if HAS_C
      x += LOAD(E, c, batch * p.c_batch + m * p.c_m + n) * beta;
#endif
#if HAS_BIAS
      x += LOAD(V, bias, n);
#endif
      ACTIVATE(vc, x);
      STORE(D, d, batch * p.d_batch + m * p.d_m + n, x);
      continue;
    }
    for (i32 i = 0; i < count; ++i)
      finish_one(p, sums[v * W + i], c, bias, d, batch, m, n + i, alpha, beta);
  }
}

#if MR == 4
#define ROWS(X) X(0) X(1) X(2) X(3)
#elif MR == 6
#define ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)
#elif MR == 8
#define ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#elif MR == 12
#define ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#endif
#define EACH_ROW(X) ROWS(X)

// sums[MR][NR] (+)= a[k][MR] b[k][NR]
FUNC_ONCE void tile(const GLOBAL sc* a, const LOCAL sc* b, LOCAL sc* sums, i32 kc, i32 first) {
#define START(r) \
  vc low##r = first ? (vc)(0) : AT(2 * r, sums), high##r = first ? (vc)(0) : AT(2 * r + 1, sums);
  EACH_ROW(START)
  for (i32 k = 0; k < kc; ++k) {
    const vc left = AT(2 * k, b), right = AT(2 * k + 1, b);
#define MULTIPLY(r)                             \
  {                                             \
    const vc factor = (vc)(a[(i64)k * MR + r]); \
    low##r = fma(factor, left, low##r);         \
    high##r = fma(factor, right, high##r);      \
  }
    EACH_ROW(MULTIPLY)
  }
#define STOP(r)             \
  SET(low##r, 2 * r, sums); \
  SET(high##r, 2 * r + 1, sums);
  EACH_ROW(STOP)
}

// W rows of b's transpose, W long, as part of a panel of b.
FUNC_ONCE void turn(const GLOBAL TYPE(B) * b, i64 at, i64 stride, LOCAL sc* to) {
  vc x[W];
#pragma unroll
  for (i32 r = 0; r < W; ++r) x[r] = LOAD(B, b, at + r * stride);
  _Pragma("unroll") TURN(x, W);
#pragma unroll
  for (i32 r = 0; r < W; ++r) SET(x[r], 0, to + r * NR);
}

// One row tile of a, [K][MR], zeros below the last row.
KERNEL(gemm_pack_a)(const GLOBAL TYPE(A) * a, GLOBAL sc* packed, const Problem p) {
  const i64 tiles = (p.m + MR - 1) / MR;
  const i64 m0 = GROUP(0) * (i64)MR;
  const i64 a0 = GROUP(1) * p.a_batch + m0 * p.a_m;
  packed += (GROUP(1) * tiles + GROUP(0)) * p.k * MR;
  const i32 rows = (i32)min((i64)MR, p.m - m0);
  if (rows == MR && p.a_m == 1) {
    for (i64 k = 0; k < p.k; ++k)
      for (i32 r = 0; r < MR; ++r) packed[k * MR + r] = GET(A, a, a0 + k * p.a_k + r);
    return;
  }
  i64 k = 0;
#if MR == 8 || MR == 4
  if (rows == MR && p.a_k == 1)
    for (; k + W <= p.k; k += W) {
      vc x[MR];
#pragma unroll
      for (i32 r = 0; r < MR; ++r) x[r] = LOAD(A, a, a0 + r * p.a_m + k);
      _Pragma("unroll") TURN(x, MR);
#pragma unroll
      for (i32 r = 0; r < MR; ++r) SET(x[r], r, packed + k * MR);
    }
#endif
  for (; k < p.k; ++k)
    for (i32 r = 0; r < MR; ++r)
      packed[k * MR + r] = r < rows ? GET(A, a, a0 + r * p.a_m + k * p.a_k) : 0;
}

// kc rows of b, NR columns, zeros beyond the last column.
FUNC_ONCE void pack_b(const GLOBAL TYPE(B) * b, i64 at, const Problem p, i32 kc, i32 width,
                      LOCAL sc* packed) {
  if (width == NR && p.b_n == 1) {
    for (i32 k = 0; k < kc; ++k) {
      SET(LOAD(B, b, at + k * p.b_k), 2 * k, packed);
      SET(LOAD(B, b, at + k * p.b_k + W), 2 * k + 1, packed);
    }
    return;
  }
  i32 k = 0;
  if (width == NR && p.b_k == 1)
    for (; k + W <= kc; k += W) {
      turn(b, at + k, p.b_n, packed + k * NR);
      turn(b, at + k + W * p.b_n, p.b_n, packed + k * NR + W);
    }
  for (; k < kc; ++k)
    for (i32 n = 0; n < NR; ++n)
      packed[k * NR + n] = n < width ? GET(B, b, at + k * p.b_k + n * p.b_n) : 0;
}

KERNEL(gemm_multiply)(const GLOBAL sc* a, const GLOBAL TYPE(B) * b, const GLOBAL TYPE(E) * c,
                      const GLOBAL TYPE(V) * bias, GLOBAL TYPE(D) * d, const Problem p,
                      const sc alpha, const sc beta) {
  LOCAL sc packed[KC * NR] __attribute__((aligned(64)));
  LOCAL sc sums[MC * NR] __attribute__((aligned(64)));
  const i64 n0 = GROUP(0) * (i64)NR, m0 = GROUP(1) * p.rows;
  const i64 batch = GROUP(2);
  const i32 rows = (i32)min(p.rows, p.m - m0);
  const i32 width = (i32)min((i64)NR, p.n - n0);
  a += (batch * ((p.m + MR - 1) / MR) * MR + m0) * p.k;
  for (i64 k0 = 0; k0 < p.k; k0 += KC) {
    const i32 kc = (i32)min((i64)KC, p.k - k0);
    pack_b(b, batch * p.b_batch + k0 * p.b_k + n0 * p.b_n, p, kc, width, packed);
    for (i32 m = 0; m < rows; m += MR)
      tile(a + m * p.k + k0 * MR, packed, sums + m * NR, kc, k0 == 0);
  }
  for (i32 m = 0; m < rows; ++m) {
    sc row[NR];
    for (i32 n = 0; n < NR; ++n) row[n] = p.k > 0 ? sums[m * NR + n] : 0;
    finish(p, row, c, bias, d, batch, m0 + m, n0, alpha, beta);
  }
}

#if W == 16
#define SUM(v) SUM4(v.lo.lo + v.lo.hi + v.hi.lo + v.hi.hi)
#elif W == 8
#define SUM(v) SUM4(v.lo + v.hi)
#else
#define SUM(v) SUM4(v)
#endif
#define SUM4_(v) (v.s0 + v.s1 + v.s2 + v.s3)
#define SUM4(v) SUM4_((v))

// For a row or two of a: dot products with the rows of b's transpose, both dense along k.
KERNEL(gemm_dots)(const GLOBAL TYPE(A) * a, const GLOBAL TYPE(B) * b, const GLOBAL TYPE(E) * c,
                  const GLOBAL TYPE(V) * bias, GLOBAL TYPE(D) * d, const Problem p, const sc alpha,
                  const sc beta) {
  const i64 n0 = GROUP(0) * (i64)NR, m = GROUP(1), batch = GROUP(2);
  const i64 x_at = batch * p.a_batch + m * p.a_m;
  const i32 width = (i32)min((i64)NR, p.n - n0);
  sc row[NR];
  for (i32 n = 0; n < width; n += 4) {
    const i64 y0 = batch * p.b_batch + (n0 + n) * p.b_n;
    const i64 y1 = y0 + min(1, width - 1 - n) * p.b_n, y2 = y0 + min(2, width - 1 - n) * p.b_n,
              y3 = y0 + min(3, width - 1 - n) * p.b_n;
    vc v0 = 0, v1 = 0, v2 = 0, v3 = 0;
    i64 k = 0;
    for (; k + W <= p.k; k += W) {
      const vc x = LOAD(A, a, x_at + k);
      v0 = fma(x, LOAD(B, b, y0 + k), v0);
      v1 = fma(x, LOAD(B, b, y1 + k), v1);
      v2 = fma(x, LOAD(B, b, y2 + k), v2);
      v3 = fma(x, LOAD(B, b, y3 + k), v3);
    }
    sc s0 = SUM(v0), s1 = SUM(v1), s2 = SUM(v2), s3 = SUM(v3);
    for (; k < p.k; ++k) {
      const sc x = GET(A, a, x_at + k);
      s0 += x * GET(B, b, y0 + k);
      s1 += x * GET(B, b, y1 + k);
      s2 += x * GET(B, b, y2 + k);
      s3 += x * GET(B, b, y3 + k);
    }
    row[n] = s0, row[n + 1] = s1, row[n + 2] = s2, row[n + 3] = s3;
  }
  finish(p, row, c, bias, d, batch, m, n0, alpha, beta);
}
