// SPDX-License-Identifier: Apache-2.0
// Rules about the values of a call's arguments: SHP-001, SHP-002, SHP-003.
#include <algorithm>
#include <sstream>

#include "check.h"

namespace chipset::runtime {
namespace {

constexpr const char* kDtypes[] = {
    "bool", "u8",     "i8",     "i16", "i32",     "i64",      "f16",      "bf16",     "f32",
    "f64",  "f8e4m3", "f8e5m2", "i4",  "opaque8", "opaque16", "opaque32", "opaque64", "opaque128"};
constexpr int kDtypeCount = static_cast<int>(std::size(kDtypes));

// The first fault wins; later checks may rely on earlier ones.
class Faults {
 public:
  template <class... T>
  bool need(bool holds, const T&... parts) {
    if (holds || !fault_.empty()) return fault_.empty();
    std::ostringstream out;
    out << "SHP-003: ";
    (out << ... << parts);
    fault_ = out.str();
    return false;
  }
  bool present(const char* name, const chipset_tensor* t) {
    return need(t != nullptr, "'", name, "' is missing (NULL)");
  }
  bool rank(const char* name, const chipset_tensor* t, int least, int most) {
    return need(t == nullptr || (t->rank >= least && t->rank <= most), "'", name, "' ",
                t == nullptr ? "" : text_of(*t), " must have rank ", least,
                least == most ? "" : " to " + std::to_string(most));
  }
  bool dtype(const char* name, const chipset_tensor* t, std::int32_t wanted) {
    return need(t == nullptr || t->dtype == wanted, "'", name, "' ",
                t == nullptr ? "" : text_of(*t), " must be ", kDtypes[wanted]);
  }
  bool same_shape(const char* a_name, const chipset_tensor* a, const char* b_name,
                  const chipset_tensor* b) {
    if (a == nullptr || b == nullptr || !fault_.empty()) return fault_.empty();
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; ++d) same = a->shape[d] == b->shape[d];
    return need(same, "'", a_name, "' ", text_of(*a), " and '", b_name, "' ", text_of(*b),
                " must have one shape");
  }
  bool size(const char* name, const chipset_tensor* t, int dim, std::int64_t wanted) {
    return need(t == nullptr || t->shape[dim] == wanted, "'", name, "' ",
                t == nullptr ? "" : text_of(*t), " must have ", wanted, " elements in dimension ",
                dim);
  }
  const std::string& text() const { return fault_; }

 private:
  std::string fault_;
};

bool is_float(std::int32_t dtype) {
  return dtype >= CHIPSET_DTYPE_F16 && dtype <= CHIPSET_DTYPE_F64;
}

}  // namespace

std::string text_of(const chipset_tensor& t) {
  std::ostringstream out;
  if (t.dtype >= 0 && t.dtype < kDtypeCount)
    out << kDtypes[t.dtype];
  else
    out << "dtype " << t.dtype;
  out << "[";
  for (int d = 0; d < t.rank && d < CHIPSET_MAX_RANK; ++d) out << (d ? ", " : "") << t.shape[d];
  out << "]";
  return out.str();
}

std::string tensor_fault(const char* name, const chipset_tensor& t, bool written) {
  std::ostringstream out;
  out << "'" << name << "' ";
  if (t.struct_size != sizeof(chipset_tensor)) {
    out << "has struct_size " << t.struct_size << ", sizeof(chipset_tensor) is "
        << sizeof(chipset_tensor);
    return "VER-002: " + out.str();
  }
  if (t.dtype < 0 || t.dtype >= kDtypeCount) {
    out << "has dtype " << t.dtype << ", which is no chipset_dtype";
    return "SHP-003: " + out.str();
  }
  if (t.rank < 0 || t.rank > CHIPSET_MAX_RANK) {
    out << "has rank " << t.rank << "; 0 to " << CHIPSET_MAX_RANK << " are legal";
    return "SHP-001: " + out.str();
  }
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] < 0 || t.stride[d] < 0) {
      out << text_of(t) << " has a negative size or stride in dimension " << d << " (stride "
          << t.stride[d] << ")";
      return "SHP-001: " + out.str();
    }
  }
  if (empty(t)) return "";
  if (written) {
    for (int d = 0; d < t.rank; ++d)
      if (t.shape[d] > 1 && t.stride[d] == 0) {
        out << text_of(t) << " is written, but dimension " << d << " has stride 0";
        return "SHP-002: " + out.str();
      }
  }
  if (t.data == nullptr) {
    out << text_of(t) << " has elements, but its data is NULL";
    return "MEM-004: " + out.str();
  }
  const std::uint64_t size = std::max<std::uint64_t>(dtype_bits(t.dtype) / 8, 1);
  if (reinterpret_cast<std::uintptr_t>(t.data) % std::min<std::uint64_t>(size, 8) != 0) {
    out << text_of(t) << " at " << t.data << " is not aligned to its element size " << size;
    return "MEM-004: " + out.str();
  }
  return "";
}

std::string shape_fault(Tag<Fn::pointwise>, chipset_stream, const chipset_pointwise_args* a) {
  Faults f;
  f.present("output", a->output);
  f.need(a->op >= 0 && a->op <= CHIPSET_POINTWISE_OP_I0, "op ", a->op,
         " is no chipset_pointwise_op");
  f.need(a->num_inputs >= 0 && a->num_inputs <= CHIPSET_MAX_INPUTS, "num_inputs is ", a->num_inputs,
         "; 0 to ", CHIPSET_MAX_INPUTS, " are legal");
  if (!f.text().empty()) return f.text();
  for (int k = 0; k < a->num_inputs; ++k) f.same_shape("input", a->input[k], "output", a->output);
  return f.text();
}

std::string shape_fault(Tag<Fn::reduce>, chipset_stream, const chipset_reduce_args* a) {
  Faults f;
  f.present("input", a->input);
  f.present("output", a->output);
  f.need(a->op >= 0 && a->op <= CHIPSET_REDUCE_OP_NANSUM, "op ", a->op, " is no chipset_reduce_op");
  if (!f.text().empty()) return f.text();
  const int rank = a->input->rank;
  f.need(a->output->rank == rank, "'output' ", text_of(*a->output),
         " must have the rank of 'input' ", text_of(*a->input));
  f.need(a->dims >> rank == 0, "dims names dimensions beyond rank ", rank);
  if (!f.text().empty()) return f.text();
  for (int d = 0; d < rank; ++d)
    f.size("output", a->output, d, (a->dims >> d & 1) != 0 ? 1 : a->input->shape[d]);
  if (a->op == CHIPSET_REDUCE_OP_ARGMAX || a->op == CHIPSET_REDUCE_OP_ARGMIN)
    f.dtype("output", a->output, CHIPSET_DTYPE_I64);
  f.same_shape("indices", a->indices, "output", a->output);
  return f.text();
}

std::string shape_fault(Tag<Fn::gemm>, chipset_stream, const chipset_gemm_args* a) {
  Faults f;
  f.present("a", a->a);
  f.present("b", a->b);
  f.present("d", a->d);
  if (!f.text().empty()) return f.text();
  f.rank("d", a->d, 2, 3);
  const int rank = a->d->rank;
  f.rank("a", a->a, rank, rank);
  f.rank("b", a->b, rank, rank);
  f.rank("c", a->c, rank, rank);
  f.rank("bias", a->bias, 1, 1);
  if (!f.text().empty()) return f.text();
  const int row = rank - 2;
  const int column = rank - 1;
  f.need(a->a->shape[column] == a->b->shape[row], "'a' ", text_of(*a->a), " and 'b' ",
         text_of(*a->b), " disagree about K");
  f.size("d", a->d, row, a->a->shape[row]);
  f.size("d", a->d, column, a->b->shape[column]);
  f.same_shape("c", a->c, "d", a->d);
  f.size("bias", a->bias, 0, a->d->shape[column]);
  if (rank == 3) {
    f.size("a", a->a, 0, a->d->shape[0]);
    f.size("b", a->b, 0, a->d->shape[0]);
  }
  f.need(a->a->dtype == a->b->dtype, "'a' ", text_of(*a->a), " and 'b' ", text_of(*a->b),
         " must have one dtype");
  return f.text();
}

std::string shape_fault(Tag<Fn::gather>, chipset_stream, const chipset_gather_args* a) {
  Faults f;
  f.present("output", a->output);
  f.present("input", a->input);
  f.need(a->num_indices >= 1 && a->num_indices <= CHIPSET_MAX_INDICES, "num_indices is ",
         a->num_indices, "; 1 to ", CHIPSET_MAX_INDICES, " are legal");
  if (!f.text().empty()) return f.text();
  f.same_shape("input", a->input, "output", a->output);
  f.dtype("input", a->input, a->output->dtype);
  for (int k = 0; k < a->num_indices; ++k) {
    if (!f.present("index", a->index[k])) break;
    f.same_shape("index", a->index[k], "output", a->output);
    f.need(a->index[k]->dtype == CHIPSET_DTYPE_I64 || a->index[k]->dtype == CHIPSET_DTYPE_I32,
           "'index' ", text_of(*a->index[k]), " must be i64 or i32");
  }
  return f.text();
}

std::string shape_fault(Tag<Fn::scatter>, chipset_stream, const chipset_scatter_args* a) {
  Faults f;
  f.present("destination", a->destination);
  f.present("source", a->source);
  f.need(a->num_indices >= 1 && a->num_indices <= CHIPSET_MAX_INDICES, "num_indices is ",
         a->num_indices, "; 1 to ", CHIPSET_MAX_INDICES, " are legal");
  f.need(a->op >= 0 && a->op <= CHIPSET_SCATTER_OP_MAX, "op ", a->op, " is no chipset_scatter_op");
  if (!f.text().empty()) return f.text();
  f.same_shape("destination", a->destination, "source", a->source);
  for (int k = 0; k < a->num_indices; ++k) {
    if (!f.present("index", a->index[k])) break;
    f.same_shape("index", a->index[k], "source", a->source);
  }
  return f.text();
}

namespace {

void attention_shapes(Faults& f, const chipset_attention_args* a) {
  f.present("q", a->q);
  f.present("k", a->k);
  f.present("v", a->v);
  f.present("out", a->out);
  for (const auto& [name, t] : {std::pair{"q", a->q}, {"k", a->k}, {"v", a->v}, {"out", a->out}})
    f.rank(name, t, 4, 4);
  if (!f.text().empty()) return;
  const auto* q = a->q;
  const auto* k = a->k;
  f.size("k", k, 0, q->shape[0]);
  f.size("k", k, 3, q->shape[3]);
  f.need(k->shape[1] > 0 && q->shape[1] % k->shape[1] == 0, "'q' ", text_of(*q),
         " must have a multiple of the heads of 'k' ", text_of(*k));
  f.size("v", a->v, 1, k->shape[1]);
  f.size("v", a->v, 2, k->shape[2]);
  f.size("out", a->out, 1, q->shape[1]);
  f.size("out", a->out, 2, q->shape[2]);
  f.size("out", a->out, 3, a->v->shape[3]);
  f.rank("mask", a->mask, 4, 4);
  f.rank("lse", a->lse, 3, 3);
  f.rank("startend_row_indices", a->startend_row_indices, 4, 4);
  f.dtype("startend_row_indices", a->startend_row_indices, CHIPSET_DTYPE_I32);
  f.size("startend_row_indices", a->startend_row_indices, 2, k->shape[2]);
}

}  // namespace

std::string shape_fault(Tag<Fn::attention>, chipset_stream, const chipset_attention_args* a) {
  Faults f;
  attention_shapes(f, a);
  return f.text();
}

std::string shape_fault(Tag<Fn::attention_backward>, chipset_stream,
                        const chipset_attention_args* a) {
  Faults f;
  attention_shapes(f, a);
  f.present("lse", a->lse);
  f.present("dout", a->dout);
  f.same_shape("dout", a->dout, "out", a->out);
  f.same_shape("dq", a->dq, "q", a->q);
  f.same_shape("dk", a->dk, "k", a->k);
  f.same_shape("dv", a->dv, "v", a->v);
  return f.text();
}

namespace {

std::string softmax_shapes(const chipset_softmax_args* a, bool backward) {
  Faults f;
  f.present("input", a->input);
  f.present("output", a->output);
  if (backward) f.present("result", a->result);
  if (!f.text().empty()) return f.text();
  f.same_shape("input", a->input, "output", a->output);
  if (backward) f.same_shape("result", a->result, "output", a->output);
  f.need(a->dim >= 0 && (a->dim < a->input->rank || a->input->rank == 0), "dim ", a->dim,
         " is not a dimension of 'input' ", text_of(*a->input));
  f.need(is_float(a->output->dtype), "'output' ", text_of(*a->output), " must be a float");
  return f.text();
}

}  // namespace

std::string shape_fault(Tag<Fn::softmax>, chipset_stream, const chipset_softmax_args* a) {
  return softmax_shapes(a, false);
}
std::string shape_fault(Tag<Fn::softmax_backward>, chipset_stream, const chipset_softmax_args* a) {
  return softmax_shapes(a, true);
}

std::string shape_fault(Tag<Fn::norm>, chipset_stream, const chipset_norm_args* a) {
  Faults f;
  f.present("x", a->x);
  f.present("y", a->y);
  f.need(a->kind == 0 || a->kind == 1, "kind ", a->kind, " is neither 0 (RMS) nor 1 (layer)");
  f.rank("x", a->x, 2, 2);
  f.same_shape("x", a->x, "y", a->y);
  f.rank("weight", a->weight, 1, 1);
  if (!f.text().empty()) return f.text();
  f.size("weight", a->weight, 0, a->x->shape[1]);
  f.size("bias", a->bias, 0, a->x->shape[1]);
  f.size("rstd", a->rstd, 0, a->x->shape[0]);
  return f.text();
}

std::string shape_fault(Tag<Fn::rotary>, chipset_stream, const chipset_rotary_args* a) {
  Faults f;
  f.present("x", a->x);
  f.present("cos", a->cos);
  f.present("sin", a->sin);
  f.present("y", a->y);
  f.rank("x", a->x, 4, 4);
  f.rank("cos", a->cos, 3, 3);
  f.same_shape("x", a->x, "y", a->y);
  f.same_shape("cos", a->cos, "sin", a->sin);
  if (!f.text().empty()) return f.text();
  f.size("cos", a->cos, 1, a->x->shape[2]);
  f.need(a->cos->shape[2] <= a->x->shape[3] && a->cos->shape[2] % 2 == 0, "'cos' ",
         text_of(*a->cos), " must have an even number of columns, at most those of 'x' ",
         text_of(*a->x));
  return f.text();
}

std::string shape_fault(Tag<Fn::cross_entropy>, chipset_stream,
                        const chipset_cross_entropy_args* a) {
  Faults f;
  f.present("logits", a->logits);
  f.present("target", a->target);
  f.present("loss", a->loss);
  f.rank("logits", a->logits, 2, 2);
  f.rank("target", a->target, 1, 1);
  f.dtype("target", a->target, CHIPSET_DTYPE_I64);
  if (!f.text().empty()) return f.text();
  f.size("target", a->target, 0, a->logits->shape[0]);
  f.same_shape("loss", a->loss, "target", a->target);
  f.same_shape("lse", a->lse, "target", a->target);
  return f.text();
}

static std::string quantize_shapes(const chipset_quantize_args* a) {
  Faults f;
  f.present("x", a->x);
  f.present("q", a->q);
  f.present("scale", a->scale);
  f.rank("x", a->x, 2, 2);
  f.same_shape("x", a->x, "q", a->q);
  f.rank("scale", a->scale, 2, 2);
  f.need(a->group_size >= 0, "group_size is ", a->group_size);
  if (!f.text().empty()) return f.text();
  const std::int64_t columns = a->x->shape[1];
  const std::int64_t size = a->group_size == 0 ? std::max<std::int64_t>(columns, 1) : a->group_size;
  f.size("scale", a->scale, 0, a->x->shape[0]);
  f.size("scale", a->scale, 1, (columns + size - 1) / size);
  f.same_shape("zero_point", a->zero_point, "scale", a->scale);
  return f.text();
}
std::string shape_fault(Tag<Fn::quantize>, chipset_stream, const chipset_quantize_args* a) {
  return quantize_shapes(a);
}
std::string shape_fault(Tag<Fn::dequantize>, chipset_stream, const chipset_quantize_args* a) {
  return quantize_shapes(a);
}

std::string shape_fault(Tag<Fn::gemm_quantized>, chipset_stream,
                        const chipset_gemm_quantized_args* a) {
  Faults f;
  f.present("x", a->x);
  f.present("w", a->w);
  f.present("w_scale", a->w_scale);
  f.present("d", a->d);
  for (const auto& [name, t] :
       {std::pair{"x", a->x}, {"w", a->w}, {"w_scale", a->w_scale}, {"d", a->d}})
    f.rank(name, t, 2, 2);
  if (!f.text().empty()) return f.text();
  f.size("w", a->w, 1, a->x->shape[1]);
  f.size("d", a->d, 0, a->x->shape[0]);
  f.size("d", a->d, 1, a->w->shape[0]);
  f.size("w_scale", a->w_scale, 0, a->w->shape[0]);
  f.size("bias", a->bias, 0, a->w->shape[0]);
  return f.text();
}

}  // namespace chipset::runtime
