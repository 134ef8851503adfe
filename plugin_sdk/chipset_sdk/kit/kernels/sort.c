// Sort and top-k of rows of n elements: the first k of the order. Values become unsigned keys whose
// order is the wanted one (NaN largest, -0 equal to 0), so that one comparison serves every dtype;
// places break ties, so that every method here is stable. The host defines C (class of the
// elements), X (dtype), M (the integer dtype as which values are moved), KEY (u32 or u64), FLIP
// (all bits of a key where the order descends) and, for one work-item a group, TOP (few of many).
FUNC KEY key_of(sc x) {
#if IS(f) || IS(i)
  const u32 sign = 0x80000000u;
#else
  const u64 sign = 0x8000000000000000ul;
#endif
#if IS(f) || IS(d)
  const KEY bits = (KEY)BITS(x);
  if (x != x) return ~(KEY)0;
  if (x == K(0)) return sign;
  return bits & sign ? ~bits : bits | sign;
#else
  return (KEY)x ^ sign;
#endif
}

FUNC i32 precedes(KEY a, i32 i, KEY b, i32 j) { return a < b || (a == b && i < j); }

#if LANES == 1 && TOP
// The best k so far, in order; most elements are beaten by the last of them at once.
FUNC void order(const GLOBAL TYPE(X) * x, i64 at, i64 step, i64 n, i64 k, GLOBAL KEY* keys,
                GLOBAL i32* places) {
  i64 held = 0;
  for (i64 i = 0; i < n; ++i) {
    const KEY key = key_of((sc)GET(X, x, at + i * step)) ^ FLIP;
    if (held == k && key >= keys[k - 1]) continue;
    i64 j = held < k ? held++ : k - 1;
    for (; j > 0 && keys[j - 1] > key; --j) {
      keys[j] = keys[j - 1];
      places[j] = places[j - 1];
    }
    keys[j] = key;
    places[j] = (i32)i;
  }
}
#elif LANES == 1
// By digits of 8 bits, from the lowest up; what came first stays first. `keys` and `places` have
// room for 2 * n. Gives where in it the result begins.
FUNC i64 order(const GLOBAL TYPE(X) * x, i64 at, i64 step, i64 n, GLOBAL KEY* keys,
               GLOBAL i32* places) {
  for (i64 i = 0; i < n; ++i) {
    keys[i] = key_of((sc)GET(X, x, at + i * step)) ^ FLIP;
    places[i] = (i32)i;
  }
  i64 from = 0;
  for (i32 shift = 0; shift < (i32)sizeof(KEY) * 8; shift += 8) {
    i64 count[256];
    for (i32 d = 0; d < 256; ++d) count[d] = 0;
    for (i64 i = 0; i < n; ++i) ++count[(keys[from + i] >> shift) & 255];
    if (count[(keys[from] >> shift) & 255] == n) continue;  // all alike
    i64 place = 0;
    for (i32 d = 0; d < 256; ++d) {
      const i64 here = count[d];
      count[d] = place;
      place += here;
    }
    const i64 to = n - from;
    for (i64 i = 0; i < n; ++i) {
      const KEY key = keys[from + i];
      const i64 j = count[(key >> shift) & 255]++;
      keys[to + j] = key;
      places[to + j] = places[from + i];
    }
    from = to;
  }
  return from;
}
#else
// Bitonic (Batcher, "Sorting networks and their applications", 1968), by a group, over `padded`
// elements, a power of two; those beyond n come last.
FUNC void order(const GLOBAL TYPE(X) * x, i64 at, i64 step, i64 n, i64 padded, GLOBAL KEY* keys,
                GLOBAL i32* places) {
  for (i64 i = LANE; i < padded; i += LANES) {
    keys[i] = i < n ? key_of((sc)GET(X, x, at + i * step)) ^ FLIP : ~(KEY)0;
    places[i] = (i32)i;
  }
  for (i64 run = 2; run <= padded; run *= 2)
    for (i64 apart = run / 2; apart > 0; apart /= 2) {
      BARRIER_GLOBAL();
      for (i64 pair = LANE; pair < padded / 2; pair += LANES) {
        const i64 i = pair / apart * apart * 2 + pair % apart, j = i + apart;
        const KEY a = keys[i], b = keys[j];
        const i32 p = places[i], q = places[j];
        if (precedes(b, q, a, p) == ((i & run) == 0)) {
          keys[i] = b;
          keys[j] = a;
          places[i] = q;
          places[j] = p;
        }
      }
    }
  BARRIER_GLOBAL();
}
#endif

// `keys` and `places`: of each group, `room` elements.
KERNEL(sort)(const GLOBAL TYPE(X) * x, GLOBAL TYPE(M) * values, GLOBAL i64* indices,
             GLOBAL KEY* keys_of_all, GLOBAL i32* places_of_all, const Outer outer, const i64 rows,
             const i64 n, const i64 k, const i64 room, const i64 step_x, const i64 step_value,
             const i64 step_index) {
  GLOBAL KEY* keys = keys_of_all + GROUP(0) * room;
  GLOBAL i32* places = places_of_all + GROUP(0) * room;
  const GLOBAL TYPE(M)* moved = (const GLOBAL TYPE(M)*)x;
  ROWS_OF(rows) {
    const i64 at_x = row_offset(&outer, row, 0), at_value = row_offset(&outer, row, 1);
    const i64 at_index = row_offset(&outer, row, 2);
#if LANES == 1 && TOP
    const i64 from = 0;
    order(x, at_x, step_x, n, k, keys, places);
#elif LANES == 1
    const i64 from = order(x, at_x, step_x, n, keys, places);
#else
    const i64 from = 0;
    order(x, at_x, step_x, n, room, keys, places);
#endif
    for (i64 j = LANE; j < k; j += LANES) {
      const i64 place = places[from + j];
      values[at_value + j * step_value] = moved[at_x + place * step_x];
      indices[at_index + j * step_index] = place;
    }
#if LANES > 1
    BARRIER_GLOBAL();  // the next row takes the same room
#endif
  }
}
