// SPDX-License-Identifier: Apache-2.0
#include "copy.h"

#include <algorithm>
#include <cstring>

#include "error.h"
#include "iterator.h"
#include "kernels.h"
#include "parallel.h"

namespace chipset::cpu {
namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kGrainBytes = int64_t{128} << 10;

struct Bits128 {
  uint64_t low, high;
};

template <typename Element>
void move_row(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Element));
  if (to_stride == kSize && from_stride == kSize) {
    std::memcpy(to, from, static_cast<size_t>(n * kSize));
    return;
  }
  if (to_stride == kSize && from_stride == 0) {
    if (n > 0)
      std::fill_n(reinterpret_cast<Element*>(to), n, *reinterpret_cast<const Element*>(from));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<Element*>(to + i * to_stride) =
        *reinterpret_cast<const Element*>(from + i * from_stride);
  }
}

// Tiles of a transposition: rows of the output, along which the input is far apart, by columns
// along which the input is dense. One tile's lines of either side stay in L1.
template <typename Element>
void move_tile(char* to, int64_t to_row, const char* from, int64_t from_column, int64_t rows,
               int64_t columns) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Element));
  constexpr int64_t kSide = kSize >= 8 ? 8 : 16;
  for (int64_t r = 0; r < rows; r += kSide) {
    const int64_t height = std::min(kSide, rows - r);
    for (int64_t c = 0; c < columns; c += kSide) {
      const int64_t width = std::min(kSide, columns - c);
      Element tile[kSide][kSide];
      for (int64_t j = 0; j < width; ++j) {  // reads down the input's dense dimension
        const char* source = from + (c + j) * from_column + r * kSize;
        for (int64_t i = 0; i < height; ++i) {
          tile[i][j] = *reinterpret_cast<const Element*>(source + i * kSize);
        }
      }
      for (int64_t i = 0; i < height; ++i) {
        std::memcpy(to + (r + i) * to_row + c * kSize, tile[i], static_cast<size_t>(width * kSize));
      }
    }
  }
}

// The loop with dimensions `row` (dense in the input) and the innermost (dense in the output) taken
// out; parallel over the rest and over strips of rows.
template <typename Element>
void transpose(const Loop<2>& loop, int row) {
  constexpr int64_t kStrip = 64;
  const int inner = loop.rank - 1;
  const int64_t rows = loop.shape[row];
  const int64_t columns = loop.shape[inner];
  const int64_t strips = (rows + kStrip - 1) / kStrip;
  const int64_t outer = loop.numel / (rows * columns);
  const int64_t strip_bytes = kStrip * columns * static_cast<int64_t>(sizeof(Element));
  parallel_for(outer * strips, std::max<int64_t>(1, kGrainBytes / strip_bytes),
               [&](int64_t begin, int64_t end) {
                 for (int64_t task = begin; task < end; ++task) {
                   char* to = loop.data[0];
                   const char* from = loop.data[1];
                   int64_t rest = task / strips;
                   for (int d = inner - 1; d >= 0; --d) {
                     if (d == row) continue;
                     const int64_t i = rest % loop.shape[d];
                     rest /= loop.shape[d];
                     to += i * loop.stride[0][d];
                     from += i * loop.stride[1][d];
                   }
                   const int64_t first = task % strips * kStrip;
                   move_tile<Element>(to + first * loop.stride[0][row], loop.stride[0][row],
                                      from + first * loop.stride[1][row], loop.stride[1][inner],
                                      std::min(kStrip, rows - first), columns);
                 }
               });
}

template <typename Element>
void move(const Loop<2>& loop) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Element));
  const int inner = loop.rank - 1;
  const int64_t to_stride = loop.stride[0][inner];
  const int64_t from_stride = loop.stride[1][inner];
  if (to_stride == kSize && from_stride != kSize && from_stride != 0) {
    for (int d = 0; d < inner; ++d) {
      if (loop.stride[1][d] == kSize && loop.shape[d] >= 8) return transpose<Element>(loop, d);
    }
  }
  parallel_for(loop.numel, kGrainBytes / kSize, [&](int64_t begin, int64_t end) {
    for_each_row(loop, begin, end, [&](char* const* pointers, int64_t n) {
      move_row<Element>(pointers[0], to_stride, pointers[1], from_stride, n);
    });
  });
}

void move_bits(const chipset_tensor& output, const chipset_tensor& input) {
  const chipset_tensor* const tensors[2] = {&output, &input};
  const Loop<2> loop = make_loop<2>(tensors, Order::kAny);
  switch (dtype_size(output.dtype)) {
    case 1:
      return move<uint8_t>(loop);
    case 2:
      return move<uint16_t>(loop);
    case 4:
      return move<uint32_t>(loop);
    case 8:
      return move<uint64_t>(loop);
    default:
      return move<Bits128>(loop);
  }
}

void convert(const chipset_tensor& output, const chipset_tensor& input) {
  const chipset_tensor* const tensors[2] = {&output, &input};
  const Loop<2> loop = make_loop<2>(tensors, Order::kAny);
  // By way of the type that holds every value of the input's dtype.
  const int c = kComputeOf[input.dtype];
  const LoadKernel load = convert_table().load[c][input.dtype];
  const StoreKernel store = convert_table().store[c][output.dtype];
  const int inner = loop.rank - 1;
  const int64_t to_stride = loop.stride[0][inner];
  const int64_t from_stride = loop.stride[1][inner];
  const bool in_place =
      from_stride == kComputeSize[c] && dtype_size(input.dtype) == kComputeSize[c];
  parallel_for(loop.numel, 32 * kBlock, [&](int64_t begin, int64_t end) {
    alignas(64) char buffer[kBlock * 8];
    for_each_row(loop, begin, end, [&](char* const* pointers, int64_t n) {
      for (int64_t at = 0; at < n; at += kBlock) {
        const int64_t count = std::min(kBlock, n - at);
        const char* from = pointers[1] + at * from_stride;
        if (!in_place) load(from, from_stride, buffer, count);
        store(in_place ? from : buffer, pointers[0] + at * to_stride, to_stride, count);
      }
    });
  });
}

template <typename Element>
void fill(const Loop<1>& loop, const void* bytes) {
  Element value;
  std::memcpy(&value, bytes, sizeof(value));
  const int64_t stride = loop.stride[0][loop.rank - 1];
  parallel_for(loop.numel, kGrainBytes / static_cast<int64_t>(sizeof(Element)),
               [&](int64_t begin, int64_t end) {
                 for_each_row(loop, begin, end, [&](char* const* pointers, int64_t n) {
                   if (stride == static_cast<int64_t>(sizeof(Element))) {
                     std::fill_n(reinterpret_cast<Element*>(pointers[0]), n, value);
                     return;
                   }
                   for (int64_t i = 0; i < n; ++i) {
                     *reinterpret_cast<Element*>(pointers[0] + i * stride) = value;
                   }
                 });
               });
}

}  // namespace

chipset_status copy_tensor(const char* function, const chipset_tensor& output,
                           const chipset_tensor& input) {
  const bool same = output.dtype == input.dtype;
  if (output.dtype == CHIPSET_DTYPE_I4 || input.dtype == CHIPSET_DTYPE_I4 ||
      (!same && (is_opaque(output.dtype) || is_opaque(input.dtype)))) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: no conversion from %s to %s", function,
                dtype_name(input.dtype), dtype_name(output.dtype));
  }
  if (numel(output) == 0) return CHIPSET_STATUS_OK;
  if (same) {
    move_bits(output, input);
  } else {
    convert(output, input);
  }
  return CHIPSET_STATUS_OK;
}

void fill_tensor(const chipset_tensor& output, const void* element) {
  if (numel(output) == 0) return;
  const chipset_tensor* const tensors[1] = {&output};
  const Loop<1> loop = make_loop<1>(tensors, Order::kAny);
  switch (dtype_size(output.dtype)) {
    case 1:
      return fill<uint8_t>(loop, element);
    case 2:
      return fill<uint16_t>(loop, element);
    case 4:
      return fill<uint32_t>(loop, element);
    case 8:
      return fill<uint64_t>(loop, element);
    default:
      return fill<Bits128>(loop, element);
  }
}

}  // namespace chipset::cpu
