// Functions of elements that the formulas of pointwise name. C is the class that they compute in.
#if IS(f) || IS(d)
FUNC vc sigmoid_(vc x) { return K(1) / (K(1) + exp(-x)); }
FUNC vc remainder_(vc x, vc y) {
  const vc m = fmod(x, y);
  return m != K(0) && (m < K(0)) != (y < K(0)) ? m + y : m;
}
// Python's: from the exact remainder, since the rounded quotient may already be the next integer.
FUNC vc div_floor(vc x, vc y) {
  const vc m = fmod(x, y);
  const vc d0 = (x - m) / y;
  const vc d = m != K(0) && (m < K(0)) != (y < K(0)) ? d0 - K(1) : d0;
  const vc down = floor(d);
  const vc f = d - down > K(0.5) ? down + K(1) : down;
  const vc whole = d == K(0) ? copysign((vc)(K(0)), x / y) : f;
  return y == K(0) ? x / y : whole;
}
FUNC vc lerp_(vc x, vc y, vc z) {
  const vc d = y - x;
  return fabs(z) < K(0.5) ? x + z * d : y - d * (K(1) - z);
}
FUNC vc largest(vc x, vc y) { return x > y || x != x ? x : y; }
FUNC vc least(vc x, vc y) { return x < y || x != x ? x : y; }
FUNC vc clamp_(vc x, vc low, vc high) {
  const vc v = x < low ? low : x;
  return v > high ? high : v;
}
FUNC vc gelu_tanh(vc w) {
  const vc k = K(0.79788456080286536) * (w + K(0.044715) * w * w * w);
  return w / (K(1) + exp(K(-2) * k));
}
FUNC vc gelu_tanh_backward(vc x, vc w) {
  const vc k = K(0.79788456080286536) * (w + K(0.044715) * w * w * w);
  const vc dk = K(0.79788456080286536) * (K(1) + K(3 * 0.044715) * w * w);
  const vc s = K(1) / (K(1) + exp(K(-2) * k));
  const vc slope = s + K(2) * w * s * (K(1) - s) * dk;
  return x * (dk > K(1e30) ? (w > K(0) ? (vc)(K(1)) : (vc)(K(0))) : slope);
}
FUNC vc gelu_erf_backward(vc x, vc w) {
  const vc cdf = K(0.5) * erfc(K(-0.70710678118654752) * w);
  return x * (cdf + w * (K(0.3989422804014327) * exp(K(-0.5) * w * w)));
}
FUNC vc softplus_(vc x, vc beta, vc threshold) {
  const vc t = x * beta;
  return t > threshold ? x : log1p(exp(t)) / beta;
}
FUNC vc mish_ratio(vc x) {  // tanh(log(1 + exp(x))), which 20 saturates
  const vc e = exp(x > K(20) ? (vc)(K(20)) : x), n = e * (e + K(2));
  return n / (n + K(2));
}
FUNC vc mish_backward(vc x, vc y) {
  const vc t = mish_ratio(y), s = sigmoid_(y);
  return x * (t + y * s * (K(1) - t * t));
}
FUNC vc elu_backward(vc x, vc y, vc alpha, vc scale, vc input_scale, vc from_result) {
  const vc of_result = x * input_scale * (y + alpha * scale);
  const vc of_input = x * input_scale * alpha * scale * exp(y * input_scale);
  return y <= K(0) ? (from_result != K(0) ? of_result : of_input) : x * scale;
}
FUNC vc hardsigmoid_(vc x) { return clamp_(x + K(3), (vc)(K(0)), (vc)(K(6))) / K(6); }
FUNC vc logaddexp_(vc x, vc y) {
  const vc m = largest(x, y), s = m + log1p(exp(-fabs(x - y)));
  return x == y && fabs(x) == K(INFINITY) ? x : s;
}
FUNC vc logaddexp2_(vc x, vc y) {
  const vc m = largest(x, y);
  const vc s = m + log1p(exp2(-fabs(x - y))) / K(0.69314718055994531);
  return x == y && fabs(x) == K(INFINITY) ? x : s;
}
FUNC vc smooth_l1(vc x, vc y, vc beta) {
  const vc d = fabs(x - y);
  return d < beta ? K(0.5) * d * d / beta : d - K(0.5) * beta;
}
FUNC vc huber_(vc x, vc y, vc delta) {
  const vc d = fabs(x - y);
  return d <= delta ? K(0.5) * d * d : delta * (d - K(0.5) * delta);
}
FUNC vc xlogy_(vc x, vc y) {
  const vc v = x * log(y);
  return x == K(0) && y == y ? (vc)(K(0)) : v;
}
FUNC vc nan_to_num(vc x, vc nan_, vc high, vc low) {
  const vc finite = x == K(INFINITY) ? high : (x == K(-INFINITY) ? low : x);
  return x != x ? nan_ : finite;
}
#if W == 1  // these loop, one element at a time
// A rough start (Winitzki, "A handy approximation for the error function and its inverse", 2008),
// then Halley steps on erf or, near 1, on erfc, which does not cancel.
FUNC sc erfinv_(sc y) {
  const sc a = fabs(y);
  if (!(a < K(1))) return a == K(1) ? copysign(K(INFINITY), y) : K(NAN);
  if (a < K(1e-4)) return y * K(0.88622692545275801) * (K(1) + y * y * K(0.2617993877991494));
  const sc l = log1p(-a * a);
  const sc t = K(2.0 / (3.14159265358979324 * 0.147)) + K(0.5) * l;
  sc x = sqrt(sqrt(t * t - l / K(0.147)) - t);
  for (i32 step = 0; step < 3; ++step) {
    const sc error = a < K(0.5) ? erf(x) - a : (K(1) - a) - erfc(x);
    const sc u = error / (K(1.1283791670955126) * exp(-x * x));
    x -= u / (K(1) + x * u);
  }
  return copysign(x, y);
}
// Reflection for x < 0 about the nearest pole, recurrence up to x >= 10, then the asymptotic series
// (DLMF 5.11.2). Sums cancel near a zero: wider than the elements where the device can.
#if FP64
#define sw f64
#else
#define sw sc
#endif
FUNC sc digamma_(sc given) {
  sw x = given, result = 0;
  if (x == 0) return copysign(K(INFINITY), -given);
  if (x < 0) {
    const sw off_pole = x - rint(x);  // x - floor(x) would lose a small x altogether
    if (off_pole == 0) return K(NAN);
    result = (sw)-3.14159265358979324 / tan((sw)3.14159265358979324 * off_pole);
    x = 1 - x;
  }
  for (; x < 10; x += 1) result -= 1 / x;
  if (x == (sw)INFINITY) return given;
  const sw z = 1 / (x * x);
  const sw series =
      z * ((sw)(1.0 / 12) -
           z * ((sw)(1.0 / 120) -
                z * ((sw)(1.0 / 252) -
                     z * ((sw)(1.0 / 240) - z * ((sw)(1.0 / 132) - z * (sw)(691.0 / 32760))))));
  return (sc)(result + log(x) - (sw)0.5 / x - series);
}
// The power series, all of whose terms are positive (DLMF 10.25.2); beyond 30 the asymptotic one
// (DLMF 10.40.1).
FUNC sc bessel_i0(sc x) {
  sc term = K(1), sum = K(1);
  x = fabs(x);
  if (x <= K(30)) {
    const sc quarter = K(0.25) * x * x;
    for (i32 k = 1; k < 200 && term > sum * K(1e-17); ++k) {
      term *= quarter / (K(k) * K(k));
      sum += term;
    }
    return sum;
  }
  for (i32 k = 1; k < 30 && term > K(1e-17); ++k) {
    const sc odd = K(2) * K(k) - K(1);
    term *= odd * odd / (K(8) * K(k) * x);
    sum += term;
  }
  if (x == K(INFINITY)) return x;
  // In halves, root by root: the product may fit where exp(x) or 2 pi x does not.
  const sc half_way = exp(K(0.5) * x);
  return half_way * (sum / (K(2.50662827463100050) * sqrt(x))) * half_way;
}
#endif
#else  // integers: overflow wraps; division by zero gives 0 (NUM-004)
#define ADDW(x, y) S(U(x) + U(y))
#define SUBW(x, y) S(U(x) - U(y))
#define MULW(x, y) S(U(x) * U(y))
FUNC vc largest(vc x, vc y) { return x > y ? x : y; }
FUNC vc least(vc x, vc y) { return x < y ? x : y; }
FUNC vc clamp_(vc x, vc low, vc high) {
  const vc v = x < low ? low : x;
  return v > high ? high : v;
}
FUNC vc negative(vc x) { return SUBW((vc)(K(0)), x); }
FUNC vc quotient(vc x, vc y) {
  const vc safe = y == K(0) || y == K(-1) ? (vc)(K(1)) : y;
  const vc q = x / safe;
  return y == K(0) ? (vc)(K(0)) : (y == K(-1) ? negative(x) : q);
}
FUNC vc rest(vc x, vc y) {
  const vc safe = y == K(0) || y == K(-1) ? (vc)(K(1)) : y;
  return x % safe;
}
FUNC vc div_floor(vc x, vc y) {
  const vc q = quotient(x, y), r = rest(x, y);
  return y != K(0) && r != K(0) && (r < K(0)) != (y < K(0)) ? q - K(1) : q;
}
FUNC vc remainder_(vc x, vc y) {
  const vc r = y == K(0) ? (vc)(K(0)) : rest(x, y);
  return r != K(0) && (r < K(0)) != (y < K(0)) ? r + y : r;
}
FUNC vc shift_left(vc x, vc y) {  // amounts outside the width shift everything out
  const vc bits = (vc)(K(8 * sizeof(sc)));
  const vc shifted = S(U(x) << U(y & (bits - K(1))));
  return y < K(0) || y >= bits ? (vc)(K(0)) : shifted;
}
FUNC vc shift_right(vc x, vc y) {
  const vc bits = (vc)(K(8 * sizeof(sc)));
  return x >> (y < K(0) || y >= bits ? bits - K(1) : y);
}
#if W == 1
FUNC sc power(sc base, sc exponent) {
  sc result = K(1);
  if (exponent < K(0))
    return base == K(1) ? K(1) : (base == K(-1) ? ((exponent & K(1)) != 0 ? K(-1) : K(1)) : K(0));
  for (; exponent > K(0); exponent >>= 1) {
    if ((exponent & K(1)) != 0) result = MULW(result, base);
    base = MULW(base, base);
  }
  return result;
}
FUNC sc divisor(sc a, sc b) {
  a = a < K(0) ? negative(a) : a;
  b = b < K(0) ? negative(b) : b;
  while (b != K(0)) {
    const sc r = rest(a, b);
    a = b;
    b = r;
  }
  return a;
}
FUNC sc multiple(sc x, sc y) {
  const sc g = divisor(x, y);
  if (g == K(0)) return K(0);
  const sc m = MULW(quotient(x, g), y);
  return m < K(0) ? negative(m) : m;
}
#endif
#endif
