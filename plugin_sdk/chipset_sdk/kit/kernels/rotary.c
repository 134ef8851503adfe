// Rotary position embedding. Element i of a pair lies at i * pair_step, its partner `apart` further
// on, in units of an element's stride: halves have (1, R/2), neighbours (2, 1). X: the input and
// the output, T: the tables; `sign` is -1 for the negative angle.
KERNEL(rotary)(const GLOBAL TYPE(X) * x, GLOBAL TYPE(X) * y, const GLOBAL TYPE(T) * cosines,
               const GLOBAL TYPE(T) * sines, const Outer outer, const i64 rows, const i64 n,
               const i64 rotated, const i64 pair_step, const i64 apart, const i64 step_x,
               const i64 step_y, const i64 step_cos, const i64 step_sin, const sc sign) {
  ROWS_OF(rows) {
    const i64 at_x = row_offset(&outer, row, 0), at_y = row_offset(&outer, row, 1);
    const i64 at_cos = row_offset(&outer, row, 2), at_sin = row_offset(&outer, row, 3);
    VECTORS_OF(rotated / 2) {
      const vc a = READ(X, x, at_x, step_x * pair_step, 0);
      const vc b = READ(X, x, at_x + step_x * apart, step_x * pair_step, 0);
      const vc cos_a = READ(T, cosines, at_cos, step_cos * pair_step, 0);
      const vc cos_b = READ(T, cosines, at_cos + step_cos * apart, step_cos * pair_step, 0);
      const vc sin_a = READ(T, sines, at_sin, step_sin * pair_step, 0) * sign;
      const vc sin_b = READ(T, sines, at_sin + step_sin * apart, step_sin * pair_step, 0) * sign;
      WRITE(X, y, at_y, step_y * pair_step, a * cos_a - b * sin_a);
      WRITE(X, y, at_y + step_y * apart, step_y * pair_step, b * cos_b + a * sin_b);
    }
    VECTORS_OF(n - rotated)
    WRITE(X, y, at_y + rotated * step_y, step_y, READ(X, x, at_x + rotated * step_x, step_x, 0));
  }
}
