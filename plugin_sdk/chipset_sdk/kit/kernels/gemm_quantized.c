// d = activation(x @ dequantize(q)^T + bias). A group has COLUMNS rows of q, which are columns of
// d, and ROWS rows of x at a time: dot products, a vector of each of the ROWS * COLUMNS. X: the
// input (floats, or I8 with a scale per row), D: the output and the bias. The host defines INTEGERS
// (x and q are integers: products add up exactly) and HAS_ZERO beside what
// quantized.h names.
FUNC f32 activated(f32 x, i32 activation) {
  switch (activation) {
    case 1:
      return x < 0.0f ? 0.0f : x;
    case 2:
      return 0.5f * x * erfc(-0.70710678f * x);
    case 3:
      return x / (1.0f + exp(-2.0f * 0.79788456f * (x + 0.044715f * x * x * x)));
    case 4:
      return x / (1.0f + exp(-x));
    default:
      return x;
  }
}
// A lane's products of two integers of 8 bits add up in a float without rounding this often.
#define EXACT_STEPS 1024

#if HAS_ZERO && !INTEGERS
#define LESS_ZERO(v, b) ((v) - zero[b])
#define LESS_ZERO_OF_ONE(v, b) ((v) - (f32)zeros[column[b] * s->row_zero + group * s->step_zero])
#else
#define LESS_ZERO(v, b) (v)
#define LESS_ZERO_OF_ONE(v, b) (v)
#endif
#if HAS_ZERO && INTEGERS
#define ADD_X(a, v) of_x[a] += v
#else
#define ADD_X(a, v)
#endif
#define EACH_ROW _Pragma("unroll") for (i32 a = 0; a < ROWS; ++a)
#define EACH_COLUMN _Pragma("unroll") for (i32 b = 0; b < COLUMNS; ++b)
// The products of W elements from i on.
#define ADD_PRODUCTS()                                                                           \
  do {                                                                                           \
    vf weight[COLUMNS];                                                                          \
    EACH_COLUMN weight[b] = LESS_ZERO(adjacent_quantized(q, at_q[b] + (first + i) * STEP_Q), b); \
    EACH_ROW {                                                                                   \
      const vf v = CV(f, LOAD(X, x, at_x[a] + (first + i) * STEP_X));                            \
      EACH_COLUMN acc[a][b] = mad(v, weight[b], acc[a][b]);                                      \
      ADD_X(a, v);                                                                               \
    }                                                                                            \
  } while (0)
// Vectors are of adjacent elements; the host sees to it, W is 1 elsewhere. REST: what a group's
// last vector lacked, an integer.
#if W == 1
#define REST(x) 0
#define STEP_X s->step_x
#define STEP_Q s->step_q
#else
#define REST(x) (i64)(x)
#define STEP_X 1
#define STEP_Q 1
#endif

typedef struct {
  i64 row_x, step_x, row_q, step_q, row_scale, step_scale, row_zero, step_zero, row_d, step_d;
  i64 step_x_scale, step_bias;
} Strides;

// Rows of x from m on against rows of q from n on: into sum[ROWS][COLUMNS].
FUNC void dot_products(const GLOBAL TYPE(X) * x, const GLOBAL TYPE(Q) * q, const GLOBAL f32* scales,
                       const GLOBAL i32* zeros, const Strides* s, i64 m, i64 n, i64 last_row,
                       i64 last_column, i64 length, i64 size, LOCAL f32* room, LOCAL i32* room_i,
                       f32 sum[ROWS][COLUMNS]) {
  i64 at_x[ROWS], at_q[COLUMNS], column[COLUMNS];
  EACH_ROW at_x[a] = (m + a < last_row ? m + a : last_row) * s->row_x;
  EACH_COLUMN {
    column[b] = n + b < last_column ? n + b : last_column;
    at_q[b] = column[b] * s->row_q;
  }
  EACH_ROW
  EACH_COLUMN sum[a][b] = 0.0f;
#if !INTEGERS
  vf total[ROWS][COLUMNS];
  EACH_ROW
  EACH_COLUMN total[a][b] = (vf)(0.0f);
#endif
  for (i64 first = 0, group = 0; first < length; first += size, ++group) {
    const i64 count = length - first < size ? length - first : size;
    vf acc[ROWS][COLUMNS];
    EACH_ROW
    EACH_COLUMN acc[a][b] = (vf)(0.0f);
#if HAS_ZERO
    vf zero[COLUMNS];
    EACH_COLUMN
    zero[b] = (vf)((f32)zeros[column[b] * s->row_zero + group * s->step_zero]);
#endif
#if INTEGERS
    vi whole[ROWS][COLUMNS];
    EACH_ROW
    EACH_COLUMN whole[a][b] = (vi)(0);
    vf of_x[ROWS];
    vi whole_of_x[ROWS];
    EACH_ROW {
      of_x[a] = (vf)(0.0f);
      whole_of_x[a] = (vi)(0);
    }
#endif
#if W > 1
    f32 rest[ROWS][COLUMNS], rest_of_x[ROWS];
    for (i32 a = 0; a < ROWS; ++a) {
      rest_of_x[a] = 0.0f;
      for (i32 b = 0; b < COLUMNS; ++b) rest[a][b] = 0.0f;
    }
#endif
    i64 i = (i64)LANE * W, left = count - i;
    while (left > 0) {
#if INTEGERS
      const i64 stop = left - (i64)EXACT_STEPS * LANES * W;
#else
      const i64 stop = 0;
#endif
      for (; left >= W && left > stop; i += (i64)LANES * W, left -= (i64)LANES * W) ADD_PRODUCTS();
#if W > 1
      if (left < W)
        for (; left > 0; ++i, --left) {  // what is less than a vector
          for (i32 a = 0; a < ROWS; ++a) {
            const f32 v = (f32)GET(X, x, at_x[a] + first + i);
            for (i32 b = 0; b < COLUMNS; ++b)
              rest[a][b] += v * LESS_ZERO_OF_ONE(one_quantized(q, at_q[b] + first + i), b);
#if HAS_ZERO && INTEGERS
            rest_of_x[a] += v;
#endif
          }
        }
#endif
#if INTEGERS
      EACH_ROW {
        EACH_COLUMN {
          whole[a][b] += CV_i(acc[a][b]);
          acc[a][b] = (vf)(0.0f);
        }
        whole_of_x[a] += CV_i(of_x[a]);
        of_x[a] = (vf)(0.0f);
      }
#endif
    }
    EACH_COLUMN {
      const f32 scale = scales[column[b] * s->row_scale + group * s->step_scale];
      EACH_ROW {
#if INTEGERS
        i64 exact = group_sum_i(fold_sum_i(whole[a][b]), room_i) + REST(rest[a][b]);
#if HAS_ZERO
        exact -= (i64)zeros[column[b] * s->row_zero + group * s->step_zero] *
                 (group_sum_i(fold_sum_i(whole_of_x[a]), room_i) + REST(rest_of_x[a]));
#endif
        sum[a][b] += (f32)exact * scale;
#else
        total[a][b] += acc[a][b] * scale;
#if W > 1
        sum[a][b] += rest[a][b] * scale;
#endif
#endif
      }
    }
  }
#if !INTEGERS
  EACH_ROW
  EACH_COLUMN sum[a][b] += group_sum_f(fold_sum_f(total[a][b]), room);
#endif
}

KERNEL(gemm_quantized)(const GLOBAL TYPE(X) * x, const GLOBAL TYPE(Q) * q, const GLOBAL f32* scales,
                       const GLOBAL i32* zeros, const GLOBAL f32* x_scales,
                       const GLOBAL TYPE(D) * bias, GLOBAL TYPE(D) * d, const i64 rows,
                       const i64 columns, const i64 length, const i64 size, const Strides strides,
                       const i32 has_bias, const i32 activation) {
  LOCAL_ARRAY(f32, room, LANES);
  LOCAL_ARRAY(i32, room_i, LANES);
  ROWS_OF((columns + COLUMNS - 1) / COLUMNS) {
    const i64 n = row * COLUMNS;
    for (i64 m = 0; m < rows; m += ROWS) {
      f32 sum[ROWS][COLUMNS];
      dot_products(x, q, scales, zeros, &strides, m, n, rows - 1, columns - 1, length, size, room,
                   room_i, sum);
      for (i32 a = 0; a < ROWS && LANE == 0; ++a) EACH_COLUMN
      if (m + a < rows && n + b < columns) {
        f32 v = sum[a][b];
#if HAS_X_SCALE
        v *= x_scales[(m + a) * strides.step_x_scale];
#endif
        if (has_bias) v += GET(D, bias, (n + b) * strides.step_bias);
        PUT(D, d, (m + a) * strides.row_d + (n + b) * strides.step_d, activated(v, activation));
      }
    }
  }
}
