// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding.
#include "rows.h"

namespace chipset::kit {

namespace {
// cos or sin: [B, S, R] of F32 or of x's dtype.
void check_table(const char* name, const chipset_tensor* table, const chipset_tensor& x) {
  sdk::check_tensor(name, table);
  const chipset_tensor& t = *table;
  if (t.rank != 3 || t.shape[0] != x.shape[0] || t.shape[1] != x.shape[2] ||
      t.shape[2] > x.shape[3] || t.shape[2] % 2 != 0)
    fail(CHIPSET_STATUS_INVALID,
         "rotary: %s has shape %s; need [B, S, R] with an even R of at most D for x of shape %s "
         "[B, H, S, D]",
         name, sdk::shape_text(t).c_str(), sdk::shape_text(x).c_str());
  if (t.dtype != x.dtype && (t.dtype != CHIPSET_DTYPE_F32 || x.dtype == CHIPSET_DTYPE_F64))
    unsupported(std::string("rotary: ") + name + " is " + sdk::dtype_name(t.dtype) + ", but x is " +
                sdk::dtype_name(x.dtype) + "; need f32 or x's dtype");
}

void check_rotary(const Traits& traits, const chipset_rotary_args& args) {
  sdk::check_tensor("x", args.x);
  if (args.x->rank != 4)
    fail(CHIPSET_STATUS_INVALID, "rotary: x has shape %s; need [B, H, S, D]",
         sdk::shape_text(*args.x).c_str());
  need_float(traits, "rotary", args.x->dtype);
  check_table("cos", args.cos, *args.x);
  check_table("sin", args.sin, *args.x);
  sdk::check_shape("sin", args.sin, "cos", *args.cos);
  if (args.sin->dtype != args.cos->dtype) unsupported("rotary: cos and sin of two dtypes");
  sdk::check_shape("y", args.y, "x", *args.x);
  sdk::check_output("y", args.y);
  if (args.y->dtype != args.x->dtype) unsupported("rotary: y of another dtype than x");
}
}  // namespace

void Kit::rotary(chipset_stream stream, const chipset_rotary_args& arguments) {
  const chipset_rotary_args& args = arguments;
  check_rotary(traits_, args);
  const chipset_tensor &x = *args.x, &y = *args.y, &cos = *args.cos, &sin = *args.sin;
  if (sdk::numel(x) == 0) return;
  const char held = class_of(x.dtype);
  const int lanes = group_lanes(traits_, 32);
  void* kernel = this->kernel({kRotary, x.dtype, cos.dtype}, "rotary", [&] {
    Source source = row_source(traits_, held, lanes);
    return source.operand("X", x.dtype).operand("T", cos.dtype).file("rotary.c").take();
  });
  const int64_t n = x.shape[3], rotated = cos.shape[2];
  const int64_t cos_stride[3] = {cos.stride[0], 0, cos.stride[1]};  // every head has the same
  const int64_t sin_stride[3] = {sin.stride[0], 0, sin.stride[1]};
  const Outer outer = make_walk<4>(3, x.shape, {x.stride, y.stride, cos_stride, sin_stride});
  const int64_t rows = outer.numel();
  Launch(backend_, stream, kernel)
      .address(&x)
      .address(&y)
      .address(rotated > 0 ? &cos : &y)
      .address(rotated > 0 ? &sin : &y)
      .value(outer)
      .i64(rows)
      .i64(n)
      .i64(rotated)
      .i64(args.interleaved != 0 ? 2 : 1)
      .i64(args.interleaved != 0 ? 1 : rotated / 2)
      .i64(step_of(&x))
      .i64(step_of(&y))
      .i64(step_of(&cos))
      .i64(step_of(&sin))
      .real(held, args.inverse != 0 ? -1 : 1)
      .run({row_groups(traits_, rows, n * 2)}, static_cast<uint32_t>(lanes));
}

}  // namespace chipset::kit
