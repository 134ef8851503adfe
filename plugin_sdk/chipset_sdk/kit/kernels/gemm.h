// What the kernels of a matrix product share: d = activation(alpha*a@b + beta*c + bias). Operands:
// A, B, E (c), D and V (bias); class C. HAS_C, HAS_BIAS and ACTIVATION are defined by the host.
typedef struct {
  i64 batch, m, n, k;
  i64 rows;  // of a group, where a kernel leaves that to the host
  i64 a_batch, a_m, a_k, b_batch, b_k, b_n;
  i64 c_batch, c_m, c_n, d_batch, d_m, d_n, bias_n;
} Problem;

#if ACTIVATION == 1
#define ACTIVATE(T, x) x = x < (T)(K(0)) ? (T)(K(0)) : x
#elif ACTIVATION == 2
#define ACTIVATE(T, x) x *= K(0.5) * (K(1) + erf(x * K(0.70710678118654752)))
#elif ACTIVATION == 3
#define ACTIVATE(T, x) \
  x *= K(0.5) * (K(1) + tanh(K(0.79788456080286536) * (x + K(0.044715) * x * x * x)))
#elif ACTIVATION == 4
#define ACTIVATE(T, x) x = x / (K(1) + exp(-x))
#else
#define ACTIVATE(T, x)
#endif

// One sum, finished and written.
FUNC void finish_one(const Problem p, sc x, const GLOBAL TYPE(E) * c, const GLOBAL TYPE(V) * bias,
                     GLOBAL TYPE(D) * d, i64 batch, i64 m, i64 n, sc alpha, sc beta) {
  x *= alpha;
#if HAS_C
  x += GET(E, c, batch * p.c_batch + m * p.c_m + n * p.c_n) * beta;
#endif
#if HAS_BIAS
  x += GET(V, bias, n * p.bias_n);
#endif
  ACTIVATE(sc, x);
  PUT(D, d, batch * p.d_batch + m * p.d_m + n * p.d_n, x);
}
