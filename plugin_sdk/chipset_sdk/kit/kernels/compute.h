// A class C to compute in (f, d, i or l): vc a vector of it, sc one element. The host defines C.
#define vc CAT(v, C)
#define sc CAT(S_, C)
#define K(x) ((sc)(x))
#define IS_f 1
#define IS_d 2
#define IS_i 3
#define IS_l 4
#define IS(class) (CAT(IS_, C) == CAT(IS_, class))
#if IS(f) || IS(i)
#define BITS(x) AS_i(x)
#define CV_BITS(x) CV_i(x)
#else
#define BITS(x) AS_l(x)
#define CV_BITS(x) CV_l(x)
#endif
#if IS(i)
#define U(x) AS_ui(x)
#define S(x) AS_i(x)
#elif IS(l)
#define U(x) AS_ul(x)
#define S(x) AS_l(x)
#endif
// y where the truth t (0 or 1) holds, else z.
#define CHOOSE(t, y, z) ((CV_BITS(t) != 0) ? (y) : (z))
