// d = activation(x @ dequantize(q)^T + bias). A group has COLUMNS rows of q, which are columns of
// d, and ROWS rows of x at a time: dot products, a vector of each of the ROWS * COLUMNS. X: the
// input (floats, or I8 with a scale per row), D: the output and the bias. The host defines INTEGERS
// (x and q are integers: products add up exactly), HAS_ZERO, HAS_BIAS and ACTIVATION beside what
// quantized.h names.
#if ACTIVATION == 1
#define ACTIVATED(x) ((x) < 0.0f ? 0.0f : (x))
#elif ACTIVATION == 2
#define ACTIVATED(x) (0.5f * (x) * erfc(-0.70710678f * (x)))
#elif ACTIVATION == 3
#define ACTIVATED(x) ((x) / (1.0f + exp(-2.0f * 0.79788456f * ((x) + 0.044715f * (x) * (x) * (x)))))
#elif ACTIVATION == 4
#define ACTIVATED(x) ((x) / (1.0f + exp(-(x))))
#else
#define ACTIVATED(x) (x)
#endif
// A lane's products of two integers of 8 bits add up in a float without rounding this often.
#define EXACT_STEPS 1024

typedef struct {
  i64 row_x, step_x, row_q, step_q, row_scale, step_scale, row_zero, step_zero, row_d, step_d;
  i64 step_x_scale, step_bias;
} Strides;

// Rows of x from m on (`count` of them), against rows of q from n on: into sum[ROWS][COLUMNS].
FUNC void dot_products(const GLOBAL TYPE(X) * x, const GLOBAL TYPE(Q) * q, const GLOBAL f32* scales,
                       const GLOBAL i32* zeros, const Strides* s, i64 m, i64 n, i64 last_row,
                       i64 last_column, i64 length, i64 size, LOCAL f32* room, LOCAL i32* room_i,
                       f32 sum[ROWS][COLUMNS]) {
  i64 at_x[ROWS], at_q[COLUMNS], column[COLUMNS];
  for (i32 a = 0; a < ROWS; ++a) at_x[a] = (m + a < last_row ? m + a : last_row) * s->row_x;
  for (i32 b = 0; b < COLUMNS; ++b) {
    column[b] = n + b < last_column ? n + b : last_column;
    at_q[b] = column[b] * s->row_q;
  }
  for (i32 a = 0; a < ROWS; ++a)
    for (i32 b = 0; b < COLUMNS; ++b) sum[a][b] = 0.0f;
#if !INTEGERS
  vf total[ROWS][COLUMNS];
  for (i32 a = 0; a < ROWS; ++a)
    for (i32 b = 0; b < COLUMNS; ++b) total[a][b] = (vf)(0.0f);
#endif
  for (i64 first = 0, group = 0; first < length; first += size, ++group) {
    const i64 count = length - first < size ? length - first : size;
    vf acc[ROWS][COLUMNS];
    for (i32 a = 0; a < ROWS; ++a)
      for (i32 b = 0; b < COLUMNS; ++b) acc[a][b] = (vf)(0.0f);
#if HAS_ZERO
    vf zero[COLUMNS];
    for (i32 b = 0; b < COLUMNS; ++b)
      zero[b] = (vf)((f32)zeros[column[b] * s->row_zero + group * s->step_zero]);
#endif
#if INTEGERS
    vi whole[ROWS][COLUMNS];
    for (i32 a = 0; a < ROWS; ++a)
      for (i32 b = 0; b < COLUMNS; ++b) whole[a][b] = (vi)(0);
    vf of_x[ROWS];
    vi whole_of_x[ROWS];
    for (i32 a = 0; a < ROWS; ++a) {
      of_x[a] = (vf)(0.0f);
      whole_of_x[a] = (vi)(0);
    }
#endif
    i64 i = (i64)LANE * W, left = count - i;
    while (left > 0) {
#if INTEGERS
      for (i32 steps = 0; steps < EXACT_STEPS && left > 0; ++steps) {
#endif
        const i32 some = SOME(left);
        vf weight[COLUMNS];
        for (i32 b = 0; b < COLUMNS; ++b) {
          weight[b] = quantized(q, at_q[b], first + i, s->step_q, some);
#if HAS_ZERO && !INTEGERS
          weight[b] -= zero[b];
#endif
        }
        for (i32 a = 0; a < ROWS; ++a) {
          const vf v = CV(f, LOAD_N(X, x, at_x[a] + (first + i) * s->step_x, s->step_x, some, 0));
          for (i32 b = 0; b < COLUMNS; ++b) acc[a][b] = mad(v, weight[b], acc[a][b]);
#if HAS_ZERO && INTEGERS
          of_x[a] += v;
#endif
        }
        i += (i64)LANES * W;
        left -= (i64)LANES * W;
#if INTEGERS
      }
      for (i32 a = 0; a < ROWS; ++a) {
        for (i32 b = 0; b < COLUMNS; ++b) {
          whole[a][b] += CV_i(acc[a][b]);
          acc[a][b] = (vf)(0.0f);
        }
        whole_of_x[a] += CV_i(of_x[a]);
        of_x[a] = (vf)(0.0f);
      }
#endif
    }
    for (i32 b = 0; b < COLUMNS; ++b) {
      const f32 scale = scales[column[b] * s->row_scale + group * s->step_scale];
      for (i32 a = 0; a < ROWS; ++a) {
#if INTEGERS
        i64 exact = group_sum_i(fold_sum_i(whole[a][b]), room_i);
#if HAS_ZERO
        exact -= (i64)zeros[column[b] * s->row_zero + group * s->step_zero] *
                 group_sum_i(fold_sum_i(whole_of_x[a]), room_i);
#endif
        sum[a][b] += (f32)exact * scale;
#else
        total[a][b] += acc[a][b] * scale;
#endif
      }
    }
  }
#if !INTEGERS
  for (i32 a = 0; a < ROWS; ++a)
    for (i32 b = 0; b < COLUMNS; ++b) sum[a][b] = group_sum_f(fold_sum_f(total[a][b]), room);
#endif
}

KERNEL(gemm_quantized)(const GLOBAL TYPE(X) * x, const GLOBAL TYPE(Q) * q, const GLOBAL f32* scales,
                       const GLOBAL i32* zeros, const GLOBAL f32* x_scales,
                       const GLOBAL TYPE(D) * bias, GLOBAL TYPE(D) * d, const i64 rows,
                       const i64 columns, const i64 length, const i64 size, const Strides strides) {
  LOCAL_ARRAY(f32, room, LANES);
  LOCAL_ARRAY(i32, room_i, LANES);
  ROWS_OF((columns + COLUMNS - 1) / COLUMNS) {
    const i64 n = row * COLUMNS;
    for (i64 m = 0; m < rows; m += ROWS) {
      f32 sum[ROWS][COLUMNS];
      dot_products(x, q, scales, zeros, &strides, m, n, rows - 1, columns - 1, length, size, room,
                   room_i, sum);
      for (i32 a = 0; a < ROWS && LANE == 0; ++a)
        for (i32 b = 0; b < COLUMNS; ++b)
          if (m + a < rows && n + b < columns) {
            f32 v = sum[a][b];
#if HAS_X_SCALE
            v *= x_scales[(m + a) * strides.step_x_scale];
#endif
#if HAS_BIAS
            v += GET(D, bias, (n + b) * strides.step_bias);
#endif
            PUT(D, d, (m + a) * strides.row_d + (n + b) * strides.step_d, ACTIVATED(v));
          }
    }
  }
}
