// SPDX-License-Identifier: Apache-2.0
// Softmax and norms, forward and backward.
#include "rows.h"

namespace chipset::kit {

namespace {
void softmax_rows(Kit& kit, chipset_stream stream, const chipset_softmax_args& args,
                  bool backward) {
  const Traits& traits = kit.traits();
  const char* name = backward ? "softmax_backward" : "softmax";
  const chipset_tensor &x = *args.input, &z = *args.output;
  const chipset_tensor* y = backward ? args.result : nullptr;
  if (!sdk::same_shape(x, z) || (backward && (y == nullptr || !sdk::same_shape(*y, z))))
    fail(CHIPSET_STATUS_INVALID, "%s: input has shape %s, output %s", name,
         sdk::shape_text(x).c_str(), sdk::shape_text(z).c_str());
  if (args.dim < 0 || args.dim >= std::max(z.rank, 1))
    fail(CHIPSET_STATUS_INVALID, "%s: dim is %d for a tensor of rank %d", name, args.dim, z.rank);
  need_float(traits, name, x.dtype);
  need_float(traits, name, z.dtype);
  if (y != nullptr) need_float(traits, name, y->dtype);
  if (sdk::numel(z) == 0) return;
  const char held = class_of(x.dtype) == 'd' || class_of(z.dtype) == 'd' ? 'd' : 'f';
  const int lanes = group_lanes(traits);
  const int32_t y_dtype = y != nullptr ? y->dtype : z.dtype;
  const Signature signature{backward ? kSoftmaxBackward : kSoftmax, x.dtype, y_dtype, z.dtype,
                            args.log != 0};
  void* kernel = kit.kernel(signature, name, [&] {
    Source source = row_source(traits, held, lanes);
    source.operand("X", x.dtype).operand("Y", y_dtype).operand("Z", z.dtype);
    return source.define("LOG", args.log != 0).file("softmax.c").take();
  });
  const Outer outer = rows_along(z, args.dim, &x, &z, y);
  const bool scalar = z.rank == 0;
  const int64_t n = scalar ? 1 : z.shape[args.dim], rows = sdk::numel(z) / n;
  Launch launch(kit.backend(), stream, kernel);
  launch.address(&x);
  if (backward) launch.address(y);
  launch.address(&z).value(outer).i64(rows).i64(n).i64(scalar ? 0 : x.stride[args.dim]);
  if (backward) launch.i64(scalar ? 0 : y->stride[args.dim]);
  launch.i64(scalar ? 0 : z.stride[args.dim]);
  launch.run({row_groups(traits, rows, n * 4)}, static_cast<uint32_t>(lanes));
}
}  // namespace

void Kit::softmax(chipset_stream stream, const chipset_softmax_args& arguments) {
  softmax_rows(*this, stream, arguments, false);
}
void Kit::softmax_backward(chipset_stream stream, const chipset_softmax_args& arguments) {
  softmax_rows(*this, stream, arguments, true);
}

namespace {
struct NormShape {
  int64_t rows, n;
  char held;
};

NormShape check_norm(const Traits& traits, const chipset_norm_args& args) {
  sdk::check_tensor("x", args.x);
  if (args.x->rank != 2)
    fail(CHIPSET_STATUS_INVALID, "norm: x has shape %s; need [rows, N]",
         sdk::shape_text(*args.x).c_str());
  if (args.kind != 0 && args.kind != 1)
    fail(CHIPSET_STATUS_INVALID, "norm: kind is %d; need 0 (RMS) or 1 (layer)", args.kind);
  const NormShape shape{args.x->shape[0], args.x->shape[1], class_of(args.x->dtype)};
  for (const chipset_tensor* t : {args.x, args.y, args.dy, args.dx})
    if (t != nullptr) {
      need_float(traits, "norm", t->dtype);
      if (!sdk::same_shape(*t, *args.x))
        fail(CHIPSET_STATUS_INVALID, "norm: a tensor has shape %s, x has %s",
             sdk::shape_text(*t).c_str(), sdk::shape_text(*args.x).c_str());
    }
  const int32_t statistics = shape.held == 'd' ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_F32;
  for (const chipset_tensor* t : {args.mean, args.rstd}) {
    check_vector("norm", "mean or rstd", t, shape.rows);
    if (t != nullptr && t->dtype != statistics)
      fail(CHIPSET_STATUS_INVALID, "norm: statistics are %s; need %s", sdk::dtype_name(t->dtype),
           sdk::dtype_name(statistics));
  }
  for (const chipset_tensor* t : {args.weight, args.bias, args.dweight, args.dbias}) {
    check_vector("norm", "weight, bias or a gradient of them", t, shape.n);
    if (t != nullptr) need_float(traits, "norm", t->dtype);
  }
  return shape;
}

int32_t dtype_or(const chipset_tensor* tensor, int32_t otherwise) {
  return tensor != nullptr ? tensor->dtype : otherwise;
}
// What a kernel is given for a tensor that is not there and that it does not touch.
const void* data_or(const chipset_tensor* tensor, const chipset_tensor& otherwise) {
  return tensor != nullptr ? tensor->data : otherwise.data;
}
}  // namespace

void Kit::norm(chipset_stream stream, const chipset_norm_args& arguments) {
  const chipset_norm_args& args = arguments;
  const NormShape shape = check_norm(traits_, args);
  sdk::check_output("y", args.y);
  if (shape.rows == 0 || shape.n == 0) return;
  const bool layer = args.kind == 1;
  const int32_t v_dtype = dtype_or(args.weight, dtype_or(args.bias, args.x->dtype));
  if (args.weight != nullptr && args.bias != nullptr && args.bias->dtype != v_dtype)
    unsupported("norm with a bias of another dtype than the weight");
  const int lanes = group_lanes(traits_);
  const bool has_bias = layer && args.bias != nullptr;
  const Signature signature{
      kNorm, args.kind, args.x->dtype, args.y->dtype, v_dtype, args.weight != nullptr, has_bias};
  void* kernel = this->kernel(signature, "norm_forward", [&] {
    Source source = row_source(traits_, shape.held, lanes);
    source.operand("X", args.x->dtype).operand("Y", args.y->dtype).operand("V", v_dtype);
    source.define("Z", "Y").define("LAYER", layer).define("HAS_BIAS", has_bias);
    return source.define("HAS_WEIGHT", args.weight != nullptr).file("norm.c").take();
  });
  const chipset_tensor& any = *args.y;
  Launch(backend_, stream, kernel)
      .address(args.x)
      .address(data_or(args.weight, any))
      .address(data_or(args.bias, any))
      .address(args.y)
      .address(data_or(args.mean, any))
      .address(data_or(args.rstd, any))
      .i64(shape.rows)
      .i64(shape.n)
      .i64(row_stride(*args.x))
      .i64(step_of(args.x))
      .i64(row_stride(*args.y))
      .i64(step_of(args.y))
      .i64(step_of(args.weight))
      .i64(step_of(args.bias))
      .i64(step_of(args.mean))
      .i64(step_of(args.rstd))
      .i32((args.mean != nullptr ? 1 : 0) | (args.rstd != nullptr ? 2 : 0))
      .real(shape.held, args.eps)
      .real(shape.held, args.weight_offset)
      .run({row_groups(traits_, shape.rows, shape.n * 2)}, static_cast<uint32_t>(lanes));
}

void Kit::norm_backward(chipset_stream stream, const chipset_norm_args& arguments) {
  const chipset_norm_args& args = arguments;
  const NormShape shape = check_norm(traits_, args);
  sdk::check_tensor("dy", args.dy);
  sdk::check_tensor("rstd", args.rstd);
  const bool layer = args.kind == 1;
  if (layer) sdk::check_tensor("mean", args.mean);
  if (shape.n == 0) return;
  const int lanes = group_lanes(traits_);
  const chipset_tensor& x = *args.x;
  const int32_t z_dtype = dtype_or(args.dx, x.dtype);
  const int32_t v_dtype =
      dtype_or(args.weight, dtype_or(args.dweight, dtype_or(args.dbias, x.dtype)));
  for (const chipset_tensor* t : {args.dweight, args.dbias})
    if (t != nullptr && t->dtype != v_dtype)
      unsupported("norm_backward with gradients of another dtype than the weight");
  Signature signature{kNormBackward,         args.kind, x.dtype, args.dy->dtype, z_dtype, v_dtype,
                      args.weight != nullptr};
  const auto make = [&] {
    Source source = row_source(traits_, shape.held, lanes);
    source.operand("X", x.dtype).operand("Y", args.dy->dtype).operand("V", v_dtype);
    source.operand("Z", z_dtype).define("LAYER", layer).define("HAS_BIAS", 0);
    return source.define("HAS_WEIGHT", args.weight != nullptr).file("norm.c").take();
  };
  if (args.dx != nullptr && shape.rows > 0) {
    Launch(backend_, stream, kernel(signature, "norm_backward", make))
        .address(args.x)
        .address(data_or(args.weight, x))
        .address(args.dy)
        .address(args.dx)
        .address(data_or(args.mean, x))
        .address(args.rstd)
        .i64(shape.rows)
        .i64(shape.n)
        .i64(row_stride(x))
        .i64(step_of(args.x))
        .i64(row_stride(*args.dy))
        .i64(step_of(args.dy))
        .i64(row_stride(*args.dx))
        .i64(step_of(args.dx))
        .i64(step_of(args.weight))
        .i64(step_of(args.mean))
        .i64(step_of(args.rstd))
        .real(shape.held, args.weight_offset)
        .run({row_groups(traits_, shape.rows, shape.n * 3)}, static_cast<uint32_t>(lanes));
  }
  if (args.dweight == nullptr && args.dbias == nullptr) return;
  // Pieces of rows; their number follows from shapes and the device alone.
  const int64_t most = traits_.is_cpu ? traits_.compute_units * 2 : traits_.compute_units * 4;
  const int64_t pieces = std::clamp<int64_t>(shape.rows / 16, 1, most);
  const int64_t bytes = pieces * 2 * shape.n * (shape.held == 'd' ? 8 : 4);
  void* partial = backend_.scratch(stream, static_cast<uint64_t>(bytes));
  signature.value[0] = kNormWeights;
  Launch(backend_, stream, kernel(signature, "norm_weights", make))
      .address(shape.rows > 0 ? x.data : partial)
      .address(shape.rows > 0 ? args.dy->data : partial)
      .address(partial)
      .address(layer && shape.rows > 0 ? args.mean->data : partial)
      .address(shape.rows > 0 ? args.rstd->data : partial)
      .i64(shape.rows)
      .i64(shape.n)
      .i64(pieces)
      .i64(row_stride(x))
      .i64(step_of(args.x))
      .i64(row_stride(*args.dy))
      .i64(step_of(args.dy))
      .i64(step_of(args.mean))
      .i64(step_of(args.rstd))
      .run({row_groups(traits_, pieces, ceil_div(shape.rows, pieces) * shape.n)},
           static_cast<uint32_t>(lanes));
  signature.value[0] = kNormWeightsFinish;
  Launch(backend_, stream, kernel(signature, "norm_weights_finish", make))
      .address(partial)
      .address(data_or(args.dweight, *(args.dbias != nullptr ? args.dbias : args.dweight)))
      .address(data_or(args.dbias, *(args.dweight != nullptr ? args.dweight : args.dbias)))
      .i64(shape.n)
      .i64(pieces)
      .i64(step_of(args.dweight))
      .i64(step_of(args.dbias))
      .i32((args.dweight != nullptr ? 1 : 0) | (args.dbias != nullptr ? 2 : 0))
      .run({group_count(traits_, ceil_div(shape.n, lanes), pieces)}, static_cast<uint32_t>(lanes));
}

}  // namespace chipset::kit
