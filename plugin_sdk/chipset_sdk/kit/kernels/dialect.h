// What is common to every language: element types, their loads and stores, reductions of vectors
// and of groups. Each dtype has a class in which it is held: f (f32), d (f64), i (i32) or l (i64);
// vf, vd, vi and vl are vectors of W of them. Functions are named by dtype, so that a kernel
// written for an operand X, where the host defines X as a dtype's name, reads LOAD(X, p, i).
#define S_f f32
#define S_d f64
#define S_i i32
#define S_l i64
#define CLASS_bool i
#define CLASS_u8 i
#define CLASS_i8 i
#define CLASS_i16 i
#define CLASS_i32 i
#define CLASS_i64 l
#define CLASS_f16 f
#define CLASS_bf16 f
#define CLASS_f32 f
#define CLASS_f64 d
#define CLASS_f8e4m3 f
#define CLASS_f8e5m2 f
#define TYPE_bool u8
#define TYPE_u8 u8
#define TYPE_i8 i8
#define TYPE_i16 i16
#define TYPE_i32 i32
#define TYPE_i64 i64
#define TYPE_f16 u16
#define TYPE_bf16 u16
#define TYPE_f32 f32
#define TYPE_f64 f64
#define TYPE_f8e4m3 u8
#define TYPE_f8e5m2 u8
#define CLASS(X) CAT(CLASS_, X)
#define TYPE(X) CAT(TYPE_, X)
#define SCALAR(X) CAT(S_, CLASS(X))  // one element, as held
#define VECTOR(X) CAT(v, CLASS(X))   // W elements, as held
#define CV(class, x) CAT(CV_, class)(x)

// ---- one element ----
FUNC f32 bf16_to_f32(u16 b) { return bits_f32((u32)b << 16); }
FUNC u16 f32_to_bf16(f32 x) {
  u32 bits = f32_bits(x);
  u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (u16)(x != x ? 0x7fc0u : rounded);
}
FUNC f32 f8e4m3_to_f32(u8 b) {
  u32 e = (b >> 3) & 15u, m = b & 7u;
  f32 x = e == 0 ? (f32)m * 0.001953125f : bits_f32(((e + 120u) << 23) | (m << 20));
  x = (b & 127) == 127 ? NAN : x;
  return (b & 128) ? -x : x;
}
FUNC f32 f8e5m2_to_f32(u8 b) { return half_to_f32((u16)((u16)b << 8)); }
// Round to nearest even to a float of 8 bits: `bits` of mantissa, exponent bias `bias`.
FUNC u32 f32_to_f8(f32 x, u32 bits, i32 bias, u32 largest, u32 nan_code) {
  u32 word = f32_bits(x), sign = (word >> 24) & 128u, a = word & 0x7fffffffu;
  u32 shift = 23u - bits;
  u32 code;
  if (a > 0x7f800000u) return sign | nan_code;
  if (a < (u32)(128 - bias) << 23)  // subnormal there: a multiple of 2^(1 - bias - bits)
    code = (u32)rint(bits_f32(a) * bits_f32((u32)(126 + bias + (i32)bits) << 23));
  else
    code = ((a + (1u << (shift - 1)) - 1u + ((a >> shift) & 1u)) >> shift) -
           ((u32)(127 - bias) << bits);
  return sign | (code > largest ? largest : code);
}
FUNC u8 f32_to_f8e4m3(f32 x) { return (u8)f32_to_f8(x, 3u, 7, 0x7eu, 0x7fu); }
FUNC u8 f32_to_f8e5m2(f32 x) { return (u8)f32_to_f8(x, 2u, 15, 0x7cu, 0x7fu); }
#if FP64
// To f32 such that a second rounding to 22 bits or fewer is right: towards zero, the last bit set
// where something was lost (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
// 2008).
FUNC f32 f64_to_f32_odd(f64 x) {
  f32 r = (f32)x;
  u32 bits = f32_bits(r);
  if ((f64)r == x || x != x || (bits & 0x7fffffffu) == 0x7f800000u) return r;
  if (fabs((f64)r) > fabs(x)) bits -= 1u;
  return bits_f32(bits | 1u);
}
#endif

#define LD_bool(p, i) ((p)[i] != 0)
#define LD_u8(p, i) ((i32)(p)[i])
#define LD_i8(p, i) ((i32)(p)[i])
#define LD_i16(p, i) ((i32)(p)[i])
#define LD_i32(p, i) ((p)[i])
#define LD_i64(p, i) ((p)[i])
#define LD_f16(p, i) half_to_f32((p)[i])
#define LD_bf16(p, i) bf16_to_f32((p)[i])
#define LD_f32(p, i) ((p)[i])
#define LD_f64(p, i) ((p)[i])
#define LD_f8e4m3(p, i) f8e4m3_to_f32((p)[i])
#define LD_f8e5m2(p, i) f8e5m2_to_f32((p)[i])
#define ST_bool(p, i, v) ((p)[i] = (u8)((v) != 0))
#define ST_u8(p, i, v) ((p)[i] = (u8)(v))
#define ST_i8(p, i, v) ((p)[i] = (i8)(v))
#define ST_i16(p, i, v) ((p)[i] = (i16)(v))
#define ST_i32(p, i, v) ((p)[i] = (i32)(v))
#define ST_i64(p, i, v) ((p)[i] = (i64)(v))
#define ST_f16(p, i, v) ((p)[i] = f32_to_half(v))
#define ST_bf16(p, i, v) ((p)[i] = f32_to_bf16(v))
#define ST_f32(p, i, v) ((p)[i] = (f32)(v))
#define ST_f64(p, i, v) ((p)[i] = (f64)(v))
#define ST_f8e4m3(p, i, v) ((p)[i] = f32_to_f8e4m3(v))
#define ST_f8e5m2(p, i, v) ((p)[i] = f32_to_f8e5m2(v))
#define GET(X, p, i) CAT(LD_, X)(p, i)
#define PUT(X, p, i, v) CAT(ST_, X)(p, i, v)

// ---- W adjacent elements ----
#define VLD_bool(p, i) TRUTH(VLOAD(p, i) != (u8)0)
#define VLD_u8(p, i) CV_i(VLOAD(p, i))
#define VLD_i8(p, i) CV_i(VLOAD(p, i))
#define VLD_i16(p, i) CV_i(VLOAD(p, i))
#define VLD_i32(p, i) VLOAD(p, i)
#define VLD_i64(p, i) VLOAD(p, i)
#define VLD_f16(p, i) VLOAD_HALF(p, i)
#define VLD_bf16(p, i) AS_f(CV_ui(VLOAD(p, i)) << 16)
#define VLD_f32(p, i) VLOAD(p, i)
#define VLD_f64(p, i) VLOAD(p, i)
#define VST_bool(p, i, v) VSTORE(CV_u8(TRUTH((v) != 0)), p, i)
#define VST_u8(p, i, v) VSTORE(CV_u8(v), p, i)
#define VST_i8(p, i, v) VSTORE(CV_i8(v), p, i)
#define VST_i16(p, i, v) VSTORE(CV_i16(v), p, i)
#define VST_i32(p, i, v) VSTORE(v, p, i)
#define VST_i64(p, i, v) VSTORE(v, p, i)
#define VST_f16(p, i, v) VSTORE_HALF(v, p, i)
#define VST_bf16(p, i, v) VSTORE(vf_to_bf16(v), p, i)
#define VST_f32(p, i, v) VSTORE(v, p, i)
#define VST_f64(p, i, v) VSTORE(v, p, i)
#define vf_to_bf16(v) CV_u16(bf16_bits(v))
FUNC vui bf16_bits(vf x) {
  vui bits = AS_ui(x);
  vui rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return x != x ? (vui)(0x7fc0u) : rounded;
}

// Per dtype: part_X reads n <= W elements at a stride, `fill` for the rest; put_part_X writes them.
#define ACCESS(X)                                                                          \
  FUNC VECTOR(X)                                                                           \
      CAT(part_, X)(const GLOBAL TYPE(X) * p, i64 i, i64 stride, i32 n, SCALAR(X) fill) {  \
    union {                                                                                \
      SCALAR(X) e[W];                                                                      \
      VECTOR(X) v;                                                                         \
    } u;                                                                                   \
    for (i32 k = 0; k < W; ++k) u.e[k] = k < n ? GET(X, p, i + k * stride) : fill;         \
    return u.v;                                                                            \
  }                                                                                        \
  FUNC void CAT(put_part_, X)(GLOBAL TYPE(X) * p, i64 i, i64 stride, i32 n, VECTOR(X) v) { \
    union {                                                                                \
      SCALAR(X) e[W];                                                                      \
      VECTOR(X) v;                                                                         \
    } u;                                                                                   \
    u.v = v;                                                                               \
    for (i32 k = 0; k < W; ++k)                                                            \
      if (k < n) PUT(X, p, i + k * stride, u.e[k]);                                        \
  }
// Floats of 8 bits have no vector form.
#define VLD_f8e4m3(p, i) part_f8e4m3(p, i, 1, W, 0)
#define VLD_f8e5m2(p, i) part_f8e5m2(p, i, 1, W, 0)
#define VST_f8e4m3(p, i, v) put_part_f8e4m3(p, i, 1, W, v)
#define VST_f8e5m2(p, i, v) put_part_f8e5m2(p, i, 1, W, v)

#define LOAD(X, p, i) CAT(VLD_, X)(p, i)
#define STORE(X, p, i, v) CAT(VST_, X)(p, i, v)
// n elements from i on, `stride` apart; whole vectors of adjacent ones take the short way.
#define LOAD_N(X, p, i, stride, n, fill) \
  ((n) >= W && (stride) == 1 ? LOAD(X, p, i) : CAT(part_, X)(p, i, stride, n, fill))
#define STORE_N(X, p, i, stride, n, v)       \
  do {                                       \
    if ((n) >= W && (stride) == 1)           \
      STORE(X, p, i, v);                     \
    else                                     \
      CAT(put_part_, X)(p, i, stride, n, v); \
  } while (0)

// ---- reductions ----
#define FOLD(name, class, combine)                     \
  FUNC CAT(S_, class) name(CAT(v, class) v) {          \
    union {                                            \
      CAT(S_, class) e[W];                             \
      CAT(v, class) v;                                 \
    } u;                                               \
    u.v = v;                                           \
    for (i32 half_ = W / 2; half_ > 0; half_ /= 2)     \
      for (i32 k = 0; k < half_; ++k) {                \
        CAT(S_, class) a = u.e[k], b = u.e[k + half_]; \
        u.e[k] = combine;                              \
      }                                                \
    return u.e[0];                                     \
  }
FOLD(fold_sum_f, f, a + b)
FOLD(fold_max_f, f, (a > b || a != a ? a : b))
FOLD(fold_min_f, f, (a < b || a != a ? a : b))
FOLD(fold_sum_i, i, a + b)
FOLD(fold_sum_l, l, a + b)
#if FP64
FOLD(fold_sum_d, d, a + b)
FOLD(fold_max_d, d, (a > b || a != a ? a : b))
FOLD(fold_min_d, d, (a < b || a != a ? a : b))
#endif
// Over the work-items of a group; every one gets the result. `room` holds LANES elements.
#if LANES == 1
#define GROUP_FOLD(name, class, combine) \
  FUNC CAT(S_, class) name(CAT(S_, class) x, LOCAL CAT(S_, class) * room) { return x; }
#else
#define GROUP_FOLD(name, class, combine)                                    \
  FUNC CAT(S_, class) name(CAT(S_, class) x, LOCAL CAT(S_, class) * room) { \
    i32 lane = LANE;                                                        \
    BARRIER();                                                              \
    room[lane] = x;                                                         \
    BARRIER();                                                              \
    for (i32 width = LANES / 2; width > 0; width /= 2) {                    \
      if (lane < width) {                                                   \
        CAT(S_, class) a = room[lane], b = room[lane + width];              \
        room[lane] = combine;                                               \
      }                                                                     \
      BARRIER();                                                            \
    }                                                                       \
    return room[0];                                                         \
  }
#endif
GROUP_FOLD(group_sum_i, i, a + b)
GROUP_FOLD(group_sum_f, f, a + b)
GROUP_FOLD(group_max_f, f, (a > b || a != a ? a : b))
GROUP_FOLD(group_min_f, f, (a < b || a != a ? a : b))
#if FP64
GROUP_FOLD(group_sum_d, d, a + b)
GROUP_FOLD(group_max_d, d, (a > b || a != a ? a : b))
GROUP_FOLD(group_min_d, d, (a < b || a != a ? a : b))
#endif
