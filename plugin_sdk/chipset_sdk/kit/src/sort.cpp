// SPDX-License-Identifier: Apache-2.0
// Sort and top-k along a dimension.
#include "rows.h"

namespace chipset::kit {

namespace {
constexpr int64_t kMostOfTop = 256;          // a top-k with a larger k sorts the row
constexpr uint64_t kMostScratch = 1u << 28;  // bytes; fewer groups share the rows beyond it

void check_sort(const Traits& traits, const chipset_sort_args& args) {
  sdk::check_tensor("input", args.input);
  sdk::check_output("values", args.values);
  sdk::check_output("indices", args.indices);
  const chipset_tensor& in = *args.input;
  if (args.dim < 0 || args.dim >= std::max(in.rank, 1))
    fail(CHIPSET_STATUS_INVALID, "sort: dim %d of an input of rank %d", args.dim, in.rank);
  const int64_t length = in.rank == 0 ? 1 : in.shape[args.dim];
  if (args.k < 0 || args.k > length)
    fail(CHIPSET_STATUS_INVALID, "sort: k is %lld; the dimension has %lld elements",
         static_cast<long long>(args.k), static_cast<long long>(length));
  chipset_tensor expected = in;
  if (in.rank > 0) expected.shape[args.dim] = args.k;
  if (!sdk::same_shape(*args.values, expected) || !sdk::same_shape(*args.indices, expected))
    fail(CHIPSET_STATUS_INVALID, "sort: values %s and indices %s; need %s",
         sdk::shape_text(*args.values).c_str(), sdk::shape_text(*args.indices).c_str(),
         sdk::shape_text(expected).c_str());
  if (args.values->dtype != in.dtype || args.indices->dtype != CHIPSET_DTYPE_I64)
    unsupported(std::string("sort: values are ") + sdk::dtype_name(args.values->dtype) +
                " and indices " + sdk::dtype_name(args.indices->dtype) + " of an input of " +
                sdk::dtype_name(in.dtype) + "; need the same and i64");
  need_fp64(traits, in.dtype);
  if (length > INT32_MAX) unsupported("sorting more than 2^31 elements");
}

uint64_t room_of(int64_t n, int64_t k, bool top, bool one_lane) {
  if (top) return static_cast<uint64_t>(k);
  if (one_lane) return static_cast<uint64_t>(2 * n);
  uint64_t padded = 2;
  while (padded < static_cast<uint64_t>(n)) padded *= 2;
  return padded;
}
}  // namespace

void Kit::sort(chipset_stream stream, const chipset_sort_args& arguments) {
  const chipset_sort_args& args = arguments;
  check_sort(traits_, args);
  const chipset_tensor &in = *args.input, &values = *args.values, &indices = *args.indices;
  if (sdk::numel(values) == 0) return;
  const char held = dialect_class(in.dtype);
  const int lanes = group_lanes(traits_);
  const bool wide = held == 'd' || held == 'l', descending = args.descending != 0;
  const int64_t n = in.rank == 0 ? 1 : in.shape[args.dim], rows = sdk::numel(in) / n;
  const bool top = lanes == 1 && args.k <= kMostOfTop && args.k * 8 <= n;
  const int32_t moved = moved_as(in.dtype);
  void* kernel = this->kernel({kSort, in.dtype, descending, top}, "sort", [&] {
    Source source(traits_, 1, lanes);
    source.define("C", std::string(1, held)).define("KEY", wide ? "u64" : "u32");
    source.define("FLIP", descending ? "(~(KEY)0)" : "((KEY)0)").define("TOP", top);
    source.file("compute.h").file("rows.h").operand("X", in.dtype).operand("M", moved);
    return source.file("sort.c").take();
  });

  const uint64_t room = room_of(n, args.k, top, lanes == 1), key_bytes = wide ? 8 : 4;
  const uint64_t bytes = room * (key_bytes + 4);
  uint64_t groups = row_groups(traits_, rows, n * 32);
  groups = std::clamp<uint64_t>(kMostScratch / bytes, 1, groups);
  char* scratch = static_cast<char*>(backend_.scratch(stream, groups * bytes));
  chipset_tensor shape = in;
  if (in.rank > 0) shape.shape[args.dim] = 1;
  const Outer outer = rows_along(shape, args.dim, &in, &values, &indices);
  const auto step = [&](const chipset_tensor& t) { return t.rank == 0 ? 0 : t.stride[args.dim]; };
  Launch(backend_, stream, kernel)
      .address(&in)
      .address(&values)
      .address(&indices)
      .address(scratch)
      .address(scratch + groups * room * key_bytes)
      .value(outer)
      .i64(rows)
      .i64(n)
      .i64(args.k)
      .i64(static_cast<int64_t>(room))
      .i64(step(in))
      .i64(step(values))
      .i64(step(indices))
      .run({static_cast<uint32_t>(groups)}, static_cast<uint32_t>(lanes));
}

}  // namespace chipset::kit
