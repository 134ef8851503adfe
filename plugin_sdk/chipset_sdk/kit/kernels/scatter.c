// destination[p + indices] op= source[p], in row-major order (deterministic): the dimensions along
// which the destination moves are shared out, the others are walked in order by each of their
// elements. The host defines X (dtype), COUNT, OPERATION(old, new), FROM_VALUE, FIXED (no index
// varies along the innermost of the shared dimensions) and BLOCK. Where few dimensions are shared,
// `owners` of a destination divide its elements among themselves.
typedef struct {
  i64 rank, size[8], stride[8][10];  // of destination, source, indices
} Walk;

FUNC i64 owner_of(i64 offset, i64 owners) {
  return (i64)((((u64)offset * 0x9E3779B97F4A7C15ul) >> 40) % (u64)owners);
}

KERNEL(scatter)(GLOBAL TYPE(X) * to, const GLOBAL TYPE(X) * from, INDEX_PARAMETERS,
                GLOBAL i32* fault, const Walk shared, const Walk ordered, const Indexed indexed,
                const i64 rows, const i64 steps, const i64 owners, const SCALAR(X) value) {
  const GLOBAL void* index[8] = INDEX_ARRAY;
  const i64 inner = shared.size[0], blocks = (inner + BLOCK - 1) / BLOCK;
  const i64 units = rows * blocks * owners;
  const i64 step_to = shared.stride[0][0], step_from = shared.stride[0][1];
#if LANES == 1
  const i64 share = (units + GROUPS(0) - 1) / GROUPS(0);
  for (i64 unit = GROUP(0) * share; unit < units && unit < (i64)(GROUP(0) + 1) * share; ++unit) {
#else
  for (i64 unit = (i64)GROUP(0) * LANES + LANE; unit < units; unit += (i64)GROUPS(0) * LANES) {
#endif
    const i64 owner = unit % owners, place = unit / owners;
    const i64 begin = place % blocks * BLOCK;
    const i64 end = begin + BLOCK < inner ? begin + BLOCK : inner;
    i64 row = place / blocks, base[10];
    for (i32 k = 0; k < COUNT + 2; ++k) base[k] = 0;
    for (i32 d = 1; d < (i32)shared.rank; ++d) {
      const i64 next = row / shared.size[d], q = row - next * shared.size[d];
      for (i32 k = 0; k < COUNT + 2; ++k) base[k] += q * shared.stride[d][k];
      row = next;
    }
    for (i64 s = 0; s < steps; ++s) {
      i64 at[10], rest = s;
      for (i32 k = 0; k < COUNT + 2; ++k) at[k] = base[k];
      for (i32 d = 0; d < (i32)ordered.rank; ++d) {
        const i64 next = rest / ordered.size[d], q = rest - next * ordered.size[d];
        for (i32 k = 0; k < COUNT + 2; ++k) at[k] += q * ordered.stride[d][k];
        rest = next;
      }
#if FIXED
      i64 offset = 0;
      i32 legal = 1;
      for (i32 k = 0; k < COUNT; ++k)
        legal &= indexed_offset(&indexed, k, read_index(index[k], at[k + 2], indexed.wide >> k & 1),
                                &offset);
      if (!legal) {
        raise_fault(fault);
        continue;
      }
      if (owners > 1 && owner_of(offset, owners) != owner) continue;
      offset += at[0];
      for (i64 i = begin; i < end; i += W) {
        const i32 n = end - i < W ? (i32)(end - i) : W;
#if FROM_VALUE
        const VECTOR(X) fresh = (VECTOR(X))(value);
#else
        const VECTOR(X) fresh = LOAD_N(X, from, at[1] + i * step_from, step_from, n, 0);
#endif
#if READS_OLD
        const VECTOR(X) old = LOAD_N(X, to, offset + i * step_to, step_to, n, 0);
#endif
        STORE_N(X, to, offset + i * step_to, step_to, n, OPERATION(old, fresh));
      }
#else
      for (i64 i = begin; i < end; ++i) {
        i64 offset = 0;
        i32 legal = 1;
        for (i32 k = 0; k < COUNT; ++k)
          legal &= indexed_offset(
              &indexed, k,
              read_index(index[k], at[k + 2] + i * shared.stride[0][k + 2], indexed.wide >> k & 1),
              &offset);
        if (!legal) {
          raise_fault(fault);
          continue;
        }
        if (owners > 1 && owner_of(offset, owners) != owner) continue;
        offset += at[0] + i * step_to;
#if FROM_VALUE
        const SCALAR(X) fresh = value;
#else
        const SCALAR(X) fresh = GET(X, from, at[1] + i * step_from);
#endif
#if READS_OLD
        const SCALAR(X) old = GET(X, to, offset);
#endif
        PUT(X, to, offset, OPERATION(old, fresh));
      }
#endif
    }
  }
}
