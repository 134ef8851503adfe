// SPDX-License-Identifier: Apache-2.0
// What looks at calls as they pass: the checked layer, the trace, the recording.
#pragma once

#include "check.h"

namespace chipset::runtime {

struct Watch {
  bool check;
  bool trace;
  bool record;
  bool any() const { return check || trace || record; }
};
// From CHIPSET_CHECK, CHIPSET_TRACE and CHIPSET_RECORD, read once.
const Watch& watch();

// ---- trace (trace.cpp) ------------------------------------------------------------------------
// A finished call; `operands` give its bytes.
void trace_call(const Plugin& plugin, Fn function, double start, double end, chipset_stream stream,
                const Operands& operands, double flops, chipset_status status);

// ---- flops: floating-point operations of a call, 0 where the word means nothing -----
template <Fn F, class... A>
double flops(Tag<F>, A...) {
  return 0;
}
inline double matrix_flops(const chipset_tensor* d, const chipset_tensor* a) {
  if (d == nullptr || a == nullptr || a->rank < 1) return 0;
  return 2.0 * static_cast<double>(element_count(*d)) * static_cast<double>(a->shape[a->rank - 1]);
}
inline double flops(Tag<Fn::gemm>, chipset_stream, const chipset_gemm_args* a) {
  return matrix_flops(a->d, a->a);
}
inline double flops(Tag<Fn::gemm_quantized>, chipset_stream, const chipset_gemm_quantized_args* a) {
  return matrix_flops(a->d, a->x);
}
inline double flops(Tag<Fn::pointwise>, chipset_stream, const chipset_pointwise_args* a) {
  const bool computes = a->op > CHIPSET_POINTWISE_OP_ARANGE;
  return computes && a->output != nullptr ? static_cast<double>(element_count(*a->output)) : 0;
}
inline double flops(Tag<Fn::reduce>, chipset_stream, const chipset_reduce_args* a) {
  return a->input == nullptr ? 0 : static_cast<double>(element_count(*a->input));
}
// Two products of Sq*Sk*D; half of it where a square causal mask hides half of the scores.
inline double attention_flops(const chipset_attention_args* a, double products) {
  if (a->q == nullptr || a->k == nullptr || a->q->rank != 4 || a->k->rank != 4) return 0;
  const double scores =
      static_cast<double>(element_count(*a->q)) * static_cast<double>(a->k->shape[2]);
  const bool causal = (a->flags & 1) != 0 && a->q->shape[2] == a->k->shape[2];
  return 2.0 * products * scores * (causal ? 0.5 : 1.0);
}
inline double flops(Tag<Fn::attention>, chipset_stream, const chipset_attention_args* a) {
  return attention_flops(a, 2);
}
inline double flops(Tag<Fn::attention_backward>, chipset_stream, const chipset_attention_args* a) {
  return attention_flops(a, 5);
}

// ---- record (record.cpp) ----------------------------------------------------------------------
bool recording();
void flush_record();

// One call, as it is written to the file.
class CallRecord {
 public:
  explicit CallRecord(const Plugin& plugin, Fn function);

  void scalar(std::uint64_t value);
  void handle(const void* value);
  void made(const void* value);  // a handle or pointer that the call returned
  void payload(const void* data, std::uint64_t bytes);
  void structure(const void* data, std::uint64_t bytes);
  void tensor(std::uint64_t offset, const chipset_tensor* first, std::uint64_t count);
  void finish(chipset_status status);

 private:
  std::string bytes_;
};

}  // namespace chipset::runtime
