// SPDX-License-Identifier: Apache-2.0
// `gather` and `scatter`: elements addressed through index tensors, in row-major order.
#pragma once

#include "lanes.hpp"

namespace chipset::sdk::loops {

namespace detail {

// Offset in elements of the indexed dimensions at one position; throws OUT_OF_RANGE.
template <class Args>
int64_t indexed_offset(const Args& args, const int64_t* element) {
  int64_t offset = 0;
  for (int k = 0; k < args.num_indices; ++k) {
    const char* at = address(*args.index[k], element[k]);
    int64_t index;
    if (args.index[k]->dtype == CHIPSET_DTYPE_I64) {
      std::memcpy(&index, at, sizeof index);
    } else {
      int32_t narrow;
      std::memcpy(&narrow, at, sizeof narrow);
      index = narrow;
    }
    if (index < -args.indexed_size[k] || index >= args.indexed_size[k])
      fail(CHIPSET_STATUS_OUT_OF_RANGE, "index %lld is out of range for a dimension of size %lld",
           static_cast<long long>(index), static_cast<long long>(args.indexed_size[k]));
    offset += (index < 0 ? index + args.indexed_size[k] : index) * args.indexed_stride[k];
  }
  return offset;
}

// Walks the shape with two tensors and up to eight indices: visit(first, second, indexed), all in
// elements.
template <class Args, class Visit>
void for_each_indexed(const Args& args, const chipset_tensor& first, const chipset_tensor& second,
                      Visit&& visit) {
  constexpr std::size_t kOperands = 2 + CHIPSET_MAX_INDICES;
  std::array<const int64_t*, kOperands> strides;
  strides.fill(first.stride);
  strides[1] = second.stride;
  for (int k = 0; k < args.num_indices; ++k) strides[2 + k] = args.index[k]->stride;
  for_each_row<kOperands>(first, strides, [&](auto& offset, int64_t count, auto& step) {
    bool same = true;  // no index varies along the row
    for (int k = 0; k < args.num_indices; ++k) same = same && step[2 + k] == 0;
    int64_t element[CHIPSET_MAX_INDICES], indexed = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (i == 0 || !same) {
        for (int k = 0; k < args.num_indices; ++k) element[k] = offset[2 + k] + i * step[2 + k];
        indexed = indexed_offset(args, element);
      }
      visit(offset[0] + i * step[0], offset[1] + i * step[1], indexed);
    }
  });
}
}  // namespace detail

inline void gather(const chipset_gather_args& args) {
  const int64_t size = dtype_size(args.output->dtype);
  detail::for_each_indexed(
      args, *args.output, *args.input, [&](int64_t out, int64_t in, int64_t indexed) {
        std::memcpy(address(*args.output, out), address(*args.input, in + indexed), size);
      });
}

// Throws UNSUPPORTED for what scatter() below cannot do. Call it before enqueuing.
inline void check_scatter(const chipset_scatter_args& args) {
  if (args.op < 0 || args.op > CHIPSET_SCATTER_OP_MAX)
    fail(CHIPSET_STATUS_INVALID, "scatter: operation %d does not exist", args.op);
  if (args.op != CHIPSET_SCATTER_OP_SET || args.source->data == nullptr)
    dispatch(args.destination->dtype, [](auto) {});
}

inline void scatter(const chipset_scatter_args& args) {
  const chipset_tensor& to = *args.destination;
  const bool value_given = args.source->data == nullptr;
  const int64_t size = dtype_size(to.dtype);
  if (args.op == CHIPSET_SCATTER_OP_SET && !value_given) {
    detail::for_each_indexed(
        args, *args.source, to, [&](int64_t from, int64_t at, int64_t indexed) {
          std::memcpy(address(to, at + indexed), address(*args.source, from), size);
        });
    return;
  }
  auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    detail::for_each_indexed(
        args, *args.source, to, [&](int64_t from, int64_t at, int64_t indexed) {
          T old, value = number<T>(args.value);
          char* place = address(to, at + indexed);
          load(&old, place, to.dtype, 1, 1);
          if (!value_given) load(&value, address(*args.source, from), args.source->dtype, 1, 1);
          switch (args.op) {
            case CHIPSET_SCATTER_OP_ADD:
              if constexpr (std::is_same_v<T, int64_t>)
                value =
                    static_cast<int64_t>(static_cast<uint64_t>(old) + static_cast<uint64_t>(value));
              else
                value = old + value;
              break;
            case CHIPSET_SCATTER_OP_MUL:
              value = old * value;
              break;
            case CHIPSET_SCATTER_OP_MIN:
              value = old != old || old < value ? old : value;
              break;
            case CHIPSET_SCATTER_OP_MAX:
              value = old != old || old > value ? old : value;
              break;
            default:
              break;
          }
          store(place, to.dtype, 1, &value, 1);
        });
  };
  dispatch_arithmetic(to.dtype, run);
}

}  // namespace chipset::sdk::loops
