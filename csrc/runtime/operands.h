// SPDX-License-Identifier: Apache-2.0
// Which memory a call reads and writes: what the checked layer and the trace know of functions.
#pragma once

#include <vector>

#include "interpose.h"

namespace chipset::runtime {

enum class Access : std::uint8_t { read, write, update };

struct Operand {
  const char* name;
  const chipset_tensor* tensor;  // NULL for plain bytes
  const void* data;
  std::uint64_t bytes;  // of plain bytes
  Access access;
  bool host = false;       // host memory
  bool elsewhere = false;  // memory of another device of the plugin
};
using Operands = std::vector<Operand>;

// Bytes of `count` elements.
std::uint64_t dtype_bits(std::int32_t dtype);
std::int64_t element_count(const chipset_tensor& t);
bool empty(const chipset_tensor& t);

namespace detail {

struct List {
  Operands& out;
  void tensor(const char* name, const chipset_tensor* t, Access access) {
    if (t != nullptr) out.push_back({name, t, t->data, 0, access});
  }
  void read(const char* name, const chipset_tensor* t) { tensor(name, t, Access::read); }
  void write(const char* name, const chipset_tensor* t) { tensor(name, t, Access::write); }
  void update(const char* name, const chipset_tensor* t) { tensor(name, t, Access::update); }
  void bytes(const char* name, const void* p, std::uint64_t n, Access access, bool host = false,
             bool elsewhere = false) {
    if (n != 0) out.push_back({name, nullptr, p, n, access, host, elsewhere});
  }
  void optional(const char* name, const void* p, std::uint64_t n, Access access) {
    if (p != nullptr) bytes(name, p, n, access);
  }
};

}  // namespace detail

// Functions without an overload touch no memory of their arguments.
template <Fn F, class... A>
void operands(Tag<F>, detail::List, A...) {}

inline void operands(Tag<Fn::mem_copy>, detail::List l, chipset_stream, void* destination,
                     const void* source, std::uint64_t bytes, std::int32_t kind) {
  l.bytes("source", source, bytes, Access::read, kind == CHIPSET_COPY_KIND_HOST_TO_DEVICE);
  l.bytes("destination", destination, bytes, Access::write,
          kind == CHIPSET_COPY_KIND_DEVICE_TO_HOST);
}
inline void operands(Tag<Fn::mem_copy_peer>, detail::List l, chipset_stream, void* destination,
                     const void* source, std::int32_t, std::uint64_t bytes) {
  l.bytes("source", source, bytes, Access::read, false, true);
  l.bytes("destination", destination, bytes, Access::write);
}
inline void operands(Tag<Fn::mem_fill>, detail::List l, chipset_stream, void* destination,
                     std::int32_t, std::uint64_t bytes) {
  l.bytes("destination", destination, bytes, Access::write);
}
inline void operands(Tag<Fn::pointwise>, detail::List l, chipset_stream,
                     const chipset_pointwise_args* a) {
  for (int k = 0; k < a->num_inputs && k < CHIPSET_MAX_INPUTS; ++k) l.read("input", a->input[k]);
  l.write("output", a->output);
}
inline void operands(Tag<Fn::reduce>, detail::List l, chipset_stream,
                     const chipset_reduce_args* a) {
  l.read("input", a->input);
  l.write("output", a->output);
  l.write("indices", a->indices);
}
inline void operands(Tag<Fn::gemm>, detail::List l, chipset_stream, const chipset_gemm_args* a) {
  l.read("a", a->a);
  l.read("b", a->b);
  if (a->beta != 0) l.read("c", a->c);
  l.read("bias", a->bias);
  l.write("d", a->d);
}
// Bytes from the view's first element to the last that any index can name.
std::uint64_t indexed_extent(const chipset_tensor& view, std::int32_t count,
                             const std::int64_t* sizes, const std::int64_t* strides);

inline void operands(Tag<Fn::gather>, detail::List l, chipset_stream,
                     const chipset_gather_args* a) {
  for (int k = 0; k < a->num_indices && k < CHIPSET_MAX_INDICES; ++k) l.read("index", a->index[k]);
  if (a->input != nullptr)
    l.bytes("input", a->input->data,
            indexed_extent(*a->input, a->num_indices, a->indexed_size, a->indexed_stride),
            Access::read);
  l.write("output", a->output);
}
inline void operands(Tag<Fn::scatter>, detail::List l, chipset_stream,
                     const chipset_scatter_args* a) {
  for (int k = 0; k < a->num_indices && k < CHIPSET_MAX_INDICES; ++k) l.read("index", a->index[k]);
  if (a->source != nullptr && a->source->data != nullptr) l.read("source", a->source);
  if (a->destination != nullptr)
    l.bytes("destination", a->destination->data,
            indexed_extent(*a->destination, a->num_indices, a->indexed_size, a->indexed_stride),
            Access::update);
}
inline void operands(Tag<Fn::attention>, detail::List l, chipset_stream,
                     const chipset_attention_args* a) {
  l.read("q", a->q);
  l.read("k", a->k);
  l.read("v", a->v);
  l.read("mask", a->mask);
  l.read("startend_row_indices", a->startend_row_indices);
  l.write("out", a->out);
  l.write("lse", a->lse);
}
inline void operands(Tag<Fn::attention_backward>, detail::List l, chipset_stream,
                     const chipset_attention_args* a) {
  l.read("q", a->q);
  l.read("k", a->k);
  l.read("v", a->v);
  l.read("mask", a->mask);
  l.read("startend_row_indices", a->startend_row_indices);
  l.read("out", a->out);
  l.read("lse", a->lse);
  l.read("dout", a->dout);
  l.write("dq", a->dq);
  l.write("dk", a->dk);
  l.write("dv", a->dv);
}
inline void operands(Tag<Fn::softmax>, detail::List l, chipset_stream,
                     const chipset_softmax_args* a) {
  l.read("input", a->input);
  l.write("output", a->output);
}
inline void operands(Tag<Fn::softmax_backward>, detail::List l, chipset_stream,
                     const chipset_softmax_args* a) {
  l.read("input", a->input);
  l.read("result", a->result);
  l.write("output", a->output);
}
inline void operands(Tag<Fn::norm>, detail::List l, chipset_stream, const chipset_norm_args* a) {
  l.read("x", a->x);
  l.read("weight", a->weight);
  l.read("bias", a->bias);
  l.write("y", a->y);
  l.write("mean", a->mean);
  l.write("rstd", a->rstd);
}
inline void operands(Tag<Fn::norm_backward>, detail::List l, chipset_stream,
                     const chipset_norm_args* a) {
  l.read("x", a->x);
  l.read("weight", a->weight);
  l.read("mean", a->mean);
  l.read("rstd", a->rstd);
  l.read("dy", a->dy);
  l.write("dx", a->dx);
  l.write("dweight", a->dweight);
  l.write("dbias", a->dbias);
}
inline void operands(Tag<Fn::rotary>, detail::List l, chipset_stream,
                     const chipset_rotary_args* a) {
  l.read("x", a->x);
  l.read("cos", a->cos);
  l.read("sin", a->sin);
  l.write("y", a->y);
}
inline void operands(Tag<Fn::cross_entropy>, detail::List l, chipset_stream,
                     const chipset_cross_entropy_args* a) {
  l.read("logits", a->logits);
  l.read("target", a->target);
  l.write("loss", a->loss);
  l.write("lse", a->lse);
}
inline void operands(Tag<Fn::cross_entropy_backward>, detail::List l, chipset_stream,
                     const chipset_cross_entropy_args* a) {
  l.read("logits", a->logits);
  l.read("target", a->target);
  l.read("lse", a->lse);
  l.read("dloss", a->dloss);
  l.write("dlogits", a->dlogits);
}
inline void operands(Tag<Fn::adamw>, detail::List l, chipset_stream, const chipset_adamw_args* a) {
  for (std::uint32_t i = 0; i < a->num_tensors; ++i) {
    l.update("param", &a->param[i]);
    l.read("grad", &a->grad[i]);
    l.update("exp_avg", &a->exp_avg[i]);
    l.update("exp_avg_sq", &a->exp_avg_sq[i]);
    if (a->max_exp_avg_sq != nullptr) l.update("max_exp_avg_sq", &a->max_exp_avg_sq[i]);
    l.read("step", &a->step[i]);
  }
  l.optional("lr_tensor", a->lr_tensor, 4, Access::read);
  l.optional("grad_scale", a->grad_scale, 4, Access::read);
  l.optional("found_inf", a->found_inf, 4, Access::read);
}
inline void operands(Tag<Fn::quantize>, detail::List l, chipset_stream,
                     const chipset_quantize_args* a) {
  const Access given = a->given_scale ? Access::read : Access::write;
  l.read("x", a->x);
  l.write("q", a->q);
  l.tensor("scale", a->scale, given);
  l.tensor("zero_point", a->zero_point, given);
}
inline void operands(Tag<Fn::dequantize>, detail::List l, chipset_stream,
                     const chipset_quantize_args* a) {
  l.read("q", a->q);
  l.read("scale", a->scale);
  l.read("zero_point", a->zero_point);
  l.write("x", a->x);
}
inline void operands(Tag<Fn::gemm_quantized>, detail::List l, chipset_stream,
                     const chipset_gemm_quantized_args* a) {
  l.read("x", a->x);
  l.read("x_scale", a->x_scale);
  l.read("w", a->w);
  l.read("w_scale", a->w_scale);
  l.read("w_zero_point", a->w_zero_point);
  l.read("bias", a->bias);
  l.write("d", a->d);
}
inline void operands(Tag<Fn::attention_paged>, detail::List l, chipset_stream,
                     const chipset_attention_paged_args* a) {
  l.read("q", a->q);
  l.read("k_cache", a->k_cache);
  l.read("v_cache", a->v_cache);
  l.read("block_table", a->block_table);
  l.read("query_start", a->query_start);
  l.read("kv_len", a->kv_len);
  l.write("out", a->out);
}
inline void operands(Tag<Fn::scan>, detail::List l, chipset_stream, const chipset_scan_args* a) {
  l.read("input", a->input);
  l.write("output", a->output);
  l.write("indices", a->indices);
}
inline void operands(Tag<Fn::sort>, detail::List l, chipset_stream, const chipset_sort_args* a) {
  l.read("input", a->input);
  l.write("values", a->values);
  l.write("indices", a->indices);
}
inline void operands(Tag<Fn::random>, detail::List l, chipset_stream,
                     const chipset_random_args* a) {
  l.read("p", a->p);
  l.optional("seed_offset", a->seed_offset, 16, Access::read);
  l.write("output", a->output);
}
inline void operands(Tag<Fn::graph_run>, detail::List l, chipset_stream, chipset_graph,
                     std::uint32_t inputs, const chipset_tensor* input, std::uint32_t outputs,
                     const chipset_tensor* output) {
  for (std::uint32_t i = 0; i < inputs; ++i) l.read("input", &input[i]);
  for (std::uint32_t i = 0; i < outputs; ++i) l.write("output", &output[i]);
}
inline std::uint64_t plain_bytes(std::uint64_t count, std::int32_t dtype) {
  return (count * dtype_bits(dtype) + 7) / 8;
}
inline void operands(Tag<Fn::all_reduce>, detail::List l, chipset_stream, chipset_comm,
                     const void* send, void* receive, std::uint64_t count, std::int32_t dtype,
                     std::int32_t) {
  l.bytes("send", send, plain_bytes(count, dtype), Access::read);
  l.bytes("receive", receive, plain_bytes(count, dtype), Access::write);
}
inline void operands(Tag<Fn::all_gather>, detail::List l, chipset_stream, chipset_comm,
                     const void* send, void*, std::uint64_t count, std::int32_t dtype) {
  l.bytes("send", send, plain_bytes(count, dtype), Access::read);
}
inline void operands(Tag<Fn::reduce_scatter>, detail::List l, chipset_stream, chipset_comm,
                     const void*, void* receive, std::uint64_t count, std::int32_t dtype,
                     std::int32_t) {
  l.bytes("receive", receive, plain_bytes(count, dtype), Access::write);
}
inline void operands(Tag<Fn::broadcast>, detail::List l, chipset_stream, chipset_comm, void* buffer,
                     std::uint64_t count, std::int32_t dtype, std::int32_t) {
  l.bytes("buffer", buffer, plain_bytes(count, dtype), Access::update);
}
inline void operands(Tag<Fn::send>, detail::List l, chipset_stream, chipset_comm,
                     const void* buffer, std::uint64_t count, std::int32_t dtype, std::int32_t) {
  l.bytes("buffer", buffer, plain_bytes(count, dtype), Access::read);
}
inline void operands(Tag<Fn::recv>, detail::List l, chipset_stream, chipset_comm, void* buffer,
                     std::uint64_t count, std::int32_t dtype, std::int32_t) {
  l.bytes("buffer", buffer, plain_bytes(count, dtype), Access::write);
}

// The overloads' argument struct must not be NULL: the checked layer looks at that first.
template <Fn F, class... A>
Operands operands_of(A... arguments) {
  Operands out;
  operands(Tag<F>(), detail::List{out}, arguments...);
  return out;
}

}  // namespace chipset::runtime
