// Cross-entropy of rows of n logits against class indices, and its backward. X: logits, Z: their
// gradient. With SMOOTHED, `smoothing` of the target is spread over all classes.
FUNC i32 legal_target(i64 target, i64 n, GLOBAL i32* fault) {
  if (target >= 0 && target < n) return 1;
  raise_fault(fault);
  return 0;
}

KERNEL(cross_entropy)(const GLOBAL TYPE(X) * x, const GLOBAL i64* targets, GLOBAL sc* losses,
                      GLOBAL sc* lses, GLOBAL i32* fault, const i64 rows, const i64 n,
                      const i64 row_x, const i64 step_x, const i64 step_target, const i64 step_loss,
                      const i64 step_lse, const i64 ignored, const i32 wants_lse,
                      const sc smoothing) {
  LOCAL_ARRAY(sc, room, LANES);
  ROWS_OF(rows) {
    const i64 at_x = row * row_x, target = targets[row * step_target];
    vc largest = (vc)(K(-INFINITY));
    VECTORS_OF(n) {
      const vc v = READ(X, x, at_x, step_x, -INFINITY);
      largest = v > largest || v != v ? v : largest;
    }
    const sc top = ROW_MAX(largest), m = top == K(-INFINITY) ? K(0) : top;
    vc total = (vc)(K(0)), part = (vc)(K(0)), below = (vc)(K(0));
    i32 steps = 0;
    VECTORS_OF(n) {
      const vc v = READ(X, x, at_x, step_x, -INFINITY) - m;
      part += exp(v);
      if (++steps % 64 == 0) {  // sums are kept apart, so that errors grow slowly
        total += part;
        part = (vc)(K(0));
      }
#if SMOOTHED
      below += first_n(v, left, K(0));
#endif
    }
    const sc log_sum = log(ROW_SUM(total + part));
#if SMOOTHED
    const sc mean_below = ROW_SUM(below) / (sc)n;
#endif
    if (LANE == 0) {
      if (wants_lse) lses[row * step_lse] = m + log_sum;
      if (target == ignored) {
        losses[row * step_loss] = K(0);
      } else if (legal_target(target, n, fault)) {
        // Without the sum m + log_sum: beside a large m the logarithm would be lost.
        sc loss = log_sum - ((sc)GET(X, x, at_x + target * step_x) - m);
#if SMOOTHED
        loss = (K(1) - smoothing) * loss + smoothing * (log_sum - mean_below);
#endif
        losses[row * step_loss] = loss;
      }
    }
  }
}

KERNEL(cross_entropy_backward)(const GLOBAL TYPE(X) * x, const GLOBAL i64* targets,
                               const GLOBAL sc* lses, const GLOBAL sc* dlosses, GLOBAL TYPE(Z) * z,
                               GLOBAL i32* fault, const i64 rows, const i64 n, const i64 row_x,
                               const i64 step_x, const i64 row_z, const i64 step_z,
                               const i64 step_target, const i64 step_lse, const i64 step_dloss,
                               const i64 ignored, const sc smoothing) {
  const sc each = smoothing / (sc)n, at_target = K(1) - smoothing;
  ROWS_OF(rows) {
    const i64 at_x = row * row_x, at_z = row * row_z, target = targets[row * step_target];
    const sc lse = lses[row * step_lse], dloss = dlosses[row * step_dloss];
    const i32 counts = target != ignored && legal_target(target, n, fault);
    VECTORS_OF(n) {
      union {
        sc e[W];
        vc v;
      } u;
      u.v = (vc)(K(0));
      if (counts) {
        u.v = exp(READ(X, x, at_x, step_x, 0) - lse) - each;
        if (target >= i && target < i + W) u.e[target - i] -= at_target;
        u.v *= dloss;
      }
      WRITE(Z, z, at_z, step_z, u.v);
    }
  }
}
