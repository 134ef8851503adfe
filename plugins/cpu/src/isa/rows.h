// SPDX-License-Identifier: Apache-2.0
// Reading and writing the rows of rows.h, whatever their dtype and stride.
#pragma once

#include "isa/activation.h"
#include "rows.h"

namespace chipset::cpu::CPU_ISA {

inline int64_t row_offset(const Rows& rows, int tensor, int64_t row) {
  int64_t offset = 0;
  for (int d = rows.rank - 1; d >= 0; --d) {
    if (d == 0) return offset + row * rows.stride[tensor][0];
    offset += row % rows.shape[d] * rows.stride[tensor][d];
    row /= rows.shape[d];
  }
  return offset;
}
template <class A>
inline void read_row(const Rows& rows, int tensor, int64_t row, A* out) {
  read_row(rows.dtype[tensor], rows.data[tensor], row_offset(rows, tensor, row), rows.step[tensor],
           rows.size, out);
}
template <class A>
inline void write_row(const Rows& rows, int tensor, int64_t row, const A* x) {
  write_row(rows.dtype[tensor], const_cast<void*>(rows.data[tensor]), row_offset(rows, tensor, row),
            rows.step[tensor], rows.size, x);
}
// Rows of which one task should have at least this many to be worth a thread.
inline int64_t row_grain(int64_t size) { return size >= 8192 ? 1 : 8192 / (size < 1 ? 1 : size); }

}  // namespace chipset::cpu::CPU_ISA
