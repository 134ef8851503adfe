// SPDX-License-Identifier: Apache-2.0
// The waist's gather and scatter for the kernels that index. A *restrided* tensor is seen in the
// shape of the positions p, with stride 0 along each dimension that an index replaces; the index
// contributes index[p] * stride on top (see gather_args in the interface).
#pragma once

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "waist.h"

namespace chipset::bridge {

// A view in another shape of the tensor's memory; strides in elements.
inline chipset_tensor restrided(const at::TensorBase& tensor, at::IntArrayRef shape,
                                at::IntArrayRef strides) {
  chipset_tensor out;
  out.struct_size = sizeof(chipset_tensor);
  out.dtype = any_dtype(tensor.scalar_type());
  out.rank = static_cast<int32_t>(shape.size());
  out.flags = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    out.shape[d] = shape[d];
    out.stride[d] = strides[d];
  }
  out.data = const_cast<void*>(tensor.const_data_ptr());
  return out;
}

// The tensor in the given shape with stride 0 along `dim`: what an index along `dim` wants.
inline chipset_tensor restrided_along(const at::TensorBase& tensor, int64_t dim,
                                      at::IntArrayRef shape) {
  at::DimVector strides(tensor.strides());
  strides.resize(shape.size(), 0);  // a scalar is a vector of one
  strides[dim] = 0;
  return restrided(tensor, shape, strides);
}

struct IndexedDim {
  chipset_tensor index;  // I64 or I32 in the shape of the positions
  int64_t size;
  int64_t stride;
  int64_t dim;  // of the indexed tensor, for messages
};
using IndexedDims = c10::SmallVector<IndexedDim, CHIPSET_MAX_INDICES>;

// Whose words and exception an index outside its dimension is reported in: torch's operators
// differ.
enum class OutOfRange {
  kIndex,   // index, index_put, index_fill: IndexError
  kAlong,   // gather, scatter, index_add: RuntimeError
  kCopy,    // index_copy: IndexError
  kSelect,  // index_select, and with it embedding; index_reduce
  kTake,    // take, put: IndexError
};
// To be called while the waist's IndexError is handled: throws torch's error in its place.
[[noreturn]] void raise_out_of_range(OutOfRange words, int device, c10::ArrayRef<IndexedDim> dims);

// A call of gather or scatter. A chip that finds the bad index only later (ERR-003) has no operator
// to name, and its own words stand.
template <auto Function, typename Arguments>
inline bool call_indexed(OutOfRange words, int device, const Arguments& args,
                         c10::ArrayRef<IndexedDim> dims) {
  try {
    return call<Function>(device, args);
  } catch (const c10::IndexError&) {
    raise_out_of_range(words, device, dims);
  }
}

// output[p] = input[p + indices]. The input gets the output's dtype name (bits are moved).
inline bool gather(OutOfRange words, int device, const chipset_tensor& output, chipset_tensor input,
                   c10::ArrayRef<IndexedDim> dims) {
  auto args = arguments<chipset_gather_args>();
  args.num_indices = static_cast<int32_t>(dims.size());
  args.output = &output;
  args.input = &input;
  for (size_t k = 0; k < dims.size(); ++k) {
    args.index[k] = &dims[k].index;
    args.indexed_size[k] = dims[k].size;
    args.indexed_stride[k] = dims[k].stride;
  }
  return call_indexed<&chipset_api::gather>(words, device, args, dims);
}

// destination[p + indices] op= source[p].
inline bool scatter(OutOfRange words, int device, int32_t op, const chipset_tensor& destination,
                    const chipset_tensor& source, chipset_scalar value,
                    c10::ArrayRef<IndexedDim> dims) {
  auto args = arguments<chipset_scatter_args>();
  args.op = op;
  args.num_indices = static_cast<int32_t>(dims.size());
  args.destination = &destination;
  args.source = &source;
  args.value = value;
  for (size_t k = 0; k < dims.size(); ++k) {
    args.index[k] = &dims[k].index;
    args.indexed_size[k] = dims[k].size;
    args.indexed_stride[k] = dims[k].stride;
  }
  return call_indexed<&chipset_api::scatter>(words, device, args, dims);
}

inline int64_t size_along(const at::TensorBase& t, int64_t dim) {
  return t.dim() == 0 ? 1 : t.size(dim);
}
inline int64_t stride_along(const at::TensorBase& t, int64_t dim) {
  return t.dim() == 0 ? 1 : t.stride(dim);
}

}  // namespace chipset::bridge
