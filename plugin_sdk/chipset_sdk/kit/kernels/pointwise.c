// One elementwise operation. The host defines OUT, A, B, Z (dtypes), A_KIND, … (how an operand is
// read along the inner dimension), C (class computed in), TO_COMPUTE, TO_OUT, OPERATION(x, y, z),
// BLOCK (elements of a unit of work) and IDX.
#define IMMEDIATE 0
#define ADJACENT 1
#define REPEATED 2
#define STRIDED 3

typedef struct {
  i64 rank, size[8], stride[8][4];  // of out, A, B, Z
} Walk;
typedef struct {
  sc p[4], immediate[4];
} Numbers;
// In one: a launch costs some drivers an allocation for each argument.
typedef struct {
  Walk walk;
  i64 rows;
  Numbers numbers;
} Call;

// The numbers of W elements from `first` on.
FUNC vc row_major(i64 first) {
  union {
    sc e[W];
    vc v;
  } u;
  for (i32 k = 0; k < W; ++k) u.e[k] = (sc)(first + k);
  return u.v;
}
#if IS(d)
FUNC vf rounded_to_odd(vd x) {
  union {
    f64 e[W];
    vd v;
  } u;
  union {
    f32 e[W];
    vf v;
  } r;
  u.v = x;
  for (i32 k = 0; k < W; ++k) r.e[k] = f64_to_f32_odd(u.e[k]);
  return r.v;
}
#endif

#define FETCH(X, KIND, p, at, k)                                                  \
  TO_COMPUTE(KIND == ADJACENT ? LOAD_N(X, p, at + i, 1, n, 0)                     \
                              : CAT(part_, X)(p, at + i * call.walk.stride[0][k], \
                                              call.walk.stride[0][k], n, 0))

KERNEL(pointwise)(GLOBAL TYPE(OUT) * out, const GLOBAL TYPE(A) * a, const GLOBAL TYPE(B) * b,
                  const GLOBAL TYPE(Z) * c, const Call call) {
  const vc p0 = (vc)(call.numbers.p[0]), p1 = (vc)(call.numbers.p[1]), p2 = (vc)(call.numbers.p[2]),
           p3 = (vc)(call.numbers.p[3]);
  const IDX inner = (IDX)call.walk.size[0];
  const IDX blocks = (inner + BLOCK - 1) / BLOCK;
  const IDX units = (IDX)call.rows * blocks;
#if LANES == 1
  const IDX share = (units + (IDX)GROUPS(0) - 1) / (IDX)GROUPS(0);
  const IDX first = (IDX)GROUP(0) * share, step = 1;
  const IDX last = first + share < units ? first + share : units;
#else
  const IDX first = (IDX)GROUP(0) * LANES + LANE, step = (IDX)GROUPS(0) * LANES, last = units;
#endif
  for (IDX unit = first; unit < last; unit += step) {
    IDX row = unit / blocks;
    const IDX begin = (unit - row * blocks) * BLOCK;
    const IDX end = begin + BLOCK < inner ? begin + BLOCK : inner;
    i64 at_out = 0, at_a = 0, at_b = 0, at_c = 0;
    i64 index = (i64)row * inner;  // row-major, of the first element; ARANGE keeps the order
    for (i32 d = 1; d < (i32)call.walk.rank; ++d) {
      const IDX size = (IDX)call.walk.size[d];
      const IDX next = row / size;
      const i64 q = row - next * size;
      at_out += q * call.walk.stride[d][0];
      at_a += q * call.walk.stride[d][1];
      at_b += q * call.walk.stride[d][2];
      at_c += q * call.walk.stride[d][3];
      row = next;
    }
#if A_KIND == REPEATED
    const vc x_row = TO_COMPUTE((VECTOR(A))(GET(A, a, at_a)));
#endif
#if B_KIND == REPEATED
    const vc y_row = TO_COMPUTE((VECTOR(B))(GET(B, b, at_b)));
#endif
#if Z_KIND == REPEATED
    const vc z_row = TO_COMPUTE((VECTOR(Z))(GET(Z, c, at_c)));
#endif
    for (IDX i = begin; i < end; i += W) {
      const i32 n = end - i < W ? (i32)(end - i) : W;
#if A_KIND == IMMEDIATE
      const vc x = (vc)(call.numbers.immediate[0]);
#elif A_KIND == REPEATED
      const vc x = x_row;
#elif A_IS_CONDITION
      const vi x =
          TRUTH(LOAD_N(A, a, at_a + i * call.walk.stride[0][1], call.walk.stride[0][1], n, 0) != 0);
#else
      const vc x = FETCH(A, A_KIND, a, at_a, 1);
#endif
#if B_KIND == IMMEDIATE
      const vc y = (vc)(call.numbers.immediate[1]);
#elif B_KIND == REPEATED
      const vc y = y_row;
#else
      const vc y = FETCH(B, B_KIND, b, at_b, 2);
#endif
#if Z_KIND == IMMEDIATE
      const vc z = (vc)(call.numbers.immediate[2]);
#elif Z_KIND == REPEATED
      const vc z = z_row;
#else
      const vc z = FETCH(Z, Z_KIND, c, at_c, 3);
#endif
#if OUT_ADJACENT
      STORE_N(OUT, out, at_out + i, 1, n, TO_OUT(OPERATION(x, y, z)));
#else
      CAT(put_part_, OUT)(out, at_out + i * call.walk.stride[0][0], call.walk.stride[0][0], n,
                          TO_OUT(OPERATION(x, y, z)));
#endif
    }
  }
}
