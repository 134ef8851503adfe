// SPDX-License-Identifier: Apache-2.0
// scatter: index_put, scatter_add, scatter_reduce, the gradient of embedding.
//
// Elements with the same destination are combined in row-major order, so results never depend on
// timing. Threads therefore split columns that no index selects, never rows.
#include <algorithm>
#include <type_traits>

#include "functions.h"
#include "indexing.h"
#include "isa/number.h"

namespace chipset::cpu {
namespace {

struct Bool8 {
  uint8_t bits;
};

// The type an element is combined in, and the way there and back.
template <typename T>
struct Element {
  using Wide = std::conditional_t<std::is_integral_v<T> || std::is_floating_point_v<T>, T, float>;
  static Wide load(T x) {
    if constexpr (std::is_same_v<Wide, T>)
      return x;
    else
      return to_float(x);
  }
  static T store(Wide x) {
    if constexpr (std::is_same_v<Wide, T>)
      return x;
    else
      return from_float<T>(x);
  }
};
template <>
struct Element<Bool8> {
  using Wide = int32_t;
  static Wide load(Bool8 x) { return x.bits != 0; }
  static Bool8 store(Wide x) { return {static_cast<uint8_t>(x != 0)}; }
};

template <typename W>
bool is_nan(W x) {
  return x != x;
}

template <typename W>
W combine(int32_t op, W old, W value) {
  switch (op) {
    case CHIPSET_SCATTER_OP_ADD:
      if constexpr (std::is_integral_v<W>) {  // wraps (NUM-004)
        return static_cast<W>(static_cast<uint64_t>(old) + static_cast<uint64_t>(value));
      } else {
        return old + value;
      }
    case CHIPSET_SCATTER_OP_MUL:
      if constexpr (std::is_integral_v<W>) {
        return static_cast<W>(static_cast<uint64_t>(old) * static_cast<uint64_t>(value));
      } else {
        return old * value;
      }
    case CHIPSET_SCATTER_OP_MIN:
      return is_nan(old) || old < value ? old : value;
    case CHIPSET_SCATTER_OP_MAX:
      return is_nan(old) || old > value ? old : value;
    default:
      return value;
  }
}

template <typename T>
T scalar_to(const chipset_scalar& value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(value.i);
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(value.f);
  else if constexpr (std::is_same_v<T, Bool8>)
    return {static_cast<uint8_t>(value.f != 0)};
  else
    return from_float<T>(static_cast<float>(value.f));
}

// Splits the innermost dimension among threads when no index varies along it; else runs whole.
template <typename Row>
void walk_in_order(IndexLoop loop, const Indices& indices, Row&& row) {
  const int inner = loop.rank - 1;
  bool constant = true;
  for (int k = 0; k < indices.count; ++k) constant = constant && loop.stride[2 + k][inner] == 0;
  const int64_t width = loop.shape[inner];
  if (loop.numel < 32768 || !constant || width < 128) {
    walk_indexed(loop, indices, 0, loop.numel, row);
    return;
  }
  parallel_for(width, 64, [&](int64_t begin, int64_t end) {
    IndexLoop part = loop;
    part.shape[inner] = end - begin;
    part.numel = loop.numel / width * (end - begin);
    part.data[0] += begin * loop.stride[0][inner];
    part.data[1] += begin * loop.stride[1][inner];
    walk_indexed(part, indices, 0, part.numel, row);
  });
}

template <typename T>
void run(const chipset_scatter_args& args, const IndexLoop& loop, const Indices& indices,
         bool from_value) {
  using E = Element<T>;
  const int32_t op = args.op;
  const T constant = from_value ? scalar_to<T>(args.value) : T{};
  walk_in_order(
      loop, indices,
      [&](const char* source, int64_t source_step, char* target, int64_t target_step, int64_t n) {
        for (int64_t j = 0; j < n; ++j) {
          T value = constant;
          if (!from_value) __builtin_memcpy(&value, source + j * source_step, sizeof(T));
          T old;
          __builtin_memcpy(&old, target + j * target_step, sizeof(T));
          const T result = E::store(combine(op, E::load(old), E::load(value)));
          __builtin_memcpy(target + j * target_step, &result, sizeof(T));
        }
      });
}

chipset_status run_for_dtype(const chipset_scatter_args& args, const IndexLoop& loop,
                             const Indices& indices, bool from_value) {
  switch (args.destination->dtype) {
    case CHIPSET_DTYPE_BOOL:
      run<Bool8>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_U8:
      run<uint8_t>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_I8:
      run<int8_t>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_I16:
      run<int16_t>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_I32:
      run<int32_t>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_I64:
      run<int64_t>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_F16:
      run<f16>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_BF16:
      run<bf16>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_F32:
      run<float>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_F64:
      run<double>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_F8E4M3:
      run<f8e4m3>(args, loop, indices, from_value);
      break;
    case CHIPSET_DTYPE_F8E5M2:
      run<f8e5m2>(args, loop, indices, from_value);
      break;
    default:
      return fail(CHIPSET_STATUS_UNSUPPORTED, "scatter: %s can only be SET from a source",
                  dtype_name(args.destination->dtype));
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace

chipset_status cpu_scatter(chipset_stream, const chipset_scatter_args* given) {
  const chipset_scatter_args& args = *given;
  RETURN_UNLESS_OK(check_tensor("scatter", "destination", args.destination));
  if (args.source == nullptr) {
    return fail(CHIPSET_STATUS_INVALID,
                "scatter: source is missing; it gives the shape even when "
                "value is used (with data NULL)");
  }
  const bool from_value = args.source->data == nullptr;
  if (!from_value) RETURN_UNLESS_OK(check_tensor("scatter", "source", args.source));
  const chipset_tensor& destination = *args.destination;
  const chipset_tensor& source = *args.source;
  if (!same_shape(destination, source) || destination.dtype != source.dtype) {
    return fail(CHIPSET_STATUS_INVALID,
                "scatter: source is %s %s, destination %s %s; they must agree (restride the "
                "destination)",
                dtype_name(source.dtype), shape_text(source), dtype_name(destination.dtype),
                shape_text(destination));
  }
  if (args.op < CHIPSET_SCATTER_OP_SET || args.op > CHIPSET_SCATTER_OP_MAX) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "scatter: unknown operation %d", args.op);
  }
  Indices indices;
  RETURN_UNLESS_OK(read_indices("scatter", args, source, indices));
  if (numel(source) == 0) return CHIPSET_STATUS_OK;
  RETURN_UNLESS_OK(check_bounds("scatter", indices));

  const IndexLoop loop = make_index_loop(source, destination, indices, Order::kRowMajor);
  if (args.op != CHIPSET_SCATTER_OP_SET || from_value) {
    return run_for_dtype(args, loop, indices, from_value);
  }
  if (dtype_size(destination.dtype) == 0) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "scatter: %s has no addressable elements",
                dtype_name(destination.dtype));
  }
  with_bits(destination.dtype, [&](auto type) {
    using T = decltype(type);
    walk_in_order(loop, indices,
                  [](const char* from, int64_t from_step, char* to, int64_t to_step, int64_t n) {
                    move_row<T>(to, to_step, from, from_step, n);
                  });
  });
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
