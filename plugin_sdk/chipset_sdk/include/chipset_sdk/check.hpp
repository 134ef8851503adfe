// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments that the core and the conformance suite may get wrong on purpose: each
// throws INVALID with the tensor's name, the value and what is needed (SHP-001 to SHP-003).
// table.hpp makes them before it calls the chip.
#pragma once

#include "held.hpp"

namespace chipset::sdk {

inline void check_tensor(const char* name, const chipset_tensor* tensor) {
  if (tensor == nullptr) fail(CHIPSET_STATUS_INVALID, "%s is missing", name);
  if (tensor->rank < 0 || tensor->rank > CHIPSET_MAX_RANK)
    fail(CHIPSET_STATUS_INVALID, "%s has rank %d; need 0 to 8 (SHP-001)", name, tensor->rank);
  if (tensor->dtype < 0 || tensor->dtype > CHIPSET_DTYPE_OPAQUE128)
    fail(CHIPSET_STATUS_INVALID, "%s has dtype %d, which does not exist", name, tensor->dtype);
  for (int d = 0; d < tensor->rank; ++d)
    if (tensor->shape[d] < 0 || tensor->stride[d] < 0)
      fail(CHIPSET_STATUS_INVALID, "%s has size %lld and stride %lld in dimension %d; need >= 0",
           name, static_cast<long long>(tensor->shape[d]),
           static_cast<long long>(tensor->stride[d]), d);
  if (tensor->data == nullptr && numel(*tensor) > 0)
    fail(CHIPSET_STATUS_INVALID, "%s has shape %s but no data", name, shape_text(*tensor).c_str());
}

inline void check_shape(const char* name, const chipset_tensor* tensor, const char* other_name,
                        const chipset_tensor& other) {
  check_tensor(name, tensor);
  if (!same_shape(*tensor, other))
    fail(CHIPSET_STATUS_INVALID, "%s has shape %s, but %s has %s (SHP-003)", name,
         shape_text(*tensor).c_str(), other_name, shape_text(other).c_str());
}

inline void check_output(const char* name, const chipset_tensor* tensor) {
  check_tensor(name, tensor);
  for (int d = 0; d < tensor->rank; ++d)
    if (tensor->shape[d] > 1 && tensor->stride[d] == 0)
      fail(CHIPSET_STATUS_INVALID, "%s repeats along dimension %d; an output cannot (SHP-002)",
           name, d);
}

// Every tensor that is there, by itself.
template <class Args>
void check_each_tensor(const Args& args) {
  const std::size_t each = detail::tensors_per_pointer(args);
  Args copy = args;
  detail::for_each_tensor_slot(copy, [&](const chipset_tensor* slot) {
    if (slot != nullptr)
      for (std::size_t i = 0; i < each; ++i) check_tensor("a tensor", slot + i);
  });
}

template <class Args>
void check_arguments(const Args&) {}  // what a fused function needs, its author checks

inline void check_arguments(const chipset_pointwise_args& args) {
  check_output("output", args.output);
  if (args.num_inputs < 0 || args.num_inputs > CHIPSET_MAX_INPUTS)
    fail(CHIPSET_STATUS_INVALID, "num_inputs is %d; need 0 to 4", args.num_inputs);
  for (int k = 0; k < args.num_inputs; ++k)
    if (args.input[k] != nullptr) check_shape("an input", args.input[k], "output", *args.output);
}

inline void check_arguments(const chipset_reduce_args& args) {
  check_tensor("input", args.input);
  check_output("output", args.output);
  const chipset_tensor& in = *args.input;
  bool right = in.rank == args.output->rank && args.dims >> in.rank == 0;
  for (int d = 0; right && d < in.rank; ++d)
    right = args.output->shape[d] == ((args.dims >> d) & 1 ? 1 : in.shape[d]);
  if (!right)
    fail(CHIPSET_STATUS_INVALID, "output has shape %s for input %s reduced over dims 0x%x",
         shape_text(*args.output).c_str(), shape_text(in).c_str(), args.dims);
  if (args.indices != nullptr) check_shape("indices", args.indices, "output", *args.output);
}

inline void check_arguments(const chipset_gemm_args& args) {
  check_tensor("a", args.a);
  check_tensor("b", args.b);
  check_output("d", args.d);
  const int rank = args.d->rank;
  bool right = (rank == 2 || rank == 3) && args.a->rank == rank && args.b->rank == rank;
  if (right) {
    const int64_t *a = args.a->shape + rank - 2, *b = args.b->shape + rank - 2;
    const int64_t* d = args.d->shape + rank - 2;
    right = a[0] == d[0] && b[1] == d[1] && a[1] == b[0];
    if (rank == 3) right = right && a[-1] == d[-1] && b[-1] == d[-1];
  }
  if (!right)
    fail(CHIPSET_STATUS_INVALID, "shapes do not multiply: a %s, b %s, d %s",
         shape_text(*args.a).c_str(), shape_text(*args.b).c_str(), shape_text(*args.d).c_str());
  if (args.c != nullptr) check_shape("c", args.c, "d", *args.d);
  if (args.bias != nullptr) {
    check_tensor("bias", args.bias);
    if (args.bias->rank != 1 || args.bias->shape[0] != args.d->shape[rank - 1])
      fail(CHIPSET_STATUS_INVALID, "bias has shape %s for d %s", shape_text(*args.bias).c_str(),
           shape_text(*args.d).c_str());
  }
}

namespace detail {
template <class Args>
void check_indices(const Args& args, const char* name, const chipset_tensor& shape) {
  if (args.num_indices < 1 || args.num_indices > CHIPSET_MAX_INDICES)
    fail(CHIPSET_STATUS_INVALID, "num_indices is %d; need 1 to 8", args.num_indices);
  for (int k = 0; k < args.num_indices; ++k) {
    check_shape("an index", args.index[k], name, shape);
    const int32_t dtype = args.index[k]->dtype;
    if (dtype != CHIPSET_DTYPE_I64 && dtype != CHIPSET_DTYPE_I32)
      fail(CHIPSET_STATUS_INVALID, "index %d is %s; need i64 or i32", k, dtype_name(dtype));
  }
}
}  // namespace detail

inline void check_arguments(const chipset_gather_args& args) {
  check_output("output", args.output);
  check_shape("input", args.input, "output", *args.output);
  if (args.input->dtype != args.output->dtype)
    fail(CHIPSET_STATUS_INVALID, "input is %s, but output is %s", dtype_name(args.input->dtype),
         dtype_name(args.output->dtype));
  detail::check_indices(args, "output", *args.output);
}

inline void check_arguments(const chipset_scatter_args& args) {
  if (args.source == nullptr) fail(CHIPSET_STATUS_INVALID, "source is missing");
  check_shape("destination", args.destination, "source", *args.source);
  if (args.source->data != nullptr && args.source->dtype != args.destination->dtype)
    fail(CHIPSET_STATUS_INVALID, "source is %s, but destination is %s",
         dtype_name(args.source->dtype), dtype_name(args.destination->dtype));
  detail::check_indices(args, "source", *args.source);
}

}  // namespace chipset::sdk
