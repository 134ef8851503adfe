// Attention backward in two passes, so that every sum has one order: one over tiles of queries for
// dq, one over tiles of keys for dk and dv. Both compute the scores again from q, k and lse.

// delta[b][h][i] = sum of dout * out.
KERNEL(attention_delta)(const GLOBAL TYPE(X) * out, const GLOBAL TYPE(X) * dout, GLOBAL sc* delta,
                        const Problem p, const i64 rows) {
  for (i64 row = (i64)GROUP(0) * LANES + LANE; row < rows; row += (i64)GROUPS(0) * LANES) {
    const i64 i = row % p.s_q, h = row / p.s_q % p.heads, b = row / p.s_q / p.heads;
    const i64 at_out = b * p.out[0] + h * p.out[1] + i * p.out[2];
    const i64 at_dout = b * p.dout[0] + h * p.dout[1] + i * p.dout[2];
    vc total = (vc)(K(0));
    for (i32 at = 0; at < DV; at += W)
      total += LOAD_N(X, out, at_out + at * p.out[3], p.out[3], DV - at, K(0)) *
               LOAD_N(X, dout, at_dout + at * p.dout[3], p.dout[3], DV - at, K(0));
    delta[row] = CAT(fold_sum_, C)(total);
  }
}

// Of a tile: weights, from scores to weights; slopes, from dout v^T to the scores' gradients. Rows
// beyond `count` become zeros.
FUNC void weigh(const Problem* p, LOCAL sc* weights, LOCAL sc* slopes, const GLOBAL sc* lse,
                const GLOBAL sc* delta, const GLOBAL TYPE(M) * mask, const LOCAL i32* bounds,
                i32 has_columns, i32 whole, i64 b, i64 head, i64 r0, i64 c0, i32 count, i32 padded,
                sc scale, sc cap) {
  for (i32 r = LANE; r < padded; r += LANES) {
    LOCAL sc *w = weights + r * BC, *g = slopes + r * BC;
    const i64 row = r0 + r, i = row / p->stack, h = head + row % p->stack;
    sc shift = K(-INFINITY), less = K(0);
    if (r < count) {
      shift = lse[b * p->lse[0] + h * p->lse[1] + i * p->lse[2]];
      less = delta[(b * p->heads + h) * p->s_q + i];
    }
    if (shift == K(-INFINITY)) {
      for (i32 at = 0; at < BC; at += W) {
        VSTORE((vc)(K(0)), w, at);
        VSTORE((vc)(K(0)), g, at);
      }
      continue;
    }
    const i64 highest = i + p->offset + p->upper;
    const i32 low = clip(i + p->offset - p->left - c0);
    const i32 high = clip((highest < p->s_k ? highest : p->s_k - 1) - c0);
    const i64 mask_at = b * p->mask[0] + h * p->mask[1] + i * p->mask[2];
    for (i32 at = 0; at < BC; at += W) {
      vc slope = (vc)(K(1));
      const vc x = exp(masked(p, VLOAD(w, at), at, whole, low, high, i, c0, mask, mask_at, bounds,
                              has_columns, scale, cap, &slope) -
                       shift);
      VSTORE(x, w, at);
      VSTORE(x * (VLOAD(g, at) - less) * slope * scale, g, at);
    }
  }
}

KERNEL(attention_dq)(const GLOBAL TYPE(X) * q, const GLOBAL TYPE(X) * k, const GLOBAL TYPE(X) * v,
                     const GLOBAL TYPE(X) * dout, const GLOBAL sc* lse, const GLOBAL sc* delta,
                     const GLOBAL TYPE(M) * mask, const GLOBAL i32* columns, GLOBAL TYPE(X) * dq,
                     const Problem p, const i64 tiles, const i32 has_columns, const sc scale,
                     const sc cap) {
  LOCAL_ARRAY(sc, queries, BR * DP);
  LOCAL_ARRAY(sc, upstream, BR * VP);
  LOCAL_ARRAY(sc, keys, BC * (DP > VP ? DP : VP));
  LOCAL_ARRAY(sc, weights, BR * BC);
  LOCAL_ARRAY(sc, slopes, BR * BC);
  LOCAL_ARRAY(sc, sums, BR * DP);
  LOCAL_ARRAY(i32, bounds, 4 * BC);
  const i64 tile = tiles - 1 - GROUP(0) % tiles, unit = GROUP(0) / tiles;
  const i64 units = p.heads / p.stack;
  const i64 b = unit / units, head = unit % units * p.stack;
  const i64 kv = head / (p.heads / p.kv_heads), rows = p.s_q * p.stack, r0 = tile * BR;
  const i64 line = b * p.columns[0] +
                   (p.column_heads > 1 ? head / (p.heads / p.column_heads) * p.columns[1] : 0);
  const i64 base_k = b * p.k[0] + kv * p.k[1], base_v = b * p.v[0] + kv * p.v[1];
  const i32 count = rows - r0 < BR ? (i32)(rows - r0) : BR;
  const i32 padded = (count + MR - 1) / MR * MR;
  const i64 i0 = r0 / p.stack, i1 = (r0 + count - 1) / p.stack;
  i64 first = i0 + p.offset - p.left, last = i1 + p.offset + p.upper + 1;
  first = first < 0 ? 0 : first;
  last = last > p.s_k ? p.s_k : last;
  load_rows(q, b * p.q[0] + head * p.q[1], p.q, p.stack, r0, rows, padded, D, DP, queries);
  load_rows(dout, b * p.dout[0] + head * p.dout[1], p.dout, p.stack, r0, rows, padded, DV, VP,
            upstream);
  for (i32 e = LANE; e < BR * DP; e += LANES) sums[e] = K(0);
  for (i64 c0 = first / BC * BC; c0 < last; c0 += BC) {
    const i32 width = last - c0 < BC ? (i32)(last - c0) : BC;
    if (has_columns) load_columns(&p, columns, line, c0, bounds);
    BARRIER();
    const i32 kind = has_columns ? judge_columns(bounds, width, i0, i1) : 2;
    const i32 whole = kind == 2 && c0 >= i1 + p.offset - p.left && c0 + BC <= p.s_k &&
                      c0 + BC - 1 <= i0 + p.offset + p.upper;
    const i32 used = kind == 0 ? 0 : padded;
    if (used) turn_keys(k, base_k, p.k, c0, 0, p.s_k, D, DP, keys);
    BARRIER();
    product(queries, DP, 1, keys, BC, weights, BC, used, BC, D, 0);
    BARRIER();
    if (used) turn_keys(v, base_v, p.v, c0, 0, p.s_k, DV, VP, keys);
    BARRIER();
    product(upstream, VP, 1, keys, BC, slopes, BC, used, BC, DV, 0);
    BARRIER();
    weigh(&p, weights, slopes, lse, delta, mask, bounds, has_columns, whole, b, head, r0, c0, count,
          used, scale, cap);
    if (used) load_keys(k, base_k, p.k, c0, 0, p.s_k, D, DP, keys);
    BARRIER();
    product(slopes, BC, 1, keys, DP, sums, DP, used, DP, BC, 1);
  }
  BARRIER();
  store_rows(dq, b * p.dq[0] + head * p.dq[1], p.dq, p.stack, r0, rows, padded, D, DP, sums);
}

KERNEL(attention_dkv)(const GLOBAL TYPE(X) * q, const GLOBAL TYPE(X) * k, const GLOBAL TYPE(X) * v,
                      const GLOBAL TYPE(X) * dout, const GLOBAL sc* lse, const GLOBAL sc* delta,
                      const GLOBAL TYPE(M) * mask, const GLOBAL i32* columns, GLOBAL TYPE(X) * dk,
                      GLOBAL TYPE(X) * dv, const Problem p, const i64 tiles, const i32 has_columns,
                      const i32 wants, const sc scale, const sc cap) {
  LOCAL_ARRAY(sc, keys, BC * DP);
  LOCAL_ARRAY(sc, values, BC * VP);
  LOCAL_ARRAY(sc, queries, BR * DP);
  LOCAL_ARRAY(sc, upstream, BR * VP);
  LOCAL_ARRAY(sc, weights, BR * BC);
  LOCAL_ARRAY(sc, slopes, BR * BC);
  LOCAL_ARRAY(sc, sums_k, BC * DP);
  LOCAL_ARRAY(sc, sums_v, BC * VP);
  LOCAL_ARRAY(i32, bounds, 4 * BC);
  const i64 c0 = GROUP(0) % tiles * BC, unit = GROUP(0) / tiles;
  const i64 b = unit / p.kv_heads, kv = unit % p.kv_heads, group = p.heads / p.kv_heads;
  const i64 rows = p.s_q * p.stack;
  const i32 width = p.s_k - c0 < BC ? (i32)(p.s_k - c0) : BC;
  turn_keys(k, b * p.k[0] + kv * p.k[1], p.k, c0, 0, p.s_k, D, DP, keys);
  turn_keys(v, b * p.v[0] + kv * p.v[1], p.v, c0, 0, p.s_k, DV, VP, values);
  for (i32 e = LANE; e < BC * DP; e += LANES) sums_k[e] = K(0);
  for (i32 e = LANE; e < BC * VP; e += LANES) sums_v[e] = K(0);
  for (i64 head = kv * group; head < (kv + 1) * group; head += p.stack) {
    if (has_columns)
      load_columns(&p, columns,
                   b * p.columns[0] +
                       (p.column_heads > 1 ? head / (p.heads / p.column_heads) * p.columns[1] : 0),
                   c0, bounds);
    // Queries that see a key of the tile: i + offset + upper >= c0 and i + offset - left < c0 +
    // width.
    i64 from = c0 - p.offset - p.upper, to = c0 + width - p.offset + p.left;
    from = from < 0 ? 0 : from;
    to = to > p.s_q ? p.s_q : to;
    for (i64 r0 = from * p.stack; r0 < to * p.stack; r0 += BR) {
      const i32 count = rows - r0 < BR ? (i32)(rows - r0) : BR;
      const i32 padded = (count + MR - 1) / MR * MR;
      const i64 i0 = r0 / p.stack, i1 = (r0 + count - 1) / p.stack;
      BARRIER();
      const i32 kind = has_columns ? judge_columns(bounds, width, i0, i1) : 2;
      const i32 whole = kind == 2 && c0 >= i1 + p.offset - p.left && width == BC &&
                        c0 + BC - 1 <= i0 + p.offset + p.upper;
      const i32 used = kind == 0 ? 0 : padded;
      load_rows(q, b * p.q[0] + head * p.q[1], p.q, p.stack, r0, rows, used, D, DP, queries);
      load_rows(dout, b * p.dout[0] + head * p.dout[1], p.dout, p.stack, r0, rows, used, DV, VP,
                upstream);
      BARRIER();
      product(queries, DP, 1, keys, BC, weights, BC, used, BC, D, 0);
      product(upstream, VP, 1, values, BC, slopes, BC, used, BC, DV, 0);
      BARRIER();
      weigh(&p, weights, slopes, lse, delta, mask, bounds, has_columns, whole, b, head, r0, c0,
            count, used, scale, cap);
      BARRIER();
      if (used) {
        product(weights, 1, BC, upstream, VP, sums_v, VP, BC, VP, padded, 1);
        product(slopes, 1, BC, queries, DP, sums_k, DP, BC, DP, padded, 1);
      }
    }
  }
  BARRIER();
  if (wants & 1) store_rows(dk, b * p.dk[0] + kv * p.dk[1], p.dk, 1, c0, p.s_k, BC, D, DP, sums_k);
  if (wants & 2) store_rows(dv, b * p.dv[0] + kv * p.dv[1], p.dv, 1, c0, p.s_k, BC, DV, VP, sums_v);
}
