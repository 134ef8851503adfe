// SPDX-License-Identifier: Apache-2.0
// Floats to and from quantised formats.
#include "quantized.h"

namespace chipset::kit {

namespace {
float largest_of(int32_t dtype) {
  switch (dtype) {
    case CHIPSET_DTYPE_I8:
      return 127;
    case CHIPSET_DTYPE_I4:
      return 7;
    case CHIPSET_DTYPE_F8E4M3:
      return 448;
    default:
      return 57344;
  }
}

void check_groups(const char* name, const chipset_tensor* tensor, int64_t rows, int64_t groups,
                  int32_t dtype) {
  sdk::check_tensor(name, tensor);
  if (tensor->dtype == dtype && tensor->rank == 2 && tensor->shape[0] == rows &&
      tensor->shape[1] == groups)
    return;
  fail(CHIPSET_STATUS_INVALID, "%s is %s of shape %s; need %s [%lld, %lld]", name,
       sdk::dtype_name(tensor->dtype), sdk::shape_text(*tensor).c_str(), sdk::dtype_name(dtype),
       static_cast<long long>(rows), static_cast<long long>(groups));
}

// The size of a group; 1 where there is nothing to group.
int64_t check_quantize(const Traits& traits, const char* function,
                       const chipset_quantize_args& args) {
  sdk::check_tensor("x", args.x);
  sdk::check_shape("q", args.q, "x", *args.x);
  need_float(traits, function, args.x->dtype);
  const chipset_tensor &x = *args.x, &q = *args.q;
  if (x.rank != 2 || args.group_size < 0)
    fail(CHIPSET_STATUS_INVALID,
         "%s: x has shape %s and group_size is %lld; need [rows, K] and 0 or more", function,
         sdk::shape_text(x).c_str(), static_cast<long long>(args.group_size));
  if (q.dtype != CHIPSET_DTYPE_I8 && q.dtype != CHIPSET_DTYPE_I4 &&
      q.dtype != CHIPSET_DTYPE_F8E4M3 && q.dtype != CHIPSET_DTYPE_F8E5M2)
    unsupported(std::string(function) + ": q is " + sdk::dtype_name(q.dtype) +
                "; need i8, i4, f8e4m3 or f8e5m2");
  check_nibbles(function, "q", q);
  if (args.zero_point != nullptr && !is_whole(q.dtype))
    fail(CHIPSET_STATUS_INVALID, "%s: zero_point belongs to i8 and i4, but q is %s; pass NULL",
         function, sdk::dtype_name(q.dtype));
  const int64_t size = group_of(args.group_size, x.shape[1]);
  const int64_t groups = groups_of(args.group_size, x.shape[1]);
  check_groups("scale", args.scale, x.shape[0], groups, CHIPSET_DTYPE_F32);
  if (args.zero_point != nullptr)
    check_groups("zero_point", args.zero_point, x.shape[0], groups, CHIPSET_DTYPE_I32);
  return size;
}

void* quantize_kernel(Kit& kit, const chipset_quantize_args& args, Program program,
                      const char* name, int lanes) {
  const int32_t x = args.x->dtype, q = args.q->dtype;
  const bool zero = args.zero_point != nullptr;
  return kit.kernel({program, x, q, zero}, name, [&] {
    Source source = row_source(kit.traits(), 'f', lanes);
    source.operand("X", x).define("HAS_ZERO", zero).define("WHOLE", is_whole(q));
    source.define("WIDER", kit.traits().fp64 ? "f64" : "f32");
    return add_quantized(source, kit.traits(), q).file("quantize.c").take();
  });
}

void add_strides(Launch& launch, const chipset_quantize_args& args) {
  for (const chipset_tensor* t : {args.x, args.q, args.scale, args.zero_point})
    launch.i64(t != nullptr ? t->stride[0] : 0).i64(t != nullptr ? t->stride[1] : 0);
}
}  // namespace

void Kit::quantize(chipset_stream stream, const chipset_quantize_args& arguments) {
  const chipset_quantize_args& args = arguments;
  const int64_t size = check_quantize(traits_, "quantize", args);
  sdk::check_output("q", args.q);
  const chipset_tensor& x = *args.x;
  if (sdk::numel(x) == 0) return;
  const int lanes = group_lanes(traits_);
  Launch launch(backend_, stream, quantize_kernel(*this, args, kQuantize, "quantize", lanes));
  launch.address(&x)
      .address(args.q)
      .address(args.scale)
      .address(args.zero_point != nullptr ? args.zero_point : args.scale)
      .i64(x.shape[0])
      .i64(x.shape[1])
      .i64(size);
  add_strides(launch, args);
  launch.f32(largest_of(args.q->dtype)).i32(args.given_scale != 0);
  launch.run({row_groups(traits_, x.shape[0], x.shape[1] * 2)}, static_cast<uint32_t>(lanes));
}

void Kit::dequantize(chipset_stream stream, const chipset_quantize_args& arguments) {
  const chipset_quantize_args& args = arguments;
  const int64_t size = check_quantize(traits_, "dequantize", args);
  sdk::check_output("x", args.x);
  const chipset_tensor& x = *args.x;
  if (sdk::numel(x) == 0) return;
  const int lanes = group_lanes(traits_);
  Launch launch(backend_, stream, quantize_kernel(*this, args, kDequantize, "dequantize", lanes));
  launch.address(&x)
      .address(args.q)
      .address(args.scale)
      .address(args.zero_point != nullptr ? args.zero_point : args.scale)
      .i64(x.shape[0])
      .i64(x.shape[1])
      .i64(size);
  add_strides(launch, args);
  launch.run({row_groups(traits_, x.shape[0], x.shape[1])}, static_cast<uint32_t>(lanes));
}

}  // namespace chipset::kit
