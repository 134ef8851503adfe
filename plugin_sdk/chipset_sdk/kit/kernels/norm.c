// RMS norm (LAYER 0) or layer norm (LAYER 1) of rows of n elements, and their backward. X: the
// input, Y: the output or its gradient, V: the weight and bias, Z: the input's gradient.
#if LAYER
#define CENTRED(v) ((v) - mean)
#else
#define CENTRED(v) (v)
#endif
#if HAS_WEIGHT
#define WEIGHT (READ(V, weight, 0, step_weight, 0) + (sc)weight_offset)
#else
#define WEIGHT K(1)
#endif

KERNEL(norm_forward)(const GLOBAL TYPE(X) * x, const GLOBAL TYPE(V) * weight,
                     const GLOBAL TYPE(V) * bias, GLOBAL TYPE(Y) * y, GLOBAL sc* means,
                     GLOBAL sc* rstds, const i64 rows, const i64 n, const i64 row_x,
                     const i64 step_x, const i64 row_y, const i64 step_y, const i64 step_weight,
                     const i64 step_bias, const i64 step_mean, const i64 step_rstd, const i32 wants,
                     const sc eps, const sc weight_offset) {
  LOCAL_ARRAY(sc, room, LANES);
  ROWS_OF(rows) {
    const i64 at_x = row * row_x, at_y = row * row_y;
    vc total = (vc)(K(0));
#if LAYER
    VECTORS_OF(n) total += READ(X, x, at_x, step_x, 0);
    const sc mean = ROW_SUM(total) / (sc)n;
    total = (vc)(K(0));
#endif
    VECTORS_OF(n) {
      const vc v = CENTRED(READ(X, x, at_x, step_x, 0));
      total += first_n(v * v, left, K(0));
    }
    const sc rstd = K(1) / sqrt(ROW_SUM(total) / (sc)n + (sc)eps);
    VECTORS_OF(n) {
      vc v = CENTRED(READ(X, x, at_x, step_x, 0)) * rstd * WEIGHT;
#if HAS_BIAS
      v += READ(V, bias, 0, step_bias, 0);
#endif
      WRITE(Y, y, at_y, step_y, v);
    }
    if (LANE == 0) {
#if LAYER
      if (wants & 1) means[row * step_mean] = mean;
#endif
      if (wants & 2) rstds[row * step_rstd] = rstd;
    }
  }
}

KERNEL(norm_backward)(const GLOBAL TYPE(X) * x, const GLOBAL TYPE(V) * weight,
                      const GLOBAL TYPE(Y) * dy, GLOBAL TYPE(Z) * dx, const GLOBAL sc* means,
                      const GLOBAL sc* rstds, const i64 rows, const i64 n, const i64 row_x,
                      const i64 step_x, const i64 row_dy, const i64 step_dy, const i64 row_dx,
                      const i64 step_dx, const i64 step_weight, const i64 step_mean,
                      const i64 step_rstd, const sc weight_offset) {
  LOCAL_ARRAY(sc, room, LANES);
  ROWS_OF(rows) {
    const i64 at_x = row * row_x, at_dy = row * row_dy, at_dx = row * row_dx;
    const sc rstd = rstds[row * step_rstd];
#if LAYER
    const sc mean = means[row * step_mean];
#endif
    vc along = (vc)(K(0)), total = (vc)(K(0));
    VECTORS_OF(n) {
      const vc g = READ(Y, dy, at_dy, step_dy, 0) * WEIGHT;
      along += first_n(g * CENTRED(READ(X, x, at_x, step_x, 0)) * rstd, left, K(0));
      total += first_n(g, left, K(0));
    }
    const sc mean_along = ROW_SUM(along) / (sc)n;
#if LAYER
    const sc mean_g = ROW_SUM(total) / (sc)n;
#else
    const sc mean_g = K(0);
#endif
    VECTORS_OF(n) {
      const vc g = READ(Y, dy, at_dy, step_dy, 0) * WEIGHT;
      const vc xhat = CENTRED(READ(X, x, at_x, step_x, 0)) * rstd;
      WRITE(Z, dx, at_dx, step_dx, (g - mean_g - xhat * mean_along) * rstd);
    }
  }
}

// Gradients of weight and bias: pieces of rows are summed into partial[piece][2][n], in order.
KERNEL(norm_weights)(const GLOBAL TYPE(X) * x, const GLOBAL TYPE(Y) * dy, GLOBAL sc* partial,
                     const GLOBAL sc* means, const GLOBAL sc* rstds, const i64 rows, const i64 n,
                     const i64 pieces, const i64 row_x, const i64 step_x, const i64 row_dy,
                     const i64 step_dy, const i64 step_mean, const i64 step_rstd) {
  const i64 piece = (rows + pieces - 1) / pieces;
  ROWS_OF(pieces) {
    const i64 first = row * piece, last = first + piece < rows ? first + piece : rows;
    VECTORS_OF(n) {
      vc dweight = (vc)(K(0)), dbias = (vc)(K(0));
      for (i64 r = first; r < last; ++r) {
        const vc g = READ(Y, dy, r * row_dy, step_dy, 0);
#if LAYER
        const sc mean = means[r * step_mean];
#endif
        dweight += g * (CENTRED(READ(X, x, r * row_x, step_x, 0)) * rstds[r * step_rstd]);
        dbias += g;
      }
      union {
        sc e[W];
        vc v;
      } a, b;
      a.v = dweight;
      b.v = dbias;
      for (i32 k = 0; k < W; ++k)
        if (k < left) {
          partial[row * 2 * n + i + k] = a.e[k];
          partial[(row * 2 + 1) * n + i + k] = b.e[k];
        }
    }
  }
}

KERNEL(norm_weights_finish)(const GLOBAL sc* partial, GLOBAL TYPE(V) * dweight,
                            GLOBAL TYPE(V) * dbias, const i64 n, const i64 pieces,
                            const i64 step_dweight, const i64 step_dbias, const i32 wants) {
  for (i64 i = (i64)GROUP(0) * LANES + LANE; i < n; i += (i64)GROUPS(0) * LANES) {
    sc weight = K(0), bias = K(0);
    for (i64 piece = 0; piece < pieces; ++piece) {
      weight += partial[piece * 2 * n + i];
      bias += partial[(piece * 2 + 1) * n + i];
    }
    if (wants & 1) PUT(V, dweight, i * step_dweight, weight);
    if (wants & 2) PUT(V, dbias, i * step_dbias, bias);
  }
}
