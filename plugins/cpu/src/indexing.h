// SPDX-License-Identifier: Apache-2.0
// What gather and scatter share: checking index tensors and walking them beside a value tensor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "check.h"
#include "iterator.h"
#include "parallel.h"

namespace chipset::cpu {

// The index operands of one call.
struct Indices {
  int count;
  const chipset_tensor* tensor[CHIPSET_MAX_INDICES];
  int64_t size[CHIPSET_MAX_INDICES];
  int64_t stride[CHIPSET_MAX_INDICES];  // bytes in the indexed tensor
};

inline int64_t index_at(const char* p, bool wide) {
  return wide ? *reinterpret_cast<const int64_t*>(p) : *reinterpret_cast<const int32_t*>(p);
}

// OK when every index lies inside its dimension. Looks at each stored index once: dimensions over
// which an index tensor is broadcast are not walked. It runs before anything is written (ERR-002).
inline chipset_status check_bounds(const char* function, const Indices& indices) {
  for (int k = 0; k < indices.count; ++k) {
    chipset_tensor distinct = *indices.tensor[k];
    for (int d = 0; d < distinct.rank; ++d) {
      if (distinct.stride[d] == 0) distinct.shape[d] = 1;
    }
    const chipset_tensor* const operands[1] = {&distinct};
    const Loop<1> loop = make_loop<1>(operands, Order::kAny);
    const bool wide = distinct.dtype == CHIPSET_DTYPE_I64;
    const int64_t size = indices.size[k];
    bool bad = false;
    int64_t value = 0;
    for_each_row(loop, 0, loop.numel, [&](char* const(&p)[1], int64_t n) {
      const int64_t step = loop.stride[0][loop.rank - 1];
      for (int64_t j = 0; j < n; ++j) {
        const int64_t i = index_at(p[0] + j * step, wide);
        if (i < -size || i >= size) {
          bad = true;
          value = i;
        }
      }
    });
    if (bad) {
      return fail(
          CHIPSET_STATUS_OUT_OF_RANGE,
          "%s: index %lld is out of bounds for dimension %d of the index operands with size %lld",
          function, static_cast<long long>(value), k, static_cast<long long>(size));
    }
  }
  return CHIPSET_STATUS_OK;
}

// Copies the index operands out of gather_args or scatter_args and checks their form against the
// shape of `like`.
template <typename Args>
inline chipset_status read_indices(const char* function, const Args& args,
                                   const chipset_tensor& like, Indices& out) {
  if (args.num_indices < 1 || args.num_indices > CHIPSET_MAX_INDICES) {
    return fail(CHIPSET_STATUS_INVALID, "%s: num_indices is %d; need 1 to %d", function,
                args.num_indices, CHIPSET_MAX_INDICES);
  }
  out.count = args.num_indices;
  for (int k = 0; k < out.count; ++k) {
    RETURN_UNLESS_OK(check_tensor(function, "index", args.index[k]));
    const chipset_tensor& index = *args.index[k];
    if (index.dtype != CHIPSET_DTYPE_I64 && index.dtype != CHIPSET_DTYPE_I32) {
      return fail(CHIPSET_STATUS_INVALID, "%s: index %d is %s; need i64 or i32", function, k,
                  dtype_name(index.dtype));
    }
    if (!same_shape(index, like)) {
      return fail(CHIPSET_STATUS_INVALID, "%s: index %d has shape %s, but the values have %s",
                  function, k, shape_text(index), shape_text(like));
    }
    out.tensor[k] = &index;
    out.size[k] = args.indexed_size[k];
    out.stride[k] = args.indexed_stride[k] * dtype_size(like.dtype);
  }
  return CHIPSET_STATUS_OK;
}

// Operand 0 is the tensor that is walked densely, 1 the indexed one, the rest are index tensors.
using IndexLoop = Loop<2 + CHIPSET_MAX_INDICES>;

inline IndexLoop make_index_loop(const chipset_tensor& dense, const chipset_tensor& indexed,
                                 const Indices& indices, Order order) {
  const chipset_tensor* operands[2 + CHIPSET_MAX_INDICES] = {&dense, &indexed};
  for (int k = 0; k < indices.count; ++k) operands[2 + k] = indices.tensor[k];
  const chipset_tensor* const(&fixed)[2 + CHIPSET_MAX_INDICES] = operands;
  return make_loop<2 + CHIPSET_MAX_INDICES>(fixed, order);
}

// Calls element(dense, indexed) for each element of [begin, end), or, where no index varies along a
// piece of a row, row(dense, dense step, indexed, indexed step, n) once for the piece.
template <typename Row>
inline void walk_indexed(const IndexLoop& loop, const Indices& indices, int64_t begin, int64_t end,
                         Row&& row) {
  const int inner = loop.rank - 1;
  const int64_t dense_step = loop.stride[0][inner];
  const int64_t indexed_step = loop.stride[1][inner];
  bool wide[CHIPSET_MAX_INDICES];
  int64_t step[CHIPSET_MAX_INDICES];
  bool constant = true;
  for (int k = 0; k < indices.count; ++k) {
    wide[k] = indices.tensor[k]->dtype == CHIPSET_DTYPE_I64;
    step[k] = loop.stride[2 + k][inner];
    constant = constant && step[k] == 0;
  }
  for_each_row(loop, begin, end, [&](char* const(&p)[2 + CHIPSET_MAX_INDICES], int64_t n) {
    const auto offset = [&](int64_t j) {
      int64_t bytes = 0;
      for (int k = 0; k < indices.count; ++k) {
        const int64_t i = index_at(p[2 + k] + j * step[k], wide[k]);
        bytes += (i < 0 ? i + indices.size[k] : i) * indices.stride[k];
      }
      return bytes;
    };
    if (constant) {
      row(p[0], dense_step, p[1] + offset(0), indexed_step, n);
      return;
    }
    for (int64_t j = 0; j < n; ++j) {
      row(p[0] + j * dense_step, dense_step, p[1] + j * indexed_step + offset(j), indexed_step,
          int64_t{1});
    }
  });
}

// n elements of a trivially copyable type, `step` bytes apart on each side.
template <typename T>
inline void move_row(char* target, int64_t target_step, const char* source, int64_t source_step,
                     int64_t n) {
  if (target_step == sizeof(T) && source_step == sizeof(T)) {
    __builtin_memcpy(target, source, static_cast<size_t>(n) * sizeof(T));
    return;
  }
  for (int64_t j = 0; j < n; ++j) {
    __builtin_memcpy(target + j * target_step, source + j * source_step, sizeof(T));
  }
}

struct Bits128 {
  uint64_t word[2];
};

// Calls function(T{}) with an integer type of the dtype's size.
template <typename Function>
inline void with_bits(int32_t dtype, Function&& function) {
  switch (dtype_size(dtype)) {
    case 1:
      return function(uint8_t{});
    case 2:
      return function(uint16_t{});
    case 4:
      return function(uint32_t{});
    case 8:
      return function(uint64_t{});
    default:
      return function(Bits128{});
  }
}

}  // namespace chipset::cpu
