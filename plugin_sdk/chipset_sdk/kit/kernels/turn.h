// Transposes of small squares by shuffles, for vectors of W.
#if W == 16
#define SPREAD(x, y)                                                                             \
  (vc)(x.s0, y.s0, x.s1, y.s1, x.s2, y.s2, x.s3, y.s3, x.s4, y.s4, x.s5, y.s5, x.s6, y.s6, x.s7, \
       y.s7)
#elif W == 8
#define SPREAD(x, y) (vc)(x.s0, y.s0, x.s1, y.s1, x.s2, y.s2, x.s3, y.s3)
#elif W == 4
#define SPREAD(x, y) (vc)(x.s0, y.s0, x.s1, y.s1)
#endif

// The transpose of `rows` (a power of two) vectors, by log2(rows) perfect shuffles.
#define TURN(x, rows)                                               \
  for (i32 step = 1; step < (rows); step *= 2) {                    \
    vc y[rows];                                                     \
    _Pragma("unroll") for (i32 r = 0; r < (rows) / 2; ++r) {        \
      const vc u = x[r], v = x[r + (rows) / 2];                     \
      y[2 * r] = SPREAD(u.lo, v.lo);                                \
      y[2 * r + 1] = SPREAD(u.hi, v.hi);                            \
    }                                                               \
    _Pragma("unroll") for (i32 r = 0; r < (rows); ++r) x[r] = y[r]; \
  }
