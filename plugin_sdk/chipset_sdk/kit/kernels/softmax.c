// Softmax or log-softmax (LOG) of rows of n elements, and their backward. X: forward the input,
// backward the gradient; Y: backward the forward's result; Z: the output.
KERNEL(softmax)(const GLOBAL TYPE(X) * x, GLOBAL TYPE(Z) * z, const Outer outer, const i64 rows,
                const i64 n, const i64 step_x, const i64 step_z) {
  LOCAL_ARRAY(sc, room, LANES);
  ROWS_OF(rows) {
    const i64 at_x = row_offset(&outer, row, 0), at_z = row_offset(&outer, row, 1);
    vc largest = (vc)(K(-INFINITY));
    VECTORS_OF(n) {
      const vc v = READ(X, x, at_x, step_x, -INFINITY);
      largest = v > largest || v != v ? v : largest;
    }
    const sc m = ROW_MAX(largest);
    vc total = (vc)(K(0));
    VECTORS_OF(n) total += exp(READ(X, x, at_x, step_x, -INFINITY) - m);
    const sc sum = ROW_SUM(total);
#if LOG
    // In this order: beside a large m the logarithm would be lost.
    const sc shift = log(sum);
    VECTORS_OF(n) WRITE(Z, z, at_z, step_z, (READ(X, x, at_x, step_x, 0) - m) - shift);
#else
    const sc scale = K(1) / sum;
    VECTORS_OF(n) WRITE(Z, z, at_z, step_z, exp(READ(X, x, at_x, step_x, 0) - m) * scale);
#endif
  }
}

KERNEL(softmax_backward)(const GLOBAL TYPE(X) * x, const GLOBAL TYPE(Y) * y, GLOBAL TYPE(Z) * z,
                         const Outer outer, const i64 rows, const i64 n, const i64 step_x,
                         const i64 step_y, const i64 step_z) {
  LOCAL_ARRAY(sc, room, LANES);
  ROWS_OF(rows) {
    const i64 at_x = row_offset(&outer, row, 0), at_z = row_offset(&outer, row, 1);
    const i64 at_y = row_offset(&outer, row, 2);
    vc total = (vc)(K(0));
#if LOG
    VECTORS_OF(n) total += READ(X, x, at_x, step_x, 0);
    const sc sum = ROW_SUM(total);
    VECTORS_OF(n)
    WRITE(Z, z, at_z, step_z, READ(X, x, at_x, step_x, 0) - exp(READ(Y, y, at_y, step_y, 0)) * sum);
#else
    VECTORS_OF(n) total += READ(X, x, at_x, step_x, 0) * READ(Y, y, at_y, step_y, 0);
    const sc sum = ROW_SUM(total);
    VECTORS_OF(n)
    WRITE(Z, z, at_z, step_z, (READ(X, x, at_x, step_x, 0) - sum) * READ(Y, y, at_y, step_y, 0));
#endif
  }
}
