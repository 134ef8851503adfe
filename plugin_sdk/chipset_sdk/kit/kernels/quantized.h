// Quantised elements as floats. The host defines Q (dtype) and Q_IS_I4: then Q is u8, and an
// element is half a byte, the even one in the low half; rows begin at whole bytes.
#if Q_IS_I4
FUNC i32 nibble(const GLOBAL u8* q, i64 e) { return (((q[e >> 1] >> ((e & 1) * 4)) & 15) ^ 8) - 8; }
#if W > 1  // of OpenCL alone
FUNC vf nibbles(const GLOBAL u8* q) {
  const CAT(ushort, HALF_W) bytes = CAT(convert_ushort, HALF_W)(CAT(vload, HALF_W)(0, q));
  const CAT(uchar, W) split =
      CAT(as_uchar, W)((CAT(ushort, HALF_W))((bytes | (bytes << (u16)4)) & (u16)0x0f0f));
  return CV_f(CAT(as_char, W)((split ^ (u8)8) - (u8)8));
}
#endif
#elif W > 1
// The exponent's bias is made up for by a product, so that subnormals need no case of their own.
FUNC vf wide_f8e4m3(const GLOBAL u8* q) {
  const vui bits = CV_ui(VLOAD(q, 0)), magnitude = bits & 127u;
  const vf x = AS_f(magnitude << 20) * 0x1p120f;
  const vui signed_bits = AS_ui(x) | ((bits & 128u) << 24);
  return AS_f(magnitude == 127u ? (vui)(0x7fc00000u) : signed_bits);
}
#endif

FUNC f32 one_quantized(const GLOBAL TYPE(Q) * q, i64 e) {
#if Q_IS_I4
  return (f32)nibble(q, e);
#else
  return (f32)GET(Q, q, e);
#endif
}
// W elements from e on; e is even where they are halves of bytes.
FUNC vf adjacent_quantized(const GLOBAL TYPE(Q) * q, i64 e) {
#if W == 1
  return one_quantized(q, e);
#elif Q_IS_I4
  return nibbles(q + (e >> 1));
#elif Q_IS_F8E4M3
  return wide_f8e4m3(q + e);
#else
  return CV(f, LOAD(Q, q, e));
#endif
}
// Elements k to k + n - 1 (at most W) of the row that begins at element `at`; 0 for the rest.
FUNC vf quantized(const GLOBAL TYPE(Q) * q, i64 at, i64 k, i64 step, i32 n) {
  union {
    f32 e[W];
    vf v;
  } u;
  if (n >= W && step == 1 && (!Q_IS_I4 || ((at + k) & 1) == 0 || W == 1))
    return adjacent_quantized(q, at + k);
  for (i32 j = 0; j < W; ++j) u.e[j] = j < n ? one_quantized(q, at + (k + j) * step) : 0.0f;
  return u.v;
}
