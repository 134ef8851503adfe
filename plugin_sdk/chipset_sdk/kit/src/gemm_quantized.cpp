// SPDX-License-Identifier: Apache-2.0
// Quantised linear layers: dot products of rows of x with rows of the weights, which are read once
// for every few rows of x and widened on the way.
#include "quantized.h"

namespace chipset::kit {

namespace {
constexpr const char* kName = "gemm_quantized";

struct Strides {  // as the kernel has it
  int64_t row_x, step_x, row_w, step_w, row_scale, step_scale, row_zero, step_zero, row_d, step_d;
  int64_t step_x_scale, step_bias;
};

void check_matrix(const char* name, const chipset_tensor* t, int64_t rows, int64_t columns) {
  sdk::check_tensor(name, t);
  if (t->rank != 2 || t->shape[0] != rows || t->shape[1] != columns)
    fail(CHIPSET_STATUS_INVALID, "%s: %s has shape %s; need [%lld, %lld]", kName, name,
         sdk::shape_text(*t).c_str(), static_cast<long long>(rows),
         static_cast<long long>(columns));
}

void check_dtype(const char* name, int32_t dtype, std::initializer_list<int32_t> legal,
                 const char* need) {
  for (int32_t one : legal)
    if (dtype == one) return;
  unsupported(std::string(kName) + ": " + name + " is " + sdk::dtype_name(dtype) + "; need " +
              need);
}

void check_dtypes(const chipset_gemm_quantized_args& args) {
  const int32_t x = args.x->dtype, w = args.w->dtype;
  constexpr int32_t kF16 = CHIPSET_DTYPE_F16, kBf16 = CHIPSET_DTYPE_BF16, kF32 = CHIPSET_DTYPE_F32,
                    kI32 = CHIPSET_DTYPE_I32, kI8 = CHIPSET_DTYPE_I8;
  check_dtype("x", x, {kF16, kBf16, kF32, kI8}, "f16, bf16, f32, or i8 with x_scale");
  check_dtype("w", w, {kI8, CHIPSET_DTYPE_I4, CHIPSET_DTYPE_F8E4M3}, "i8, i4 or f8e4m3");
  check_dtype("w_scale", args.w_scale->dtype, {kF32}, "f32");
  check_dtype("d", args.d->dtype, {kF16, kBf16, kF32}, "f16, bf16 or f32");
  if ((x == kI8) != (args.x_scale != nullptr))
    fail(CHIPSET_STATUS_INVALID, "%s: x is %s and x_scale is %s; x_scale goes with i8 x", kName,
         sdk::dtype_name(x), args.x_scale == nullptr ? "missing (NULL)" : "given");
  if (args.x_scale != nullptr) check_dtype("x_scale", args.x_scale->dtype, {kF32}, "f32");
  if (args.bias != nullptr) check_dtype("bias", args.bias->dtype, {args.d->dtype}, "d's dtype");
  if (args.w_zero_point == nullptr) return;
  if (!is_whole(w))
    fail(CHIPSET_STATUS_INVALID, "%s: w_zero_point belongs to i8 and i4, but w is %s; pass NULL",
         kName, sdk::dtype_name(w));
  check_dtype("w_zero_point", args.w_zero_point->dtype, {kI32}, "i32");
}

void check_gemm_quantized(const chipset_gemm_quantized_args& args) {
  sdk::check_tensor("x", args.x);
  sdk::check_tensor("w", args.w);
  if (args.x->rank != 2 || args.w->rank != 2 || args.group_size < 0)
    fail(CHIPSET_STATUS_INVALID,
         "%s: x has shape %s, w %s and group_size is %lld; need [M, K], [N, K] and 0 or more",
         kName, sdk::shape_text(*args.x).c_str(), sdk::shape_text(*args.w).c_str(),
         static_cast<long long>(args.group_size));
  const int64_t rows = args.x->shape[0], length = args.x->shape[1], columns = args.w->shape[0];
  const int64_t groups = groups_of(args.group_size, length);
  check_matrix("w", args.w, columns, length);
  check_matrix("w_scale", args.w_scale, columns, groups);
  if (args.w_zero_point != nullptr)
    check_matrix("w_zero_point", args.w_zero_point, columns, groups);
  check_matrix("d", args.d, rows, columns);
  sdk::check_output("d", args.d);
  if (args.x_scale != nullptr) sdk::check_tensor("x_scale", args.x_scale);
  if (args.bias != nullptr) sdk::check_tensor("bias", args.bias);
  check_vector(kName, "x_scale", args.x_scale, rows);
  check_vector(kName, "bias", args.bias, columns);
  check_dtypes(args);
  check_nibbles(kName, "w", *args.w);
  if (args.activation < CHIPSET_ACTIVATION_NONE || args.activation > CHIPSET_ACTIVATION_SILU)
    unsupported(std::string(kName) + ": activation " + std::to_string(args.activation));
}

Strides strides_of(const chipset_gemm_quantized_args& args) {
  const chipset_tensor& scale = *args.w_scale;
  const chipset_tensor& zero = args.w_zero_point != nullptr ? *args.w_zero_point : scale;
  return {row_stride(*args.x), step_of(args.x), row_stride(*args.w),   step_of(args.w),
          row_stride(scale),   step_of(&scale), row_stride(zero),      step_of(&zero),
          row_stride(*args.d), step_of(args.d), step_of(args.x_scale), step_of(args.bias)};
}
}  // namespace

void Kit::gemm_quantized(chipset_stream stream, const chipset_gemm_quantized_args& arguments) {
  const chipset_gemm_quantized_args& args = arguments;
  check_gemm_quantized(args);
  const chipset_tensor &x = *args.x, &w = *args.w, &d = *args.d;
  if (sdk::numel(d) == 0) return;
  const int64_t rows = x.shape[0], length = x.shape[1], columns = w.shape[0];
  const bool integers = x.dtype == CHIPSET_DTYPE_I8 && is_whole(w.dtype);
  const bool zero = args.w_zero_point != nullptr, bias = args.bias != nullptr;
  // A tile of the output: as many accumulators as a processor has registers for.
  const int tile_rows = rows == 1 ? 1 : 4, tile_columns = rows == 1 ? 8 : 4;
  const int lanes = group_lanes(traits_, 128);
  // Vectors want adjacent elements, and halves of bytes from an even one on.
  const int64_t size = group_of(args.group_size, length);
  const bool adjacent = x.stride[1] == 1 && w.stride[1] == 1 &&
                        (w.dtype != CHIPSET_DTYPE_I4 || size % 2 == 0 || size >= length);
  const int width = adjacent ? vector_width(traits_, 4) : 1;
  const Signature signature{kGemmQuantized, x.dtype, w.dtype, d.dtype, zero, tile_rows, adjacent};
  void* kernel = this->kernel(signature, kName, [&] {
    Source source(traits_, width, lanes);
    source.define("C", "f").file("compute.h").file("rows.h");
    source.operand("X", x.dtype).operand("D", d.dtype);
    source.define("INTEGERS", integers).define("HAS_X_SCALE", args.x_scale != nullptr);
    source.define("HAS_ZERO", zero);
    source.define("ROWS", tile_rows).define("COLUMNS", tile_columns);
    return add_quantized(source, traits_, w.dtype).file("gemm_quantized.c").take();
  });
  const int64_t units = ceil_div(columns, tile_columns);
  Launch(backend_, stream, kernel)
      .address(length > 0 ? &x : &d)
      .address(length > 0 ? &w : &d)
      .address(args.w_scale)
      .address(zero ? args.w_zero_point : args.w_scale)
      .address(args.x_scale != nullptr ? args.x_scale : args.w_scale)
      .address(bias ? args.bias : &d)
      .address(&d)
      .i64(rows)
      .i64(columns)
      .i64(length)
      .i64(size)
      .value(strides_of(args))
      .i32(bias)
      .i32(args.activation)
      .run({group_count(traits_, units, rows * length * tile_columns / 4)},
           static_cast<uint32_t>(lanes));
}

}  // namespace chipset::kit
