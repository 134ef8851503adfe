// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and AdamW from reduce, gather, scatter and pointwise.
#include <algorithm>

#include "composed.h"
#include "steps.h"

namespace chipset::runtime {
namespace {

// Where rows are ignored, and targets that may be looked up in any case.
struct Targets {
  Tensor ignored;  // BOOL [N]
  Tensor safe;     // I64 [N]
};
// A negative target would count from the end in gather: it becomes one that gather refuses.
Targets targets(Steps& s, const chipset_cross_entropy_args* a) {
  const Shape rows{a->target->shape[0]};
  Targets t{s.temporary(CHIPSET_DTYPE_BOOL, rows), s.temporary(CHIPSET_DTYPE_I64, rows)};
  s.pointwise(CHIPSET_POINTWISE_OP_EQ, t.ignored,
              {*a->target, static_cast<double>(a->ignore_index)}, CHIPSET_DTYPE_I64);
  const Tensor negative = s.temporary(CHIPSET_DTYPE_BOOL, rows);
  s.pointwise(CHIPSET_POINTWISE_OP_LT, negative, {*a->target, 0.0}, CHIPSET_DTYPE_I64);
  s.pointwise(CHIPSET_POINTWISE_OP_WHERE, t.safe,
              {negative, static_cast<double>(a->logits->shape[1]), *a->target}, CHIPSET_DTYPE_I64);
  s.pointwise(CHIPSET_POINTWISE_OP_WHERE, t.safe, {t.ignored, 0.0, t.safe}, CHIPSET_DTYPE_I64);
  return t;
}

// The column that each row's target names, as a view of [N] and the column's stride.
Tensor first_column(const Tensor& matrix) {
  Tensor out = matrix;
  out.rank = 1;
  return out;
}

}  // namespace

chipset_status composed(Tag<Fn::cross_entropy>, Plugin& plugin, chipset_stream stream,
                        const chipset_cross_entropy_args* a) {
  const Tensor& logits = *a->logits;
  const std::int64_t rows = logits.shape[0];
  if (rows == 0) return CHIPSET_STATUS_OK;
  Steps s(plugin, stream);
  const std::int32_t w = wide(logits.dtype);
  const Targets t = targets(s, a);
  const Tensor largest = s.temporary(w, {rows, 1});
  const Tensor sum = s.temporary(w, {rows, 1});
  const Tensor e = s.temporary(w, shape_of(logits));
  s.reduce(CHIPSET_REDUCE_OP_MAX, largest, logits, {1}, w);
  s.pointwise(CHIPSET_POINTWISE_OP_SUB, e, {logits, largest}, w, {1});
  s.pointwise(CHIPSET_POINTWISE_OP_EXP, e, {e}, w);
  s.reduce(CHIPSET_REDUCE_OP_SUM, sum, e, {1}, w);
  s.pointwise(CHIPSET_POINTWISE_OP_LOG, sum, {sum}, w);
  s.pointwise(CHIPSET_POINTWISE_OP_ADD, sum, {sum, largest}, w, {1});
  const Tensor lse = reshape(sum, {rows});

  const Tensor picked = s.temporary(logits.dtype, {rows});
  const Tensor column = first_column(logits);
  chipset_gather_args gather{};
  gather.struct_size = sizeof gather;
  gather.num_indices = 1;
  gather.output = &picked;
  gather.input = &column;
  gather.index[0] = &t.safe;
  gather.indexed_size[0] = logits.shape[1];
  gather.indexed_stride[0] = logits.stride[1];
  s.gather(gather);

  const Tensor loss = s.temporary(w, {rows});
  s.pointwise(CHIPSET_POINTWISE_OP_SUB, loss, {lse, picked}, w, {1});
  if (a->label_smoothing != 0) {
    const Tensor uniform = s.temporary(w, {rows, 1});
    s.reduce(CHIPSET_REDUCE_OP_MEAN, uniform, logits, {1}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, uniform, {sum, uniform}, w, {1});
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, loss, {loss, 1 - a->label_smoothing}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_ADD, loss, {loss, reshape(uniform, {rows})}, w,
                {a->label_smoothing});
  }
  if (a->lse != nullptr) s.copy(*a->lse, lse);
  s.pointwise(CHIPSET_POINTWISE_OP_WHERE, *a->loss, {t.ignored, 0.0, loss}, w);
  return s.status();
}

chipset_status composed(Tag<Fn::cross_entropy_backward>, Plugin& plugin, chipset_stream stream,
                        const chipset_cross_entropy_args* a) {
  const Tensor& logits = *a->logits;
  const std::int64_t rows = logits.shape[0];
  if (empty(logits)) return CHIPSET_STATUS_OK;
  Steps s(plugin, stream);
  const std::int32_t w = wide(logits.dtype);
  const Targets t = targets(s, a);
  const Tensor dloss = s.temporary(w, {rows});
  const Tensor p = s.temporary(w, shape_of(logits));
  const Tensor at_target = s.temporary(w, {rows});
  s.pointwise(CHIPSET_POINTWISE_OP_WHERE, dloss, {t.ignored, 0.0, *a->dloss}, w);
  s.pointwise(CHIPSET_POINTWISE_OP_SUB, p, {logits, unsqueeze(*a->lse, 1)}, w, {1});
  s.pointwise(CHIPSET_POINTWISE_OP_EXP, p, {p}, w);
  if (a->label_smoothing != 0) {
    const double each = a->label_smoothing / static_cast<double>(logits.shape[1]);
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, p, {p, each}, w, {1});
  }
  s.pointwise(CHIPSET_POINTWISE_OP_MUL, p, {p, unsqueeze(dloss, 1)}, w);
  s.pointwise(CHIPSET_POINTWISE_OP_MUL, at_target, {dloss, a->label_smoothing - 1}, w);
  const Tensor column = first_column(p);
  chipset_scatter_args scatter{};
  scatter.struct_size = sizeof scatter;
  scatter.op = CHIPSET_SCATTER_OP_ADD;
  scatter.num_indices = 1;
  scatter.destination = &column;
  scatter.source = &at_target;
  scatter.index[0] = &t.safe;
  scatter.indexed_size[0] = p.shape[1];
  scatter.indexed_stride[0] = p.stride[1];
  s.scatter(scatter);
  s.copy(*a->dlogits, p);
  return s.status();
}

chipset_status composed(Tag<Fn::adamw>, Plugin& plugin, chipset_stream stream,
                        const chipset_adamw_args* a) {
  Steps s(plugin, stream);
  if (a->grad_scale != nullptr || a->found_inf != nullptr)
    return s.unsupported("adamw with grad_scale or found_inf");
  // Temporaries for the largest tensor serve all, so that a lack of memory shows before anything is
  // updated.
  std::int64_t most = 0;
  std::int32_t widest = CHIPSET_DTYPE_F32;
  for (std::uint32_t i = 0; i < a->num_tensors; ++i) {
    most = std::max(most, element_count(a->param[i]));
    if (wide(a->param[i].dtype) == CHIPSET_DTYPE_F64) widest = CHIPSET_DTYPE_F64;
  }
  if (most == 0) return CHIPSET_STATUS_OK;
  const bool amsgrad = a->max_exp_avg_sq != nullptr;
  Tensor scratch[6];
  for (Tensor& t : scratch) t = s.temporary(widest, {&t == &scratch[5] && !amsgrad ? 0 : most});
  const Tensor scalars[2] = {s.temporary(widest, {}), s.temporary(widest, {})};
  for (std::uint32_t i = 0; i < a->num_tensors; ++i) {
    const Tensor& param = a->param[i];
    if (empty(param)) continue;
    const std::int32_t w = wide(param.dtype);
    const auto view = [&](const Tensor& t, const Shape& shape) {
      Tensor out = reshape(t, shape);
      out.dtype = w;
      return out;
    };
    const Shape shape = shape_of(param);
    const Tensor p = view(scratch[0], shape);
    const Tensor g = view(scratch[1], shape);
    const Tensor m = view(scratch[2], shape);
    const Tensor v = view(scratch[3], shape);
    const Tensor t = view(scratch[4], shape);
    const Tensor rate = view(scalars[0], {});
    const Tensor correction = view(scalars[1], {});
    s.copy(p, param);
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, g, {a->grad[i], a->maximize != 0 ? -1.0 : 1.0}, w);
    if (a->lr_tensor != nullptr)
      s.copy(rate, scalar_at(a->lr_tensor, CHIPSET_DTYPE_F32));
    else
      s.pointwise(CHIPSET_POINTWISE_OP_FILL, rate, {}, w, {a->lr});
    if (a->weight_decay != 0) {
      if (a->decoupled != 0) {
        s.pointwise(CHIPSET_POINTWISE_OP_MUL, t, {p, rate}, w);
        s.pointwise(CHIPSET_POINTWISE_OP_SUB, p, {p, t}, w, {a->weight_decay});
      } else {
        s.pointwise(CHIPSET_POINTWISE_OP_ADD, g, {g, p}, w, {a->weight_decay});
      }
    }
    s.pointwise(CHIPSET_POINTWISE_OP_LERP, m, {a->exp_avg[i], g, 1 - a->beta1}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, v, {a->exp_avg_sq[i], a->beta2}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_ADDCMUL, v, {v, g, g}, w, {1 - a->beta2});
    Tensor second = v;
    if (amsgrad) {
      second = view(scratch[5], shape);
      s.pointwise(CHIPSET_POINTWISE_OP_MAXIMUM, second, {a->max_exp_avg_sq[i], v}, w);
    }
    // denominator = sqrt(second) / sqrt(1 - beta2^step) + eps
    s.pointwise(CHIPSET_POINTWISE_OP_POW, correction, {a->beta2, a->step[i]}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, correction, {1.0, correction}, w, {1});
    s.pointwise(CHIPSET_POINTWISE_OP_SQRT, correction, {correction}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_SQRT, t, {second}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_DIV, t, {t, correction}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_ADD, t, {t, a->eps}, w, {1});
    s.pointwise(CHIPSET_POINTWISE_OP_DIV, t, {m, t}, w);
    // p -= lr / (1 - beta1^step) * m / denominator
    s.pointwise(CHIPSET_POINTWISE_OP_POW, correction, {a->beta1, a->step[i]}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, correction, {1.0, correction}, w, {1});
    s.pointwise(CHIPSET_POINTWISE_OP_DIV, rate, {rate, correction}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_MUL, t, {t, rate}, w);
    s.pointwise(CHIPSET_POINTWISE_OP_SUB, p, {p, t}, w, {1});
    s.copy(param, p);
    s.copy(a->exp_avg[i], m);
    s.copy(a->exp_avg_sq[i], v);
    if (amsgrad) s.copy(a->max_exp_avg_sq[i], second);
    // Another attempt by the caller would update the earlier tensors twice.
    if (s.status() == CHIPSET_STATUS_UNSUPPORTED && i > 0)
      return set_error(plugin.spec.name, CHIPSET_STATUS_INTERNAL,
                       "adamw was composed for " + std::to_string(i) + " of " +
                           std::to_string(a->num_tensors) + " tensors, then: " + take_error() +
                           "; update tensors of that dtype in a call of their own");
  }
  return s.status();
}

}  // namespace chipset::runtime
