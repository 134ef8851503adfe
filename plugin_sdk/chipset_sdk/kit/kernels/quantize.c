// Floats to and from I8, I4 and floats of 8 bits, by groups of `size` along rows of n. X: the
// floats. The host defines WHOLE (integers), HAS_ZERO (zero points) and WIDER (f64, where there is
// one) beside what quantized.h names.

// Element y = x / scale of an integer format, rounded and clamped; NaN becomes 0, with zero points
// the lowest.
FUNC vi whole(vf y, f32 largest, i32 zero) {
#if HAS_ZERO
  const f32 far = 8589934592.0f;  // beyond any zero point, and exact as an integer
  const vf low = y > -far ? y : (vf)(-far);
  const vl steps = CV_l(rint(low < far ? low : (vf)(far))) + (i64)zero;
  const vl least = (vl)(-(i64)largest - 1), most = (vl)((i64)largest);
  const vl above = steps > least ? steps : least;
  return CV_i(above < most ? above : most);
#else
  const vf high = y > largest ? (vf)(largest) : y;
  const vf clamped = high < -largest ? (vf)(-largest) : high;
  return CV_i(rint(y == y ? clamped : (vf)(0)));
#endif
}

KERNEL(quantize)(const GLOBAL TYPE(X) * x, GLOBAL TYPE(Q) * q, GLOBAL f32* scales,
                 GLOBAL i32* zeros, const i64 rows, const i64 n, const i64 size, const i64 row_x,
                 const i64 step_x, const i64 row_q, const i64 step_q, const i64 row_scale,
                 const i64 step_scale, const i64 row_zero, const i64 step_zero, const f32 largest,
                 const i32 given) {
  LOCAL_ARRAY(f32, room, LANES);
  ROWS_OF(rows) {
    const i64 at_x = row * row_x, at_q = row * row_q;
    for (i64 first = 0, group = 0; first < n && !given; first += size, ++group) {
      const i64 count = n - first < size ? n - first : size, at = at_x + first * step_x;
      const f32 any_of = (f32)GET(X, x, at);
      vf lows = (vf)(any_of), highs = (vf)(any_of);
      VECTORS_OF(count) {
        const vf v = READ(X, x, at, step_x, any_of);
        lows = v < lows || v != v ? v : lows;
        highs = v > highs || v != v ? v : highs;
      }
      const f32 low = ROW_MIN(lows), high = ROW_MAX(highs);
      if (LANE == 0) {
#if HAS_ZERO
        const WIDER span = (WIDER)high - (WIDER)low;
        const WIDER extent = (WIDER)(fabs(low) > fabs(high) ? fabs(low) : fabs(high));
        const f32 scale = (f32)(span <= extent * (WIDER)1.52587890625e-5f
                                    ? extent
                                    : span / ((WIDER)2 * largest + (WIDER)1));
        const f32 steps = scale == 0.0f ? 0.0f : rint(low / scale);
        // Only NaN and infinities do not fit.
        const i32 fits = steps > -2147483648.0f && steps < 2147483648.0f;
        zeros[row * row_zero + group * step_zero] =
            fits ? (i32)(-(i64)largest - 1 - (i64)steps) : 0;
#else
        const f32 scale = (-low > high ? -low : high) / largest;
#endif
        scales[row * row_scale + group * step_scale] = scale;
      }
    }
#if LANES > 1
    BARRIER_GLOBAL();  // the scales are read by all
#endif
#if Q_IS_I4
    for (i64 byte = LANE; byte * 2 < n; byte += LANES) {
      u32 both = n - byte * 2 > 1 ? 0u : (u32)(q[(at_q >> 1) + byte] & 0xf0);
      for (i64 k = byte * 2; k < byte * 2 + 2 && k < n; ++k) {
        const i64 group = k / size;
        const f32 scale = scales[row * row_scale + group * step_scale];
        i32 zero = 0;
#if HAS_ZERO
        zero = zeros[row * row_zero + group * step_zero];
#endif
        const f32 y = (f32)GET(X, x, at_x + k * step_x) / (scale == 0.0f ? 1.0f : scale);
        union {
          i32 e[W];
          vi v;
        } u;
        u.v = whole((vf)(y), largest, zero);
        both |= ((u32)u.e[0] & 15u) << ((k & 1) * 4);
      }
      q[(at_q >> 1) + byte] = (u8)both;
    }
#else
    for (i64 first = 0, group = 0; first < n; first += size, ++group) {
      const i64 count = n - first < size ? n - first : size;
      const f32 scale = scales[row * row_scale + group * step_scale];
      const f32 divisor = scale == 0.0f ? 1.0f : scale;
      i32 zero = 0;
#if HAS_ZERO
      zero = zeros[row * row_zero + group * step_zero];
#endif
      VECTORS_OF(count) {
        const vf y = READ(X, x, at_x + first * step_x, step_x, 0) / divisor;
#if WHOLE
        WRITE(Q, q, at_q + first * step_q, step_q, whole(y, largest, zero));
#else
        const vf high = y > largest ? (vf)(largest) : y;
        const vf clamped = high < -largest ? (vf)(-largest) : high;
        WRITE(Q, q, at_q + first * step_q, step_q, clamped);
#endif
      }
    }
#endif
  }
}

KERNEL(dequantize)(GLOBAL TYPE(X) * x, const GLOBAL TYPE(Q) * q, const GLOBAL f32* scales,
                   const GLOBAL i32* zeros, const i64 rows, const i64 n, const i64 size,
                   const i64 row_x, const i64 step_x, const i64 row_q, const i64 step_q,
                   const i64 row_scale, const i64 step_scale, const i64 row_zero,
                   const i64 step_zero) {
  ROWS_OF(rows) {
    const i64 at_x = row * row_x, at_q = row * row_q;
    for (i64 first = 0, group = 0; first < n; first += size, ++group) {
      const i64 count = n - first < size ? n - first : size;
      const f32 scale = scales[row * row_scale + group * step_scale];
#if HAS_ZERO
      const f32 zero = (f32)zeros[row * row_zero + group * step_zero];
#else
      const f32 zero = 0.0f;
#endif
      VECTORS_OF(count) {
        const vf v = (quantized(q, at_q, first + i, step_q, SOME(left)) - zero) * scale;
        WRITE(X, x, at_x + first * step_x, step_x, v);
      }
    }
  }
}
