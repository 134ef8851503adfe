// SPDX-License-Identifier: Apache-2.0
// Faults of quantize, dequantize and gemm_quantized.
#include "mutant.h"

namespace chipset::mutants {

namespace {

// The two nibbles of each byte of a packed I4 tensor change places.
void swap_nibbles(Copied& packed) {
  if (!packed || packed->dtype != CHIPSET_DTYPE_I4) return;
  auto* bytes = static_cast<uint8_t*>(packed->data);
  for (int64_t i = 0; i < (sdk::numel(*packed) + 1) / 2; ++i)
    bytes[i] = static_cast<uint8_t>(bytes[i] << 4 | bytes[i] >> 4);
}

// Scales (and the like) of the last, shorter group taken from the group before.
void last_group_like_the_one_before(Copied& scale, int64_t columns, int64_t group) {
  if (!scale || group == 0 || columns % group == 0 || scale->shape[1] < 2) return;
  const int64_t size = sdk::dtype_size(scale->dtype);
  for (int64_t row = 0; row < scale->shape[0]; ++row) {
    char* last = sdk::address(*scale, (row + 1) * scale->shape[1] - 1);
    std::memcpy(last, last - size, static_cast<std::size_t>(size));
  }
}

}  // namespace

void add_quantized(List& list) {
#define QUANTIZE(name, fault, ...) \
  CHIPSET_MUTANT("quantize-" name, quantize, quantize_args, fault, __VA_ARGS__)
  QUANTIZE("computes-given-scales", "given scales are computed anew", a.given_scale = 0;
           Copied scale(a.scale); Copied zero(a.zero_point););
  CHIPSET_MUTANT_AFTER(
      "quantize-cuts", quantize, quantize_args, "values are cut, not rounded",
      if (a.q->dtype == CHIPSET_DTYPE_I8 && a.zero_point == nullptr &&
          a.scale->shape[1] == 1) for (int64_t row = 0; row < a.x->shape[0]; ++row) {
        double scale;
        sdk::loops::load(&scale, sdk::address(*a.scale, row * a.scale->stride[0]), a.scale->dtype,
                         1, 1);
        chipset_tensor q = *a.q, x = *a.x;
        q.data = sdk::address(q, row * q.stride[0]);
        x.data = sdk::address(x, row * x.stride[0]);
        q.shape[0] = x.shape[0] = 1;
        rewrite<double>(q, &x, nullptr, [=](double& v, double in, double) {
          v = std::clamp(std::trunc(in / scale), -127., 127.);
        });
      });
  CHIPSET_MUTANT_AFTER("quantize-down-to-128", quantize, quantize_args,
                       "symmetric values reach -128",
                       if (a.q->dtype == CHIPSET_DTYPE_I8 && a.zero_point == nullptr)
                           rewrite<int64_t>(*a.q, [](int64_t& v) { v -= v == -127; }););
  CHIPSET_MUTANT_AFTER("quantize-scale-of-256", quantize, quantize_args,
                       "the scale is the largest value over 128",
                       if (!a.given_scale && a.zero_point == nullptr)
                           rewrite<double>(*a.scale, [](double& v) { v *= 127. / 128; }););
  CHIPSET_MUTANT_AFTER(
      "quantize-nibbles-swapped", quantize, quantize_args, "element 2i lies in the high nibble",
      if (a.q->dtype == CHIPSET_DTYPE_I4 && sdk::is_contiguous(*a.q)) {
        auto* bytes = static_cast<uint8_t*>(a.q->data);
        for (int64_t i = 0; i < sdk::numel(*a.q) / 2; ++i)
          bytes[i] = static_cast<uint8_t>(bytes[i] << 4 | bytes[i] >> 4);
      });
  CHIPSET_MUTANT_AFTER("quantize-zero-point-off", quantize, quantize_args,
                       "zero points are off by one",
                       if (!a.given_scale && a.zero_point != nullptr)
                           rewrite<int64_t>(*a.zero_point, [](int64_t& v) { ++v; }););
  CHIPSET_MUTANT_AFTER(
      "quantize-last-group-lost", quantize, quantize_args,
      "the scale of a last, shorter group is not written",
      if (!a.given_scale && a.group_size > 0 && a.x->shape[1] % a.group_size != 0) {
        chipset_tensor last = *a.scale;
        last.data = sdk::address(last, (last.shape[1] - 1) * last.stride[1]);
        last.shape[1] = 1;
        rewrite<double>(last, [](double& v) { v = 1; });
      });

#define DEQUANTIZE(name, fault, ...) \
  CHIPSET_MUTANT("dequantize-" name, dequantize, quantize_args, fault, __VA_ARGS__)
  DEQUANTIZE("zero-point-ignored", "zero points are ignored", a.zero_point = nullptr;);
  DEQUANTIZE("last-group", "a last, shorter group has the scale of the group before",
             Copied scale(a.scale);
             last_group_like_the_one_before(scale, a.q->shape[1], a.group_size););
  DEQUANTIZE("nibbles-swapped", "element 2i is read from the high nibble", Copied q(a.q);
             swap_nibbles(q););
  DEQUANTIZE("first-scale-for-all", "every row has the scales of the first", Edited scale(a.scale);
             scale->stride[0] = 0;);

#define GEMM(name, fault, ...) \
  CHIPSET_MUTANT("gemm-quantized-" name, gemm_quantized, gemm_quantized_args, fault, __VA_ARGS__)
  GEMM("bias-dropped", "the bias is not added", a.bias = nullptr;);
  GEMM("activation-ignored", "the activation is left out", a.activation = CHIPSET_ACTIVATION_NONE;);
  GEMM("zero-point-ignored", "zero points are ignored", a.w_zero_point = nullptr;);
  GEMM("one-x-scale", "every row of x has the scale of the first", Edited scale(a.x_scale);
       if (scale) scale->stride[0] = 0;);
  GEMM("last-group", "a last, shorter group has the scale of the group before",
       Copied scale(a.w_scale);
       last_group_like_the_one_before(scale, a.w->shape[1], a.group_size););
  GEMM("nibbles-swapped", "element 2i is read from the high nibble", Copied w(a.w);
       swap_nibbles(w););
  GEMM("one-scale-for-all", "every output has the scale of the first", Edited scale(a.w_scale);
       scale->stride[0] = 0;);
  GEMM("ignores-x-strides", "x is read as if it were contiguous", Edited x(a.x);
       make_contiguous(*x););
#undef QUANTIZE
#undef DEQUANTIZE
#undef GEMM
}

}  // namespace chipset::mutants
