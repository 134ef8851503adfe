// A matrix product for devices with many work-items a group: SIDE x SIDE of them compute a tile of
// 4*SIDE x 4*SIDE, each 4 x 4 elements that lie SIDE apart, from DEPTH columns of a and rows of b
// in local memory at a time. LANES is SIDE*SIDE.
#define DEPTH 16
#define EDGE (4 * SIDE)

KERNEL(gemm)(const GLOBAL TYPE(A) * a, const GLOBAL TYPE(B) * b, const GLOBAL TYPE(E) * c,
             const GLOBAL TYPE(V) * bias, GLOBAL TYPE(D) * d, const Problem p, const sc alpha,
             const sc beta) {
  LOCAL_ARRAY(sc, left, DEPTH * EDGE);
  LOCAL_ARRAY(sc, right, DEPTH * EDGE);
  const i32 row = LANE / SIDE, column = LANE % SIDE;
  // Work-items that follow one another read what lies next to one another.
  const i32 a_along_k = p.a_k <= p.a_m, b_along_k = p.b_k < p.b_n;
  const i64 n0 = (i64)GROUP(0) * EDGE;
  for (i64 batch = GROUP(2); batch < p.batch; batch += GROUPS(2))
    for (i64 m0 = (i64)GROUP(1) * EDGE; m0 < p.m; m0 += (i64)GROUPS(1) * EDGE) {
      sc sums[4][4];
      for (i32 i = 0; i < 4; ++i)
        for (i32 j = 0; j < 4; ++j) sums[i][j] = K(0);
      for (i64 k0 = 0; k0 < p.k; k0 += DEPTH) {
        BARRIER();
        for (i32 e = LANE; e < DEPTH * EDGE; e += LANES) {
          const i32 ak = a_along_k ? e % DEPTH : e / EDGE, am = a_along_k ? e / DEPTH : e % EDGE;
          const i32 bk = b_along_k ? e % DEPTH : e / EDGE, bn = b_along_k ? e / DEPTH : e % EDGE;
          left[ak * EDGE + am] =
              m0 + am < p.m && k0 + ak < p.k
                  ? GET(A, a, batch * p.a_batch + (m0 + am) * p.a_m + (k0 + ak) * p.a_k)
                  : K(0);
          right[bk * EDGE + bn] =
              n0 + bn < p.n && k0 + bk < p.k
                  ? GET(B, b, batch * p.b_batch + (k0 + bk) * p.b_k + (n0 + bn) * p.b_n)
                  : K(0);
        }
        BARRIER();
        for (i32 k = 0; k < DEPTH; ++k) {
          sc x[4], y[4];
          for (i32 i = 0; i < 4; ++i) {
            x[i] = left[k * EDGE + row + i * SIDE];
            y[i] = right[k * EDGE + column + i * SIDE];
          }
          for (i32 i = 0; i < 4; ++i)
            for (i32 j = 0; j < 4; ++j) sums[i][j] = mad(x[i], y[j], sums[i][j]);
        }
      }
      for (i32 i = 0; i < 4; ++i)
        for (i32 j = 0; j < 4; ++j) {
          const i64 m = m0 + row + i * SIDE, n = n0 + column + j * SIDE;
          if (m < p.m && n < p.n) finish_one(p, sums[i][j], c, bias, d, batch, m, n, alpha, beta);
        }
    }
}
