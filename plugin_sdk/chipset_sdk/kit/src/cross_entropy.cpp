// SPDX-License-Identifier: Apache-2.0
// Cross-entropy, forward and backward.
#include "rows.h"

namespace chipset::kit {

namespace {
void check_logits(const Traits& traits, const char* function,
                  const chipset_cross_entropy_args& args) {
  sdk::check_tensor("logits", args.logits);
  if (args.logits->rank != 2)
    fail(CHIPSET_STATUS_INVALID, "%s: logits has shape %s; need [N, V]", function,
         sdk::shape_text(*args.logits).c_str());
  need_float(traits, function, args.logits->dtype);
  if (!(args.label_smoothing >= 0 && args.label_smoothing <= 1))
    fail(CHIPSET_STATUS_INVALID, "%s: label_smoothing is %g; need 0 to 1", function,
         args.label_smoothing);
}

// A vector with an element for each row.
void check_per_row(const char* function, const char* name, const chipset_tensor* tensor,
                   const chipset_cross_entropy_args& args, int32_t dtype) {
  sdk::check_tensor(name, tensor);
  check_vector(function, name, tensor, args.logits->shape[0]);
  if (tensor->dtype != dtype)
    fail(CHIPSET_STATUS_INVALID, "%s: %s is %s; need %s", function, name,
         sdk::dtype_name(tensor->dtype), sdk::dtype_name(dtype));
}

int32_t row_dtype(const chipset_cross_entropy_args& args) {
  return args.logits->dtype == CHIPSET_DTYPE_F64 ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_F32;
}
}  // namespace

void Kit::cross_entropy(chipset_stream stream, const chipset_cross_entropy_args& arguments) {
  constexpr const char* kName = "cross_entropy";
  const chipset_cross_entropy_args& args = arguments;
  check_logits(traits_, kName, args);
  check_per_row(kName, "target", args.target, args, CHIPSET_DTYPE_I64);
  check_per_row(kName, "loss", args.loss, args, row_dtype(args));
  sdk::check_output("loss", args.loss);
  if (args.lse != nullptr) {
    check_per_row(kName, "lse", args.lse, args, row_dtype(args));
    sdk::check_output("lse", args.lse);
  }
  const chipset_tensor& x = *args.logits;
  const int64_t rows = x.shape[0], n = x.shape[1];
  if (rows == 0) return;
  const char held = class_of(x.dtype);
  const int lanes = group_lanes(traits_);
  const bool smoothed = args.label_smoothing != 0;
  void* kernel = this->kernel({kCrossEntropy, x.dtype, smoothed}, kName, [&] {
    Source source = row_source(traits_, held, lanes);
    source.operand("X", x.dtype).define("Z", "X").define("SMOOTHED", smoothed);
    return source.file("cross_entropy.c").take();
  });
  Launch(backend_, stream, kernel)
      .address(n > 0 ? &x : args.loss)
      .address(args.target)
      .address(args.loss)
      .address(args.lse != nullptr ? args.lse : args.loss)
      .address(backend_.fault_word(stream))
      .i64(rows)
      .i64(n)
      .i64(row_stride(x))
      .i64(step_of(&x))
      .i64(step_of(args.target))
      .i64(step_of(args.loss))
      .i64(step_of(args.lse))
      .i64(args.ignore_index)
      .i32(args.lse != nullptr)
      .real(held, args.label_smoothing)
      .run({row_groups(traits_, rows, n * 4)}, static_cast<uint32_t>(lanes));
}

void Kit::cross_entropy_backward(chipset_stream stream,
                                 const chipset_cross_entropy_args& arguments) {
  constexpr const char* kName = "cross_entropy_backward";
  const chipset_cross_entropy_args& args = arguments;
  check_logits(traits_, kName, args);
  check_per_row(kName, "target", args.target, args, CHIPSET_DTYPE_I64);
  check_per_row(kName, "lse", args.lse, args, row_dtype(args));
  check_per_row(kName, "dloss", args.dloss, args, row_dtype(args));
  sdk::check_shape("dlogits", args.dlogits, "logits", *args.logits);
  sdk::check_output("dlogits", args.dlogits);
  const chipset_tensor &x = *args.logits, &z = *args.dlogits;
  need_float(traits_, kName, z.dtype);
  const char held = class_of(x.dtype);
  if (class_of(z.dtype) != held)
    unsupported(std::string(kName) + ": dlogits is " + sdk::dtype_name(z.dtype) +
                ", but logits is " + sdk::dtype_name(x.dtype));
  if (sdk::numel(x) == 0) return;
  const int64_t rows = x.shape[0], n = x.shape[1];
  const int lanes = group_lanes(traits_);
  void* kernel = this->kernel({kCrossEntropyBackward, x.dtype, z.dtype}, kName, [&] {
    Source source = row_source(traits_, held, lanes);
    source.operand("X", x.dtype).operand("Z", z.dtype).define("SMOOTHED", 0);
    return source.file("cross_entropy.c").take();
  });
  Launch(backend_, stream, kernel)
      .address(&x)
      .address(args.target)
      .address(args.lse)
      .address(args.dloss)
      .address(&z)
      .address(backend_.fault_word(stream))
      .i64(rows)
      .i64(n)
      .i64(row_stride(x))
      .i64(step_of(&x))
      .i64(row_stride(z))
      .i64(step_of(&z))
      .i64(step_of(args.target))
      .i64(step_of(args.lse))
      .i64(step_of(args.dloss))
      .i64(args.ignore_index)
      .real(held, args.label_smoothing)
      .run({row_groups(traits_, rows, n * 4)}, static_cast<uint32_t>(lanes));
}

}  // namespace chipset::kit
