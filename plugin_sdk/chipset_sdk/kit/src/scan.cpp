// SPDX-License-Identifier: Apache-2.0
// Inclusive prefixes along a dimension.
#include "rows.h"

namespace chipset::kit {

namespace {
void check_scan(const Traits& traits, const chipset_scan_args& args) {
  sdk::check_tensor("input", args.input);
  sdk::check_shape("output", args.output, "input", *args.input);
  sdk::check_output("output", args.output);
  if (args.op < 0 || args.op > CHIPSET_SCAN_OP_LOGSUMEXP)
    unsupported("scan operation " + std::to_string(args.op));
  if (args.dim < 0 || args.dim >= std::max(args.input->rank, 1))
    fail(CHIPSET_STATUS_INVALID, "scan: dim %d of an input of rank %d", args.dim, args.input->rank);
  for (int32_t dtype : {args.input->dtype, args.output->dtype, args.compute_dtype})
    need_fp64(traits, dtype);
  if (args.indices == nullptr) return;
  sdk::check_shape("indices", args.indices, "input", *args.input);
  sdk::check_output("indices", args.indices);
  if (args.indices->dtype != CHIPSET_DTYPE_I64)
    fail(CHIPSET_STATUS_INVALID, "scan: indices is %s; need i64",
         sdk::dtype_name(args.indices->dtype));
}
}  // namespace

void Kit::scan(chipset_stream stream, const chipset_scan_args& arguments) {
  const chipset_scan_args& args = arguments;
  check_scan(traits_, args);
  const chipset_tensor &in = *args.input, &out = *args.output;
  const char computed = dialect_class(args.compute_dtype);
  const bool floats = computed == 'f' || computed == 'd';
  if (args.op == CHIPSET_SCAN_OP_LOGSUMEXP && !floats)
    unsupported("the logarithm of a sum of exponentials in integers");
  // Wider than the elements, so that long rows do not drift.
  const char held = !floats ? 'l' : traits_.fp64 ? 'd' : 'f';
  const int lanes = group_lanes(traits_);
  const Signature signature{kScan, args.op, computed - 'a', in.dtype, out.dtype};
  if (sdk::numel(in) == 0) return;
  void* kernel = this->kernel(signature, "scan", [&] {
    Source source(traits_, 1, lanes);
    source.define("C", std::string(1, held)).define("COMPUTE", std::string("S_") + computed);
    source.define("KIND", args.op).file("compute.h").file("rows.h");
    return source.operand("IN", in.dtype).operand("OUT", out.dtype).file("scan.c").take();
  });
  const chipset_tensor* places =
      args.op == CHIPSET_SCAN_OP_MAX || args.op == CHIPSET_SCAN_OP_MIN ? args.indices : nullptr;
  const Outer outer = rows_along(in, args.dim, &in, &out, places);
  const int64_t n = in.rank == 0 ? 1 : in.shape[args.dim], rows = sdk::numel(in) / n;
  const auto step = [&](const chipset_tensor* t) {
    return t == nullptr || t->rank == 0 ? 0 : t->stride[args.dim];
  };
  Launch(backend_, stream, kernel)
      .address(&in)
      .address(&out)
      .address(places != nullptr ? places : &out)
      .value(outer)
      .i64(rows)
      .i64(n)
      .i64(step(&in))
      .i64(step(&out))
      .i64(step(places))
      .i32(places != nullptr)
      .run({row_groups(traits_, rows, n * 4)}, static_cast<uint32_t>(lanes));
}

}  // namespace chipset::kit
