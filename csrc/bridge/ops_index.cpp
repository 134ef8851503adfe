// SPDX-License-Identifier: Apache-2.0
// self[i, j, …] and self[i, j, …] = values: one gather or scatter of the waist.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/index_ops.h>
#include <torch/library.h>

#include "indexing.h"

namespace chipset::bridge {
namespace {

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

// Position p is (dimensions of self before, the shape the indices broadcast to, those after), or
// that shape first when a slice lies between two indices.
struct AdvancedIndex {
  at::DimVector sizes;           // shape of the positions
  at::DimVector strides;         // self restrided to it
  std::vector<at::Tensor> kept;  // owns what `dims` points to
  IndexedDims dims;
  bool fits = true;  // false: more dimensions or indices than the waist takes
};

// Masks become the positions of their non-zero elements; everything on self's device.
std::vector<at::Tensor> index_tensors(const at::Tensor& self, const OptionalTensors& given) {
  at::native::checkIndexTensorTypes(given, /*allow_int=*/true);
  TORCH_CHECK_INDEX(static_cast<int64_t>(given.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ", given.size(),
                    ")");
  for (const std::optional<at::Tensor>& index : given) {
    TORCH_CHECK(!index.has_value() || !index->defined() || index->is_cpu() ||
                    index->device() == self.device(),
                "indices should be either on cpu or on the same device as the indexed tensor (",
                self.device(), ")");
  }
  return at::native::expandTensors(self, given, /*ensure_same_device=*/true);
}

AdvancedIndex advanced_index(const at::Tensor& self, std::vector<at::Tensor> indices) {
  TORCH_CHECK_INDEX(static_cast<int64_t>(indices.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ",
                    indices.size(), ")");
  indices.resize(self.dim());
  AdvancedIndex out;
  at::DimVector shape;
  for (const at::Tensor& index : indices) {
    if (!index.defined()) continue;
    shape = out.kept.empty() ? at::DimVector(index.sizes()) : [&] {
      try {
        return at::infer_size_dimvector(shape, index.sizes());
      } catch (const c10::Error&) {
        TORCH_CHECK_INDEX(false,
                          "shape mismatch: indexing tensors could not "
                          "be broadcast together with shapes ",
                          at::IntArrayRef(shape), ", ", index.sizes());
      }
    }();
    out.kept.push_back(index);
  }
  const bool adjacent = at::native::hasContiguousSubspace(indices);
  bool placed = false;
  size_t first = 0;  // where the broadcast shape begins among the positions' dimensions
  const auto place_indices = [&] {
    first = out.sizes.size();
    out.sizes.append(shape.begin(), shape.end());
    out.strides.append(shape.size(), 0);
    placed = true;
  };
  if (!adjacent) place_indices();
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!indices[d].defined()) {
      out.sizes.push_back(self.size(d));
      out.strides.push_back(self.stride(d));
    } else if (!placed) {
      place_indices();
    }
  }
  out.fits = out.sizes.size() <= CHIPSET_MAX_RANK && out.kept.size() <= CHIPSET_MAX_INDICES;
  if (!out.fits) return out;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!indices[d].defined()) continue;
    const at::Tensor index = indices[d].expand(shape);
    at::DimVector strides(out.sizes.size(), 0);
    for (size_t i = 0; i < shape.size(); ++i) strides[first + i] = index.stride(i);
    out.dims.push_back({restrided(index, out.sizes, strides), self.size(d), self.stride(d), d});
  }
  return out;
}

at::Tensor index(const at::Tensor& self, const OptionalTensors& indices) {
  const AdvancedIndex where = advanced_index(self, index_tensors(self, indices));
  if (!where.fits) return host<at::_ops::index_Tensor>(self, indices);
  if (where.dims.empty()) return self.clone();
  at::Tensor out = empty(where.sizes, self.scalar_type(), self.get_device());
  if (gather(OutOfRange::kIndex, self.get_device(), view(out),
             restrided(self, where.sizes, where.strides), where.dims))
    return out;
  return host<at::_ops::index_Tensor>(self, indices);
}

at::Tensor& index_out(const at::Tensor& self, const OptionalTensors& indices, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "index(): expected out to have dtype ",
              self.scalar_type(), " but got ", out.scalar_type());
  const at::Tensor result = index(self, indices);
  return store(result, out);
}

// self[mask] = one number needs no positions: no number has to come back to the host.
bool put_masked(at::Tensor& self, const OptionalTensors& indices, const at::Tensor& values,
                bool accumulate) {
  if (accumulate || indices.size() != 1 || values.numel() != 1) return false;
  const std::optional<at::Tensor> mask = indices.get(0);
  if (!mask.has_value() || !mask->defined() || mask->scalar_type() != at::kBool) return false;
  if (mask->dim() > self.dim() || mask->device() != self.device()) return false;
  for (int64_t d = 0; d < mask->dim(); ++d)
    if (mask->size(d) != self.size(d)) at::native::invalid_mask(self, d, *mask, d);
  at::Tensor aligned = *mask;
  while (aligned.dim() < self.dim()) aligned = aligned.unsqueeze(-1);
  self.masked_fill_(aligned, values.dim() == 0 ? values : values.reshape({}));
  return true;
}

at::Tensor& index_put_impl_(at::Tensor& self, const OptionalTensors& indices,
                            const at::Tensor& values, bool accumulate, bool unsafe) {
  TORCH_CHECK_INDEX(self.scalar_type() == values.scalar_type(),
                    "Index put requires the source and destination dtypes match, got ",
                    self.scalar_type(), " for the destination and ", values.scalar_type(),
                    " for the source.");
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes)
    TORCH_WARN(
        "Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor "
        "before performing this operation. This also applies to advanced indexing e.g. "
        "tensor[indices] = tensor");
  if (put_masked(self, indices, values, accumulate)) return self;
  const AdvancedIndex where = advanced_index(self, index_tensors(self, indices));
  if (!where.fits)
    return host<at::_ops::_index_put_impl_>(self, indices, values, accumulate, unsafe);
  // One number may come from the host, as it may in arithmetic.
  if (values.dim() > 0 || !values.is_cpu()) same_device("index_put", self, values);
  at::Tensor source = values.device() == self.device() ? values : values.to(self.device());
  TORCH_CHECK(at::is_expandable_to(source.sizes(), where.sizes), "shape mismatch: value tensor ",
              "of shape ", source.sizes(), " cannot be broadcast to indexing result of shape ",
              at::IntArrayRef(where.sizes));
  if (where.dims.empty()) {
    if (accumulate) return self.add_(source);
    self.copy_(source);
    return self;
  }
  if (at::get_overlap_status(self, source) != at::MemOverlapStatus::No) source = source.clone();
  source = source.expand(where.sizes);
  if (scatter(OutOfRange::kIndex, self.get_device(),
              accumulate ? CHIPSET_SCATTER_OP_ADD : CHIPSET_SCATTER_OP_SET,
              restrided(self, where.sizes, where.strides), view(source), {}, where.dims))
    return self;
  return host<at::_ops::_index_put_impl_>(self, indices, values, accumulate, unsafe);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index.Tensor", index);
  m.impl("index.Tensor_out", index_out);
  m.impl("_index_put_impl_", index_put_impl_);
}

}  // namespace chipset::bridge
