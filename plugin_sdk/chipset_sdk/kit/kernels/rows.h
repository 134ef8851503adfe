// Kernels that work on rows: a group has a row at a time. C is the class computed in.
#define ROWS_OF(count)                                                                            \
  const i64 row_share = LANES == 1 ? ((count) + GROUPS(0) - 1) / GROUPS(0) : 1;                   \
  const i64 row_first = LANES == 1 ? GROUP(0) * row_share : GROUP(0);                             \
  const i64 row_last =                                                                            \
      LANES == 1 ? (row_first + row_share < (count) ? row_first + row_share : (count)) : (count); \
  const i64 row_step = LANES == 1 ? 1 : GROUPS(0);                                                \
  for (i64 row = row_first; row < row_last; row += row_step)
// The vectors of a row of n elements: i is the first element, left how many there are.
#define VECTORS_OF(n)                                               \
  for (i64 i = (i64)LANE * W, left = (n) - (i64)LANE * W; left > 0; \
       i += (i64)LANES * W, left -= (i64)LANES * W)
#define SOME(left) ((left) < W ? (i32)(left) : W)
// Operand X of the row that begins at `at`, in class C; `fill` beyond the row's end.
#define READ(X, p, at, stride, fill) \
  CV(C, LOAD_N(X, p, (at) + i * (stride), stride, SOME(left), fill))
#define WRITE(X, p, at, stride, v) \
  STORE_N(X, p, (at) + i * (stride), stride, SOME(left), CV(CLASS(X), v))

FUNC vc first_n(vc v, i64 n, sc fill) {
  union {
    sc e[W];
    vc v;
  } u;
  if (n >= W) return v;
  u.v = v;
  for (i32 k = 0; k < W; ++k) u.e[k] = k < n ? u.e[k] : fill;
  return u.v;
}
#define fold_sum CAT(fold_sum_, C)
#define fold_max CAT(fold_max_, C)
#define fold_min CAT(fold_min_, C)
#define group_sum CAT(group_sum_, C)
#define group_max CAT(group_max_, C)
#define group_min CAT(group_min_, C)
#define ROW_SUM(v) group_sum(fold_sum(v), room)
#define ROW_MAX(v) group_max(fold_max(v), room)
#define ROW_MIN(v) group_min(fold_min(v), room)

typedef struct {
  i64 rank, size[8], stride[8][4];
} Outer;
// Offset of operand k at a row.
FUNC i64 row_offset(const Outer* outer, i64 row, i32 k) {
  i64 at = 0;
  for (i32 d = 0; d < (i32)outer->rank; ++d) {
    const i64 next = row / outer->size[d];
    at += (row - next * outer->size[d]) * outer->stride[d][k];
    row = next;
  }
  return at;
}
