// SPDX-License-Identifier: Apache-2.0
// gather and scatter.
#include "source.h"

namespace chipset::kit {

namespace {
using Strides = std::array<const int64_t*, 10>;
constexpr int64_t kNone[8] = {};

struct Indexed {
  int64_t size[8] = {}, stride[8] = {}, wide = 0;
};

template <class Args>
Indexed indexed_of(const Args& args, int scale) {
  Indexed indexed;
  for (int k = 0; k < args.num_indices; ++k) {
    indexed.size[k] = args.indexed_size[k];
    indexed.stride[k] = args.indexed_stride[k] * scale;
    if (args.index[k]->dtype == CHIPSET_DTYPE_I64) indexed.wide |= int64_t{1} << k;
  }
  return indexed;
}

// An element of 16 bytes becomes two of 8: one more dimension, along which no index moves.
chipset_tensor halved(const chipset_tensor& tensor, bool is_index) {
  if (tensor.rank == CHIPSET_MAX_RANK) unsupported("opaque128 of rank 8");
  chipset_tensor two = tensor;
  for (int d = 0; d < two.rank && !is_index; ++d) two.stride[d] *= 2;
  two.shape[two.rank] = 2;
  two.stride[two.rank++] = is_index ? 0 : 1;
  if (!is_index) two.dtype = CHIPSET_DTYPE_OPAQUE64;
  return two;
}
}  // namespace

void Kit::gather(chipset_stream stream, const chipset_gather_args& arguments) {
  chipset_tensor out = *arguments.output, in = *arguments.input, index[8];
  const int count = arguments.num_indices;
  if (sdk::numel(out) == 0) return;
  for (int k = 0; k < count; ++k) index[k] = *arguments.index[k];
  const bool opaque128 = out.dtype == CHIPSET_DTYPE_OPAQUE128;
  if (opaque128) {
    out = halved(out, false);
    in = halved(in, false);
    for (int k = 0; k < count; ++k) index[k] = halved(index[k], true);
  }
  const Indexed indexed = indexed_of(arguments, opaque128 ? 2 : 1);
  Strides strides{out.stride, in.stride};
  for (int k = 0; k < 8; ++k) strides[k + 2] = k < count ? index[k].stride : kNone;
  const auto walk = make_walk<10>(out.rank, out.shape, strides);
  bool fixed = walk.rank > 0;
  for (int k = 0; k < count; ++k) fixed = fixed && walk.stride[0][k + 2] == 0;
  const int32_t dtype = moved_as(out.dtype);
  const int lanes = group_lanes(traits_);
  const int block = traits_.is_cpu ? 2048 : 1;
  const Signature signature{kGather, dtype, count, fixed};
  void* kernel = this->kernel(signature, "gather", [&] {
    const int width = fixed ? vector_width(traits_, sdk::dtype_size(dtype)) : 1;
    Source source(traits_, width, lanes);
    source.operand("X", dtype).define("COUNT", count).define("FIXED", fixed);
    return source.define("BLOCK", block).file("indexing.h").file("gather.c").take();
  });
  Launch launch(backend_, stream, kernel);
  launch.address(out.data).address(in.data);
  for (int k = 0; k < 8; ++k) launch.address(k < count ? index[k].data : out.data);
  launch.address(backend_.fault_word(stream)).value(walk).value(indexed).i64(walk.rows());
  const int64_t units = walk.rows() * ceil_div(walk.inner(), block);
  const int64_t cost = std::min<int64_t>(walk.inner(), block) * (fixed ? 1 : 8);
  launch.run({group_count(traits_, ceil_div(units, lanes), cost)}, static_cast<uint32_t>(lanes));
}

void Kit::scatter(chipset_stream stream, const chipset_scatter_args& arguments) {
  chipset_tensor to = *arguments.destination, from = *arguments.source, index[8];
  const int op = arguments.op, count = arguments.num_indices;
  if (op < 0 || op > CHIPSET_SCATTER_OP_MAX)
    fail(CHIPSET_STATUS_INVALID, "scatter: operation %d does not exist", op);
  if (sdk::numel(from) == 0) return;
  for (int k = 0; k < count; ++k) index[k] = *arguments.index[k];
  const bool from_value = from.data == nullptr;
  const bool set = op == CHIPSET_SCATTER_OP_SET;
  const bool opaque128 = to.dtype == CHIPSET_DTYPE_OPAQUE128;
  if (!from_value && from.dtype != to.dtype)
    fail(CHIPSET_STATUS_INVALID, "scatter: source is %s, destination %s",
         sdk::dtype_name(from.dtype), sdk::dtype_name(to.dtype));
  if (opaque128) {
    to = halved(to, false);
    from = halved(from, false);
    for (int k = 0; k < count; ++k) index[k] = halved(index[k], true);
  }
  const Indexed indexed = indexed_of(arguments, opaque128 ? 2 : 1);
  const int32_t dtype = set && !from_value ? moved_as(to.dtype) : to.dtype;
  need_fp64(traits_, dtype);

  // Where the destination moves, two elements never meet: shared out. Where it stays, they may.
  int64_t shared_size[8], ordered_size[8];
  for (int d = 0; d < from.rank; ++d) {
    shared_size[d] = to.stride[d] != 0 ? from.shape[d] : 1;
    ordered_size[d] = to.stride[d] != 0 ? 1 : from.shape[d];
  }
  Strides strides{to.stride, from_value ? kNone : from.stride};
  for (int k = 0; k < 8; ++k) strides[k + 2] = k < count ? index[k].stride : kNone;
  const auto shared = make_walk<10>(from.rank, shared_size, strides);
  const auto ordered = make_walk<10>(from.rank, ordered_size, strides, true);
  const int64_t steps = ordered.numel();
  bool fixed = true;
  for (int k = 0; k < count; ++k) fixed = fixed && shared.stride[0][k + 2] == 0;
  const int lanes = group_lanes(traits_);
  const int block = traits_.is_cpu ? 64 : 1;
  const int64_t places = shared.rows() * ceil_div(shared.inner(), block);
  int64_t owners = 1;
  if (steps >= 1024)
    owners = traits_.is_cpu ? (places < traits_.compute_units ? traits_.compute_units : 1)
                            : std::clamp<int64_t>(8192 / places, 1, 4096);

  const Signature signature{kScatter, op, dtype, count, fixed, from_value};
  void* kernel = this->kernel(signature, "scatter", [&] {
    const int width = fixed ? vector_width(traits_, sdk::dtype_size(dtype)) : 1;
    const char* operation[] = {"(b)", "((a) + (b))", "((a) * (b))",
                               "((b) < (a) || (b) != (b) ? (b) : (a))",
                               "((b) > (a) || (b) != (b) ? (b) : (a))"};
    Source source(traits_, width, lanes);
    source.operand("X", dtype).define("COUNT", count).define("FIXED", fixed);
    source.define("FROM_VALUE", from_value).define("READS_OLD", !set);
    source.define("OPERATION(a, b)", operation[op]).define("BLOCK", block);
    return source.file("indexing.h").file("scatter.c").take();
  });
  Launch launch(backend_, stream, kernel);
  launch.address(to.data).address(from_value ? to.data : from.data);
  for (int k = 0; k < 8; ++k) launch.address(k < count ? index[k].data : to.data);
  launch.address(backend_.fault_word(stream)).value(shared).value(ordered).value(indexed);
  launch.i64(shared.rows()).i64(steps).i64(owners);
  switch (dialect_class(dtype)) {
    case 'f':
      launch.f32(arguments.value.f);
      break;
    case 'd':
      launch.value(arguments.value.f);
      break;
    case 'i':
      launch.i32(arguments.value.i);
      break;
    default:
      launch.i64(arguments.value.i);
  }
  const int64_t cost = steps * std::min<int64_t>(shared.inner(), block);
  launch.run({group_count(traits_, ceil_div(places * owners, lanes), cost)},
             static_cast<uint32_t>(lanes));
}

}  // namespace chipset::kit
