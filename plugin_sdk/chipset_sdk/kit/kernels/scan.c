// Inclusive prefixes of rows of n elements. The host defines C (class of the running value),
// COMPUTE (type of an element and of a result), KIND as one of the names below, and IN and OUT
// (dtypes). A group scans LANES elements at a time and carries what came before.
#define SUM 0
#define PROD 1
#define MAX 2
#define MIN 3
#define LOGSUMEXP 4
#define EXTREME (KIND == MAX || KIND == MIN)

typedef struct {
  sc value;
#if EXTREME
  i64 place;  // -1: nothing yet
#endif
} Prefix;

FUNC Prefix nothing(void) {
  Prefix none;
#if EXTREME
  none.value = K(0);
  none.place = -1;
#elif KIND == LOGSUMEXP
  none.value = K(-INFINITY);
#else
  none.value = K(KIND == PROD);
#endif
  return none;
}

// a, then b.
FUNC Prefix joined(Prefix a, Prefix b) {
  Prefix both = b;
#if EXTREME  // ties take the later place, and a NaN stays
  const i32 later = KIND == MAX ? b.value >= a.value : b.value <= a.value;
  if (a.place >= 0 && (b.place < 0 || (b.value == b.value && (a.value != a.value || !later))))
    both = a;
#elif KIND == LOGSUMEXP
  const sc low = a.value < b.value ? a.value : b.value;
  const sc high = a.value < b.value ? b.value : a.value;
  if (a.value != a.value || b.value != b.value)
    both.value = K(NAN);
  else if (fabs(low) == K(INFINITY) || high == K(INFINITY))
    both.value = high;
  else
    both.value = high + log1p(exp(low - high));
#elif IS(l)  // integers wrap
  both.value = (i64)(KIND == SUM ? (u64)a.value + (u64)b.value : (u64)a.value * (u64)b.value);
#else
  both.value = KIND == SUM ? a.value + b.value : a.value * b.value;
#endif
  return both;
}

KERNEL(scan)(const GLOBAL TYPE(IN) * in, GLOBAL TYPE(OUT) * out, GLOBAL i64* places,
             const Outer outer, const i64 rows, const i64 n, const i64 step_in, const i64 step_out,
             const i64 step_place, const i32 wants_place) {
#if LANES > 1
  LOCAL_ARRAY(Prefix, room, LANES);
#endif
  ROWS_OF(rows) {
    const i64 at_in = row_offset(&outer, row, 0), at_out = row_offset(&outer, row, 1);
    const i64 at_place = row_offset(&outer, row, 2);
    Prefix before = nothing();
    for (i64 first = 0; first < n; first += LANES) {
      const i64 i = first + LANE;
      Prefix own = nothing();
      if (i < n) {
        own.value = (sc)(COMPUTE)GET(IN, in, at_in + i * step_in);
#if EXTREME
        own.place = i;
#endif
      }
#if LANES > 1
      for (i32 apart = 1; apart < LANES; apart *= 2) {  // Hillis and Steele
        room[LANE] = own;
        BARRIER();
        if (LANE >= apart) own = joined(room[LANE - apart], own);
        BARRIER();
      }
      room[LANE] = own;
      BARRIER();
      const Prefix all = room[LANES - 1];
      BARRIER();
      own = joined(before, own);
      before = joined(before, all);
#else
      own = before = joined(before, own);
#endif
      if (i < n) {
        PUT(OUT, out, at_out + i * step_out, (COMPUTE)own.value);
#if EXTREME
        if (wants_place) places[at_place + i * step_place] = own.place;
#endif
      }
    }
  }
}
