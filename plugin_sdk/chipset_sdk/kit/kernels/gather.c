// output[p] = input[p + indices]. The host defines X (an integer of the element's size), COUNT (of
// indices), FIXED (no index varies along the innermost dimension) and BLOCK.
typedef struct {
  i64 rank, size[8], stride[8][10];  // of output, input, indices
} Walk;

KERNEL(gather)(GLOBAL TYPE(X) * out, const GLOBAL TYPE(X) * in, INDEX_PARAMETERS, GLOBAL i32* fault,
               const Walk walk, const Indexed indexed, const i64 rows) {
  const GLOBAL void* index[8] = INDEX_ARRAY;
  const i64 inner = walk.size[0], blocks = (inner + BLOCK - 1) / BLOCK, units = rows * blocks;
  const i64 step_out = walk.stride[0][0], step_in = walk.stride[0][1];
#if LANES == 1
  const i64 share = (units + GROUPS(0) - 1) / GROUPS(0);
  for (i64 unit = GROUP(0) * share; unit < units && unit < (i64)(GROUP(0) + 1) * share; ++unit) {
#else
  for (i64 unit = (i64)GROUP(0) * LANES + LANE; unit < units; unit += (i64)GROUPS(0) * LANES) {
#endif
    const i64 begin = unit % blocks * BLOCK;
    const i64 end = begin + BLOCK < inner ? begin + BLOCK : inner;
    i64 row = unit / blocks, at[10];
    for (i32 k = 0; k < COUNT + 2; ++k) at[k] = 0;
    for (i32 d = 1; d < (i32)walk.rank; ++d) {
      const i64 next = row / walk.size[d], q = row - next * walk.size[d];
      for (i32 k = 0; k < COUNT + 2; ++k) at[k] += q * walk.stride[d][k];
      row = next;
    }
#if FIXED
    i64 offset = at[1];
    i32 legal = 1;
    for (i32 k = 0; k < COUNT; ++k)
      legal &= indexed_offset(&indexed, k, read_index(index[k], at[k + 2], indexed.wide >> k & 1),
                              &offset);
    if (!legal) {
      raise_fault(fault);
      continue;
    }
    for (i64 i = begin; i < end; i += W) {
      const i32 n = end - i < W ? (i32)(end - i) : W;
      const VECTOR(X) v = LOAD_N(X, in, offset + i * step_in, step_in, n, 0);
      STORE_N(X, out, at[0] + i * step_out, step_out, n, v);
    }
#else
    for (i64 i = begin; i < end; ++i) {
      i64 offset = at[1] + i * step_in;
      i32 legal = 1;
      for (i32 k = 0; k < COUNT; ++k)
        legal &= indexed_offset(
            &indexed, k,
            read_index(index[k], at[k + 2] + i * walk.stride[0][k + 2], indexed.wide >> k & 1),
            &offset);
      if (legal)
        out[at[0] + i * step_out] = in[offset];
      else
        raise_fault(fault);
    }
#endif
  }
}
