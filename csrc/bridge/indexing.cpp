// SPDX-License-Identifier: Apache-2.0
#include "indexing.h"

#include <ATen/TensorOptions.h>
#include <ATen/ops/from_blob.h>

#include <optional>

namespace chipset::bridge {
namespace {

// The first element in row-major order that lies outside its dimension.
std::optional<int64_t> first_outside(const IndexedDim& along, int device) {
  at::DimVector shape, strides;
  for (int d = 0; d < along.index.rank; ++d) {  // what is broadcast is read once
    const bool repeats = along.index.stride[d] == 0 && along.index.shape[d] > 1;
    shape.push_back(repeats ? 1 : along.index.shape[d]);
    strides.push_back(along.index.stride[d]);
  }
  const auto type = along.index.dtype == CHIPSET_DTYPE_I32 ? at::kInt : at::kLong;
  const at::Tensor index =
      at::from_blob(along.index.data, shape, strides, nullptr,
                    at::TensorOptions().device(chip(device)).dtype(type), chip(device))
          .to(at::kCPU, at::kLong)
          .contiguous();
  const int64_t* element = index.const_data_ptr<int64_t>();
  for (int64_t k = 0; k < index.numel(); ++k)
    if (element[k] < -along.size || element[k] >= along.size) return element[k];
  return std::nullopt;
}

[[noreturn]] void raise_outside(OutOfRange words, int64_t index, const IndexedDim& along) {
  const std::string text = c10::str("index ", index, " is out of bounds for dimension ", along.dim,
                                    " with size ", along.size);
  switch (words) {
    case OutOfRange::kAlong:
      TORCH_CHECK(false, text);
    case OutOfRange::kCopy:
      TORCH_CHECK_INDEX(false, "index_copy_(): ", text);
    case OutOfRange::kSelect:
      TORCH_CHECK_INDEX(false, "index out of range in self\n", text);
    case OutOfRange::kTake:
      TORCH_CHECK_INDEX(false, "out of range: tried to access index ", index, " on a tensor of ",
                        along.size, " elements.");
    default:
      TORCH_CHECK_INDEX(false, text);
  }
}

}  // namespace

void raise_out_of_range(OutOfRange words, int device, c10::ArrayRef<IndexedDim> dims) {
  for (const IndexedDim& along : dims)
    if (const auto index = first_outside(along, device)) raise_outside(words, *index, along);
  throw;  // an index that earlier work found: the waist's words
}

}  // namespace chipset::bridge
