// SPDX-License-Identifier: Apache-2.0
#include "tensor.h"

#include <cinttypes>
#include <cstdio>

#include "error.h"

namespace chipset::cpu {

const char* dtype_name(int32_t dtype) {
  static const char* const kNames[kDtypeCount] = {
      "bool", "u8",      "i8",       "i16",      "i32",      "i64",
      "f16",  "bf16",    "f32",      "f64",      "f8e4m3",   "f8e5m2",
      "i4",   "opaque8", "opaque16", "opaque32", "opaque64", "opaque128"};
  return valid_dtype(dtype) ? kNames[dtype] : "unknown";
}

const char* shape_text(const chipset_tensor& t) {
  thread_local char texts[4][192];
  thread_local unsigned next = 0;
  char* text = texts[next++ % 4];
  int used = std::snprintf(text, sizeof(texts[0]), "[");
  for (int d = 0; d < t.rank && d < CHIPSET_MAX_RANK; ++d) {
    used += std::snprintf(text + used, sizeof(texts[0]) - static_cast<size_t>(used), "%s%" PRId64,
                          d > 0 ? ", " : "", t.shape[d]);
  }
  std::snprintf(text + used, sizeof(texts[0]) - static_cast<size_t>(used), "]");
  return text;
}

chipset_status check_tensor(const char* function, const char* name, const chipset_tensor* t) {
  if (t == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "%s: tensor '%s' is missing (NULL)", function, name);
  }
  if (t->struct_size < sizeof(chipset_tensor)) {
    return fail(CHIPSET_STATUS_INVALID, "%s: %s.struct_size is %u, need %zu (VER-002)", function,
                name, t->struct_size, sizeof(chipset_tensor));
  }
  if (!valid_dtype(t->dtype)) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: %s has the unknown dtype %d", function, name,
                t->dtype);
  }
  if (t->rank < 0 || t->rank > CHIPSET_MAX_RANK) {
    return fail(CHIPSET_STATUS_INVALID, "%s: %s has rank %d, legal are 0 to %d (SHP-001)", function,
                name, t->rank, CHIPSET_MAX_RANK);
  }
  int64_t n = 1;
  for (int d = 0; d < t->rank; ++d) {
    if (t->shape[d] < 0 || (t->stride[d] < 0 && t->shape[d] > 1)) {
      return fail(CHIPSET_STATUS_INVALID,
                  "%s: %s has size %" PRId64 " and stride %" PRId64
                  " in dimension %d; neither may be negative (SHP-001)",
                  function, name, t->shape[d], t->stride[d], d);
    }
    n *= t->shape[d];
  }
  if (n > 0 && t->data == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "%s: %s of shape %s has no data (NULL)", function, name,
                shape_text(*t));
  }
  return CHIPSET_STATUS_OK;
}

chipset_status check_output(const char* function, const char* name, const chipset_tensor* t) {
  if (const chipset_status s = check_tensor(function, name, t); s != CHIPSET_STATUS_OK) return s;
  for (int d = 0; d < t->rank; ++d) {
    if (t->stride[d] == 0 && t->shape[d] > 1) {
      return fail(CHIPSET_STATUS_INVALID,
                  "%s: output %s has stride 0 over the %" PRId64
                  " elements of dimension %d; give it memory of its own (SHP-002)",
                  function, name, t->shape[d], d);
    }
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
