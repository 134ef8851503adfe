// SPDX-License-Identifier: Apache-2.0
// gather: index, index_select, embedding, take.
#include "functions.h"
#include "indexing.h"

namespace chipset::cpu {

chipset_status cpu_gather(chipset_stream, const chipset_gather_args* given) {
  const chipset_gather_args& args = *given;
  RETURN_UNLESS_OK(check_output("gather", "output", args.output));
  RETURN_UNLESS_OK(check_tensor("gather", "input", args.input));
  const chipset_tensor& output = *args.output;
  const chipset_tensor& input = *args.input;
  if (!same_shape(output, input) || output.dtype != input.dtype) {
    return fail(CHIPSET_STATUS_INVALID,
                "gather: input is %s %s, output %s %s; they must agree (restride the input)",
                dtype_name(input.dtype), shape_text(input), dtype_name(output.dtype),
                shape_text(output));
  }
  if (dtype_size(output.dtype) == 0) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "gather: %s has no addressable elements",
                dtype_name(output.dtype));
  }
  Indices indices;
  RETURN_UNLESS_OK(read_indices("gather", args, output, indices));
  const int64_t n = numel(output);
  if (n == 0) return CHIPSET_STATUS_OK;
  RETURN_UNLESS_OK(check_bounds("gather", indices));

  const IndexLoop loop = make_index_loop(output, input, indices, Order::kAny);
  with_bits(output.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(n, 16384, [&](int64_t begin, int64_t end) {
      walk_indexed(loop, indices, begin, end,
                   [](char* out, int64_t out_step, const char* in, int64_t in_step, int64_t count) {
                     move_row<T>(out, out_step, in, in_step, count);
                   });
    });
  });
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
