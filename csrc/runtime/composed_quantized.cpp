// SPDX-License-Identifier: Apache-2.0
// Quantisation from reduce and pointwise; the quantised product from those and gemm. Not I4, whose
// elements pointwise cannot name.
#include "composed.h"
#include "steps.h"

namespace chipset::runtime {
namespace {

struct Format {
  double largest;    // of the symmetric range
  double low, high;  // with zero points
};
// NULL where the composition does not know the format.
const Format* format_of(std::int32_t dtype) {
  static const Format kI8{127, -128, 127};
  static const Format kE4M3{448, -448, 448};
  static const Format kE5M2{57344, -57344, 57344};
  switch (dtype) {
    case CHIPSET_DTYPE_I8:
      return &kI8;
    case CHIPSET_DTYPE_F8E4M3:
      return &kE4M3;
    case CHIPSET_DTYPE_F8E5M2:
      return &kE5M2;
    default:
      return nullptr;
  }
}

// [rows, K] as [rows, G, size], and [rows, G] as [rows, G, 1].
struct Groups {
  std::int64_t count;
  std::int64_t size;
  Tensor of(const Tensor& t) const { return split(t, 1, count, size); }
  static Tensor scale(const Tensor& t) { return unsqueeze(t, 2); }
};
bool make_groups(std::int64_t columns, std::int64_t group_size, Groups* groups) {
  const std::int64_t size = group_size == 0 ? columns : group_size;
  if (size == 0 || columns % size != 0) return false;
  *groups = {columns / size, size};
  return true;
}

void dequantize_into(Steps& s, const Tensor& out, const Tensor& q, const Tensor& scale,
                     const Tensor* zero_point, const Groups& groups) {
  const Tensor quantised = groups.of(q);
  const Tensor target = groups.of(out);
  const std::int32_t w = CHIPSET_DTYPE_F32;
  if (zero_point == nullptr) {
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, target, {quantised, Groups::scale(scale)}, w);
    return;
  }
  const Tensor t = s.temporary(w, shape_of(quantised));
  s.pointwise(CHIPSET_POINTWISE_OP_SUB, t, {quantised, Groups::scale(*zero_point)}, w, {1});
  s.pointwise(CHIPSET_POINTWISE_OP_MUL, target, {t, Groups::scale(scale)}, w);
}

}  // namespace

chipset_status composed(Tag<Fn::quantize>, Plugin& plugin, chipset_stream stream,
                        const chipset_quantize_args* a) {
  Steps s(plugin, stream);
  const Format* format = format_of(a->q->dtype);
  Groups groups{};
  if (format == nullptr) return s.unsupported("quantize to this dtype");
  if (empty(*a->x)) return CHIPSET_STATUS_OK;
  if (!make_groups(a->x->shape[1], a->group_size, &groups))
    return s.unsupported("quantize with a last group that is not full");
  if (a->zero_point != nullptr && a->given_scale == 0)
    return s.unsupported("quantize that chooses zero points");
  const std::int32_t w = CHIPSET_DTYPE_F32;
  const Tensor x = groups.of(*a->x);
  const Tensor scale = s.temporary(w, {x.shape[0], groups.count, 1});
  if (a->given_scale != 0) {
    s.copy(scale, Groups::scale(*a->scale));
  } else {
    const Tensor magnitude = s.temporary(w, shape_of(x));
    s.pointwise(CHIPSET_POINTWISE_OP_ABS, magnitude, {x}, w);
    s.reduce(CHIPSET_REDUCE_OP_MAX, scale, magnitude, {2}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_DIV, scale, {scale, format->largest}, w);
    s.copy(Groups::scale(*a->scale), scale);
  }
  // A group of zeros has scale 0: its elements are 0 with any divisor.
  const Tensor zero = s.temporary(CHIPSET_DTYPE_BOOL, shape_of(scale));
  const Tensor t = s.temporary(w, shape_of(x));
  s.pointwise(CHIPSET_POINTWISE_OP_EQ, zero, {scale, 0.0}, w);
  s.pointwise(CHIPSET_POINTWISE_OP_WHERE, scale, {zero, 1.0, scale}, w);
  s.pointwise(CHIPSET_POINTWISE_OP_DIV, t, {x, scale}, w);
  if (a->q->dtype == CHIPSET_DTYPE_I8) s.pointwise(CHIPSET_POINTWISE_OP_ROUND, t, {t}, w);
  double low = -format->largest;
  if (a->zero_point != nullptr) {
    s.pointwise(CHIPSET_POINTWISE_OP_ADD, t, {t, Groups::scale(*a->zero_point)}, w, {1});
    low = format->low;
  }
  s.pointwise(CHIPSET_POINTWISE_OP_CLAMP, t, {t}, w, {low, format->high});
  s.copy(groups.of(*a->q), t);
  return s.status();
}

chipset_status composed(Tag<Fn::dequantize>, Plugin& plugin, chipset_stream stream,
                        const chipset_quantize_args* a) {
  Steps s(plugin, stream);
  Groups groups{};
  if (format_of(a->q->dtype) == nullptr) return s.unsupported("dequantize from this dtype");
  if (empty(*a->x)) return CHIPSET_STATUS_OK;
  if (!make_groups(a->x->shape[1], a->group_size, &groups))
    return s.unsupported("dequantize with a last group that is not full");
  dequantize_into(s, *a->x, *a->q, *a->scale, a->zero_point, groups);
  return s.status();
}

chipset_status composed(Tag<Fn::gemm_quantized>, Plugin& plugin, chipset_stream stream,
                        const chipset_gemm_quantized_args* a) {
  Steps s(plugin, stream);
  Groups groups{};
  if (format_of(a->w->dtype) == nullptr) return s.unsupported("gemm_quantized with this weight");
  if (!make_groups(a->w->shape[1], a->group_size, &groups))
    return s.unsupported("gemm_quantized with a last group that is not full");
  // In F32 throughout: weights rounded to the activations' dtype would lose what the scales keep.
  const std::int32_t w = CHIPSET_DTYPE_F32;
  const Tensor weight = s.temporary(w, shape_of(*a->w));
  dequantize_into(s, weight, *a->w, *a->w_scale, a->w_zero_point, groups);
  Tensor x = *a->x;
  if (a->x_scale != nullptr) {
    x = s.temporary(w, shape_of(*a->x));
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, x, {*a->x, unsqueeze(*a->x_scale, 1)}, w);
  } else {
    x = s.contiguous(*a->x, w);
  }
  const Tensor d = a->d->dtype == w ? *a->d : s.temporary(w, shape_of(*a->d));
  Tensor bias{};
  if (a->bias != nullptr) bias = s.contiguous(*a->bias, w);
  s.gemm(d, x, transpose(weight, 0, 1), 1, a->bias != nullptr ? &bias : nullptr, a->activation);
  if (a->d->dtype != w) s.copy(*a->d, d);
  return s.status();
}

}  // namespace chipset::runtime
