// One reduction. The host defines IN and OUT, C (class of the elements), A (class of the
// accumulator), MAP(x, shift) from C to A, COMBINE(a, b) and IDENTITY of A, FINISH(a), COLUMNS
// (neighbouring results lie together: a vector carries W of them), SPLIT (a result is cut into
// pieces; their accumulators are written to `partial`), SHIFTED (a number per result goes into MAP
// and FINISH) and, for extremes with their place, WITH_INDEX and BETTER(a, b).
#define va CAT(v, A)
#define sa CAT(S_, A)
#define BLOCK_STEPS 128  // partial sums are kept apart, so that errors grow with the root's pace

typedef struct {
  i64 rank, size[8], stride[8][3];  // of output, input, indices
} Kept;
typedef struct {
  i64 rank, size[8], stride[8][1];
} Reduced;

FOLD(fold_acc, A, COMBINE(a, b))
GROUP_FOLD(group_acc, A, COMBINE(a, b))

FUNC va first_n(va v, i32 n, sa fill) {
  union {
    sa e[W];
    va v;
  } u;
  u.v = v;
  for (i32 k = 0; k < W; ++k) u.e[k] = k < n ? u.e[k] : fill;
  return u.v;
}

// Offset of row `row` of the reduced elements.
FUNC i64 reduced_offset(const Reduced* reduced, i64 row) {
  i64 at = 0;
  for (i32 d = 1; d < (i32)reduced->rank; ++d) {
    const i64 next = row / reduced->size[d];
    at += (row - next * reduced->size[d]) * reduced->stride[d][0];
    row = next;
  }
  return at;
}

// x is better than what was found first, or is the first NaN (NUM-003).
#if WITH_INDEX
#define BEATS(x, best) (BETTER(x, best) || (x != x && best == best))
// Of two findings: NaN before number, then the better, then the lower place.
#define WINS(x, i, y, j) \
  (x != x ? (y == y || i < j) : (y == y && (BETTER(x, y) || (x == y && i < j))))
#endif

KERNEL(reduce)(GLOBAL TYPE(OUT) * out, const GLOBAL TYPE(IN) * in, GLOBAL i64* indices,
               GLOBAL sa* partial, const GLOBAL sa* shifts, const Kept kept, const Reduced reduced,
               const i64 results, const i64 length, const i64 pieces, const f32 param,
               const i64 index_wanted) {
#if !WITH_INDEX && !COLUMNS
  LOCAL_ARRAY(sa, room, LANES);
#elif WITH_INDEX && LANES > 1
  LOCAL_ARRAY(sc, best_of, LANES);
  LOCAL_ARRAY(i64, place_of, LANES);
#endif
  const i64 inner = reduced.size[0], step = reduced.stride[0][0];
  const i64 piece = (length + pieces - 1) / pieces;
#if COLUMNS
  const i64 columns = kept.size[0], blocks = (columns + W - 1) / W;
  const i64 units = results / columns * blocks * pieces;
#if LANES > 1
  for (i64 unit = (i64)GROUP(0) * LANES + LANE; unit < units; unit += (i64)GROUPS(0) * LANES) {
#else
  const i64 share = (units + GROUPS(0) - 1) / GROUPS(0);
  for (i64 unit = GROUP(0) * share; unit < units && unit < (i64)(GROUP(0) + 1) * share; ++unit) {
#endif
    const i64 column = unit % blocks * W, rest = unit / blocks;
    const i64 row = rest / pieces, number = rest % pieces;
    const i64 result = row * columns + column;
    const i32 n = columns - column < W ? (i32)(columns - column) : W;
#else
  const i64 units = results * pieces;
#if LANES > 1
  for (i64 unit = GROUP(0); unit < units; unit += GROUPS(0)) {
#else
  const i64 share = (units + GROUPS(0) - 1) / GROUPS(0);
  for (i64 unit = GROUP(0) * share; unit < units && unit < (i64)(GROUP(0) + 1) * share; ++unit) {
#endif
    const i64 result = unit / pieces, number = unit % pieces;
    const i64 row = result / kept.size[0], column = result % kept.size[0];
#endif
    i64 at_out = column * kept.stride[0][0], at_in = column * kept.stride[0][1];
    i64 at_index = column * kept.stride[0][2], rest_of = row;
    for (i32 d = 1; d < (i32)kept.rank; ++d) {
      const i64 next = rest_of / kept.size[d], q = rest_of - next * kept.size[d];
      at_out += q * kept.stride[d][0];
      at_in += q * kept.stride[d][1];
      at_index += q * kept.stride[d][2];
      rest_of = next;
    }
    const i64 first = number * piece;
    const i64 last = first + piece < length ? first + piece : length;

#if WITH_INDEX
    // Places are counted in steps of one vector, so that they are as wide as the elements.
#if COLUMNS
    vc best = (vc)(K(0));
    CAT(v, PLACE) place = (CAT(v, PLACE))(-1);
    for (i64 e = 0; e < length; ++e) {
      const i64 r = e / inner;
      const i64 at = at_in + reduced_offset(&reduced, r) + (e - r * inner) * step;
      const vc x = CV(C, LOAD_N(IN, in, at, kept.stride[0][1], n, 0));
      const CAT(v, PLACE) here = (CAT(v, PLACE))((CAT(S_, PLACE))e);
      if (e == 0) {
        best = x;
        place = here;
      } else {
        const CAT(v, PLACE) now = BEATS(x, best) ? here : place;
        best = BEATS(x, best) ? x : best;
        place = now;
      }
    }
    union {
      sc e[W];
      vc v;
    } values;
    union {
      CAT(S_, PLACE) e[W];
      CAT(v, PLACE) v;
    } places;
    values.v = best;
    places.v = place;
    for (i32 k = 0; k < W; ++k)
      if (k < n) {
#if OUT_IS_INDEX
        PUT(OUT, out, at_out + k * kept.stride[0][0], places.e[k]);
#else
        PUT(OUT, out, at_out + k * kept.stride[0][0], values.e[k]);
        if (index_wanted) indices[at_index + k * kept.stride[0][2]] = places.e[k];
#endif
      }
#else  // rows
    sc best = K(0);
    i64 place = -1;
#if LANES > 1
    for (i64 e = first + LANE; e < last; e += LANES) {
      const i64 r = e / inner;
      const sc x = (sc)GET(IN, in, at_in + reduced_offset(&reduced, r) + (e - r * inner) * step);
      if (place < 0 || BEATS(x, best)) {
        best = x;
        place = e;
      }
    }
    BARRIER();
    best_of[LANE] = best;
    place_of[LANE] = place;
    BARRIER();
    for (i32 width = LANES / 2; width > 0; width /= 2) {
      if (LANE < width && place_of[LANE + width] >= 0) {
        const sc other = best_of[LANE + width], mine = best_of[LANE];
        const i64 there = place_of[LANE + width], here = place_of[LANE];
        if (here < 0 || WINS(other, there, mine, here)) {
          best_of[LANE] = other;
          place_of[LANE] = there;
        }
      }
      BARRIER();
    }
    best = best_of[0];
    place = place_of[0];
#else
    for (i64 e = 0; e < length; e += inner) {  // a row at a time
      const i64 at = at_in + reduced_offset(&reduced, e / inner);
      i64 i = 0;
      if (inner >= W) {
        vc lane_best = CV(C, LOAD_N(IN, in, at, step, W, 0));
        CAT(v, PLACE) lane_step = (CAT(v, PLACE))(0);
        for (i = W; i + W <= inner; i += W) {
          const vc x = CV(C, LOAD_N(IN, in, at + i * step, step, W, 0));
          const CAT(v, PLACE) here = (CAT(v, PLACE))((CAT(S_, PLACE))(i / W));
          lane_step = BEATS(x, lane_best) ? here : lane_step;
          lane_best = BEATS(x, lane_best) ? x : lane_best;
        }
        union {
          sc e[W];
          vc v;
        } values;
        union {
          CAT(S_, PLACE) e[W];
          CAT(v, PLACE) v;
        } steps;
        values.v = lane_best;
        steps.v = lane_step;
        for (i32 k = 0; k < W; ++k) {
          const i64 here = e + (i64)steps.e[k] * W + k;
          const sc x = values.e[k];
          if (place < 0 || WINS(x, here, best, place)) {
            best = x;
            place = here;
          }
        }
      }
      for (; i < inner; ++i) {
        const sc x = (sc)GET(IN, in, at + i * step);
        if (place < 0 || WINS(x, e + i, best, place)) {
          best = x;
          place = e + i;
        }
      }
    }
#endif
    if (LANE == 0) {
#if OUT_IS_INDEX
      PUT(OUT, out, at_out, place);
#else
      PUT(OUT, out, at_out, best);
      if (index_wanted) indices[at_index] = place;
#endif
    }
#endif

#else  // one accumulator
    va total = (va)(IDENTITY), acc = (va)(IDENTITY);
#if COLUMNS
#if SHIFTED
    union {
      sa e[W];
      va v;
    } shift_of;
    for (i32 k = 0; k < W; ++k) shift_of.e[k] = shifts[result + (k < n ? k : 0)];
    const va shift = shift_of.v;
#else
    const va shift = (va)(IDENTITY);
#endif
    i64 e = first;
    i64 r = e / inner, i = e - r * inner, at = at_in + reduced_offset(&reduced, r);
    while (e < last) {
      i64 stop = e + BLOCK_STEPS < last ? e + BLOCK_STEPS : last;
      stop = stop - e < inner - i ? stop : e + inner - i;
      acc = (va)(IDENTITY);
      for (; e < stop; ++e, ++i) {
        const vc x = CV(C, LOAD_N(IN, in, at + i * step, kept.stride[0][1], n, 0));
        acc = COMBINE(acc, MAP(x, shift));
      }
      total = COMBINE(total, acc);
      if (i == inner) {
        i = 0;
        at = at_in + reduced_offset(&reduced, ++r);
      }
    }
    union {
      sa e[W];
      va v;
    } all;
    all.v = total;
    for (i32 k = 0; k < W; ++k)
      if (k < n) {
#if SPLIT
        partial[number * results + result + k] = all.e[k];
#else
        const sa shift_ = SHIFTED ? shifts[result + k] : IDENTITY;
        PUT(OUT, out, at_out + k * kept.stride[0][0], FINISH(all.e[k], shift_));
#endif
      }
#else  // rows
    const sa shift_ = SHIFTED ? shifts[result] : IDENTITY;
    const va shift = (va)(shift_);
#if LANES > 1
    i32 steps = 0;
    for (i64 e = first + LANE; e < last; e += LANES) {
      const i64 r = e / inner;
      const vc x = (vc)GET(IN, in, at_in + reduced_offset(&reduced, r) + (e - r * inner) * step);
      acc = COMBINE(acc, MAP(x, shift));
      if (++steps % BLOCK_STEPS == 0) {
        total = COMBINE(total, acc);
        acc = (va)(IDENTITY);
      }
    }
    total = COMBINE(total, acc);
#else
    for (i64 e = first; e < last;) {
      const i64 r = e / inner, i = e - r * inner;
      const i64 at = at_in + reduced_offset(&reduced, r) + i * step;
      const i64 count = inner - i < last - e ? inner - i : last - e;
      i64 k = 0;
      while (k + W <= count) {
        const i64 end = k + BLOCK_STEPS * W < count - W + 1 ? k + BLOCK_STEPS * W : count - W + 1;
        acc = (va)(IDENTITY);
        for (; k < end; k += W) {
          const vc x = CV(C, LOAD_N(IN, in, at + k * step, step, W, 0));
          acc = COMBINE(acc, MAP(x, shift));
        }
        total = COMBINE(total, acc);
      }
      if (k < count) {
        const i32 n = (i32)(count - k);
        const vc x = CV(C, CAT(part_, IN)(in, at + k * step, step, n, 0));
        const va m = first_n(MAP(x, shift), n, IDENTITY);
        total = COMBINE(total, m);
      }
      e += count;
    }
#endif
    const sa sum = group_acc(fold_acc(total), room);
    if (LANE == 0) {
#if SPLIT
      partial[number * results + result] = sum;
#else
      PUT(OUT, out, at_out, FINISH(sum, shift_));
#endif
    }
#endif
#endif
  }
}

#if SPLIT
KERNEL(reduce_finish)(GLOBAL TYPE(OUT) * out, const GLOBAL sa* partial, const GLOBAL sa* shifts,
                      const Kept kept, const i64 results, const i64 length, const i64 pieces,
                      const f32 param) {
  for (i64 result = (i64)GROUP(0) * LANES + LANE; result < results;
       result += (i64)GROUPS(0) * LANES) {
    sa sum = IDENTITY;
    for (i64 number = 0; number < pieces; ++number) {
      const sa part = partial[number * results + result];
      sum = COMBINE(sum, part);
    }
    i64 at_out = 0, rest = result;
    for (i32 d = 0; d < (i32)kept.rank; ++d) {
      const i64 next = rest / kept.size[d];
      at_out += (rest - next * kept.size[d]) * kept.stride[d][0];
      rest = next;
    }
    const sa shift_ = SHIFTED ? shifts[result] : IDENTITY;
    PUT(OUT, out, at_out, FINISH(sum, shift_));
  }
}
#endif
