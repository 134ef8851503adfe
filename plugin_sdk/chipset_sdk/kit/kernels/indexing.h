// Addresses through index tensors, as gather and scatter have them.
typedef struct {
  i64 size[8], stride[8];  // of the indexed dimensions
  i64 wide;                // bit k: index k is i64
} Indexed;

#define INDEX_PARAMETERS                                                               \
  const GLOBAL void *index0, const GLOBAL void *index1, const GLOBAL void *index2,     \
      const GLOBAL void *index3, const GLOBAL void *index4, const GLOBAL void *index5, \
      const GLOBAL void *index6, const GLOBAL void *index7
#define INDEX_ARRAY {index0, index1, index2, index3, index4, index5, index6, index7}

FUNC i64 read_index(const GLOBAL void* p, i64 at, i32 wide) {
  return wide ? ((const GLOBAL i64*)p)[at] : (i64)((const GLOBAL i32*)p)[at];
}
// Adds index k's part of the address; false when it is out of range.
FUNC i32 indexed_offset(const Indexed* indexed, i32 k, i64 index, i64* offset) {
  const i64 size = indexed->size[k];
  if (index < -size || index >= size) return 0;
  *offset += (index < 0 ? index + size : index) * indexed->stride[k];
  return 1;
}
