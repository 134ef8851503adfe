// Attention forward, tile by tile of keys with a running maximum (arXiv:2205.14135). PAGED: keys
// lie in blocks that a table names. A group has a tile of rows, or with `splits` above 1 a part of
// their keys, whose sums attention_join puts together.
KERNEL(attention)(
#if PAGED
    const GLOBAL i32* block_table, const GLOBAL i32* query_start, const GLOBAL i32* kv_len,
    GLOBAL i32* fault, const i64 table_row, const i64 step, const i64 start_step,
    const i64 len_step, const i64 block, const i64 blocks, const i64 max_blocks,
#endif
    const GLOBAL TYPE(X) * q, const GLOBAL TYPE(X) * k, const GLOBAL TYPE(X) * v,
    const GLOBAL TYPE(M) * mask, const GLOBAL i32* columns, GLOBAL TYPE(X) * out, GLOBAL sc* lse,
    GLOBAL sc* parts, const Problem problem, const i64 tiles, const i32 has_columns,
    const i32 has_lse, const sc scale, const sc cap) {
  LOCAL_ARRAY(sc, queries, BR * DP);
  LOCAL_ARRAY(sc, keys, BC * (DP > VP ? DP : VP));
  LOCAL_ARRAY(sc, weights, BR * BC);
  LOCAL_ARRAY(sc, sums, BR * VP);
  LOCAL_ARRAY(sc, largest_of, BR);
  LOCAL_ARRAY(sc, total_of, BR);
  LOCAL_ARRAY(i32, bounds, 4 * BC);
  Problem p = problem;
  const i64 split = GROUP(0) % p.splits, tile = tiles - 1 - GROUP(0) / p.splits % tiles;
  const i64 unit = GROUP(0) / p.splits / tiles;  // heads that share a stack
  const i64 units = p.heads / p.stack;
  const i64 b = unit / units, head = unit % units * p.stack;
  const i64 kv = head / (p.heads / p.kv_heads);
  const i64 total_keys = p.s_k;
#if PAGED
  const i64 begin = query_start[b * start_step], end = query_start[(b + 1) * start_step];
  const GLOBAL i32* table = block_table + b * table_row;
  if (begin < 0 || end < begin || end > p.s_q) {
    raise_fault(fault);
    return;
  }
  p.s_k = kv_len[b * len_step];
  if (end > begin && (p.s_k < 0 || p.s_k > block * max_blocks)) {
    raise_fault(fault);
    return;
  }
  p.s_q = end - begin;
  p.offset = p.s_k - p.s_q;
  const i64 base_q = begin * p.q[2] + head * p.q[1], base_out = begin * p.out[2] + head * p.out[1];
  const i64 base_k = kv * p.k[2], base_v = kv * p.v[2], place = begin * p.heads + head;
  const i64 place_query = p.heads, place_head = 1;
#else
  const i64 base_q = b * p.q[0] + head * p.q[1], base_out = b * p.out[0] + head * p.out[1];
  const i64 base_k = b * p.k[0] + kv * p.k[1], base_v = b * p.v[0] + kv * p.v[1];
  const i64 place = (b * p.heads + head) * p.s_q, place_query = 1, place_head = p.s_q;
#endif
  const i64 rows = p.s_q * p.stack;
  const i64 line = b * p.columns[0] +
                   (p.column_heads > 1 ? head / (p.heads / p.column_heads) * p.columns[1] : 0);
  for (i64 r0 = tile * BR; r0 < rows; r0 += tiles * BR) {
    const i32 count = rows - r0 < BR ? (i32)(rows - r0) : BR;
    const i32 padded = (count + MR - 1) / MR * MR;
    const i64 i0 = r0 / p.stack, i1 = (r0 + count - 1) / p.stack;
    i64 first = i0 + p.offset - p.left, last = i1 + p.offset + p.upper + 1;
    first = first < split * p.split_keys ? split * p.split_keys : first;
    last = last > p.s_k ? p.s_k : last;
    last = last > (split + 1) * p.split_keys ? (split + 1) * p.split_keys : last;
    BARRIER();
    load_rows(q, base_q, p.q, p.stack, r0, rows, padded, D, DP, queries);
    for (i32 e = LANE; e < BR * VP; e += LANES) sums[e] = K(0);
    for (i32 r = LANE; r < BR; r += LANES) {
      largest_of[r] = K(-INFINITY);
      total_of[r] = K(0);
    }
    for (i64 c0 = first / BC * BC; c0 < last; c0 += BC) {
      const i32 width = last - c0 < BC ? (i32)(last - c0) : BC;
      if (has_columns) load_columns(&p, columns, line, c0, bounds);
      BARRIER();
      const i32 kind = has_columns ? judge_columns(bounds, width, i0, i1) : 2;
      const i32 whole = kind == 2 && c0 >= i1 + p.offset - p.left && c0 >= first && width == BC &&
                        c0 + BC - 1 <= i0 + p.offset + p.upper;
      const i32 seeing = kind == 0 ? 0 : count, used = kind == 0 ? 0 : padded;
      if (used) turn_keys(KEY_ARGUMENTS k, base_k, p.k, c0, first, last, D, DP, keys);
      BARRIER();
      product(queries, DP, 1, keys, BC, weights, BC, used, BC, D, 0);
      BARRIER();
      if (used) load_keys(KEY_ARGUMENTS v, base_v, p.v, c0, first, last, DV, VP, keys);
      for (i32 r = LANE; r < seeing; r += LANES) {
        const i64 row = r0 + r, i = row / p.stack, h = head + row % p.stack;
        const i64 lowest = i + p.offset - p.left, highest = i + p.offset + p.upper;
        const i32 low = clip((lowest > first ? lowest : first) - c0);
        const i32 high = clip((highest < last ? highest : last - 1) - c0);
        const i64 mask_at = b * p.mask[0] + h * p.mask[1] + i * p.mask[2];
        LOCAL sc* w = weights + r * BC;
        vc most = (vc)(K(-INFINITY)), slope;
        for (i32 at = 0; at < BC; at += W) {
          const vc x = masked(&p, VLOAD(w, at), at, whole, low, high, i, c0, mask, mask_at, bounds,
                              has_columns, scale, cap, &slope);
          most = x > most || x != x ? x : most;
          VSTORE(x, w, at);
        }
        const sc old = largest_of[r], here = CAT(fold_max_, C)(most);
        const sc m = here > old || here != here ? here : old;
        if (m == K(-INFINITY)) {
          for (i32 at = 0; at < BC; at += W) VSTORE((vc)(K(0)), w, at);
          continue;
        }
        vc total = (vc)(K(0));
        for (i32 at = 0; at < BC; at += W) {
          const vc x = exp(VLOAD(w, at) - m);
          total += x;
          VSTORE(x, w, at);
        }
        const sc shrink = exp(old - m);
        total_of[r] = total_of[r] * shrink + CAT(fold_sum_, C)(total);
        largest_of[r] = m;
        if (shrink != K(1))
          for (i32 at = 0; at < VP; at += W)
            VSTORE(VLOAD(sums + r * VP, at) * shrink, sums + r * VP, at);
      }
      BARRIER();
      product(weights, BC, 1, keys, VP, sums, VP, used, VP, BC, 1);
    }
    BARRIER();
    for (i32 r = LANE; r < count; r += LANES) {
      const i64 row = r0 + r, i = row / p.stack, h = row % p.stack;
      const sc total = total_of[r];
      if (p.splits > 1) {
        GLOBAL sc* part =
            parts + ((place + i * place_query + h * place_head) * p.splits + split) * (VP + 2);
        for (i32 at = 0; at < VP; at += W) VSTORE(VLOAD(sums + r * VP, at), part, at);
        part[VP] = largest_of[r];
        part[VP + 1] = total;
        continue;
      }
      const sc inverse = largest_of[r] == K(-INFINITY) ? K(0) : K(1) / total;
      for (i32 at = 0; at < VP; at += W)
        VSTORE(VLOAD(sums + r * VP, at) * inverse, sums + r * VP, at);
      if (has_lse)
        lse[b * p.lse[0] + (head + h) * p.lse[1] + i * p.lse[2]] = largest_of[r] + log(total);
    }
    BARRIER();
    if (p.splits == 1) store_rows(out, base_out, p.out, p.stack, r0, rows, padded, DV, VP, sums);
  }
}

// Puts the parts of each row's keys together; a work-item has a row at a time.
KERNEL(attention_join)(
#if PAGED
    const GLOBAL i32* query_start, const i64 start_step,
#endif
    const GLOBAL sc* parts, GLOBAL TYPE(X) * out, GLOBAL sc* lse, const Problem p, const i64 rows,
    const i32 has_lse) {
#if PAGED
  const i64 present = query_start[p.batch * start_step] * p.heads;
#else
  const i64 present = rows;
#endif
  for (i64 row = (i64)GROUP(0) * LANES + LANE; row < rows && row < present;
       row += (i64)GROUPS(0) * LANES) {
    const GLOBAL sc* part = parts + row * p.splits * (VP + 2);
#if PAGED
    const i64 at_out = row / p.heads * p.out[2] + row % p.heads * p.out[1];
#else
    const i64 i = row % p.s_q, h = row / p.s_q % p.heads, b = row / p.s_q / p.heads;
    const i64 at_out = b * p.out[0] + h * p.out[1] + i * p.out[2];
#endif
    sc m = K(-INFINITY), total = K(0);
    for (i64 s = 0; s < p.splits; ++s) {
      const sc x = part[s * (VP + 2) + VP];
      m = x > m || x != x ? x : m;
    }
    const sc shift = m == K(-INFINITY) ? K(0) : m;
    for (i64 s = 0; s < p.splits; ++s)
      total += part[s * (VP + 2) + VP + 1] * exp(part[s * (VP + 2) + VP] - shift);
    const sc inverse = m == K(-INFINITY) ? K(0) : K(1) / total;
    for (i32 at = 0; at < VP; at += W) {
      vc sum = (vc)(K(0));
      for (i64 s = 0; s < p.splits; ++s)
        sum += VLOAD(part + s * (VP + 2), at) * exp(part[s * (VP + 2) + VP] - shift);
      STORE_N(X, out, at_out + at * p.out[3], p.out[3], DV - at, sum * inverse);
    }
#if !PAGED
    if (has_lse) lse[b * p.lse[0] + h * p.lse[1] + i * p.lse[2]] = m + log(total);
#endif
  }
}
