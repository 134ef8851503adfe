// SPDX-License-Identifier: Apache-2.0
// GEMM for processors in OpenCL C: d = activation(alpha*a@b + beta*c + bias), one work-item a
// group.
//
// Defined before it: COMPUTE (float or double), VW (its lanes in a vector), MR (rows of a register
// tile; a tile has NR = 2*VW columns), KC and MC (see multiply), the dtypes A, B, C, D and BIAS
// (f16, bf16, f32 or f64), HAS_C, HAS_BIAS and ACTIVATION.
//
// multiply: a group owns NR columns and MC rows. Block by block of K it copies its part of b into
// local memory, converted and in the order of use, and runs all its row tiles over it; partial sums
// stay in local memory in COMPUTE. pack_a has put a into row tiles of K blocks before.
#pragma once

namespace chipset::opencl {

inline constexpr char kGemmSource[] = R"cl(
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define VEC CAT(COMPUTE, VW)
#define VLOAD CAT(vload, VW)
#define VSTORE CAT(vstore, VW)
#define NR (2 * VW)
#define ALONE __attribute__((reqd_work_group_size(1, 1, 1)))

typedef struct {
  long m, n, k, mc;                      // mc: rows of a group, a multiple of MR
  long a_batch, a_m, a_k, b_batch, b_k, b_n;
  long c_batch, c_m, c_n, d_batch, d_m, d_n, bias_n;
  COMPUTE alpha, beta;
} Problem;

typedef const __global void* In;
typedef __global void* Out;

// Elements and vectors of a dtype as COMPUTE, and back with rounding to nearest even.
#define LOAD_f64(p, i) (((const __global double*)(p))[i])
#define VLOAD_f64(p, i) VLOAD(0, (const __global double*)(p) + (i))
#define STORE_f64(x, p, i) (((__global double*)(p))[i] = (x))
#define VSTORE_f64(x, p, i) VSTORE(x, 0, (__global double*)(p) + (i))
#define LOAD_f32(p, i) (((const __global float*)(p))[i])
#define VLOAD_f32(p, i) VLOAD(0, (const __global float*)(p) + (i))
#define STORE_f32(x, p, i) (((__global float*)(p))[i] = (x))
#define VSTORE_f32(x, p, i) VSTORE(x, 0, (__global float*)(p) + (i))
#define LOAD_f16(p, i) vload_half(i, (const __global half*)(p))
#define VLOAD_f16(p, i) CAT(vload_half, VW)(0, (const __global half*)(p) + (i))
#define STORE_f16(x, p, i) vstore_half_rte(x, i, (__global half*)(p))
#define VSTORE_f16(x, p, i) CAT(CAT(vstore_half, VW), _rte)(x, 0, (__global half*)(p) + (i))
#define LOAD_bf16(p, i) as_float((uint)((const __global ushort*)(p))[i] << 16)
#define VLOAD_bf16(p, i) \
  CAT(as_float, VW)(CAT(convert_uint, VW)(VLOAD(0, (const __global ushort*)(p) + (i))) << 16)
#define TO_BF16(N, x) \
  CAT(convert_ushort, N)(isnan(x) ? 0x7fc0u : (CAT(as_uint, N)(x) + 0x7fffu + ((CAT(as_uint, N)(x) >> 16) & 1u)) >> 16)
#define STORE_bf16(x, p, i) (((__global ushort*)(p))[i] = TO_BF16(, x))
#define VSTORE_bf16(x, p, i) VSTORE(TO_BF16(VW, x), 0, (__global ushort*)(p) + (i))
#define LOAD_(X) CAT(LOAD_, X)
#define VLOAD_(X) CAT(VLOAD_, X)

#if ACTIVATION == 1
#define ACTIVATE(T, x) x = x < 0 ? (T)(0) : x
#elif ACTIVATION == 2
#define ACTIVATE(T, x) x *= (COMPUTE)0.5 * (1 + erf(x * (COMPUTE)0.70710678118654752440))
#elif ACTIVATION == 3
#define ACTIVATE(T, x) \
  x *= (COMPUTE)0.5 * (1 + tanh((COMPUTE)0.79788456080286535588 * (x + (COMPUTE)0.044715 * x * x * x)))
#elif ACTIVATION == 4
#define ACTIVATE(T, x) x = x / (1 + exp(-x))
#else
#define ACTIVATE(T, x)
#endif

// NR sums of row m from column n0 on, finished and written.
static void finish(const Problem p, const COMPUTE* sums, In c, In bias, Out d, long batch, long m,
                   long n0) {
  const long c_row = batch * p.c_batch + m * p.c_m, d_row = batch * p.d_batch + m * p.d_m;
  for (int v = 0; v < 2; ++v) {
    const long n = n0 + v * VW;
    const int lanes = (int)min((long)VW, p.n - n);
    if (lanes == VW && p.d_n == 1 && (!HAS_C || p.c_n == 1) && (!HAS_BIAS || p.bias_n == 1)) {
      VEC x = VLOAD(v, sums) * p.alpha;
#if HAS_C
      x += VLOAD_(C)(c, c_row + n) * p.beta;
#endif
#if HAS_BIAS
      x += VLOAD_(BIAS)(bias, n);
#endif
      ACTIVATE(VEC, x);
      CAT(VSTORE_, D)(x, d, d_row + n);
      continue;
    }
    for (int i = 0; i < lanes; ++i) {
      COMPUTE x = sums[v * VW + i] * p.alpha;
#if HAS_C
      x += LOAD_(C)(c, c_row + (n + i) * p.c_n) * p.beta;
#endif
#if HAS_BIAS
      x += LOAD_(BIAS)(bias, (n + i) * p.bias_n);
#endif
      ACTIVATE(COMPUTE, x);
      CAT(STORE_, D)(x, d, d_row + (n + i) * p.d_n);
    }
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
static void tile(const __global COMPUTE* a, const __local COMPUTE* b, __local COMPUTE* sums, int kc,
                 int first) {
#define START(r)                                    \
  VEC low##r = first ? (VEC)(0) : VLOAD(2 * r, sums), \
      high##r = first ? (VEC)(0) : VLOAD(2 * r + 1, sums);
  EACH_ROW(START)
  for (int k = 0; k < kc; ++k) {
    const VEC left = VLOAD(2 * k, b), right = VLOAD(2 * k + 1, b);
#define MULTIPLY(r)                                   \
  {                                                   \
    const VEC factor = (VEC)(a[(long)k * MR + r]);    \
    low##r = fma(factor, left, low##r);               \
    high##r = fma(factor, right, high##r);            \
  }
    EACH_ROW(MULTIPLY)
  }
#define STOP(r) VSTORE(low##r, 2 * r, sums); VSTORE(high##r, 2 * r + 1, sums);
  EACH_ROW(STOP)
}

#if VW == 16
#define SPREAD(x, y) \
  (VEC)(x.s0, y.s0, x.s1, y.s1, x.s2, y.s2, x.s3, y.s3, x.s4, y.s4, x.s5, y.s5, x.s6, y.s6, x.s7, y.s7)
#elif VW == 8
#define SPREAD(x, y) (VEC)(x.s0, y.s0, x.s1, y.s1, x.s2, y.s2, x.s3, y.s3)
#elif VW == 4
#define SPREAD(x, y) (VEC)(x.s0, y.s0, x.s1, y.s1)
#endif

// The transpose of `rows` (a power of two) vectors, by log2(rows) perfect shuffles.
#define TURN(x, rows)                                \
  for (int step = 1; step < (rows); step *= 2) {     \
    VEC y[rows];                                     \
    _Pragma("unroll") for (int r = 0; r < (rows) / 2; ++r) { \
      const VEC u = x[r], v = x[r + (rows) / 2];     \
      y[2 * r] = SPREAD(u.lo, v.lo);                 \
      y[2 * r + 1] = SPREAD(u.hi, v.hi);             \
    }                                                \
    _Pragma("unroll") for (int r = 0; r < (rows); ++r) x[r] = y[r]; \
  }

// VW rows of b's transpose, VW long, as part of a panel of b.
static void turn(In b, long at, long stride, __local COMPUTE* to) {
  VEC x[VW];
#pragma unroll
  for (int r = 0; r < VW; ++r) x[r] = VLOAD_(B)(b, at + r * stride);
  _Pragma("unroll") TURN(x, VW);
#pragma unroll
  for (int r = 0; r < VW; ++r) VSTORE(x[r], 0, to + r * NR);
}

// One row tile of a, [K][MR], zeros below the last row.
__kernel ALONE void pack_a(In a, __global COMPUTE* packed, const Problem p) {
  const long tiles = (p.m + MR - 1) / MR;
  const long m0 = get_group_id(0) * (long)MR;
  const long a0 = get_group_id(1) * p.a_batch + m0 * p.a_m;
  packed += (get_group_id(1) * tiles + get_group_id(0)) * p.k * MR;
  const int rows = (int)min((long)MR, p.m - m0);
  if (rows == MR && p.a_m == 1) {
    for (long k = 0; k < p.k; ++k)
      for (int r = 0; r < MR; ++r) packed[k * MR + r] = LOAD_(A)(a, a0 + k * p.a_k + r);
    return;
  }
  long k = 0;
#if MR == 8 || MR == 4
  if (rows == MR && p.a_k == 1)
    for (; k + VW <= p.k; k += VW) {
      VEC x[MR];
#pragma unroll
      for (int r = 0; r < MR; ++r) x[r] = VLOAD_(A)(a, a0 + r * p.a_m + k);
      _Pragma("unroll") TURN(x, MR);
#pragma unroll
      for (int r = 0; r < MR; ++r) VSTORE(x[r], r, packed + k * MR);
    }
#endif
  for (; k < p.k; ++k)
    for (int r = 0; r < MR; ++r)
      packed[k * MR + r] = r < rows ? LOAD_(A)(a, a0 + r * p.a_m + k * p.a_k) : 0;
}

// kc rows of b, NR columns, zeros beyond the last column.
static void pack_b(In b, long at, const Problem p, int kc, int width, __local COMPUTE* packed) {
  if (width == NR && p.b_n == 1) {
    for (int k = 0; k < kc; ++k) {
      VSTORE(VLOAD_(B)(b, at + k * p.b_k), 2 * k, packed);
      VSTORE(VLOAD_(B)(b, at + k * p.b_k + VW), 2 * k + 1, packed);
    }
    return;
  }
  int k = 0;
  if (width == NR && p.b_k == 1)
    for (; k + VW <= kc; k += VW) {
      turn(b, at + k, p.b_n, packed + k * NR);
      turn(b, at + k + VW * p.b_n, p.b_n, packed + k * NR + VW);
    }
  for (; k < kc; ++k)
    for (int n = 0; n < NR; ++n)
      packed[k * NR + n] = n < width ? LOAD_(B)(b, at + k * p.b_k + n * p.b_n) : 0;
}

__kernel ALONE void multiply(const __global COMPUTE* a, In b, In c, In bias, Out d,
                             const Problem p) {
  __local COMPUTE packed[KC * NR] __attribute__((aligned(64)));
  __local COMPUTE sums[MC * NR] __attribute__((aligned(64)));
  const long n0 = get_group_id(0) * (long)NR, m0 = get_group_id(1) * p.mc;
  const long batch = get_group_id(2);
  const int rows = (int)min(p.mc, p.m - m0);
  const int width = (int)min((long)NR, p.n - n0);
  a += (batch * ((p.m + MR - 1) / MR) * MR + m0) * p.k;
  for (long k0 = 0; k0 < p.k; k0 += KC) {
    const int kc = (int)min((long)KC, p.k - k0);
    pack_b(b, batch * p.b_batch + k0 * p.b_k + n0 * p.b_n, p, kc, width, packed);
    for (int m = 0; m < rows; m += MR)
      tile(a + m * p.k + k0 * MR, packed, sums + m * NR, kc, k0 == 0);
  }
  for (int m = 0; m < rows; ++m) {
    COMPUTE row[NR];
    for (int n = 0; n < NR; ++n) row[n] = p.k > 0 ? sums[m * NR + n] : 0;
    finish(p, row, c, bias, d, batch, m0 + m, n0);
  }
}

#if VW == 16
#define SUM(v) SUM4(v.lo.lo + v.lo.hi + v.hi.lo + v.hi.hi)
#elif VW == 8
#define SUM(v) SUM4(v.lo + v.hi)
#else
#define SUM(v) SUM4(v)
#endif
#define SUM4_(v) (v.s0 + v.s1 + v.s2 + v.s3)
#define SUM4(v) SUM4_((v))

// For a row or two of a: dot products with the rows of b's transpose, both dense along k.
__kernel ALONE void dots(In a, In b, In c, In bias, Out d, const Problem p) {
  const long n0 = get_group_id(0) * (long)NR, m = get_group_id(1), batch = get_group_id(2);
  const long x_at = batch * p.a_batch + m * p.a_m;
  const int width = (int)min((long)NR, p.n - n0);
  COMPUTE row[NR];
  for (int n = 0; n < width; n += 4) {
    const long y0 = batch * p.b_batch + (n0 + n) * p.b_n;
    const long y1 = y0 + min(1, width - 1 - n) * p.b_n, y2 = y0 + min(2, width - 1 - n) * p.b_n,
               y3 = y0 + min(3, width - 1 - n) * p.b_n;
    VEC v0 = 0, v1 = 0, v2 = 0, v3 = 0;
    long k = 0;
    for (; k + VW <= p.k; k += VW) {
      const VEC x = VLOAD_(A)(a, x_at + k);
      v0 = fma(x, VLOAD_(B)(b, y0 + k), v0);
      v1 = fma(x, VLOAD_(B)(b, y1 + k), v1);
      v2 = fma(x, VLOAD_(B)(b, y2 + k), v2);
      v3 = fma(x, VLOAD_(B)(b, y3 + k), v3);
    }
    COMPUTE s0 = SUM(v0), s1 = SUM(v1), s2 = SUM(v2), s3 = SUM(v3);
    for (; k < p.k; ++k) {
      const COMPUTE x = LOAD_(A)(a, x_at + k);
      s0 += x * LOAD_(B)(b, y0 + k);
      s1 += x * LOAD_(B)(b, y1 + k);
      s2 += x * LOAD_(B)(b, y2 + k);
      s3 += x * LOAD_(B)(b, y3 + k);
    }
    row[n] = s0, row[n + 1] = s1, row[n + 2] = s2, row[n + 3] = s3;
  }
  finish(p, row, c, bias, d, batch, m, n0);
}
)cl";

}  // namespace chipset::opencl
