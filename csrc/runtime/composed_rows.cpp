// SPDX-License-Identifier: Apache-2.0
// Softmax, norms and rotary embedding from reduce and pointwise.
#include "composed.h"
#include "steps.h"

namespace chipset::runtime {
namespace {

Shape with_one(Shape shape, int dim) {
  shape[static_cast<std::size_t>(dim)] = 1;
  return shape;
}

}  // namespace

chipset_status composed(Tag<Fn::softmax>, Plugin& plugin, chipset_stream stream,
                        const chipset_softmax_args* a) {
  const Tensor& x = *a->input;
  if (empty(x)) return CHIPSET_STATUS_OK;
  if (x.rank == 0) {
    Steps s(plugin, stream);
    s.pointwise(CHIPSET_POINTWISE_OP_FILL, *a->output, {}, wide(x.dtype), {a->log ? 0.0 : 1.0});
    return s.status();
  }
  Steps s(plugin, stream);
  const std::int32_t w = wide(x.dtype);
  const Shape shape = shape_of(x);
  const Tensor row = s.temporary(w, with_one(shape, a->dim));
  const Tensor shifted = s.temporary(w, shape);
  const Tensor exponential = a->log ? s.temporary(w, shape) : shifted;
  s.reduce(CHIPSET_REDUCE_OP_MAX, row, x, {a->dim}, w);
  s.pointwise(CHIPSET_POINTWISE_OP_SUB, shifted, {x, row}, w, {1});
  s.pointwise(CHIPSET_POINTWISE_OP_EXP, exponential, {shifted}, w);
  s.reduce(CHIPSET_REDUCE_OP_SUM, row, exponential, {a->dim}, w);
  if (a->log) {
    s.pointwise(CHIPSET_POINTWISE_OP_LOG, row, {row}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, *a->output, {shifted, row}, w, {1});
  } else {
    s.pointwise(CHIPSET_POINTWISE_OP_DIV, *a->output, {shifted, row}, w);
  }
  return s.status();
}

chipset_status composed(Tag<Fn::softmax_backward>, Plugin& plugin, chipset_stream stream,
                        const chipset_softmax_args* a) {
  const Tensor& dy = *a->input;
  const Tensor& y = *a->result;
  if (empty(dy)) return CHIPSET_STATUS_OK;
  Steps s(plugin, stream);
  if (dy.rank == 0) {
    s.pointwise(CHIPSET_POINTWISE_OP_FILL, *a->output, {}, wide(dy.dtype), {0});
    return s.status();
  }
  const std::int32_t w = wide(y.dtype);
  const Shape shape = shape_of(dy);
  const Tensor row = s.temporary(w, with_one(shape, a->dim));
  const Tensor t = s.temporary(w, shape);
  if (a->log) {
    s.reduce(CHIPSET_REDUCE_OP_SUM, row, dy, {a->dim}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_EXP, t, {y}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, t, {t, row}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, *a->output, {dy, t}, w, {1});
  } else {
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, t, {dy, y}, w);
    s.reduce(CHIPSET_REDUCE_OP_SUM, row, t, {a->dim}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, t, {dy, row}, w, {1});
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, *a->output, {t, y}, w);
  }
  return s.status();
}

chipset_status composed(Tag<Fn::norm>, Plugin& plugin, chipset_stream stream,
                        const chipset_norm_args* a) {
  const Tensor& x = *a->x;
  if (empty(x)) return CHIPSET_STATUS_OK;
  Steps s(plugin, stream);
  const std::int32_t w = wide(x.dtype);
  const Shape shape = shape_of(x);
  const Shape column = with_one(shape, 1);
  const Tensor rstd = s.temporary(w, column);
  const Tensor mean = s.temporary(w, a->kind == 1 ? column : Shape{0});
  const Tensor t = s.temporary(w, shape);
  const Tensor centred = s.temporary(w, shape);
  if (a->kind == 1) {
    s.reduce(CHIPSET_REDUCE_OP_MEAN, mean, x, {1}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, centred, {x, mean}, w, {1});
  } else {
    s.copy(centred, x);
  }
  s.pointwise(CHIPSET_POINTWISE_OP_MUL, t, {centred, centred}, w);
  s.reduce(CHIPSET_REDUCE_OP_MEAN, rstd, t, {1}, w);
  s.pointwise(CHIPSET_POINTWISE_OP_ADD, rstd, {rstd, a->eps}, w, {1});
  s.pointwise(CHIPSET_POINTWISE_OP_RSQRT, rstd, {rstd}, w);
  s.pointwise(CHIPSET_POINTWISE_OP_MUL, t, {centred, rstd}, w);
  if (a->weight != nullptr) {
    const Tensor weight = s.temporary(w, {shape[1]});
    s.pointwise(CHIPSET_POINTWISE_OP_ADD, weight, {*a->weight, a->weight_offset}, w, {1});
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, t, {t, weight}, w);
  }
  if (a->bias != nullptr && a->kind == 1)
    s.pointwise(CHIPSET_POINTWISE_OP_ADD, t, {t, *a->bias}, w, {1});
  if (a->mean != nullptr && a->kind == 1) s.copy(unsqueeze(*a->mean, 1), mean);
  if (a->rstd != nullptr) s.copy(unsqueeze(*a->rstd, 1), rstd);
  s.copy(*a->y, t);
  return s.status();
}

chipset_status composed(Tag<Fn::norm_backward>, Plugin& plugin, chipset_stream stream,
                        const chipset_norm_args* a) {
  Steps s(plugin, stream);
  const Tensor& x = *a->x;
  const Tensor& dy = *a->dy;
  const std::int32_t w = wide(x.dtype);
  const Shape shape = shape_of(x);
  const Tensor xhat = s.temporary(w, shape);
  const Tensor t = s.temporary(w, shape);
  const Tensor rstd = unsqueeze(*a->rstd, 1);
  if (a->kind == 1)
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, xhat, {x, unsqueeze(*a->mean, 1)}, w, {1});
  else
    s.copy(xhat, x);
  s.pointwise(CHIPSET_POINTWISE_OP_MUL, xhat, {xhat, rstd}, w);
  // Sums over the rows first, since dx may be dy itself.
  const Tensor dweight = s.temporary(w, a->dweight != nullptr ? Shape{1, shape[1]} : Shape{0});
  const Tensor dbias = s.temporary(w, a->dbias != nullptr ? Shape{1, shape[1]} : Shape{0});
  if (a->dweight != nullptr) {
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, t, {dy, xhat}, w);
    s.reduce(CHIPSET_REDUCE_OP_SUM, dweight, t, {0}, w);
  }
  if (a->dbias != nullptr) s.reduce(CHIPSET_REDUCE_OP_SUM, dbias, dy, {0}, w);
  if (a->dx != nullptr) {
    const Tensor g = s.temporary(w, shape);
    const Tensor row = s.temporary(w, with_one(shape, 1));
    if (a->weight != nullptr) {
      const Tensor weight = s.temporary(w, {shape[1]});
      s.pointwise(CHIPSET_POINTWISE_OP_ADD, weight, {*a->weight, a->weight_offset}, w, {1});
      s.pointwise(CHIPSET_POINTWISE_OP_MUL, g, {dy, weight}, w);
    } else {
      s.copy(g, dy);
    }
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, t, {g, xhat}, w);
    s.reduce(CHIPSET_REDUCE_OP_MEAN, row, t, {1}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, t, {xhat, row}, w);
    if (a->kind == 1) {
      s.reduce(CHIPSET_REDUCE_OP_MEAN, row, g, {1}, w);
      s.pointwise(CHIPSET_POINTWISE_OP_SUB, g, {g, row}, w, {1});
    }
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, g, {g, t}, w, {1});
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, *a->dx, {g, rstd}, w);
  }
  if (a->dweight != nullptr) s.copy(unsqueeze(*a->dweight, 0), dweight);
  if (a->dbias != nullptr) s.copy(unsqueeze(*a->dbias, 0), dbias);
  return s.status();
}

chipset_status composed(Tag<Fn::rotary>, Plugin& plugin, chipset_stream stream,
                        const chipset_rotary_args* a) {
  const Tensor& x = *a->x;
  if (empty(x)) return CHIPSET_STATUS_OK;
  Steps s(plugin, stream);
  const std::int32_t w = wide(x.dtype);
  const std::int64_t rotated = a->cos->shape[2];
  const std::int64_t half = rotated / 2;
  // The two elements of each pair, and the columns of cos and sin that belong to each.
  const bool interleaved = a->interleaved != 0;
  const auto part = [&](const Tensor& t, int which) {
    const int last = t.rank - 1;
    return interleaved ? slice(t, last, which, half, 2) : slice(t, last, which * half, half);
  };
  const Tensor cos = unsqueeze(*a->cos, 1);
  const Tensor sin = unsqueeze(*a->sin, 1);
  Shape shape = shape_of(x);
  shape[3] = half;
  const double sign = a->inverse != 0 ? -1 : 1;
  Tensor result[2];
  const Tensor product = s.temporary(w, shape);
  for (int which : {0, 1}) {
    result[which] = s.temporary(w, shape);
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, result[which], {part(x, which), part(cos, which)}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, product, {part(x, 1 - which), part(sin, which)}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_ADD, result[which], {result[which], product}, w,
                {which == 0 ? -sign : sign});
  }
  for (int which : {0, 1}) s.copy(part(*a->y, which), result[which]);
  const std::int64_t rest = x.shape[3] - rotated;
  if (rest > 0 && a->y->data != x.data)
    s.copy(slice(*a->y, 3, rotated, rest), slice(x, 3, rotated, rest));
  return s.status();
}

}  // namespace chipset::runtime
