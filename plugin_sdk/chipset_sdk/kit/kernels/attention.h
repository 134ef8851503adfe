// What the attention kernels share: tiles of BR rows (queries) by BC keys in local memory, their
// products, and which keys a query sees. Operands: X (q, k, v, out and gradients) and M (the stored
// mask); class C. The host defines BR, BC, MR (rows of a register tile, one vector wide), D and DV
// (depths) and HAS_MASK (0, 1: bool, 2: added).
//
// A row of a tile is a query of one of `stack` heads that share a key head: row r is query
// r / stack of head r % stack, so that few queries of many heads still fill a tile.
#define DP ((D + W - 1) / W * W)
#define VP ((DV + W - 1) / W * W)

typedef struct {
  i64 batch, heads, kv_heads, s_q, s_k, stack;
  i64 offset, left, upper;  // query i sees keys i + offset - left to i + offset + upper
  i64 q[4], k[4], v[4], out[4], lse[3], mask[4], columns[4];
  i64 dout[4], dq[4], dk[4], dv[4];
  i64 column_heads, column_count, causal;
  i64 splits, split_keys;
} Problem;

#define AT(i, p) VLOAD(p, (i) * W)  // vector i of p
#define SET(x, i, p) VSTORE(x, p, (i) * W)

// ---- products of tiles ----
// sums[MR][W] (+)= left[MR][depth] right[depth][W], where left's elements lie left_row and left_k
// apart and rows of right and sums their pitches.
FUNC_ONCE void block(const LOCAL sc* left, i32 left_row, i32 left_k, const LOCAL sc* right,
                     i32 pitch, LOCAL sc* sums, i32 sums_pitch, i32 depth, i32 add) {
  vc total[MR];
#pragma unroll
  for (i32 r = 0; r < MR; ++r) total[r] = add ? AT(0, sums + r * sums_pitch) : (vc)(K(0));
  for (i32 k = 0; k < depth; ++k) {
    const vc x = AT(0, right + k * pitch);
#pragma unroll
    for (i32 r = 0; r < MR; ++r) total[r] = fma((vc)(left[r * left_row + k * left_k]), x, total[r]);
  }
#pragma unroll
  for (i32 r = 0; r < MR; ++r) SET(total[r], 0, sums + r * sums_pitch);
}

// sums[rows][columns] (+)= left right; `rows` a multiple of MR, `columns` of W. Work-items share
// it.
FUNC void product(const LOCAL sc* left, i32 left_row, i32 left_k, const LOCAL sc* right, i32 pitch,
                  LOCAL sc* sums, i32 sums_pitch, i32 rows, i32 columns, i32 depth, i32 add) {
  const i32 across = columns / W;
  for (i32 unit = LANE; unit < rows / MR * across; unit += LANES) {
    const i32 r = unit / across * MR, c = unit % across * W;
    block(left + r * left_row, left_row, left_k, right + c, pitch, sums + r * sums_pitch + c,
          sums_pitch, depth, add);
  }
}

// ---- tiles from memory ----
// W elements to local memory, zeros from n on. What is not a whole vector goes one by one: built as
// a vector, sixteen conditional loads in each place keep LLVM busy for minutes.
FUNC void load_part(const GLOBAL TYPE(X) * from, i64 at, i64 step, i32 n, LOCAL sc* to) {
  if (n >= W && step == 1)
    SET(LOAD(X, from, at), 0, to);
  else
#pragma unroll 1
    for (i32 e = 0; e < W; ++e) to[e] = e < n ? GET(X, from, at + e * step) : K(0);
}
FUNC void store_part(GLOBAL TYPE(X) * to, i64 at, i64 step, i32 n, const LOCAL sc* from) {
  if (n >= W && step == 1)
    STORE(X, to, at, AT(0, from));
  else
#pragma unroll 1
    for (i32 e = 0; e < (n < W ? n : W); ++e) PUT(X, to, at + e * step, from[e]);
}
// Rows first, first + 1, … of `total` as to[rows][padded]: zeros beyond the last row and `depth`.
FUNC void load_rows(const GLOBAL TYPE(X) * from, i64 base, const i64* stride, i64 stack, i64 first,
                    i64 total, i32 rows, i32 depth, i32 padded, LOCAL sc* to) {
  const i32 vectors = padded / W;
  for (i32 e = LANE; e < rows * vectors; e += LANES) {
    const i32 at = e % vectors * W;
    const i64 row = first + e / vectors;
    load_part(from, base + row / stack * stride[2] + row % stack * stride[1] + at * stride[3],
              stride[3], row < total ? depth - at : 0, to + e * W);
  }
}
FUNC void store_rows(GLOBAL TYPE(X) * to, i64 base, const i64* stride, i64 stack, i64 first,
                     i64 total, i32 rows, i32 depth, i32 padded, const LOCAL sc* from) {
  const i32 vectors = padded / W;
  for (i32 e = LANE; e < rows * vectors; e += LANES) {
    const i32 at = e % vectors * W;
    const i64 row = first + e / vectors;
    store_part(to, base + row / stack * stride[2] + row % stack * stride[1] + at * stride[3],
               stride[3], row < total ? depth - at : 0, from + e * W);
  }
}
// Where key j's row begins, or -1 for a row of zeros.
#if PAGED
#define KEY_PARAMETERS const GLOBAL i32 *table, i64 step, i64 block, i64 blocks, GLOBAL i32 *fault,
#define KEY_ARGUMENTS table, step, block, blocks, fault,
FUNC i64 key_at(KEY_PARAMETERS i64 base, const i64* stride, i64 j, i64 first, i64 last) {
  if (j < first || j >= last) return -1;
  const i64 number = table[j / block * step];
  if (number < 0 || number >= blocks) {
    raise_fault(fault);
    return -1;
  }
  return base + number * stride[0] + j % block * stride[1];
}
#else
#define KEY_PARAMETERS
#define KEY_ARGUMENTS
FUNC i64 key_at(i64 base, const i64* stride, i64 j, i64 first, i64 last) {
  return j < first || j >= last ? -1 : base + j * stride[2];
}
#endif
// Keys c0 to c0 + BC as to[BC][padded], zeros outside first to last.
FUNC void load_keys(KEY_PARAMETERS const GLOBAL TYPE(X) * from, i64 base, const i64* stride, i64 c0,
                    i64 first, i64 last, i32 depth, i32 padded, LOCAL sc* to) {
  for (i32 r = 0; r < BC; ++r) {
    const i64 row = key_at(KEY_ARGUMENTS base, stride, c0 + r, first, last);
    for (i32 at = LANE * W; at < padded; at += LANES * W)
      load_part(from, row + at * stride[3], stride[3], row < 0 ? 0 : depth - at,
                to + r * padded + at);
  }
}
// The same turned: to[padded][BC].
FUNC void turn_keys(KEY_PARAMETERS const GLOBAL TYPE(X) * from, i64 base, const i64* stride, i64 c0,
                    i64 first, i64 last, i32 depth, i32 padded, LOCAL sc* to) {
  i32 whole = 0;  // depth that was turned in squares
#if W > 1
  if (stride[3] == 1) {
    whole = depth / W * W;
    for (i32 r0 = 0; r0 < BC; r0 += W) {
      i64 row[W];
      i32 present = 1;
      for (i32 r = 0; r < W; ++r) {
        row[r] = key_at(KEY_ARGUMENTS base, stride, c0 + r0 + r, first, last);
        present = present && row[r] >= 0;
      }
      for (i32 at = 0; at < whole; at += W) {
        if (!present) {
#pragma unroll 1
          for (i32 r = 0; r < W; ++r)
#pragma unroll 1
            for (i32 e = 0; e < W; ++e)
              to[(at + e) * BC + r0 + r] = row[r] < 0 ? K(0) : GET(X, from, row[r] + at + e);
          continue;
        }
        vc x[W];
#pragma unroll
        for (i32 r = 0; r < W; ++r) x[r] = LOAD(X, from, row[r] + at);
        _Pragma("unroll") TURN(x, W);
#pragma unroll
        for (i32 r = 0; r < W; ++r) SET(x[r], 0, to + (at + r) * BC + r0);
      }
    }
  }
#endif
  const i32 rest = depth - whole;
#pragma unroll 1
  for (i32 e = LANE; e < BC * rest; e += LANES) {
    const i32 r = e / rest, at = whole + e % rest;
    const i64 row = key_at(KEY_ARGUMENTS base, stride, c0 + r, first, last);
    to[at * BC + r] = row < 0 ? K(0) : GET(X, from, row + at * stride[3]);
  }
}

// ---- which keys a query sees ----
#define NEVER 0x7fffffff
// FlashMask's columns of keys c0 to c0 + BC as two intervals of rows that do not see the key.
FUNC void load_columns(const Problem* p, const GLOBAL i32* columns, i64 base, i64 c0,
                       LOCAL i32* bounds) {
  for (i32 c = LANE; c < BC; c += LANES) {
    i32 x[4] = {NEVER, NEVER, 0, 0};
    if (c0 + c < p->s_k) {
      const i32 n = (i32)p->column_count;
      for (i32 t = 0; t < n; ++t)
        x[t] = columns[base + (c0 + c) * p->columns[2] + t * p->columns[3]];
      if (n == 1) x[1] = NEVER;
      if (n == 2 && !p->causal) {
        x[3] = x[1];
        x[2] = 0;
        x[1] = NEVER;
      }
    }
    for (i32 t = 0; t < 4; ++t) bounds[t * BC + c] = x[t];
  }
}
// 0: queries first to last see none of the keys; 1: some; 2: the columns hide nothing from them.
// At 0 a kernel's step goes through its barriers with no rows to work on. A `continue` past them,
// which all work-items take, is as legal, but before its pull request 2269 PoCL then lets every
// work-item do what the first one does between the last barrier and the loop's end.
FUNC i32 judge_columns(const LOCAL i32* bounds, i32 count, i64 first, i64 last) {
  i32 hidden[2] = {1, 1}, free = 1;
  for (i32 c = 0; c < count; ++c)
    for (i32 t = 0; t < 2; ++t) {
      const i64 begin = bounds[2 * t * BC + c], end = bounds[(2 * t + 1) * BC + c];
      if (begin > first || end <= last) hidden[t] = 0;
      if (begin <= last && end > first) free = 0;
    }
  return hidden[0] || hidden[1] ? 0 : free ? 2 : 1;
}

FUNC vi iota(void) {
  union {
    i32 e[W];
    vi v;
  } u;
  for (i32 k = 0; k < W; ++k) u.e[k] = k;
  return u.v;
}
FUNC i32 clip(i64 x) { return x < -1 ? -1 : x > BC ? BC : (i32)x; }

// The scores of query i with keys c0 + at on: scaled, capped, masked. low and high: which columns
// of the tile it sees. `slope` gets the derivative of the cap.
FUNC vc masked(const Problem* p, vc x, i32 at, i32 whole, i32 low, i32 high, i64 i, i64 c0,
               const GLOBAL TYPE(M) * mask, i64 mask_at, const LOCAL i32* bounds, i32 has_columns,
               sc scale, sc cap, vc* slope) {
  x *= scale;
  if (cap != K(0)) {
    const vc t = tanh(x / cap);
    x = t * cap;
    *slope = K(1) - t * t;
  }
#if HAS_MASK == 2
  x += CV(C, LOAD_N(M, mask, mask_at + (c0 + at) * p->mask[3], p->mask[3],
                    p->s_k - c0 - at < W ? (i32)(p->s_k - c0 - at) : W, 0));
#endif
#if HAS_MASK != 1
  if (whole) return x;
#endif
  const vi column = iota() + at;
  vi sees = TRUTH(column >= low) & TRUTH(column <= high);
  if (has_columns) {
    const vi row = (vi)((i32)i);
    sees &= 1 ^ (TRUTH(row >= VLOAD(bounds, at)) & TRUTH(row < VLOAD(bounds + BC, at)));
    sees &=
        1 ^ (TRUTH(row >= VLOAD(bounds + 2 * BC, at)) & TRUTH(row < VLOAD(bounds + 3 * BC, at)));
  }
#if HAS_MASK == 1
  sees &= LOAD_N(M, mask, mask_at + (c0 + at) * p->mask[3], p->mask[3],
                 p->s_k - c0 - at < W ? (i32)(p->s_k - c0 - at) : W, 0);
#endif
  return CHOOSE(sees, x, (vc)(K(-INFINITY)));
}
