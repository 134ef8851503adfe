// SPDX-License-Identifier: Apache-2.0
#include "reduce.h"

#include <ATen/WrapDimUtils.h>
#include <c10/util/Exception.h>

namespace chipset::bridge {
namespace {

// The output seen with the input's rank: size 1 where a dimension is reduced.
chipset_tensor view_kept(const at::Tensor& output, const at::Tensor& input, uint32_t dims) {
  chipset_tensor out;
  out.struct_size = sizeof(chipset_tensor);
  out.dtype = compute_dtype(output.scalar_type());
  out.rank = static_cast<int32_t>(input.dim());
  out.flags = 0;
  out.data = const_cast<void*>(output.const_data_ptr());
  const bool kept = output.dim() == input.dim();
  int64_t next = 0;
  for (int32_t d = 0; d < out.rank; ++d) {
    const bool reduced = (dims >> d & 1u) != 0;
    const int64_t source = kept ? d : next;
    out.shape[d] = reduced ? 1 : input.size(d);
    out.stride[d] = reduced ? 1 : output.stride(source);
    if (!reduced || kept) ++next;
  }
  return out;
}

}  // namespace

uint32_t dim_mask(const at::Tensor& input, at::OptionalIntArrayRef dims) {
  const int64_t rank = input.dim();
  const auto all = static_cast<uint32_t>((uint64_t{1} << rank) - 1);
  if (!dims.has_value() || dims->empty()) return all;
  uint32_t mask = 0;
  for (const int64_t dim : *dims) {
    const uint32_t bit = 1u << at::maybe_wrap_dim(dim, rank);
    TORCH_CHECK((mask & bit) == 0, "dim ", at::maybe_wrap_dim(dim, rank),
                " appears multiple times in the list of dims");
    mask |= bit;
  }
  return rank == 0 ? 0 : mask;
}

at::DimVector reduced_sizes(const at::Tensor& input, uint32_t dims, bool keep) {
  at::DimVector sizes;
  for (int64_t d = 0; d < input.dim(); ++d) {
    const bool reduced = (dims >> d & 1u) != 0;
    if (!reduced) sizes.push_back(input.size(d));
    if (reduced && keep) sizes.push_back(1);
  }
  return sizes;
}

bool reduce(const Reduction& what, const at::Tensor& input, uint32_t dims,
            const at::Tensor& output) {
  if (!fits(input) || !computes(input) || !computes(output) || compute_dtype(what.compute) < 0)
    return false;
  same_device("reduce", input, output);
  if (output.numel() == 0) return true;
  auto args = arguments<chipset_reduce_args>();
  args.op = what.op;
  args.compute_dtype = compute_dtype(what.compute);
  args.dims = dims;
  args.param[0] = scalar(what.param);
  const chipset_tensor in = view(input);
  const chipset_tensor out = view_kept(output, input, dims);
  args.input = &in;
  args.output = &out;
  chipset_tensor second;
  if (what.second != nullptr) {
    second = view_kept(*what.second, input, dims);
    args.indices = &second;
  }
  return call<&chipset_api::reduce>(input.device().index(), args);
}

}  // namespace chipset::bridge
